// SPDX-License-Identifier: GPL-3.0-or-later
//! Any bytes as payloads of bursts, cut at the first byte's multiples; a burst of zeros is a lost
//! one.
#![no_main]

use dvb::rle::Decapsulator;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&size, bytes)) = bytes.split_first() else {
        return;
    };
    let mut receiver = Decapsulator::new();
    for burst in bytes.chunks(usize::from(size).max(1)) {
        if burst.iter().all(|&byte| byte == 0) {
            receiver.frame_lost();
        }
        receiver.frame(burst, |sdu| assert!(sdu.data.len() <= 4095));
    }
});
