// SPDX-License-Identifier: GPL-3.0-or-later
//! BBHEADER of DVB-S2 (ETSI EN 302 307-1 clause 5.1.6), with the field values GSE asks for (ETSI TS
//! 102 606-1).
//!
//! [`BbFrame`] is the view on received bytes, [`BbHeader`] the meaning.

use crc::{CRC_8_DVB_S2, Crc, Table};
use thiserror::Error;

/// Length of the BBHEADER in bytes.
pub const BBHEADER_LEN: usize = 10;

static CRC8: Crc<u8, Table<1>> = Crc::<u8, Table<1>>::new(&CRC_8_DVB_S2);

/// Kind of input stream (`TS/GS`, first two bits of MATYPE-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamType {
    /// Packets of constant length that are no transport stream.
    GenericPacketized,
    /// Generic continuous: what GSE uses.
    GenericContinuous,
    /// MPEG transport stream.
    Transport,
}

/// Roll-off factor of the carrier (last two bits of MATYPE-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollOff {
    /// 0.35
    R35,
    /// 0.25
    R25,
    /// 0.20
    R20,
}

/// Meaning of a BBHEADER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BbHeader {
    /// Kind of input stream.
    pub stream_type: StreamType,
    /// Input stream identifier; `None` on a single-stream carrier.
    pub isi: Option<u8>,
    /// Constant coding and modulation (`false`: ACM or VCM).
    pub ccm: bool,
    /// Input stream synchronisation fields are present.
    pub issyi: bool,
    /// Null packets are deleted.
    pub npd: bool,
    /// Roll-off factor.
    pub roll_off: RollOff,
    /// User packet length in bits; 0 for a continuous stream.
    pub upl: u16,
    /// Data field length in bits, at most 58 112.
    pub dfl: u16,
    /// Sync byte of the user packets, or protocol signalling of a continuous stream.
    pub sync: u8,
    /// Bits from the start of the data field to the first user packet; 0 for a continuous stream.
    pub syncd: u16,
}

/// Why bytes are no BBFRAME.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BbFrameError {
    /// Fewer bytes than a BBHEADER.
    #[error("{0} bytes are fewer than a BBHEADER of {BBHEADER_LEN}")]
    Short(usize),
    /// The CRC-8 over the header is wrong.
    #[error("CRC-8 of the BBHEADER is {found:#04x}, expected {expected:#04x}")]
    Crc {
        /// CRC-8 in the header.
        found: u8,
        /// CRC-8 computed.
        expected: u8,
    },
    /// `TS/GS` or roll-off has a value that DVB-S2 reserves.
    #[error("MATYPE-1 {0:#04x} is reserved")]
    Reserved(u8),
    /// The data field is not a whole number of bytes, or longer than the frame.
    #[error("data field of {0} bits is not a whole number of bytes within the frame")]
    DataField(u16),
}

/// View on the bytes of a BBFRAME whose CRC-8 and data field length were checked.
#[derive(Clone, Copy, Debug)]
pub struct BbFrame<'a> {
    bytes: &'a [u8],
}

impl<'a> BbFrame<'a> {
    /// Checks length, CRC-8 and data field length.
    ///
    /// # Errors
    /// [`BbFrameError::Short`], [`BbFrameError::Crc`] or [`BbFrameError::DataField`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, BbFrameError> {
        let Some(header) = bytes.first_chunk::<BBHEADER_LEN>() else {
            return Err(BbFrameError::Short(bytes.len()));
        };
        let expected = CRC8.checksum(&header[..9]);
        if header[9] != expected {
            return Err(BbFrameError::Crc {
                found: header[9],
                expected,
            });
        }
        let frame = Self { bytes };
        let dfl = frame.dfl();
        if dfl % 8 != 0 || BBHEADER_LEN + usize::from(dfl / 8) > bytes.len() {
            return Err(BbFrameError::DataField(dfl));
        }
        Ok(frame)
    }

    /// Data field length in bits.
    #[must_use]
    pub fn dfl(&self) -> u16 {
        self.u16_at(4)
    }

    /// The data field, without the padding that may follow it.
    #[must_use]
    pub fn data_field(&self) -> &'a [u8] {
        &self.bytes[BBHEADER_LEN..][..usize::from(self.dfl() / 8)]
    }

    /// Meaning of the header.
    ///
    /// # Errors
    /// [`BbFrameError::Reserved`].
    pub fn header(&self) -> Result<BbHeader, BbFrameError> {
        let matype = self.bytes[0];
        let stream_type = match matype >> 6 {
            0b00 => StreamType::GenericPacketized,
            0b01 => StreamType::GenericContinuous,
            0b11 => StreamType::Transport,
            _ => return Err(BbFrameError::Reserved(matype)),
        };
        let roll_off = match matype & 0b11 {
            0b00 => RollOff::R35,
            0b01 => RollOff::R25,
            0b10 => RollOff::R20,
            _ => return Err(BbFrameError::Reserved(matype)),
        };
        let single = matype & 0x20 != 0;
        Ok(BbHeader {
            stream_type,
            isi: (!single).then_some(self.bytes[1]),
            ccm: matype & 0x10 != 0,
            issyi: matype & 0x08 != 0,
            npd: matype & 0x04 != 0,
            roll_off,
            upl: self.u16_at(2),
            dfl: self.dfl(),
            sync: self.bytes[6],
            syncd: self.u16_at(7),
        })
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }
}

impl BbHeader {
    /// Header of a single-stream CCM BBFRAME that carries `data_field_bytes` of GSE (generic
    /// continuous, UPL 0, SYNC 0, SYNCD 0). At most 8191 bytes fit the DFL field; more is cut to
    /// that.
    #[must_use]
    pub fn gse(data_field_bytes: usize, roll_off: RollOff) -> Self {
        Self {
            stream_type: StreamType::GenericContinuous,
            isi: None,
            ccm: true,
            issyi: false,
            npd: false,
            roll_off,
            upl: 0,
            dfl: (data_field_bytes.min(8191) * 8) as u16,
            sync: 0,
            syncd: 0,
        }
    }

    /// The ten bytes on air, CRC-8 included.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; BBHEADER_LEN] {
        let stream_type = match self.stream_type {
            StreamType::GenericPacketized => 0b00,
            StreamType::GenericContinuous => 0b01,
            StreamType::Transport => 0b11,
        };
        let roll_off = match self.roll_off {
            RollOff::R35 => 0b00,
            RollOff::R25 => 0b01,
            RollOff::R20 => 0b10,
        };
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let mut bytes = [0; BBHEADER_LEN];
        bytes[0] = stream_type << 6
            | flag(self.isi.is_none(), 0x20)
            | flag(self.ccm, 0x10)
            | flag(self.issyi, 0x08)
            | flag(self.npd, 0x04)
            | roll_off;
        bytes[1] = self.isi.unwrap_or(0);
        bytes[2..4].copy_from_slice(&self.upl.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.dfl.to_be_bytes());
        bytes[6] = self.sync;
        bytes[7..9].copy_from_slice(&self.syncd.to_be_bytes());
        bytes[9] = CRC8.checksum(&bytes[..9]);
        bytes
    }
}
