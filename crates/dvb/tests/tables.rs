// SPDX-License-Identifier: GPL-3.0-or-later
//! The tables against values worked out apart from them.

#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use dvb::modcod::{CodeRate, FrameSize, MODCODS, ModCod, Modulation};
use dvb::rcs2::{WAVEFORMS, Waveform};

/// Id, name, Es/N0 in dB, data field bits, symbols without and with pilots, efficiency without and
/// with pilots.
type Row = (u8, &'static str, f64, u32, u64, u64, f64, f64);

#[rustfmt::skip]
const EXPECTED: [Row; 28] = [
    (1, "QPSK 1/4", -2.35, 15_928, 32_490, 33_282, 0.490_243, 0.478_577),
    (2, "QPSK 1/3", -1.24, 21_328, 32_490, 33_282, 0.656_448, 0.640_827),
    (3, "QPSK 2/5", -0.30, 25_648, 32_490, 33_282, 0.789_412, 0.770_627),
    (4, "QPSK 1/2", 1.00, 32_128, 32_490, 33_282, 0.988_858, 0.965_327),
    (5, "QPSK 3/5", 2.23, 38_608, 32_490, 33_282, 1.188_304, 1.160_026),
    (6, "QPSK 2/3", 3.10, 42_960, 32_490, 33_282, 1.322_253, 1.290_788),
    (7, "QPSK 3/4", 4.03, 48_328, 32_490, 33_282, 1.487_473, 1.452_076),
    (8, "QPSK 4/5", 4.68, 51_568, 32_490, 33_282, 1.587_196, 1.549_426),
    (9, "QPSK 5/6", 5.18, 53_760, 32_490, 33_282, 1.654_663, 1.615_288),
    (10, "QPSK 8/9", 6.20, 57_392, 32_490, 33_282, 1.766_451, 1.724_416),
    (11, "QPSK 9/10", 6.42, 58_112, 32_490, 33_282, 1.788_612, 1.746_049),
    (12, "8PSK 3/5", 5.50, 38_608, 21_690, 22_194, 1.779_991, 1.739_569),
    (13, "8PSK 2/3", 6.62, 42_960, 21_690, 22_194, 1.980_636, 1.935_658),
    (14, "8PSK 3/4", 7.91, 48_328, 21_690, 22_194, 2.228_124, 2.177_525),
    (15, "8PSK 5/6", 9.35, 53_760, 21_690, 22_194, 2.478_562, 2.422_276),
    (16, "8PSK 8/9", 10.69, 57_392, 21_690, 22_194, 2.646_012, 2.585_924),
    (17, "8PSK 9/10", 10.98, 58_112, 21_690, 22_194, 2.679_207, 2.618_365),
    (18, "16APSK 2/3", 8.97, 42_960, 16_290, 16_686, 2.637_201, 2.574_613),
    (19, "16APSK 3/4", 10.21, 48_328, 16_290, 16_686, 2.966_728, 2.896_320),
    (20, "16APSK 4/5", 11.03, 51_568, 16_290, 16_686, 3.165_623, 3.090_495),
    (21, "16APSK 5/6", 11.61, 53_760, 16_290, 16_686, 3.300_184, 3.221_863),
    (22, "16APSK 8/9", 12.89, 57_392, 16_290, 16_686, 3.523_143, 3.439_530),
    (23, "16APSK 9/10", 13.13, 58_112, 16_290, 16_686, 3.567_342, 3.482_680),
    (24, "32APSK 3/4", 12.73, 48_328, 13_050, 13_338, 3.703_295, 3.623_332),
    (25, "32APSK 4/5", 13.64, 51_568, 13_050, 13_338, 3.951_571, 3.866_247),
    (26, "32APSK 5/6", 14.28, 53_760, 13_050, 13_338, 4.119_540, 4.030_589),
    (27, "32APSK 8/9", 15.69, 57_392, 13_050, 13_338, 4.397_854, 4.302_894),
    (28, "32APSK 9/10", 16.05, 58_112, 13_050, 13_338, 4.453_027, 4.356_875),
];

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn all_28_modcods_have_the_expected_figures() {
    assert_eq!(MODCODS.len(), EXPECTED.len());
    for (id, name, es_n0, dfl, plain, pilots, eff_plain, eff_pilots) in EXPECTED {
        let modcod = ModCod::by_id(id).unwrap();
        let normal = FrameSize::Normal;
        assert_eq!((modcod.id, modcod.to_string().as_str()), (id, name));
        assert!(close(modcod.es_n0_db(), es_n0), "{name}");
        assert_eq!(modcod.dfl_max_bits(normal), Some(dfl), "{name}");
        assert_eq!(modcod.plframe_symbols(normal, false), plain, "{name}");
        assert_eq!(modcod.plframe_symbols(normal, true), pilots, "{name}");
        assert!(close(modcod.efficiency(normal, false), eff_plain), "{name}");
        assert!(close(modcod.efficiency(normal, true), eff_pilots), "{name}");
        assert_eq!(ModCod::find(modcod.modulation, modcod.rate), Some(modcod));
    }
}

#[test]
fn ids_outside_the_table_and_unknown_combinations_are_none() {
    assert!(
        [0, 29, 31, 255]
            .iter()
            .all(|&id| ModCod::by_id(id).is_none())
    );
    assert_eq!(ModCod::find(Modulation::Apsk32, CodeRate::new(1, 4)), None);
    assert_eq!(ModCod::find(Modulation::Qam16, CodeRate::new(3, 4)), None);
}

#[test]
// promise: P1
fn short_frames_follow_the_slots_of_the_standard() {
    // 90, 60, 45 and 36 slots of 90 symbols, a header slot, and 5, 3, 2 and 2 pilot blocks of 36
    // symbols.
    for (id, plain, pilots) in [
        (4, 8190, 8370),
        (12, 5490, 5598),
        (18, 4140, 4212),
        (24, 3330, 3402),
    ] {
        let modcod = ModCod::by_id(id).unwrap();
        assert_eq!(modcod.plframe_symbols(FrameSize::Short, false), plain);
        assert_eq!(modcod.plframe_symbols(FrameSize::Short, true), pilots);
    }
    let short = |id: u8| ModCod::by_id(id).unwrap().dfl_max_bits(FrameSize::Short);
    assert_eq!(
        (short(1), short(4), short(10)),
        (Some(2992), Some(6952), Some(14_152))
    );
    // There is no short frame at 9/10.
    assert_eq!([11, 17, 23, 28].map(short), [None; 4]);
}

#[test]
fn data_fields_are_whole_bytes() {
    for modcod in MODCODS {
        for size in [FrameSize::Normal, FrameSize::Short] {
            assert_eq!(modcod.dfl_max_bits(size).unwrap_or(0) % 8, 0, "{modcod}");
        }
    }
}

#[test]
fn waveforms_carry_no_more_than_modulation_and_rate_allow() {
    let payloads = [
        38, 59, 85, 96, 108, 115, 130, 144, 175, 194, 123, 188, 264, 298, 333, 355, 400, 444, 539,
        599,
    ];
    assert_eq!(WAVEFORMS.map(|w| w.payload_bytes), payloads);
    for (waveform, id) in WAVEFORMS.into_iter().zip(3..) {
        assert_eq!(Waveform::by_id(id), Some(waveform));
        assert_eq!(waveform.symbols, if id < 13 { 536 } else { 1616 });
        let rate = f64::from(waveform.rate.num) / f64::from(waveform.rate.den);
        let ideal = f64::from(waveform.modulation.bits_per_symbol()) * rate;
        let share = waveform.efficiency() / ideal;
        assert!((0.75..1.0).contains(&share), "{waveform}: {share}");
    }
    assert!(
        [0, 1, 2, 23, 255]
            .iter()
            .all(|&id| Waveform::by_id(id).is_none())
    );
}

#[test]
fn thresholds_rise_with_efficiency_within_a_burst_length() {
    for burst in WAVEFORMS.chunks(10) {
        for pair in burst.windows(2) {
            assert!(pair[0].efficiency() < pair[1].efficiency());
            assert!(pair[0].threshold_db() < pair[1].threshold_db());
        }
    }
}
