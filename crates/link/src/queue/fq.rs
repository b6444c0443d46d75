// SPDX-License-Identifier: GPL-3.0-or-later
//! Flow queues with a `CoDel` each, served by deficit round robin (RFC 8290).

use super::codel::Controller;
use super::{CoDel, FqCoDel};
use crate::ledger::Ledger;
use crate::random::{Process, generator};
use crate::ring::Ring;
use crate::{Nanos, Volume};
use rand_core::RngCore;
use std::collections::VecDeque;

#[derive(Debug)]
struct Flow {
    ring: Ring,
    controller: Controller,
    deficit: i64,
    is_listed: bool,
}

/// The flows. An active flow is in one of the two lists.
#[derive(Debug)]
pub(super) struct FlowQueues {
    codel: CoDel,
    quantum: i64,
    hash_key: u64,
    flows: Vec<Flow>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    size: Volume,
}

impl FlowQueues {
    pub(super) fn new(config: FqCoDel, seed: u64, generation: u64) -> Self {
        let flow = || Flow {
            ring: Ring::default(),
            controller: Controller::default(),
            deficit: 0,
            is_listed: false,
        };
        let flows = config.flows as usize;
        Self {
            codel: config.codel,
            quantum: i64::from(config.quantum),
            hash_key: generator(seed, Process::Queue, generation).next_u64(),
            flows: std::iter::repeat_with(flow).take(flows).collect(),
            new: VecDeque::with_capacity(flows),
            old: VecDeque::with_capacity(flows),
            size: Volume::default(),
        }
    }

    pub(super) fn size(&self) -> Volume {
        self.size
    }

    /// Queues a packet and returns its flow (RFC 8290 section 4.1).
    pub(super) fn push(&mut self, now: Nanos, packet: &[u8]) -> usize {
        let index = (flow_hash(packet, self.hash_key) % self.flows.len() as u64) as usize;
        let flow = &mut self.flows[index];
        flow.ring.push(now, packet);
        self.size += Volume::of_packet(packet.len());
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit = self.quantum;
            self.new.push_back(index);
        }
        index
    }

    /// Drops from the head of the flow with the most bytes (section 4.1), and returns that flow and
    /// whether it is empty now.
    pub(super) fn drop_from_fattest(&mut self, now: Nanos, ledger: &mut Ledger) -> (usize, bool) {
        let listed = self.new.iter().chain(&self.old).copied();
        let fattest = listed
            .max_by_key(|&index| self.flows[index].ring.size().bytes)
            .unwrap_or(0);
        let ring = &mut self.flows[fattest].ring;
        if let Some(bytes) = ring.discard() {
            ledger.drop(now, bytes);
            self.size = self.size - Volume::of_packet(bytes);
        }
        (fattest, ring.size().packets == 0)
    }

    /// Takes the next packet (section 4.2): when it came.
    pub(super) fn pop(
        &mut self,
        ecn: bool,
        now: Nanos,
        out: &mut Vec<u8>,
        ledger: &mut Ledger,
    ) -> Option<Nanos> {
        loop {
            let from_new = !self.new.is_empty();
            let list = if from_new {
                &mut self.new
            } else {
                &mut self.old
            };
            let index = list.pop_front()?;
            let flow = &mut self.flows[index];
            if flow.deficit <= 0 {
                flow.deficit += self.quantum;
                self.old.push_back(index);
                continue;
            }
            let before = flow.ring.size();
            let got = flow
                .controller
                .pop(self.codel, ecn, now, &mut flow.ring, out, ledger);
            self.size = self.size - (before - flow.ring.size());
            if got.is_some() {
                flow.deficit -= i64::try_from(out.len()).unwrap_or(i64::MAX);
                let list = if from_new {
                    &mut self.new
                } else {
                    &mut self.old
                };
                list.push_front(index);
                return got;
            }
            if from_new {
                self.old.push_back(index);
            } else {
                flow.is_listed = false;
            }
        }
    }

    /// Takes everything out, oldest first.
    pub(super) fn drain(&mut self, mut sink: impl FnMut(Nanos, &[u8])) {
        let mut waiting = Vec::new();
        let mut packet = Vec::new();
        for flow in &mut self.flows {
            while let Some(time) = flow.ring.pop(&mut packet) {
                waiting.push((time, std::mem::take(&mut packet)));
            }
            flow.is_listed = false;
        }
        waiting.sort_by_key(|&(time, _)| time);
        for (time, packet) in &waiting {
            sink(*time, packet);
        }
        self.new.clear();
        self.old.clear();
        self.size = Volume::default();
    }
}

