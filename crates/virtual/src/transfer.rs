// SPDX-License-Identifier: GPL-3.0-or-later
//! `transfer.json` (schemas/virtual-transfer.schema.json). Errors list every fault; unknown fields
//! are refused.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use quic::LegOptions;
pub use satperf::record::Direction;
use satperf::record::Request;
use satperf::streams::MAX_SOURCE_MBPS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::stacks::Library;
use crate::tunnel::TunnelOptions;

/// The version of the file this release reads.
pub const SCHEMA: &str = "satlab/virtual-transfer/1";

static DOCUMENT: LazyLock<Value> = LazyLock::new(schema);

/// The schema of the file.
fn schema() -> Value {
    let title = "What satvirtual sends: transfers of the same size over connections of their own, one after another";
    schema::read::<Transfer>("virtual-transfer", title)
}

/// Transfers of the same size over connections of their own, one after another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Name and version of the schema.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Seed of connection ids and of the stack's other random choices.
    pub seed: u64,
    /// Direction of the payload.
    pub direction: Direction,
    /// Payload, bytes.
    #[schemars(range(min = 1, max = 10_000_000_000_u64))]
    pub bytes: u64,
    /// Amounts whose arrival is timed, bytes, rising, at most `bytes`.
    #[schemars(inner(range(min = 1)))]
    pub marks_bytes: Vec<u64>,
    /// Payload streams.
    #[schemars(range(min = 1, max = 100))]
    pub streams: u32,
    /// Rate at which the sender's application generates payload, Mbit/s; null or left out: all is
    /// there at once.
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = MAX_SOURCE_MBPS))]
    pub source_mbps: Option<f64>,
    /// Virtual time of the first start, s: where in a frame a transfer starts is a matter of chance
    /// on air.
    #[schemars(range(min = 0, max = 100_000))]
    pub start_s: f64,
    /// How many transfers.
    #[schemars(range(min = 1, max = 100))]
    pub repeats: u32,
    /// Virtual time between the end of one and the start of the next, s.
    #[schemars(range(min = 0, max = 100_000))]
    pub pause_s: f64,
    /// Later transfers resume the session and send their request as 0-RTT data.
    pub zero_rtt: bool,
    /// Virtual time after which a transfer is given up, s.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 100_000))]
    pub timeout_s: f64,
    /// QUIC library of both ends.
    #[serde(default)]
    pub stack: Library,
    /// The client's end.
    pub client: LegOptions,
    /// The server's end.
    pub server: LegOptions,
    /// Programs as both ends, in place of a library; they have no options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<Programs>,
    /// A tunnel that repairs losses between both ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fec: Option<TunnelOptions>,
    /// A second client behind the same address downloads or uploads as much, beginning together
    /// with the last transfer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub neighbour: bool,
}

/// A command line. Relative paths are relative to the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Program and arguments, not empty.
    #[schemars(length(min = 1))]
    pub argv: Vec<String>,
    /// All its variables.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// File for what it prints, replaced if it exists.
    pub log: PathBuf,
}

/// Programs that follow docs/virtual-interface.md.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Programs {
    /// The client's end.
    pub client: Program,
    /// The server's end.
    pub server: Program,
}

impl Programs {
    /// Both: client, server.
    #[must_use]
    pub fn both(&self) -> [&Program; 2] {
        [&self.client, &self.server]
    }
}

