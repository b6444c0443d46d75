// SPDX-License-Identifier: GPL-3.0-or-later
//! Shared by the encapsulation tests.

use proptest::prelude::*;
use std::collections::VecDeque;

/// An IP packet of `len` bytes that differs from its neighbours.
pub fn packet(number: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len)
        .map(|i| (i * 7 + number * 31 + i / 256) as u8)
        .collect();
    bytes[0] = if number % 3 == 0 { 0x60 } else { 0x45 };
    bytes
}

/// Packet lengths as links see them, up to `longest`.
pub fn lengths(longest: usize, count: usize) -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![Just(40_usize), 1..120_usize, 1400..=1500_usize, 1..=longest];
    proptest::collection::vec(length.prop_map(move |len| len.min(longest)), 1..count)
}

/// A queue in the shape that encapsulators ask for.
pub fn source(queue: &mut VecDeque<Vec<u8>>) -> impl FnMut(&mut Vec<u8>) -> bool + '_ {
    |out| match queue.pop_front() {
        Some(packet) => {
            out.extend(packet);
            true
        }
        None => false,
    }
}

/// What was filled: frames, and for each packet the frames of its first and of its last byte.
pub struct Sent {
    pub frames: Vec<Vec<u8>>,
    pub spans: Vec<(usize, usize)>,
}

/// Fills frames of `frame_bytes` until all packets are sent. `fill` returns the number of completed
/// packets and the bytes still pending.
pub fn send_all(
    packets: &[Vec<u8>],
    frame_bytes: usize,
    mut fill: impl FnMut(&mut [u8], &mut VecDeque<Vec<u8>>) -> (u64, usize),
) -> Sent {
    let mut queue: VecDeque<_> = packets.iter().cloned().collect();
    let mut sent = Sent {
        frames: vec![],
        spans: vec![],
    };
    let mut begun = None;
    while sent.spans.len() < packets.len() {
        let at = sent.frames.len();
        assert!(at < 100_000, "no progress");
        let mut frame = vec![0xAA; frame_bytes];
        let (completed, pending) = fill(&mut frame, &mut queue);
        for _ in 0..completed {
            sent.spans.push((begun.take().unwrap_or(at), at));
        }
        if pending > 0 && pending < packets[sent.spans.len()].len() {
            begun.get_or_insert(at);
        }
        sent.frames.push(frame);
    }
    assert!(queue.is_empty());
    sent
}

/// Packets none of whose frames is lost.
pub fn survivors(packets: &[Vec<u8>], sent: &Sent, lost: &[bool]) -> Vec<Vec<u8>> {
    let is_lost = |frame: usize| lost[frame % lost.len()];
    let whole = |&(first, last): &(usize, usize)| !(first..=last).any(is_lost);
    packets
        .iter()
        .zip(&sent.spans)
        .filter(|(_, span)| whole(span))
        .map(|(p, _)| p.clone())
        .collect()
}

/// Whether `part` is `whole` with packets left out.
pub fn is_subsequence(part: &[Vec<u8>], whole: &[Vec<u8>]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|packet| whole.any(|other| other == packet))
}
