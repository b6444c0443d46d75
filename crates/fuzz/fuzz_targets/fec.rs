// SPDX-License-Identifier: GPL-3.0-or-later
//! Any bytes as frames of a FEC tunnel; the first byte says how they are cut and when packets
//! leave.
#![no_main]

use fec::{Delivery, Frame, Protection, Receiver, Sender};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&size, bytes)) = bytes.split_first() else {
        return;
    };
    let delivery = match size & 1 {
        0 => Delivery::Immediate,
        _ => Delivery::InOrder { hold: 20_000_000 },
    };
    let mut receiver = Receiver::new(32, delivery).with_reports(0);
    let mut sender = Sender::new(Protection::Adaptive);
    for (number, frame) in bytes.chunks(usize::from(size / 2).max(1)).enumerate() {
        let now = number as u64 * 1_000_000;
        let taken = receiver.receive(now, frame, |packet| assert!(!packet.is_empty()));
        if let Ok(Frame::Report(report)) = taken {
            sender.report(now, report);
        }
        receiver.timeout(now, |_| {});
        if let Some(report) = receiver.report(now) {
            assert!(matches!(fec::parse(&report), Ok(Frame::Report(_))));
        }
        assert!(receiver.missing() <= 32);
    }
});
