// SPDX-License-Identifier: GPL-3.0-or-later
//! One GSE packet (ETSI TS 102 606-1 clause 4.2).
//!
//! ```text
//! S E LT(2) length(12) | fragment id(8) | total length(16) | protocol type(16) | label | data | CRC-32
//!                        not complete     first              S=1                 S=1           last
//! ```
//! `length` counts what follows it. Total length counts protocol type, label as sent and PDU.

use thiserror::Error;

/// Largest value of the 12-bit length field.
pub(crate) const MAX_LENGTH: usize = 4095;
/// Bytes of the CRC-32.
pub(crate) const CRC_LEN: usize = 4;

const START: u16 = 0x8000;
const END: u16 = 0x4000;
const LABEL_TYPE: u16 = 0x3000;

/// Address of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// Six bytes, as a MAC address.
    Six([u8; 6]),
    /// Three bytes.
    Three([u8; 3]),
    /// No label: everybody.
    Broadcast,
}

impl Label {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Six(bytes) => bytes,
            Self::Three(bytes) => bytes,
            Self::Broadcast => &[],
        }
    }
}

/// Label field of a packet that starts a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LabelField {
    /// The label itself.
    Label(Label),
    /// Same label as the packet before it in this BBFRAME.
    ReUse,
}

impl LabelField {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Label(label) => label.as_bytes(),
            Self::ReUse => &[],
        }
    }

    fn label_type(self) -> u16 {
        match self {
            Self::Label(Label::Six(_)) => 0b00,
            Self::Label(Label::Three(_)) => 0b01,
            Self::Label(Label::Broadcast) => 0b10,
            Self::ReUse => 0b11,
        }
    }

    fn parse(label_type: u16, reader: &mut Reader<'_>) -> Result<Self, GseError> {
        Ok(match label_type {
            0b00 => Self::Label(Label::Six(reader.array()?)),
            0b01 => Self::Label(Label::Three(reader.array()?)),
            0b10 => Self::Label(Label::Broadcast),
            _ => Self::ReUse,
        })
    }
}

/// One GSE packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A whole PDU.
    Complete {
        /// Ethertype of the PDU.
        protocol_type: u16,
        /// Receiver.
        label: LabelField,
        /// The PDU.
        data: &'a [u8],
    },
    /// First fragment.
    First {
        /// Joins the fragments of one PDU.
        frag_id: u8,
        /// Bytes of protocol type, label as sent and PDU.
        total_length: u16,
        /// Ethertype of the PDU.
        protocol_type: u16,
        /// Receiver.
        label: LabelField,
        /// Bytes of the PDU.
        data: &'a [u8],
    },
    /// Neither first nor last fragment.
    Middle {
        /// Joins the fragments of one PDU.
        frag_id: u8,
        /// Bytes of the PDU.
        data: &'a [u8],
    },
    /// Last fragment.
    Last {
        /// Joins the fragments of one PDU.
        frag_id: u8,
        /// Bytes of the PDU.
        data: &'a [u8],
        /// CRC-32 over total length, protocol type, label as sent and PDU.
        crc: u32,
    },
}

/// Why bytes are no GSE packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GseError {
    /// The length field reaches beyond the data field.
    #[error("GSE packet reaches beyond the data field")]
    Truncated,
    /// The length field is too small for the header fields.
    #[error("GSE length is too small for the header")]
    Length,
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], GseError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(GseError::Length)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, GseError> {
        self.array().map(u16::from_be_bytes)
    }
}

impl<'a> Packet<'a> {
    /// Splits the first packet off `bytes`; `None` at the end of the data field or at padding.
    ///
    /// # Errors
    /// The bytes are no packet; what follows cannot be found either.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, GseError> {
        let Some((fixed, rest)) = bytes.split_first_chunk() else {
            return Ok(None);
        };
        let fixed = u16::from_be_bytes(*fixed);
        // Zero S, E and LT mark padding.
        if fixed & (START | END | LABEL_TYPE) == 0 {
            return Ok(None);
        }
        let length = usize::from(fixed) & MAX_LENGTH;
        let (body, rest) = rest.split_at_checked(length).ok_or(GseError::Truncated)?;
        Ok(Some((Self::parse_body(fixed, body)?, rest)))
    }

    fn parse_body(fixed: u16, body: &'a [u8]) -> Result<Self, GseError> {
        let (start, end) = (fixed & START != 0, fixed & END != 0);
        let label_type = (fixed & LABEL_TYPE) >> 12;
        let mut reader = Reader(body);
        let frag_id = if start && end {
            0
        } else {
            reader.array::<1>()?[0]
        };
        Ok(match (start, end) {
            (true, true) => {
                let protocol_type = reader.u16()?;
                let label = LabelField::parse(label_type, &mut reader)?;
                Self::Complete {
                    protocol_type,
                    label,
                    data: reader.0,
                }
            }
            (true, false) => {
                let total_length = reader.u16()?;
                let protocol_type = reader.u16()?;
                let label = LabelField::parse(label_type, &mut reader)?;
                Self::First {
                    frag_id,
                    total_length,
                    protocol_type,
                    label,
                    data: reader.0,
                }
            }
            (false, false) => Self::Middle {
                frag_id,
                data: reader.0,
            },
            (false, true) => {
                let (data, crc) = reader
                    .0
                    .split_last_chunk::<CRC_LEN>()
                    .ok_or(GseError::Length)?;
                Self::Last {
                    frag_id,
                    data,
                    crc: u32::from_be_bytes(*crc),
                }
            }
        })
    }

    /// Bytes of the packet on air, at most 4097.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Complete { label, data, .. } => 4 + label.as_bytes().len() + data.len(),
            Self::First { label, data, .. } => 7 + label.as_bytes().len() + data.len(),
            Self::Middle { data, .. } => 3 + data.len(),
            Self::Last { data, .. } => 3 + data.len() + CRC_LEN,
        }
    }

    /// Never: a packet has a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the packet to the start of `out` and returns its length, bytes.
    ///
    /// # Errors
    /// [`GseError::Truncated`] if `out` is too small, [`GseError::Length`] if the packet is longer
    /// than 4097 bytes.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, GseError> {
        let len = self.len();
        if len > MAX_LENGTH + 2 {
            return Err(GseError::Length);
        }
        let mut out = Writer {
            out: out.get_mut(..len).ok_or(GseError::Truncated)?,
            at: 0,
        };
        let length = (len - 2) as u16;
        match self {
            Self::Complete {
                protocol_type,
                label,
                data,
            } => {
                out.put(&(START | END | label.label_type() << 12 | length).to_be_bytes());
                out.put(&protocol_type.to_be_bytes());
                out.put(label.as_bytes());
                out.put(data);
            }
            Self::First {
                frag_id,
                total_length,
                protocol_type,
                label,
                data,
            } => {
                out.put(&(START | label.label_type() << 12 | length).to_be_bytes());
                out.put(&[*frag_id]);
                out.put(&total_length.to_be_bytes());
                out.put(&protocol_type.to_be_bytes());
                out.put(label.as_bytes());
                out.put(data);
            }
            Self::Middle { frag_id, data } => {
                out.put(&(LABEL_TYPE | length).to_be_bytes());
                out.put(&[*frag_id]);
                out.put(data);
            }
            Self::Last { frag_id, data, crc } => {
                out.put(&(END | LABEL_TYPE | length).to_be_bytes());
                out.put(&[*frag_id]);
                out.put(data);
                out.put(&crc.to_be_bytes());
            }
        }
        Ok(len)
    }
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}
