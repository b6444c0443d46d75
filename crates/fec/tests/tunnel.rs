// SPDX-License-Identifier: GPL-3.0-or-later
//! What holds for any losses, order and bytes.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use common::{MS, Tunnel, code, number, packet};
use fec::{
    Arrival, Code, Decoder, Delivery, Encoder, Frame, LADDER, Protection, Receiver, Sender, parse,
};
use proptest::prelude::*;

const HOLD: Delivery = Delivery::InOrder { hold: 50 * MS };

fn codes() -> impl Strategy<Value = Code> {
    (1..8_u16, 1..40_u16).prop_map(|(step, window)| code(step, window.max(step)))
}

proptest! {
    /// Each packet comes out at most once and as it was; none is counted twice; in order it stays
    /// in order.
    #[test]
    // promise: P70
    fn packets_come_out_once_and_whole(
        code in codes(), lost in prop::collection::vec(any::<bool>(), 1..200), is_in_order: bool, spare in 0..4_u64,
    ) {
        let mut tunnel = Tunnel::new(code, if is_in_order { HOLD } else { Delivery::Immediate });
        let total = 300;
        for number in 0..total {
            let is_lost = |frame: u64| lost[frame as usize % lost.len()] && frame % 4 >= spare;
            tunnel.push(number * MS, number, |frame, _| is_lost(frame));
            tunnel.timeout(number * MS);
        }
        tunnel.timeout(1000 * MS);
        let mut unique = tunnel.out.clone();
        unique.sort_unstable();
        unique.dedup();
        prop_assert_eq!(unique.len(), tunnel.out.len());
        if is_in_order {
            prop_assert_eq!(&unique, &tunnel.out);
        } else {
            let seen = tunnel.counters();
            prop_assert_eq!(tunnel.out.len() as u64, seen.sources + seen.recovered);
        }
    }

    /// Frames in any order within half the window are as good as in theirs.
    #[test]
    fn reordered_frames_are_no_losses(seed: u64, gone in 0..100_u64) {
        let mut frames = Vec::new();
        let mut sender = Sender::new(Some(code(5, 40)));
        for number in 0..200 {
            sender.push(number, &packet(number, 40), |frame| frames.push(frame.to_vec()));
        }
        frames.retain(|frame| !matches!(parse(frame), Ok(Frame::Source { esi, .. }) if u64::from(esi) == gone));
        for (at, chunk) in frames.chunks_mut(10).enumerate() {
            chunk.rotate_left((seed >> (at % 60)) as usize % chunk.len());
        }
        let mut tunnel = Tunnel::new(code(5, 40), Delivery::Immediate);
        for (at, frame) in frames.iter().enumerate() {
            tunnel.receive(at as u64, frame);
        }
        tunnel.out.sort_unstable();
        prop_assert_eq!(tunnel.out, (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn any_bytes_leave_the_receiver_working(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..60), is_in_order: bool,
    ) {
        swallow(&frames, is_in_order);
    }
}

/// Any frames, and then a good stream of another sender.
fn swallow(frames: &[Vec<u8>], is_in_order: bool) {
    let delivery = if is_in_order {
        HOLD
    } else {
        Delivery::Immediate
    };
    let mut receiver = Receiver::new(32, delivery).with_reports(0);
    let mut sender = Sender::new(Protection::Adaptive);
    for (at, frame) in frames.iter().enumerate() {
        let now = at as u64 * 50 * MS;
        let taken = receiver.receive(now, frame, |packet| assert!(!packet.is_empty()));
        if let Ok(Frame::Report(report)) = taken {
            sender.report(now, report);
        }
        assert!(LADDER.contains(&sender.code().unwrap()));
        receiver.timeout(now, |_| {});
        if let Some(report) = receiver.report(now) {
            assert!(matches!(parse(&report), Ok(Frame::Report(_))));
        }
        assert!(receiver.missing() <= 32);
    }
    let counters = receiver.counters();
    assert!(counters.repairs_used <= counters.repairs);
}

#[test]
fn corpus_is_taken_without_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/receiver");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        files += 1;
        for size in [1, 9, 12, 13, 40] {
            let frames: Vec<_> = bytes.chunks(size).map(<[u8]>::to_vec).collect();
            swallow(&frames, false);
            swallow(&frames, true);
        }
    }
    assert!(files >= 5, "{files}");
}

