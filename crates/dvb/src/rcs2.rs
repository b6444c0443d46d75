// SPDX-License-Identifier: GPL-3.0-or-later
//! DVB-RCS2 reference waveforms for linear modulation bursts (ETSI EN 301 545-2 annex A).
//!
//! Ids 3 to 12 are the 536-symbol bursts, 13 to 22 the 1616-symbol ones. Preamble and pilots are
//! inside these symbols.

use crate::modcod::{CodeRate, Modulation};
use std::fmt;

/// One reference waveform: the shape of a traffic burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waveform {
    /// Waveform id, 3 to 22.
    pub id: u8,
    /// Constellation.
    pub modulation: Modulation,
    /// Nominal turbo-code rate.
    pub rate: CodeRate,
    /// Symbols of one burst, 536 or 1616.
    pub symbols: u64,
    /// Payload of one burst in bytes.
    pub payload_bytes: usize,
    /// `Es/N0` threshold in hundredths of a dB.
    pub threshold_centi_db: i16,
}

/// Symbols of the short burst.
pub const SHORT_BURST_SYMBOLS: u64 = 536;
/// Symbols of the long burst.
pub const LONG_BURST_SYMBOLS: u64 = 1616;

const fn line(
    id: u8,
    modulation: Modulation,
    rate: (u8, u8),
    payload_bytes: usize,
    threshold_centi_db: i16,
) -> Waveform {
    let symbols = if id < 13 {
        SHORT_BURST_SYMBOLS
    } else {
        LONG_BURST_SYMBOLS
    };
    let rate = CodeRate::new(rate.0, rate.1);
    Waveform {
        id,
        modulation,
        rate,
        symbols,
        payload_bytes,
        threshold_centi_db,
    }
}

/// The linear-modulation waveforms 3 to 22, in the order of their ids.
pub const WAVEFORMS: [Waveform; 20] = {
    use Modulation::{Psk8, Qam16, Qpsk};
    [
        line(3, Qpsk, (1, 3), 38, 22),
        line(4, Qpsk, (1, 2), 59, 234),
        line(5, Qpsk, (2, 3), 85, 429),
        line(6, Qpsk, (3, 4), 96, 536),
        line(7, Qpsk, (5, 6), 108, 668),
        line(8, Psk8, (2, 3), 115, 808),
        line(9, Psk8, (3, 4), 130, 931),
        line(10, Psk8, (5, 6), 144, 1082),
        line(11, Qam16, (3, 4), 175, 1117),
        line(12, Qam16, (5, 6), 194, 1256),
        line(13, Qpsk, (1, 3), 123, -51),
        line(14, Qpsk, (1, 2), 188, 171),
        line(15, Qpsk, (2, 3), 264, 369),
        line(16, Qpsk, (3, 4), 298, 473),
        line(17, Qpsk, (5, 6), 333, 594),
        line(18, Psk8, (2, 3), 355, 749),
        line(19, Psk8, (3, 4), 400, 877),
        line(20, Psk8, (5, 6), 444, 1023),
        line(21, Qam16, (3, 4), 539, 1072),
        line(22, Qam16, (5, 6), 599, 1204),
    ]
};

impl Waveform {
    /// The waveform with this id, if it is one of the linear-modulation ones of the table.
    #[must_use]
    pub fn by_id(id: u8) -> Option<Self> {
        WAVEFORMS.get(usize::from(id).checked_sub(3)?).copied()
    }

    /// `Es/N0` threshold in dB.
    #[must_use]
    pub fn threshold_db(self) -> f64 {
        f64::from(self.threshold_centi_db) / 100.0
    }

    /// Payload bits per burst symbol.
    #[must_use]
    pub fn efficiency(self) -> f64 {
        (self.payload_bytes * 8) as f64 / self.symbols as f64
    }
}

impl fmt::Display for Waveform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} ({} symbols)",
            self.modulation, self.rate, self.symbols
        )
    }
}