impl Transfer {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// All faults of the text, one per line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut faults = schema::check(&DOCUMENT, "", &value, &[]);
        if !faults.is_empty() {
            return Err(faults.join("\n"));
        }
        let transfer: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        faults.extend(transfer.faults());
        if faults.is_empty() {
            Ok(transfer)
        } else {
            Err(faults.join("\n"))
        }
    }

    fn faults(&self) -> Vec<String> {
        let marks = &self.marks_bytes;
        let mut faults = Vec::new();
        if !marks.is_sorted_by(|a, b| a < b) || marks.iter().any(|mark| *mark > self.bytes) {
            faults.push("marks_bytes: not rising, or above bytes (sort them)".into());
        }
        if self.neighbour && (self.programs.is_some() || self.fec.is_some()) {
            faults.push("neighbour: goes with neither programs nor fec (remove it)".into());
        }
        let legs = [("client", &self.client), ("server", &self.server)]
            .into_iter()
            .filter_map(|(end, leg)| {
                let faults = self.stack.refuses(leg)?;
                Some(format!("{end}: {faults}"))
            });
        let fec = self.fec.as_ref().and_then(|it| it.protection().err());
        let programs = self.programs.as_ref().and_then(|_| self.refuses_programs());
        faults.extend(legs);
        faults.extend(fec.map(|fault| format!("fec: {fault}")));
        faults.extend(programs.map(|fault| format!("programs: {fault}")));
        faults
    }

    /// What programs cannot do, if it is asked for.
    fn refuses_programs(&self) -> Option<&'static str> {
        let is_plain = [&self.client, &self.server].map(|leg| *leg == LegOptions::default());
        if is_plain != [true, true] || self.fec.is_some() || self.source_mbps.is_some() {
            Some("options of client and server, fec and source_mbps are of libraries")
        } else {
            (self.streams != 1).then_some("streams: 1")
        }
    }

    /// The request of satperf's client.
    #[must_use]
    pub fn request(&self) -> Request {
        Request {
            direction: self.direction,
            bytes: Some(self.bytes),
            duration_ms: None,
            streams: self.streams,
            source_mbps: self.source_mbps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 kB down, once, with the defaults of both ends.
    fn download() -> Transfer {
        Transfer {
            schema: SCHEMA.into(),
            seed: 1,
            direction: Direction::Download,
            bytes: 100_000,
            marks_bytes: vec![50_000, 100_000],
            streams: 1,
            source_mbps: None,
            start_s: 0.0,
            repeats: 1,
            pause_s: 0.0,
            zero_rtt: false,
            timeout_s: 60.0,
            stack: Library::Quinn,
            client: LegOptions::default(),
            server: LegOptions::default(),
            programs: None,
            fec: None,
            neighbour: false,
        }
    }

    #[test]
    fn schema_file_is_that_of_the_types() {
        schema::compare_with_file(&super::schema());
    }

    #[test]
    fn a_file_comes_back() {
        let text = serde_json::to_string(&download()).unwrap();
        assert_eq!(Transfer::parse(&text), Ok(download()));
    }

    #[test]
    fn every_fault_is_reported_at_once() {
        let faults = |bad: &Transfer| {
            let text = serde_json::to_string(bad).unwrap();
            let faults = Transfer::parse(&text).unwrap_err();
            let places = faults
                .lines()
                .map(|it| it.split(':').next().unwrap().to_owned());
            places.collect::<Vec<_>>()
        };
        let mut bad = download();
        (bad.bytes, bad.streams, bad.timeout_s) = (0, 0, -1.0);
        bad.client.initial_window = 0;
        assert_eq!(
            faults(&bad),
            ["bytes", "client.initial_window", "streams", "timeout_s"]
        );
        let mut bad = download();
        bad.marks_bytes = vec![2, 1];
        let (code, hold_ms) = ("5".into(), 0);
        bad.fec = Some(TunnelOptions { code, hold_ms });
        bad.server.congestion_control = quic::CongestionControl::Bbr;
        bad.neighbour = true;
        assert_eq!(faults(&bad), ["marks_bytes", "neighbour", "server", "fec"]);
    }

    #[test]
    fn unknown_fields_are_refused() {
        let text = serde_json::to_string(&download()).unwrap();
        let text = text.replacen('{', "{\"speed\": 1,", 1);
        assert!(Transfer::parse(&text).unwrap_err().contains("speed"));
    }
}