/// Hash of addresses, protocol and ports. For a fragment, or a packet that is shorter than its
/// headers, it is without ports.
fn flow_hash(packet: &[u8], key: u64) -> u64 {
    let byte = |at: usize| packet.get(at).copied().unwrap_or(0);
    let (addresses, protocol, ports) = match byte(0) >> 4 {
        4 => {
            let is_fragment = byte(6) & 0x3f != 0 || byte(7) != 0;
            let header = usize::from(byte(0) & 0x0f) * 4;
            (12..20, byte(9), (!is_fragment).then_some(header))
        }
        _ => (8..40, byte(6), Some(40)),
    };
    let has_ports = matches!(protocol, 6 | 17 | 33 | 132);
    let ports = ports.filter(|_| has_ports).map_or(0..0, |at| at..at + 4);
    let fields = [
        &[protocol][..],
        packet.get(addresses).unwrap_or(&[]),
        packet.get(ports).unwrap_or(&[]),
    ];
    mix(fields.into_iter().flatten(), key)
}

/// FNV-1a over the bytes, started at the key and finished by the mixing step of `SplitMix64`.
fn mix<'a>(bytes: impl Iterator<Item = &'a u8>, key: u64) -> u64 {
    let hash = bytes.fold(key ^ 0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UDP over IPv4 from this port, its number in the last byte.
    fn udp(port: u16, number: u8, len: usize) -> Vec<u8> {
        let mut packet = vec![0; len];
        (packet[0], packet[9]) = (0x45, 17);
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        packet[len - 1] = number;
        packet
    }

    fn taken(queues: &mut FlowQueues) -> Vec<(u16, u8)> {
        let (mut out, mut ledger) = (vec![], Ledger::default());
        std::iter::from_fn(|| {
            queues.pop(false, 0, &mut out, &mut ledger).map(|_| {
                let port = u16::from_be_bytes([out[20], out[21]]);
                (port, out[out.len() - 1])
            })
        })
        .collect()
    }

    #[test]
    fn flows_take_turns_by_bytes_and_keep_their_order() {
        let mut queues = FlowQueues::new(FqCoDel::default(), 1, 0);
        for number in 0..4 {
            queues.push(0, &udp(1, number, 1500));
        }
        for number in 0..6 {
            queues.push(0, &udp(2, number, 750));
        }
        // A quantum of 1514 bytes, as in the RFC: a packet of 1500 leaves 14, which allow one more.
        let order = taken(&mut queues);
        for port in [1, 2] {
            let numbers: Vec<_> = order
                .iter()
                .filter(|got| got.0 == port)
                .map(|got| got.1)
                .collect();
            assert!(numbers.is_sorted() && numbers.len() == if port == 1 { 4 } else { 6 });
        }
        assert_eq!(order[..5], [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]);
        assert_eq!(queues.size(), Volume::default());
    }

    #[test]
    fn all_is_taken_out_oldest_first() {
        let mut queues = FlowQueues::new(FqCoDel::default(), 1, 0);
        for number in 0..20 {
            queues.push(
                Nanos::from(number),
                &udp(u16::from(number % 4), number, 100),
            );
        }
        let mut order = vec![];
        queues.drain(|since, packet| order.push((since, packet[99])));
        let expected: Vec<_> = (0..20)
            .map(|number| (Nanos::from(number), number))
            .collect();
        assert_eq!(order, expected);
        assert_eq!(queues.size(), Volume::default());
    }

    #[test]
    fn new_flow_goes_first() {
        let mut queues = FlowQueues::new(FqCoDel::default(), 1, 0);
        for number in 0..100 {
            queues.push(0, &udp(1, number, 1500));
        }
        let (mut out, mut ledger) = (vec![], Ledger::default());
        for _ in 0..5 {
            queues.pop(false, 0, &mut out, &mut ledger);
        }
        queues.push(0, &udp(2, 0, 100));
        assert!(taken(&mut queues)[..2].contains(&(2, 0)));
    }

    #[test]
    fn overload_drops_from_the_fattest_flow() {
        let mut queues = FlowQueues::new(FqCoDel::default(), 1, 0);
        let mut ledger = Ledger::default();
        for number in 0..3 {
            queues.push(0, &udp(1, number, 1500));
        }
        let thin = queues.push(0, &udp(2, 0, 100));
        let (fattest, is_empty) = queues.drop_from_fattest(0, &mut ledger);
        assert!(fattest != thin && !is_empty && ledger.counters.bytes_dropped == 1500);
        let mut left = taken(&mut queues);
        left.sort_unstable();
        assert_eq!(left, [(1, 1), (1, 2), (2, 0)]);
    }

    #[test]
    fn hash_knows_flows_and_fragments_and_depends_on_the_key() {
        let hash = |packet: &[u8]| flow_hash(packet, 7);
        assert_eq!(hash(&udp(1, 0, 100)), hash(&udp(1, 9, 200)));
        assert_ne!(hash(&udp(1, 0, 100)), hash(&udp(2, 0, 100)));
        assert_ne!(hash(&udp(1, 0, 100)), flow_hash(&udp(1, 0, 100), 8));
        let (mut first, mut second) = (udp(1, 0, 100), udp(2, 0, 100));
        (first[6], second[7]) = (0x20, 50);
        assert_eq!(hash(&first), hash(&second), "fragments have no ports");
        for len in 0..60 {
            flow_hash(&vec![0x60; len], 1);
            flow_hash(&vec![0x4f; len], 1);
        }
    }
}
