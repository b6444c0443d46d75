// SPDX-License-Identifier: GPL-3.0-or-later
//! What the forward link has on air, read by an independent receiver.

#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

#[path = "common/on_air.rs"]
mod on_air;

use bytes::Bytes;
use dvb::bbframe::{BbHeader, RollOff};
use dvb_gse::bbframe::BBFrameValidator;
use dvb_gse::gsepacket::GSEPacketDefrag;
use link::Frame;

fn decode(frames: &[Frame]) -> Vec<Vec<u8>> {
    let mut receiver = GSEPacketDefrag::new();
    let mut got = vec![];
    for frame in frames {
        let header = BbHeader::gse(frame.payload.len(), RollOff::R25).to_bytes();
        let bytes = Bytes::from([&header[..], &frame.payload].concat());
        assert!(BBFrameValidator::new().bbframe_is_valid(&bytes));
        let pdus = receiver.defragment(&bytes).unwrap();
        got.extend(pdus.map(|pdu| pdu.data().to_vec()));
    }
    got
}

#[test]
fn an_independent_receiver_reads_every_bbframe_of_the_forward_link() {
    for seed in 0..200 {
        let run = on_air::forward(seed, false);
        assert_eq!(run.sent.len(), 120, "seed {seed}");
        assert_eq!(run.received, run.sent, "seed {seed}");
        assert_eq!(
            decode(&run.frames),
            run.sent,
            "seed {seed}: {:?}",
            run.carrier
        );
    }
}

#[test]
fn recorded_frames_say_which_ones_were_lost() {
    let mut lost = 0;
    for seed in 0..20 {
        let run = on_air::back(seed);
        let missed = run.frames.iter().filter(|frame| frame.is_lost).count();
        assert_eq!(missed == 0, run.received == run.sent, "seed {seed}");
        lost += missed;
    }
    assert!(lost > 0);
}
