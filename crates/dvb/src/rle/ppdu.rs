// SPDX-License-Identifier: GPL-3.0-or-later
//! One PPDU (ETSI TS 103 179, payload-adapted PDU).
//!
//! ```text
//! complete      1 1 length(11) label type(2) suppressed(1) | data
//! start         1 0 length(11) fragment id(3) | CRC used(1) total length(12) label type(2) suppressed(1) | data
//! continuation  0 0 length(11) fragment id(3) | data
//! end           0 1 length(11) fragment id(3) | data
//! ```
//! `length` counts what follows the first two bytes, so in a start PPDU also the second two.

use thiserror::Error;

/// Largest value of the 11-bit length field.
pub(crate) const MAX_LENGTH: usize = 2047;

const START: u16 = 0x8000;
const END: u16 = 0x4000;
const USE_CRC: u16 = 0x8000;

/// How the ALPDU header of a complete or start PPDU is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlpduType {
    /// ALPDU label type, 0 to 3.
    pub label_type: u8,
    /// The protocol type is left out.
    pub suppressed: bool,
}

impl AlpduType {
    /// No label, protocol type present: what this crate sends.
    pub const PLAIN: Self = Self {
        label_type: 0,
        suppressed: false,
    };

    fn from_bits(bits: u16) -> Self {
        Self {
            label_type: (bits >> 1 & 0b11) as u8,
            suppressed: bits & 1 != 0,
        }
    }

    fn bits(self) -> u16 {
        u16::from(self.label_type & 0b11) << 1 | u16::from(self.suppressed)
    }
}

/// Header of a PPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A whole ALPDU, without trailer.
    Complete {
        /// Reading of the ALPDU header.
        alpdu: AlpduType,
    },
    /// First fragment.
    Start {
        /// Joins the fragments of one ALPDU, 0 to 7.
        frag_id: u8,
        /// The trailer is a CRC-32, else a sequence number.
        use_crc: bool,
        /// Bytes of the ALPDU, trailer included, at most 4095.
        total_length: u16,
        /// Reading of the ALPDU header.
        alpdu: AlpduType,
    },
    /// Neither first nor last fragment.
    Continuation {
        /// Joins the fragments of one ALPDU, 0 to 7.
        frag_id: u8,
    },
    /// Last fragment, with the trailer at its end.
    End {
        /// Joins the fragments of one ALPDU, 0 to 7.
        frag_id: u8,
    },
}

/// View on one PPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ppdu<'a> {
    /// Header.
    pub header: Header,
    /// Bytes of the ALPDU.
    pub data: &'a [u8],
}

/// Why bytes are no PPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RleError {
    /// The length field reaches beyond the burst payload.
    #[error("PPDU reaches beyond the burst payload")]
    Truncated,
    /// The length field is too small for the header, or the content too long for it.
    #[error("PPDU length does not fit its content")]
    Length,
}

impl<'a> Ppdu<'a> {
    /// Splits the first PPDU off `bytes`; `None` at the end of the payload or at padding, which is
    /// all zero.
    ///
    /// # Errors
    /// The bytes are no PPDU; what follows cannot be found either.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, RleError> {
        let Some((head, rest)) = bytes.split_first_chunk() else {
            return Ok(None);
        };
        let head = u16::from_be_bytes(*head);
        if head == 0 {
            return Ok(None);
        }
        let length = usize::from(head >> 3) & MAX_LENGTH;
        let (data, rest) = rest.split_at_checked(length).ok_or(RleError::Truncated)?;
        let frag_id = (head & 0b111) as u8;
        let (header, data) = match (head & START != 0, head & END != 0) {
            (true, true) => (
                Header::Complete {
                    alpdu: AlpduType::from_bits(head),
                },
                data,
            ),
            (true, false) => {
                let (second, data) = data.split_first_chunk().ok_or(RleError::Length)?;
                (Header::start(frag_id, u16::from_be_bytes(*second)), data)
            }
            (false, false) => (Header::Continuation { frag_id }, data),
            (false, true) => (Header::End { frag_id }, data),
        };
        Ok(Some((Self { header, data }, rest)))
    }
}

impl Header {
    fn start(frag_id: u8, second: u16) -> Self {
        Self::Start {
            frag_id,
            use_crc: second & USE_CRC != 0,
            total_length: second >> 3 & 0xFFF,
            alpdu: AlpduType::from_bits(second),
        }
    }

    /// Writes a PPDU with the bytes of `pieces` to the start of `out` and returns its length,
    /// bytes.
    ///
    /// # Errors
    /// [`RleError::Truncated`] if `out` is too small, [`RleError::Length`] if the pieces are too
    /// long for a PPDU or if a continuation of fragment id 0 has none, which would read as padding.
    pub fn emit(&self, pieces: &[&[u8]], out: &mut [u8]) -> Result<usize, RleError> {
        let (flags, low, second) = match *self {
            Self::Complete { alpdu } => (START | END, alpdu.bits(), None),
            Self::Start {
                frag_id,
                use_crc,
                total_length,
                alpdu,
            } => {
                let crc = if use_crc { USE_CRC } else { 0 };
                let second = crc | (total_length & 0xFFF) << 3 | alpdu.bits();
                (
                    START,
                    u16::from(frag_id & 0b111),
                    Some(second.to_be_bytes()),
                )
            }
            Self::Continuation { frag_id } => (0, u16::from(frag_id & 0b111), None),
            Self::End { frag_id } => (END, u16::from(frag_id & 0b111), None),
        };
        let second = second.as_ref().map_or(&[] as &[u8], |bytes| bytes);
        let length = second.len() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if length > MAX_LENGTH {
            return Err(RleError::Length);
        }
        let head = (flags | (length as u16) << 3 | low).to_be_bytes();
        if head == [0; 2] {
            return Err(RleError::Length);
        }
        let out = out.get_mut(..2 + length).ok_or(RleError::Truncated)?;
        let mut at = 0;
        for piece in [head.as_slice(), second].iter().chain(pieces) {
            out[at..][..piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Ok(at)
    }
}
