// SPDX-License-Identifier: GPL-3.0-or-later
//! Options of one leg, on command lines and in configuration files.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Datagram size before the path's MTU is known, bytes (RFC 9000 section 14.1); the unit of initial
/// windows.
pub const INITIAL_DATAGRAM: u32 = 1200;

/// Congestion control algorithm.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum CongestionControl {
    /// `NewReno`, RFC 9002 section 7
    Reno,
    /// `NewReno` as in quicly: a loss takes the window to 0.7 of its size, not to 0.5; not with
    /// quiche
    #[serde(rename = "reno-quicly")]
    RenoQuicly,
    /// CUBIC, RFC 9438
    Cubic,
    /// `BBRv2`, draft-cardwell-iccrg-bbr-congestion-control-02; quiche alone has a sound one
    Bbr,
    /// `BBRv3`, draft-ietf-ccwg-bbr-06; noq alone
    Bbr3,
}

impl CongestionControl {
    /// `kLossReductionFactor` of `NewReno` (RFC 9002 appendix B.1); quicly's is `QUICLY_RENO_BETA`.
    pub(crate) fn loss_reduction_factor(self) -> f32 {
        if self == Self::RenoQuicly { 0.7 } else { 0.5 }
    }

    /// The name in options and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::RenoQuicly => "reno-quicly",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Bbr3 => "bbr3",
        }
    }
}

/// Careful Resume: what a sender does with what an earlier connection learned about the path.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum CarefulResume {
    /// Nothing is kept
    #[default]
    Off,
    /// RFC 9959: a jump to half of the saved window, taken back at the first sign of congestion
    On,
    /// The whole saved window at once: a bad example, for comparisons
    Unvalidated,
}

/// How a sender ends slow start.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum SlowStart {
    /// As the stack does: quinn and noq with the first loss, quiche also when the delay rises
    /// (RFC 9406)
    #[default]
    Standard,
    /// Also when a round trip delivers less than expected: SEARCH, draft-chung-ccwg-search
    Search,
}

/// Options of one end of a leg. Each end decides on its own; a window is what it receives, the rest
/// what it sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct LegOptions {
    /// Congestion control of what this end sends
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Self::default().congestion_control)]
    pub congestion_control: CongestionControl,
    /// Initial congestion window, packets of 1200 bytes (1 to 10000)
    #[arg(long, value_name = "PACKETS", default_value_t = Self::default().initial_window)]
    #[schemars(range(min = 1, max = 10_000))]
    pub initial_window: u32,
    /// How slow start ends; search: quinn and cubic only, without careful resume
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Self::default().slow_start)]
    pub slow_start: SlowStart,
    /// Start from what an earlier connection learned about the path; quinn and cubic only
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Self::default().careful_resume)]
    pub careful_resume: CarefulResume,
    /// Ask the peer to let this many ack-eliciting packets pass before it acknowledges (1 to
    /// 1000000); draft-ietf-quic-ack-frequency, quinn only [default: not asked, every second
    /// packet]
    #[arg(long, value_name = "PACKETS")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub ack_threshold: Option<u32>,
    /// Ask the peer to acknowledge after this time at the latest, ms (1 to 16000); at most one
    /// round-trip time is asked for; quinn only [default: not asked, 25 ms]
    #[arg(long, value_name = "MS")]
    #[schemars(range(min = 1, max = 16_000))]
    pub max_ack_delay_ms: Option<u32>,
    /// Declare a packet lost once a packet sent this many later is acknowledged (1 to 1000); below
    /// 3, reordering looks like loss (RFC 9002, section 6.1.1); not with quiche [default: 3]
    #[arg(long, value_name = "PACKETS")]
    #[schemars(range(min = 1, max = 1000))]
    pub packet_threshold: Option<u32>,
    /// Flow control: bytes the peer may have under way on all streams (65536 to 4294967296)
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().receive_window)]
    #[schemars(range(min = 65_536, max = 4_294_967_296_u64))]
    pub receive_window: u64,
    /// Flow control: bytes the peer may have under way on one stream (65536 to 4294967296)
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().stream_receive_window)]
    #[schemars(range(min = 65_536, max = 4_294_967_296_u64))]
    pub stream_receive_window: u64,
    /// Bytes kept for retransmission before writing blocks (65536 to 4294967296); quinn only
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().send_window)]
    #[schemars(range(min = 65_536, max = 4_294_967_296_u64))]
    pub send_window: u64,
    /// Round-trip time assumed before it is measured, ms (1 to 10000); quiche's bbr takes 1000 at
    /// least
    #[arg(long, value_name = "MS", default_value_t = Self::default().initial_rtt_ms)]
    #[schemars(range(min = 1, max = 10_000))]
    pub initial_rtt_ms: u32,
    /// A connection without any packet for this long is over, ms (1000 to 600000); the smaller of
    /// both ends counts
    #[arg(long, value_name = "MS", default_value_t = Self::default().max_idle_ms)]
    #[schemars(range(min = 1000, max = 600_000))]
    pub max_idle_ms: u32,
}

impl Default for LegOptions {
    /// Windows hold three times the 20 MB of 250 Mbit/s at 650 ms: path, one such queue, and repair
    /// of losses.
    fn default() -> Self {
        Self {
            congestion_control: CongestionControl::Cubic,
            initial_window: 10,
            slow_start: SlowStart::Standard,
            careful_resume: CarefulResume::Off,
            ack_threshold: None,
            max_ack_delay_ms: None,
            packet_threshold: None,
            receive_window: 64 << 20,
            stream_receive_window: 64 << 20,
            send_window: 96 << 20,
            initial_rtt_ms: 333,
            max_idle_ms: 30_000,
        }
    }
}

