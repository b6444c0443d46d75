// SPDX-License-Identifier: GPL-3.0-or-later
//! Any bytes as a BBFRAME: header with its CRC-8, and what the data field says.
#![no_main]

use dvb::bbframe::BbFrame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = BbFrame::new(bytes) {
        let _ = frame.header();
        assert!(frame.data_field().len() * 8 <= usize::from(frame.dfl()) + 7);
    }
});
