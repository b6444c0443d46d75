// SPDX-License-Identifier: GPL-3.0-or-later
//! `transfer.json` (schemas/virtual-transfer.schema.json). Errors list every fault; unknown fields
//! are refused.

use std::collections::BTreeMap;
use std::path::PathBuf;

use quic::LegOptions;
pub use satperf::record::Direction;
use satperf::record::Request;
use satperf::streams::{MAX_SOURCE_MBPS, is_source_rate};
use serde::{Deserialize, Serialize};

use crate::stacks::Library;
use crate::tunnel::TunnelOptions;

/// The version of the file this release reads.
pub const SCHEMA: &str = "satlab/virtual-transfer/1";
/// Most bytes of one transfer.
const MAX_BYTES: u64 = 10_000_000_000;
/// Longest virtual time of one transfer, s.
const MAX_TIMEOUT_S: f64 = 100_000.0;

/// Transfers of the same size over connections of their own, one after another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Name and version of the schema.
    pub schema: String,
    /// Seed of connection ids and of the stack's other random choices.
    pub seed: u64,
    /// Direction of the payload.
    pub direction: Direction,
    /// Payload, bytes.
    pub bytes: u64,
    /// Amounts whose arrival is timed, bytes, rising.
    pub marks_bytes: Vec<u64>,
    /// Payload streams.
    pub streams: u32,
    /// Rate at which the sender's application generates payload, Mbit/s; `None`: all is there at
    /// once.
    #[serde(default)]
    pub source_mbps: Option<f64>,
    /// Virtual time of the first start, s: where in a frame a transfer starts is a matter of chance
    /// on air.
    pub start_s: f64,
    /// How many transfers.
    pub repeats: u32,
    /// Virtual time between the end of one and the start of the next, s.
    pub pause_s: f64,
    /// Later transfers resume the session and send their request as 0-RTT data.
    pub zero_rtt: bool,
    /// Virtual time after which a transfer is given up, s.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Program and arguments, not empty.
    pub argv: Vec<String>,
    /// All its variables.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// File for what it prints, replaced if it exists.
    pub log: PathBuf,
}

/// Programs that follow docs/virtual-interface.md.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
        let transfer: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let faults = transfer.faults();
        if faults.is_empty() {
            Ok(transfer)
        } else {
            Err(faults.join("\n"))
        }
    }

    fn faults(&self) -> Vec<String> {
        let marks = &self.marks_bytes;
        let rules = [
            (self.schema == SCHEMA, format!("schema: must be {SCHEMA}")),
            (
                (1..=MAX_BYTES).contains(&self.bytes),
                format!("bytes: 1 to {MAX_BYTES}"),
            ),
            (
                marks.is_sorted_by(|a, b| a < b)
                    && marks.iter().all(|mark| (1..=self.bytes).contains(mark)),
                "marks_bytes: rising, from 1 to bytes".into(),
            ),
            (
                (1..=100).contains(&self.streams),
                "streams: 1 to 100".into(),
            ),
            (
                (1..=100).contains(&self.repeats),
                "repeats: 1 to 100".into(),
            ),
            (
                self.source_mbps.is_none_or(is_source_rate),
                format!("source_mbps: above 0, to {MAX_SOURCE_MBPS}"),
            ),
            (
                (0.0..=MAX_TIMEOUT_S).contains(&self.start_s),
                format!("start_s: 0 to {MAX_TIMEOUT_S}"),
            ),
            (
                (0.0..=MAX_TIMEOUT_S).contains(&self.pause_s),
                format!("pause_s: 0 to {MAX_TIMEOUT_S}"),
            ),
            (
                self.timeout_s > 0.0 && self.timeout_s <= MAX_TIMEOUT_S,
                format!("timeout_s: above 0, to {MAX_TIMEOUT_S}"),
            ),
            (
                !self.neighbour || (self.programs.is_none() && self.fec.is_none()),
                "neighbour: goes with neither programs nor fec".into(),
            ),
        ];
        let legs = [("client", &self.client), ("server", &self.server)]
            .into_iter()
            .filter_map(|(end, leg)| {
                let faults = self.stack.refuses(leg)?;
                Some(format!("{end}: {faults}"))
            });
        let fec = self.fec.as_ref().and_then(|it| it.protection().err());
        let programs = self.programs.as_ref().and_then(|it| self.refuses(it));
        rules
            .into_iter()
            .filter_map(|(holds, fault)| (!holds).then_some(fault))
            .chain(legs)
            .chain(fec.map(|fault| format!("fec: {fault}")))
            .chain(programs.map(|fault| format!("programs: {fault}")))
            .collect()
    }

    /// What programs cannot do, if it is asked for.
    fn refuses(&self, programs: &Programs) -> Option<&'static str> {
        let is_plain = [&self.client, &self.server].map(|leg| *leg == LegOptions::default());
        if programs.both().iter().any(|it| it.argv.is_empty()) {
            Some("argv is empty")
        } else if is_plain != [true, true] || self.fec.is_some() || self.source_mbps.is_some() {
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
    fn a_file_comes_back() {
        let text = serde_json::to_string(&download()).unwrap();
        assert_eq!(Transfer::parse(&text), Ok(download()));
    }

    #[test]
    fn every_fault_is_reported_at_once() {
        let mut bad = download();
        (bad.bytes, bad.streams, bad.timeout_s) = (0, 0, -1.0);
        bad.client.initial_window = 0;
        let (code, hold_ms) = ("5".into(), 0);
        bad.fec = Some(TunnelOptions { code, hold_ms });
        bad.server.congestion_control = quic::CongestionControl::Bbr;
        bad.neighbour = true;
        let text = serde_json::to_string(&bad).unwrap();
        let faults = Transfer::parse(&text).unwrap_err();
        let starts: Vec<_> = faults
            .lines()
            .map(|line| line.split(':').next().unwrap().to_owned())
            .collect();
        for name in [
            "bytes",
            "marks_bytes",
            "streams",
            "timeout_s",
            "client",
            "server",
            "fec",
            "neighbour",
        ] {
            assert!(starts.iter().any(|start| start == name), "{name}: {faults}");
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        let text = serde_json::to_string(&download()).unwrap();
        let text = text.replacen('{', "{\"speed\": 1,", 1);
        assert!(Transfer::parse(&text).unwrap_err().contains("speed"));
    }
}
