// SPDX-License-Identifier: GPL-3.0-or-later
//! Merged packets are restored byte for byte by segmentation.

use super::*;
use crate::offload::tests::{Sample, cut, sample};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

const BOTH: Takes = Takes {
    tcp: true,
    udp: true,
};

/// Writes packets through a bundle: the writes, each with its header.
fn written(packets: &[Vec<u8>], takes: Takes) -> Vec<(Header, Vec<u8>)> {
    let mut bundle = Bundle::new();
    let mut writes = Vec::new();
    let mut write = |bundle: &mut Bundle| {
        let (header, packet) = bundle.finish();
        writes.push((header, packet.to_vec()));
        bundle.clear();
    };
    for packet in packets {
        if !bundle.add(packet, takes) {
            write(&mut bundle);
            assert!(bundle.add(packet, takes));
        }
    }
    write(&mut bundle);
    writes
}

fn apart((header, packet): &(Header, Vec<u8>)) -> Vec<Vec<u8>> {
    match header.kind {
        crate::offload::WHOLE => vec![packet.clone()],
        _ => cut(header, packet),
    }
}

/// A flow of `count` packets of `length` bytes of payload.
fn flow(random: &mut Pcg64, count: u16, length: usize) -> Vec<Sample> {
    let first = sample(random, length);
    (0..count)
        .map(|index| Sample {
            id: first.id.wrapping_add(index),
            sequence: first
                .sequence
                .wrapping_add(u32::from(index) * length as u32),
            payload: sample(random, length).payload,
            ..first.clone()
        })
        .collect()
}

fn packets(flow: &[Sample]) -> Vec<Vec<u8>> {
    flow.iter().map(Sample::packet).collect()
}

#[test]
// promise: P6
fn mixed_flows_come_apart_as_they_were() {
    let mut random = Pcg64::seed_from_u64(4);
    for _ in 0..200 {
        let mut mix = Vec::new();
        for _ in 0..5 {
            let (count, length) = (1 + random.next_u32() % 100, random.next_u32() % 1460);
            let mut flow = flow(&mut random, count as u16, length as usize);
            for sample in &mut flow {
                match random.next_u32() % 40 {
                    0 => sample.flags = 0x18,
                    1 => sample.flags = 0x11,
                    2 => sample.flags = 0x90,
                    3 => sample.sequence ^= 1,
                    4 => sample.payload.truncate(7),
                    5 => sample.payload.clear(),
                    6 => sample.id ^= 1,
                    7 => sample.port ^= 1,
                    _ => {}
                }
            }
            mix.extend(packets(&flow));
            // Damaged, cut off, foreign.
            let mut last = mix[mix.len() - 1].clone();
            match random.next_u32() % 3 {
                0 => *last.last_mut().unwrap() ^= 1,
                1 => last.truncate(random.next_u32() as usize % last.len() + 1),
                _ => random.fill_bytes(&mut last),
            }
            mix.push(last);
        }
        let writes = written(&mix, BOTH);
        assert_eq!(writes.iter().flat_map(apart).collect::<Vec<_>>(), mix);
        assert!(writes.len() < mix.len());
        assert!(writes.iter().all(|(_, packet)| packet.len() <= MOST_BYTES));
    }
}

#[test]
fn a_flow_is_written_in_one_go() {
    let mut random = Pcg64::seed_from_u64(5);
    for _ in 0..50 {
        let mut flow = flow(&mut random, 10, 1000);
        flow[9].payload.truncate(10);
        flow[9].flags = 0x18;
        let packets = packets(&flow);
        let writes = written(&packets, BOTH);
        assert_eq!(writes.len(), 1);
        assert_eq!(apart(&writes[0]), packets);
        let takes = Takes {
            tcp: !flow[0].is_tcp,
            udp: flow[0].is_tcp,
        };
        assert_eq!(written(&packets, takes).len(), 10);
    }
}

#[test]
fn a_push_and_a_short_packet_are_the_last() {
    let mut random = Pcg64::seed_from_u64(6);
    let mut flow = flow(&mut random, 6, 100);
    for sample in &mut flow {
        (sample.is_tcp, sample.is_ipv4) = (true, true);
    }
    flow[1].flags = 0x18;
    flow[3].payload.truncate(99);
    let packets = packets(&flow);
    let lengths: Vec<_> = written(&packets, BOTH)
        .iter()
        .map(|write| apart(write).len())
        .collect();
    // The fifth does not follow the short fourth, and the sixth does follow the fifth.
    assert_eq!(lengths, [2, 2, 2]);
}

#[test]
fn acknowledgements_and_marks_stay_alone() {
    let mut random = Pcg64::seed_from_u64(7);
    let mut flow = flow(&mut random, 3, 0);
    for sample in &mut flow {
        (sample.is_tcp, sample.is_ipv4) = (true, true);
    }
    assert_eq!(written(&packets(&flow), BOTH).len(), 3);
    for sample in &mut flow {
        sample.payload = vec![1; 50];
        sample.sequence = flow_sequence(sample);
    }
    let mut marked = packets(&flow);
    marked[1][1] |= 3;
    // The header's checksum of the marked one is wrong now, as well: put it right.
    set_length(&mut marked[1], 20);
    assert_eq!(written(&marked, BOTH).len(), 3);
}

fn flow_sequence(sample: &Sample) -> u32 {
    sample.sequence.wrapping_add(u32::from(sample.id) * 50)
}

#[test]
fn atomic_packets_need_no_number() {
    let mut random = Pcg64::seed_from_u64(8);
    let mut flow = flow(&mut random, 4, 500);
    for sample in &mut flow {
        (sample.is_ipv4, sample.id) = (true, 0);
    }
    let mut packets = packets(&flow);
    assert_eq!(written(&packets, BOTH).len(), 4);
    for packet in &mut packets {
        packet[6] = 0x40;
        set_length(packet, 20);
    }
    assert_eq!(written(&packets, BOTH).len(), 1);
}
