// SPDX-License-Identifier: GPL-3.0-or-later
//! Any bytes as data fields of BBFRAMEs, cut at the first byte's multiples so that fragments meet
//! strange successors.
#![no_main]

use dvb::gse::Decapsulator;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&size, bytes)) = bytes.split_first() else {
        return;
    };
    let mut receiver = Decapsulator::new();
    for frame in bytes.chunks(usize::from(size).max(1)) {
        receiver.frame(frame, |pdu| assert!(pdu.data.len() <= dvb::gse::MAX_PDU));
    }
});
