// SPDX-License-Identifier: GPL-3.0-or-later
//! Saved parameters by path: one set each, for a limited time, for one connection at a time.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Name and version of the file.
pub const SCHEMA: &str = "satlab/resume-state/1";
/// Age from which a set is not used, s: a satellite access changes with the weather (RFC 9959
/// section 4.2.3).
pub const LIFETIME_S: f64 = 600.0;
/// Most paths that are kept; the oldest set is removed.
pub const MAX_PATHS: usize = 1024;
/// Windows that may be saved, bytes: two packets to 4 GiB.
const WINDOWS: std::ops::RangeInclusive<u64> = 2400..=1 << 32;
/// Round-trip times that may be saved, ms.
const RTTS_MS: std::ops::RangeInclusive<f64> = 0.001..=60_000.0;

/// A path: own address and the peer's. Ports do not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathKey {
    /// Own address, which stands for the interface.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
}

/// What a path carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Bytes acknowledged in a smallest round-trip time.
    pub cwnd_bytes: u64,
    /// Smallest round-trip time.
    pub rtt: Duration,
}

/// A set: it is in the store or at one connection, never both.
#[derive(Debug, PartialEq)]
pub struct Saved {
    /// What was saved.
    pub parameters: Parameters,
    /// When, Unix time, s.
    at_s: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    schema: String,
    paths: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    local: IpAddr,
    remote: IpAddr,
    cwnd_bytes: u64,
    rtt_ms: f64,
    saved_unix_s: f64,
}

impl Line {
    fn faults(&self) -> impl Iterator<Item = String> {
        let rules = [
            (
                WINDOWS.contains(&self.cwnd_bytes),
                format!("cwnd_bytes: {} to {}", WINDOWS.start(), WINDOWS.end()),
            ),
            (
                RTTS_MS.contains(&self.rtt_ms),
                format!("rtt_ms: {} to {}", RTTS_MS.start(), RTTS_MS.end()),
            ),
            (
                (0.0..=1e11).contains(&self.saved_unix_s),
                "saved_unix_s: 0 to 1e11".into(),
            ),
        ];
        rules
            .into_iter()
            .filter_map(|(holds, fault)| (!holds).then_some(fault))
    }
}

/// The sets that no connection uses.
#[derive(Debug, Default)]
pub struct Store {
    sets: BTreeMap<PathKey, Saved>,
}

