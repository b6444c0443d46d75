// SPDX-License-Identifier: GPL-3.0-or-later
//! DVB-S2 forward and DVB-RCS2 return air interface, without I/O.
//!
//! | module | standard |
//! |---|---|
//! | [`modcod`] | ETSI EN 302 307-1: MODCOD table, PLFRAME arithmetic |
//! | [`bbframe`] | ETSI EN 302 307-1 clause 5.1.6: BBHEADER |
//! | [`gse`] | ETSI TS 102 606-1: Generic Stream Encapsulation |
//! | [`rcs2`] | ETSI EN 301 545-2 annex A: linear-modulation reference waveforms |
//! | [`rle`] | ETSI TS 103 179: Return Link Encapsulation |
//!
//! No parser of this crate panics, whatever bytes it is given.

pub mod bbframe;
pub mod gse;
pub mod modcod;
pub mod rcs2;
pub mod rle;
pub mod sdu;
