// SPDX-License-Identifier: GPL-3.0-or-later
//! Phase Observe (RFC 9959 section 3.1): what a path carries in a round trip.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::store::Parameters;

/// Round trips that count: the largest of the last ones.
const ROUNDS: usize = 4;
/// A path that carries less than this many initial windows is not worth saving.
const INITIAL_WINDOWS: u64 = 4;

/// Counts the bytes acknowledged per smallest round-trip time. What stands in queues makes round
/// trips longer, so it is not counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observer {
    min_rtt: Option<Duration>,
    began: Option<Instant>,
    acked: u64,
    rounds: VecDeque<u64>,
}

impl Observer {
    /// `bytes` that were sent at `sent` are acknowledged.
    pub fn acked(&mut self, now: Instant, sent: Instant, bytes: u64) {
        let rtt = now.saturating_duration_since(sent);
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
        self.began.get_or_insert(now);
        self.acked += bytes;
    }

    /// All acknowledgements of a packet are counted. A round trip in which the sender had nothing
    /// to send counts only if it shows more than the others.
    pub fn end_acks(&mut self, now: Instant, app_limited: bool) {
        let (Some(rtt), Some(began)) = (self.min_rtt, self.began) else {
            return;
        };
        let elapsed = now.saturating_duration_since(began);
        if rtt.is_zero() || elapsed < rtt {
            return;
        }
        let bytes = (self.acked as f64 * rtt.as_secs_f64() / elapsed.as_secs_f64()) as u64;
        if !app_limited || bytes > self.largest() {
            self.rounds.push_back(bytes);
            if self.rounds.len() > ROUNDS {
                self.rounds.pop_front();
            }
        }
        (self.began, self.acked) = (Some(now), 0);
    }

    /// Smallest round-trip time, acknowledgement delays included.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// What can be saved; `None` if it is too little.
    pub fn parameters(&self, initial_window: u64) -> Option<Parameters> {
        let cwnd_bytes = self.largest();
        (cwnd_bytes >= INITIAL_WINDOWS * initial_window).then_some(())?;
        let rtt = self.min_rtt?;
        Some(Parameters { cwnd_bytes, rtt })
    }

    fn largest(&self) -> u64 {
        self.rounds.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Acknowledges 1000 bytes every `gap` ms for `ms`; each round-trip time is `rtt` ms.
    fn acks(observer: &mut Observer, start: Instant, ms: u32, gap: u32, rtt: u32, limited: bool) {
        for at in (0..=ms).step_by(gap as usize) {
            let now = start + MS * at;
            observer.acked(now, now.checked_sub(MS * rtt).unwrap(), 1000);
            observer.end_acks(now, limited);
        }
    }

    #[test]
    fn a_queue_does_not_count_as_capacity() {
        let start = Instant::now() + 1000 * MS;
        let mut observer = Observer::default();
        acks(&mut observer, start, 100, 1, 100, false);
        acks(&mut observer, start + 100 * MS, 900, 1, 200, false);
        let found = observer.parameters(10_000).unwrap();
        assert_eq!(found.rtt, 100 * MS);
        // 1000 bytes per ms and a smallest round trip of 100 ms.
        assert!((99_000..=102_000).contains(&found.cwnd_bytes), "{found:?}");
    }

    #[test]
    fn a_slow_application_does_not_hide_what_the_path_carries() {
        let start = Instant::now() + 1000 * MS;
        let mut observer = Observer::default();
        acks(&mut observer, start, 400, 1, 100, false);
        let before = observer.parameters(10_000).unwrap();
        acks(&mut observer, start + 400 * MS, 3000, 50, 100, true);
        assert_eq!(observer.parameters(10_000), Some(before));
    }

    #[test]
    fn a_slower_path_replaces_what_was_observed() {
        let start = Instant::now() + 1000 * MS;
        let mut observer = Observer::default();
        acks(&mut observer, start, 400, 1, 100, false);
        acks(&mut observer, start + 401 * MS, 1000, 2, 100, false);
        let found = observer.parameters(10_000).unwrap();
        assert!((49_000..=52_000).contains(&found.cwnd_bytes), "{found:?}");
    }

    #[test]
    fn too_little_is_not_saved() {
        let start = Instant::now() + 1000 * MS;
        let mut observer = Observer::default();
        acks(&mut observer, start, 400, 10, 100, false);
        assert_eq!(observer.parameters(10_000), None);
    }
}