impl LegOptions {
    /// Initial congestion window, bytes.
    #[must_use]
    pub fn initial_window_bytes(&self) -> u64 {
        u64::from(self.initial_window) * u64::from(INITIAL_DATAGRAM)
    }

    /// The fault of careful resume where it is not offered, `why`.
    #[must_use]
    pub fn careful_resume_fault(&self, why: &str) -> Option<Fault> {
        (self.careful_resume != CarefulResume::Off).then(|| Fault {
            option: "careful-resume",
            why: format!("is not offered {why}; use quinn and cubic"),
        })
    }

    /// The fault of SEARCH where it is not offered, `why`.
    #[must_use]
    pub fn slow_start_fault(&self, why: &str) -> Option<Fault> {
        (self.slow_start != SlowStart::Standard).then(|| Fault {
            option: "slow-start",
            why: format!("search is not offered {why}; use quinn and cubic"),
        })
    }

    /// Faults of how a sender starts: with CUBIC alone, and in one way.
    fn start_faults(&self) -> Vec<Fault> {
        let other = "with another congestion control than cubic";
        let is_cubic = self.congestion_control == CongestionControl::Cubic;
        let cubic_only = [
            self.careful_resume_fault(other),
            self.slow_start_fault(other),
        ];
        let cubic_only = cubic_only.into_iter().flatten().filter(|_| !is_cubic);
        let both = self.slow_start_fault("with careful resume");
        let both = both.filter(|_| self.careful_resume != CarefulResume::Off);
        cubic_only.chain(both).collect()
    }

    /// Checks every option; all faults at once.
    ///
    /// # Errors
    /// Each option out of its range, with the range.
    pub fn check(&self) -> Result<(), Faults> {
        let windows = 1 << 16..=1 << 32;
        let ranges = [
            (
                "initial-window",
                Some(self.initial_window.into()),
                1..=10_000,
            ),
            (
                "ack-threshold",
                self.ack_threshold.map(u64::from),
                1..=1_000_000,
            ),
            (
                "max-ack-delay-ms",
                self.max_ack_delay_ms.map(u64::from),
                1..=16_000,
            ),
            (
                "packet-threshold",
                self.packet_threshold.map(u64::from),
                1..=1_000,
            ),
            ("receive-window", Some(self.receive_window), windows.clone()),
            (
                "stream-receive-window",
                Some(self.stream_receive_window),
                windows.clone(),
            ),
            ("send-window", Some(self.send_window), windows),
            (
                "initial-rtt-ms",
                Some(self.initial_rtt_ms.into()),
                1..=10_000,
            ),
            (
                "max-idle-ms",
                Some(self.max_idle_ms.into()),
                1_000..=600_000,
            ),
        ];
        let faults: Vec<_> = ranges
            .into_iter()
            .filter_map(|(option, value, range)| {
                let value = value.filter(|value| !range.contains(value))?;
                let why = format!("{value} is not within {} to {}", range.start(), range.end());
                Some(Fault { option, why })
            })
            .chain(self.start_faults())
            .collect();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(Faults(faults))
        }
    }
}

/// An invalid option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Name as on the command line, without dashes; configuration files write `_` for `-`.
    pub option: &'static str,
    /// Value, reason and remedy.
    pub why: String,
}

/// All invalid options of a set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Fault { option, why }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{option}: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_sound() {
        assert_eq!(LegOptions::default().check(), Ok(()));
    }

    #[test]
    fn every_fault_is_reported_with_its_range() {
        let options = LegOptions {
            initial_window: 0,
            ack_threshold: Some(0),
            packet_threshold: Some(0),
            receive_window: 1,
            ..LegOptions::default()
        };
        let faults = options.check().unwrap_err();
        assert_eq!(faults.0.len(), 4);
        let text = faults.to_string();
        assert!(
            text.contains("initial-window: 0 is not within 1 to 10000; ack-threshold: 0"),
            "{text}"
        );
    }

    #[test]
    fn careful_resume_needs_a_controller_whose_threshold_can_be_set() {
        let mut options = LegOptions {
            careful_resume: CarefulResume::On,
            ..LegOptions::default()
        };
        assert_eq!(options.check(), Ok(()));
        options.congestion_control = CongestionControl::Reno;
        let text = options.check().unwrap_err().to_string();
        assert!(text.contains("careful-resume: is not offered"), "{text}");
    }

    #[test]
    fn search_goes_with_cubic_and_without_careful_resume() {
        let search = |congestion_control, careful_resume| {
            let options = LegOptions {
                slow_start: SlowStart::Search,
                congestion_control,
                careful_resume,
                ..LegOptions::default()
            };
            options.check().map_err(|faults| faults.to_string())
        };
        assert_eq!(search(CongestionControl::Cubic, CarefulResume::Off), Ok(()));
        let of_reno = search(CongestionControl::Reno, CarefulResume::Off).unwrap_err();
        assert!(
            of_reno.starts_with("slow-start: search is not"),
            "{of_reno}"
        );
        let of_both = search(CongestionControl::Cubic, CarefulResume::On).unwrap_err();
        assert!(of_both.contains("with careful resume"), "{of_both}");
    }

    #[test]
    fn files_name_what_differs_and_nothing_unknown() {
        let some: LegOptions =
            serde_json::from_str(r#"{"congestion_control": "reno", "initial_window": 100}"#)
                .unwrap();
        let expected = LegOptions {
            congestion_control: CongestionControl::Reno,
            initial_window: 100,
            ..LegOptions::default()
        };
        assert_eq!(some, expected);
        assert!(serde_json::from_str::<LegOptions>(r#"{"initial_windw": 100}"#).is_err());
    }
}
