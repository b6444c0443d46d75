// SPDX-License-Identifier: GPL-3.0-or-later
//! DVB-S2 MODCODs and PLFRAME arithmetic (ETSI EN 302 307-1).
//!
//! `Kbch` comes from tables 5a and 5b, `Es/N0` from table 13 (quasi error free, AWGN), the PLFRAME
//! layout from clause 5.5.

use std::fmt;

/// Symbols in one slot of a PLFRAME, and in the PLHEADER (clause 5.5).
const SLOT_SYMBOLS: u64 = 90;
/// Symbols in one pilot block, sent after every [`SLOTS_PER_PILOT`] slots but never at the very end
/// (clause 5.5.3).
const PILOT_SYMBOLS: u64 = 36;
/// Slots between two pilot blocks.
const SLOTS_PER_PILOT: u64 = 16;
/// Bits of the BBHEADER, the part of `Kbch` that is not data field (clause 5.1.6).
const BBHEADER_BITS: u32 = 80;

/// Length of the FECFRAME.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameSize {
    /// 64 800 coded bits.
    Normal,
    /// 16 200 coded bits.
    Short,
}

impl FrameSize {
    /// Coded bits of one FECFRAME (clause 5.3).
    #[must_use]
    pub const fn fec_frame_bits(self) -> u32 {
        match self {
            Self::Normal => 64_800,
            Self::Short => 16_200,
        }
    }
}

/// Constellation of the payload symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Modulation {
    /// 2 bits per symbol.
    Qpsk,
    /// 3 bits per symbol.
    Psk8,
    /// 4 bits per symbol, DVB-S2.
    Apsk16,
    /// 5 bits per symbol, DVB-S2.
    Apsk32,
    /// 4 bits per symbol, DVB-RCS2.
    Qam16,
}

impl Modulation {
    /// Bits carried by one symbol.
    #[must_use]
    pub const fn bits_per_symbol(self) -> u32 {
        match self {
            Self::Qpsk => 2,
            Self::Psk8 => 3,
            Self::Apsk16 | Self::Qam16 => 4,
            Self::Apsk32 => 5,
        }
    }
}

impl fmt::Display for Modulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qpsk => "QPSK",
            Self::Psk8 => "8PSK",
            Self::Apsk16 => "16APSK",
            Self::Apsk32 => "32APSK",
            Self::Qam16 => "16QAM",
        })
    }
}

/// Nominal code rate `num/den`, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeRate {
    /// Numerator.
    pub num: u8,
    /// Denominator.
    pub den: u8,
}

impl CodeRate {
    /// The rate `num/den`.
    #[must_use]
    pub const fn new(num: u8, den: u8) -> Self {
        Self { num, den }
    }
}

impl fmt::Display for CodeRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.num, self.den)
    }
}

/// One line of the MODCOD table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModCod {
    /// Value of the MODCOD field of the PLHEADER, 1 to 28 (0 is the dummy PLFRAME).
    pub id: u8,
    /// Constellation.
    pub modulation: Modulation,
    /// Nominal code rate of the normal FECFRAME.
    pub rate: CodeRate,
    /// `Kbch` of the normal FECFRAME in bits.
    pub kbch_normal: u32,
    /// `Kbch` of the short FECFRAME in bits; rate 9/10 has none.
    pub kbch_short: Option<u32>,
    /// Ideal `Es/N0` for a packet error ratio of 1e-7, in hundredths of a dB.
    pub es_n0_centi_db: i16,
}

const fn line(id: u8, modulation: Modulation, num: u8, den: u8, es_n0_centi_db: i16) -> ModCod {
    let (kbch_normal, kbch_short) = kbch(num, den);
    ModCod {
        id,
        modulation,
        rate: CodeRate::new(num, den),
        kbch_normal,
        kbch_short,
        es_n0_centi_db,
    }
}

/// `Kbch` of the normal and of the short FECFRAME (tables 5a and 5b).
const fn kbch(num: u8, den: u8) -> (u32, Option<u32>) {
    match (num, den) {
        (1, 4) => (16_008, Some(3_072)),
        (1, 3) => (21_408, Some(5_232)),
        (2, 5) => (25_728, Some(6_312)),
        (1, 2) => (32_208, Some(7_032)),
        (3, 5) => (38_688, Some(9_552)),
        (2, 3) => (43_040, Some(10_632)),
        (3, 4) => (48_408, Some(11_712)),
        (4, 5) => (51_648, Some(12_432)),
        (5, 6) => (53_840, Some(13_152)),
        (8, 9) => (57_472, Some(14_232)),
        (9, 10) => (58_192, None),
        _ => panic!("not a DVB-S2 code rate"),
    }
}