impl Store {
    /// Reads the text of a file; an empty one has no set.
    ///
    /// # Errors
    /// All faults of the text, one per line: nothing of a wrong file is used.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut faults = Vec::new();
        if document.schema != SCHEMA {
            faults.push(format!("schema: must be {SCHEMA}"));
        }
        if document.paths.len() > MAX_PATHS {
            faults.push(format!("paths: at most {MAX_PATHS}"));
        }
        let mut store = Self::default();
        for (index, line) in document.paths.iter().enumerate() {
            faults.extend(line.faults().map(|fault| format!("paths[{index}].{fault}")));
            let key = PathKey {
                local: line.local,
                remote: line.remote,
            };
            let rtt = Duration::try_from_secs_f64(line.rtt_ms / 1e3).unwrap_or_default();
            match store.sets.entry(key) {
                Entry::Occupied(_) => faults.push(format!("paths[{index}]: the path occurs twice")),
                Entry::Vacant(place) => {
                    place.insert(Saved {
                        parameters: Parameters {
                            cwnd_bytes: line.cwnd_bytes,
                            rtt,
                        },
                        at_s: line.saved_unix_s,
                    });
                }
            }
        }
        if faults.is_empty() {
            Ok(store)
        } else {
            Err(faults.join("\n"))
        }
    }

    /// The text of a file: the sets that no connection uses.
    #[must_use]
    pub fn to_text(&self) -> String {
        let line = |(key, saved): (&PathKey, &Saved)| Line {
            local: key.local,
            remote: key.remote,
            cwnd_bytes: saved.parameters.cwnd_bytes,
            rtt_ms: saved.parameters.rtt.as_secs_f64() * 1e3,
            saved_unix_s: saved.at_s,
        };
        let document = Document {
            schema: SCHEMA.into(),
            paths: self.sets.iter().map(line).collect(),
        };
        // Plain structures of numbers and text always have a JSON form.
        serde_json::to_string(&document).unwrap_or_default() + "\n"
    }

    /// Takes the set of a path for a new connection. A set that is too old, or from a later time
    /// than `now_s` (Unix time), is deleted.
    pub fn take(&mut self, key: PathKey, now_s: f64) -> Option<Saved> {
        let saved = self.sets.remove(&key)?;
        (0.0..=LIFETIME_S)
            .contains(&(now_s - saved.at_s))
            .then_some(saved)
    }

    /// Keeps what a connection learned about a path until `now_s`; values out of range are not
    /// kept.
    pub fn learn(&mut self, key: PathKey, parameters: Parameters, now_s: f64) {
        let rtt_ms = parameters.rtt.as_secs_f64() * 1e3;
        if WINDOWS.contains(&parameters.cwnd_bytes) && RTTS_MS.contains(&rtt_ms) {
            let at_s = now_s;
            self.put_back(key, Saved { parameters, at_s });
        }
    }

    /// Returns the set of a connection that learned nothing new. A newer one stays.
    pub fn put_back(&mut self, key: PathKey, saved: Saved) {
        if self.sets.get(&key).is_some_and(|it| it.at_s > saved.at_s) {
            return;
        }
        self.sets.insert(key, saved);
        while self.sets.len() > MAX_PATHS {
            let ages = self.sets.iter().map(|(key, saved)| (*key, saved.at_s));
            let Some((oldest, _)) = ages.min_by(|a, b| a.1.total_cmp(&b.1)) else {
                return;
            };
            self.sets.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(last: u8) -> PathKey {
        PathKey {
            local: [198, 18, 4, 2].into(),
            remote: [198, 18, 1, last].into(),
        }
    }

    const LEARNED: Parameters = Parameters {
        cwnd_bytes: 4_000_000,
        rtt: Duration::from_millis(650),
    };

    fn store() -> Store {
        let mut store = Store::default();
        store.learn(key(2), LEARNED, 1000.0);
        store
    }

    #[test]
    // promise: P73
    fn a_set_is_used_by_one_connection_at_a_time() {
        let mut store = store();
        let saved = store.take(key(2), 1010.0).unwrap();
        assert_eq!(saved.parameters, LEARNED);
        assert_eq!(store.take(key(2), 1010.0), None);
        assert!(
            !store.to_text().contains("cwnd_bytes"),
            "in use: not in the file"
        );
        store.put_back(key(2), saved);
        // Its age counts from when it was learned.
        assert_eq!(store.take(key(2), 1000.0 + LIFETIME_S + 1.0), None);
    }

    #[test]
    // promise: P73
    fn other_paths_old_sets_and_sets_of_the_future_are_not_used() {
        assert_eq!(store().take(key(3), 1010.0), None);
        let turned = PathKey {
            local: key(2).remote,
            remote: key(2).local,
        };
        assert_eq!(store().take(turned, 1010.0), None);
        assert!(store().take(key(2), 1000.0 + LIFETIME_S).is_some());
        let mut old = store();
        assert_eq!(old.take(key(2), 1000.1 + LIFETIME_S), None);
        assert_eq!(old.take(key(2), 1000.0), None, "it was deleted");
        assert_eq!(store().take(key(2), 999.0), None);
    }

    #[test]
    fn a_file_comes_back() {
        let mut read = Store::parse(&store().to_text()).unwrap();
        assert_eq!(read.take(key(2), 1010.0).unwrap().parameters, LEARNED);
        assert!(Store::parse("").unwrap().sets.is_empty());
    }

    #[test]
    fn a_wrong_file_is_refused_whole_with_every_fault() {
        let text = store().to_text();
        for (old, new, fault) in [
            ("state/1", "state/2", "schema"),
            ("\"cwnd_bytes\":4000000", "\"cwnd_bytes\":1", "cwnd_bytes"),
            ("\"rtt_ms\":650.0", "\"rtt_ms\":0", "rtt_ms"),
            (
                "\"saved_unix_s\":1000.0",
                "\"saved_unix_s\":-1",
                "saved_unix_s",
            ),
            ("\"local\"", "\"size\":1,\"local\"", "size"),
            ("198.18.1.2", "somewhere", "IP address"),
        ] {
            assert!(text.contains(old), "{old} is not in {text}");
            let fault_text = Store::parse(&text.replace(old, new)).unwrap_err();
            assert!(fault_text.contains(fault), "{fault_text}");
        }
        let twice = text
            .replace("}]", "},")
            .trim_end()
            .trim_end_matches('}')
            .to_owned();
        let twice = twice + text.split('[').nth(1).unwrap().trim_end();
        assert!(
            Store::parse(&twice).unwrap_err().contains("twice"),
            "{twice}"
        );
        assert!(
            Store::parse(&text[..text.len() / 2]).is_err(),
            "half a file"
        );
    }

    #[test]
    fn the_oldest_path_is_replaced() {
        let mut store = Store::default();
        for number in 0..=MAX_PATHS {
            let [.., high, low] = number.to_be_bytes();
            let remote = [10, 0, high, low].into();
            let local = [10, 1, 0, 1].into();
            store.learn(PathKey { local, remote }, LEARNED, number as f64);
        }
        assert_eq!(store.sets.len(), MAX_PATHS);
        assert!(store.sets.values().all(|saved| saved.at_s > 0.0));
    }
}
