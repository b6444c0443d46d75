// SPDX-License-Identifier: GPL-3.0-or-later
//! Generic Stream Encapsulation (ETSI TS 102 606-1): IP packets in the data fields of BBFRAMEs.
//!
//! [`Packet`] is one GSE packet, [`Encapsulator`] and [`Decapsulator`] turn packets into data
//! fields and back.

mod decap;
mod encap;
mod packet;

pub use decap::{Decapsulator, Pdu};
pub use encap::Encapsulator;
pub use packet::{GseError, Label, LabelField, Packet};

/// Longest PDU: the 16-bit total length also counts protocol type and label.
pub const MAX_PDU: usize = 65_535 - 2 - 6;
/// Smallest data field that an [`Encapsulator`] is sure to make progress in.
pub const MIN_DATA_FIELD: usize = 16;