#[test]
// promise: P71
fn memory_and_equations_are_bounded_whatever_is_lost() {
    let code = code(2, 100);
    let mut encoder = Encoder::new(Some(code), u32::MAX - 500);
    let mut decoder = Decoder::new(200, u32::MAX - 500);
    let (mut frame, mut known) = (Vec::new(), Vec::new());
    let mut most = 0;
    for number in 0..5000_u64 {
        frame.clear();
        let is_due = encoder.source(&packet(number, 40), &mut frame);
        let Ok(Frame::Source { esi, packet }) = parse(&frame) else {
            panic!()
        };
        // Of six packets five are lost, of six repair frames none: never enough.
        if number % 6 == 0 {
            assert_eq!(decoder.source(esi, packet, &mut known), Arrival::New);
        }
        frame.clear();
        if is_due {
            encoder.repair(&mut frame);
            let Ok(Frame::Repair { id, symbol }) = parse(&frame) else {
                panic!()
            };
            decoder.repair(id, symbol, &mut known);
        }
        most = most.max(decoder.equations());
    }
    assert!((1..=200).contains(&most), "{most}");
    assert_eq!(decoder.window().end - decoder.window().start, 200);
    assert!(decoder.lost() > 0);
}

#[test]
fn a_jump_of_identifiers_costs_no_time_and_counts_as_lost() {
    let mut decoder = Decoder::new(10, 0);
    let mut known = Vec::new();
    assert_eq!(decoder.source(0, b"a", &mut known), Arrival::New);
    let far = u32::MAX / 2;
    assert_eq!(decoder.source(far, b"b", &mut known), Arrival::New);
    assert_eq!(decoder.lost(), u64::from(far) - 1 - 9);
    assert_eq!(decoder.missing(), 9);
    assert_eq!(decoder.source(0, b"a", &mut known), Arrival::Late);
    assert_eq!(decoder.source(far, b"b", &mut known), Arrival::Duplicate);
}

#[test]
fn in_order_holds_what_follows_a_gap_until_it_is_recovered_or_time_is_over() {
    let mut tunnel = Tunnel::new(code(5, 20), HOLD);
    for number in 0..40 {
        tunnel.push(number * MS, number, |_, _| number == 21);
        match number {
            22..24 => assert_eq!(tunnel.out.len(), 21),
            24 => assert_eq!(tunnel.out.len(), 25),
            _ => {}
        }
    }
    let seen = tunnel.counters();
    assert_eq!((seen.recovered, seen.recovery_delay_max), (1, 2 * MS));
    // Too many are gone: what follows waits 50 ms.
    for number in 40..60 {
        tunnel.push(number * MS, number, |_, _| number < 50);
        tunnel.timeout(number * MS);
        assert_eq!(tunnel.out.len(), 40);
    }
    assert_eq!(tunnel.receiver.next_timeout(), Some(100 * MS));
    tunnel.timeout(100 * MS - 1);
    assert_eq!(tunnel.out.len(), 40);
    tunnel.timeout(100 * MS);
    assert_eq!(tunnel.out[40..], (50..60).collect::<Vec<_>>());
}

/// A program's socket of Linux's default size loses what exceeds some 90 packets at once.
#[test]
fn what_was_held_leaves_in_bursts_of_16() {
    let mut tunnel = Tunnel::new(code(100, 100), HOLD);
    for number in 0..90 {
        tunnel.push(number, number, |frame, _| frame == 0);
    }
    let first = 1 + 50 * MS; // the first packet behind the gap came at 1 ns
    tunnel.timeout(first);
    assert_eq!(tunnel.out, (1..=16).collect::<Vec<_>>());
    assert_eq!(tunnel.receiver.next_timeout(), Some(first + MS));
    // A packet that arrives lets two go, not itself.
    tunnel.push(first + 1, 90, |_, _| false);
    assert_eq!(tunnel.out.len(), 18);
    for count in 1..=5 {
        tunnel.timeout(first + count * MS);
        assert_eq!(tunnel.out.len() as u64, 90.min(18 + 16 * count));
    }
    assert_eq!(tunnel.out, (1..=90).collect::<Vec<_>>());
    assert_eq!(tunnel.receiver.next_timeout(), None);
    // Without a gap every packet passes at once.
    for number in 91..200 {
        tunnel.push(first + 6 * MS, number, |_, _| false);
    }
    assert_eq!(tunnel.out.len(), 199);
}