/// The 28 MODCODs of DVB-S2, in the order of their ids.
pub const MODCODS: [ModCod; 28] = {
    use Modulation::{Apsk16, Apsk32, Psk8, Qpsk};
    [
        line(1, Qpsk, 1, 4, -235),
        line(2, Qpsk, 1, 3, -124),
        line(3, Qpsk, 2, 5, -30),
        line(4, Qpsk, 1, 2, 100),
        line(5, Qpsk, 3, 5, 223),
        line(6, Qpsk, 2, 3, 310),
        line(7, Qpsk, 3, 4, 403),
        line(8, Qpsk, 4, 5, 468),
        line(9, Qpsk, 5, 6, 518),
        line(10, Qpsk, 8, 9, 620),
        line(11, Qpsk, 9, 10, 642),
        line(12, Psk8, 3, 5, 550),
        line(13, Psk8, 2, 3, 662),
        line(14, Psk8, 3, 4, 791),
        line(15, Psk8, 5, 6, 935),
        line(16, Psk8, 8, 9, 1069),
        line(17, Psk8, 9, 10, 1098),
        line(18, Apsk16, 2, 3, 897),
        line(19, Apsk16, 3, 4, 1021),
        line(20, Apsk16, 4, 5, 1103),
        line(21, Apsk16, 5, 6, 1161),
        line(22, Apsk16, 8, 9, 1289),
        line(23, Apsk16, 9, 10, 1313),
        line(24, Apsk32, 3, 4, 1273),
        line(25, Apsk32, 4, 5, 1364),
        line(26, Apsk32, 5, 6, 1428),
        line(27, Apsk32, 8, 9, 1569),
        line(28, Apsk32, 9, 10, 1605),
    ]
};

impl ModCod {
    /// The MODCOD with this id, if there is one.
    #[must_use]
    pub fn by_id(id: u8) -> Option<Self> {
        MODCODS.get(usize::from(id).checked_sub(1)?).copied()
    }

    /// The MODCOD of this constellation and code rate, if DVB-S2 combines them.
    #[must_use]
    pub fn find(modulation: Modulation, rate: CodeRate) -> Option<Self> {
        MODCODS
            .into_iter()
            .find(|m| m.modulation == modulation && m.rate == rate)
    }

    /// Ideal `Es/N0` for a packet error ratio of 1e-7, in dB.
    #[must_use]
    pub fn es_n0_db(self) -> f64 {
        f64::from(self.es_n0_centi_db) / 100.0
    }

    /// `Kbch`: bits of one BBFRAME, header included. `None` if the size is not defined for this
    /// code rate.
    #[must_use]
    pub const fn kbch(self, size: FrameSize) -> Option<u32> {
        match size {
            FrameSize::Normal => Some(self.kbch_normal),
            FrameSize::Short => self.kbch_short,
        }
    }

    /// Largest data field of one BBFRAME in bits, always a multiple of 8.
    #[must_use]
    pub const fn dfl_max_bits(self, size: FrameSize) -> Option<u32> {
        match self.kbch(size) {
            Some(kbch) => Some(kbch - BBHEADER_BITS),
            None => None,
        }
    }

    /// Symbols of one PLFRAME: PLHEADER, slots and, with `pilots`, pilot blocks.
    #[must_use]
    pub const fn plframe_symbols(self, size: FrameSize, pilots: bool) -> u64 {
        let payload = (size.fec_frame_bits() / self.modulation.bits_per_symbol()) as u64;
        let slots = payload / SLOT_SYMBOLS;
        let pilot_blocks = if pilots {
            (slots - 1) / SLOTS_PER_PILOT
        } else {
            0
        };
        SLOT_SYMBOLS * (slots + 1) + PILOT_SYMBOLS * pilot_blocks
    }

    /// Data-field bits per symbol, 0 if the size is not defined for this code rate.
    #[must_use]
    pub fn efficiency(self, size: FrameSize, pilots: bool) -> f64 {
        let bits = self.dfl_max_bits(size).unwrap_or(0);
        f64::from(bits) / self.plframe_symbols(size, pilots) as f64
    }
}

impl fmt::Display for ModCod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.modulation, self.rate)
    }
}
