// SPDX-License-Identifier: GPL-3.0-or-later
//! Return Link Encapsulation (ETSI TS 103 179, ETSI EN 301 545-2 clause 7): IP packets in the
//! payload of bursts.
//!
//! An SDU with its protocol type in front and, if it is fragmented, a trailer behind is an ALPDU;
//! one ALPDU travels in one or more PPDUs. [`Ppdu`] is one of these, [`Encapsulator`] and
//! [`Decapsulator`] turn packets into burst payloads and back. There is no payload label and no
//! ALPDU label: the receiver knows whose slot it is.
//!
//! The protocol type is sent compressed to one byte (EN 301 545-2 table 7-3): IPv4 0x0D, IPv6 0x11.

mod decap;
mod encap;
mod ppdu;

pub use decap::{Decapsulator, Sdu};
pub use encap::Encapsulator;
pub use ppdu::{AlpduType, Header, Ppdu, RleError};

/// Longest SDU: the 12-bit total length also counts protocol type (at most 3 bytes) and trailer (at
/// most 4).
pub const MAX_SDU: usize = 4095 - 3 - 4;
/// Smallest burst payload that an [`Encapsulator`] is sure to make progress in.
pub const MIN_PAYLOAD: usize = 8;

/// Trailer of a fragmented ALPDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protection {
    /// One byte that counts the fragmented ALPDUs of a fragment id.
    #[default]
    SequenceNumber,
    /// CRC-32 over the uncompressed protocol type and the SDU.
    Crc32,
}

impl Protection {
    /// Bytes of the trailer.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::SequenceNumber => 1,
            Self::Crc32 => 4,
        }
    }

    /// Never: both kinds have a trailer.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        false
    }
}

/// Compressed protocol types (EN 301 545-2 table 7-3).
mod compressed {
    /// IPv4.
    pub(super) const IPV4: u8 = 0x0D;
    /// IPv6.
    pub(super) const IPV6: u8 = 0x11;
    /// IPv4 or IPv6, as the version nibble says.
    pub(super) const IP: u8 = 0x30;
    /// The uncompressed type follows in two bytes.
    pub(super) const FALLBACK: u8 = 0xFF;
}
