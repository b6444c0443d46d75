// SPDX-License-Identifier: GPL-3.0-or-later
//! Frame arithmetic of `OpenSAND` 8.2 where it differs from the standards.
//!
//! `OpenSAND` counts a BBFRAME as `Kbch` bits with a header of its own, and takes its length in
//! symbols from the rounded efficiency column of the waveform table it ships. A burst holds the
//! bytes of the nominal code rate.

use crate::modcod::{FrameSize, MODCODS, ModCod};
use crate::rcs2::Waveform;

/// Bytes of a BBFRAME that are `OpenSAND`'s own header.
const HEADER_BYTES: u32 = 6;

/// Smallest rest of a BBFRAME that takes a first fragment: the header that GSE needs with a label
/// of 6 bytes (TS 102 606-1). 8.2.0 neither fills nor closes a BBFRAME with a smaller one.
pub const SMALLEST_REST: usize = 13;

/// Efficiency column of the `dvb_s2` waveform table as shipped, thousandths of bit/symbol, MODCOD 1
/// first.
const EFFICIENCY_MILLI: [u64; 28] = [
    490, 656, 789, 988, 1188, 1322, 1487, 1587, 1655, 1767, 1789, 1780, 1981, 2228, 2479, 2646,
    2679, 2637, 2967, 3166, 3300, 3523, 3567, 3703, 3952, 4120, 4398, 4453,
];

/// Bytes of a BBFRAME that carry GSE; `OpenSAND` has normal frames only.
#[must_use]
pub fn bbframe_payload(modcod: ModCod) -> usize {
    let bytes = modcod.kbch(FrameSize::Normal).unwrap_or(0) / 8;
    bytes.saturating_sub(HEADER_BYTES) as usize
}

/// Symbols that a BBFRAME costs, whatever its filling: its bits over the efficiency, rounded down.
#[must_use]
pub fn bbframe_symbols(modcod: ModCod) -> u64 {
    let bits = u64::from(modcod.kbch(FrameSize::Normal).unwrap_or(0));
    let efficiency = EFFICIENCY_MILLI[usize::from(modcod.id.clamp(1, 28)) - 1];
    bits * 1000 / efficiency
}

/// Bytes of a burst: symbols x bits per symbol x code rate, rounded down.
#[must_use]
pub fn burst_payload(waveform: Waveform) -> usize {
    let bits = waveform.symbols * u64::from(waveform.modulation.bits_per_symbol());
    (bits * u64::from(waveform.rate.num) / (u64::from(waveform.rate.den) * 8)) as usize
}

/// Bursts per superframe that a constant rate of `rate_kbps` becomes; `superframe_ns` as
/// configured.
#[must_use]
pub fn cra_slots(rate_kbps: u64, superframe_ns: u64, waveform: Waveform) -> u64 {
    let gross_kbps = rate_kbps * u64::from(waveform.rate.den) / u64::from(waveform.rate.num);
    let burst_bits = waveform.symbols * u64::from(waveform.modulation.bits_per_symbol());
    (u128::from(gross_kbps) * u128::from(superframe_ns))
        .div_ceil(u128::from(burst_bits) * 1_000_000) as u64
}

/// Bursts that a carrier holds per superframe, rounded up as `OpenSAND` does.
#[must_use]
pub fn slot_limit(symbol_rate: u64, superframe_ns: u64, waveform: Waveform) -> u64 {
    (u128::from(symbol_rate) * u128::from(superframe_ns))
        .div_ceil(u128::from(waveform.symbols) * 1_000_000_000) as u64
}

/// `Es/N0` that a terminal reports, dB: the highest threshold of any MODCOD that it could receive,
/// not what it measured. The gateway subtracts its margin from that.
#[must_use]
pub fn reported_db(es_n0_db: f64) -> f64 {
    let thresholds = MODCODS.iter().map(|modcod| modcod.es_n0_db());
    let lowest = thresholds.clone().fold(f64::INFINITY, f64::min);
    thresholds
        .filter(|&threshold| threshold <= es_n0_db)
        .fold(lowest, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cost_what_the_worked_examples_say() {
        for (id, payload, symbols) in [(1, 1995, 32_669), (4, 4020, 32_599), (28, 7268, 13_068)] {
            let modcod = ModCod::by_id(id).unwrap();
            assert_eq!(
                (bbframe_payload(modcod), bbframe_symbols(modcod)),
                (payload, symbols)
            );
        }
    }

    #[test]
    fn reports_are_thresholds() {
        // 17.99 dB is two legs of 21 dB; less a margin of 1 dB this is MODCOD 26 where 28 would do.
        for (measured, reported) in [(17.99, 16.05), (15.05, 14.28), (-2.0, -2.35), (-9.0, -2.35)] {
            assert!((reported_db(measured) - reported).abs() < 1e-9);
        }
    }

    #[test]
    fn bursts_hold_what_the_nominal_rate_says() {
        for (id, bytes) in [
            (3, 44),
            (7, 111),
            (12, 223),
            (13, 134),
            (17, 336),
            (22, 673),
        ] {
            let waveform = Waveform::by_id(id).unwrap();
            assert_eq!(burst_payload(waveform), bytes);
            assert!(bytes > waveform.payload_bytes);
        }
    }

    #[test]
    fn constant_rates_become_the_observed_bursts() {
        let waveform = Waveform::by_id(12).unwrap();
        let slots = |rate| cra_slots(rate, 26_500_000, waveform);
        assert_eq!((slots(2000), slots(3000), slots(10_000)), (30, 45, 149));
        assert_eq!(slot_limit(16_000_000, 26_500_000, waveform), 792);
    }
}