#[test]
fn immediate_delivers_recovered_packets_behind_later_ones() {
    let mut tunnel = Tunnel::new(code(5, 20), Delivery::Immediate);
    for number in 0..30 {
        tunnel.push(number * MS, number, |_, _| number == 21);
    }
    assert_eq!(tunnel.out[20..25], [20, 22, 23, 24, 21]);
    assert_eq!(tunnel.receiver.next_timeout(), None);
}

#[test]
fn the_last_packets_of_a_stream_are_covered() {
    let mut tunnel = Tunnel::new(code(10, 100), Delivery::Immediate);
    for number in 0..103 {
        tunnel.push(number * MS, number, |_, _| number == 102);
    }
    let due = tunnel.sender.next_timeout().unwrap();
    let mut frames = Vec::new();
    tunnel
        .sender
        .timeout(due, |frame| frames.push(frame.to_vec()));
    tunnel.receive(due, &frames[0]);
    assert_eq!(tunnel.out.last(), Some(&102));
    // No later packet had shown that it was missing.
    assert_eq!(tunnel.counters().recovery_delay_max, 0);
}

#[test]
fn a_repair_frame_over_no_packet_changes_nothing() {
    let mut receiver = Receiver::new(20, HOLD);
    let mut frames = Vec::new();
    let mut sender = Sender::new(Some(code(1, 1)));
    for now in 0..2 {
        sender.push(now * MS, b"packet", |frame| frames.push(frame.to_vec()));
    }
    let mut forged = frames[1].clone();
    forged[3..9].copy_from_slice(&[0xf0, 0, 0x40, 0, 0, 0]); // no packet, the first far ahead
    let mut delivered = 0;
    for frame in [&frames[0], &forged, &frames[2]] {
        receiver.receive(MS, frame, |_| delivered += 1).unwrap();
    }
    assert_eq!((delivered, receiver.counters().malformed), (2, 1));
}

/// Whoever sends with the peer's address can forge frames.
#[test]
fn test_t79_a_forged_number_does_not_end_the_stream() {
    for delivery in [Delivery::Immediate, HOLD] {
        for far in [
            1 << 20,
            u32::MAX / 2,
            u32::MAX / 2 + 10,
            u32::MAX - (1 << 20),
        ] {
            let mut tunnel = Tunnel::new(code(5, 20), delivery);
            let forge = |tunnel: &mut Tunnel, now: u64, number: u32| {
                let frame = [&[0][..], &packet(7, 40), &number.to_be_bytes()].concat();
                tunnel.receive(now, &frame);
            };
            for number in 0..100 {
                tunnel.push(number * MS, number, |_, _| false);
            }
            forge(&mut tunnel, 100 * MS, far);
            for number in 100..200 {
                tunnel.push(number * MS, number, |_, _| false);
            }
            assert_eq!(tunnel.out.len(), 200, "{far}");
            // Two move the window; two of the stream move it back.
            forge(&mut tunnel, 200 * MS, far);
            forge(&mut tunnel, 200 * MS, far + 1);
            for number in 200..300 {
                tunnel.push(number * MS, number, |_, _| false);
            }
            tunnel.timeout(400 * MS);
            // One of the two passes as a packet, the first of the stream behind them is lost.
            assert_eq!(tunnel.out.len(), 300, "{far}");
        }
    }
}

#[test]
fn repair_frames_of_another_stream_are_noticed() {
    let mut receiver = Receiver::new(20, Delivery::Immediate);
    let mut frames = Vec::new();
    Sender::new(Some(code(1, 1))).push(0, b"packet", |frame| frames.push(frame.to_vec()));
    let last = frames[1].len() - 1;
    frames[1][last - 7] ^= 0x55; // The length in its source symbol.
    let taken = receiver.receive(0, &frames[1], |_| panic!("a packet"));
    assert!(taken.is_ok());
    assert_eq!(receiver.counters().malformed, 1);
    let refused = receiver.receive(0, &[7, 1], |_| panic!("a packet"));
    assert!(refused.is_err());
    assert_eq!(receiver.counters().malformed, 2);
    assert_eq!(number(&packet(5, 40), 40), 5);
}
