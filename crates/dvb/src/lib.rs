// SPDX-License-Identifier: GPL-3.0-or-later
//! DVB-S2 forward and DVB-RCS2 return air interface, without I/O.
//!
//! | module | standard |
//! |---|---|
//! | [`modcod`] | ETSI EN 302 307-1: MODCOD table, PLFRAME arithmetic |
//! | [`acm`] | choice of the MODCOD, ETSI EN 302 307-1 annex D; error model of a frame |
//! | [`aloha`] | ETSI EN 301 545-2: random access of the return link, its receivers and backoff |
//! | [`bbframe`] | ETSI EN 302 307-1 clause 5.1.6: BBHEADER |
//! | [`dama`] | ETSI EN 301 545-2: capacity requests and burst time plans of the return link |
//! | [`gse`] | ETSI TS 102 606-1: Generic Stream Encapsulation |
//! | [`opensand`] | none: the arithmetic of `OpenSAND` 8.2 where it differs |
//! | [`rcs2`] | ETSI EN 301 545-2 annex A: linear-modulation reference waveforms |
//! | [`rle`] | ETSI TS 103 179: Return Link Encapsulation |
//!
//! No parser of this crate panics, whatever bytes it is given.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod acm;
pub mod aloha;
pub mod bbframe;
pub mod dama;
pub mod gse;
pub mod modcod;
pub mod opensand;
pub mod rcs2;
pub mod rle;
pub mod sdu;
