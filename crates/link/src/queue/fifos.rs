// SPDX-License-Identifier: GPL-3.0-or-later
//! FIFOs in front of a carrier: one for each class of traffic, served in strict priority.

use super::{Buffer, Queue};
use crate::LinkConfig;
use crate::Nanos;
use crate::demand::Demand;
use crate::ledger::Ledger;

/// Classes of traffic in front of a carrier, each with a FIFO, in strict priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Most packets in each FIFO, at least 1; highest priority first; 1 to 64 FIFOs. Each holds what
    /// [`LinkConfig::queue`] says.
    pub packets: Vec<u64>,
    /// Index of the FIFO of each DSCP.
    pub of_dscp: [u8; 64],
}

impl Classes {
    /// Whether every DSCP has a FIFO, and every FIFO room.
    pub(crate) fn is_possible(&self) -> bool {
        let known = |index: &u8| usize::from(*index) < self.packets.len();
        (1..=64).contains(&self.packets.len())
            && self.packets.iter().all(|&packets| packets > 0)
            && self.of_dscp.iter().all(known)
    }
}

/// FIFOs at work; one of them without classes.
#[derive(Debug)]
pub(crate) struct Fifos {
    buffers: Vec<Buffer>,
    by_dscp: [u8; 64],
    /// FIFO of the last packet taken: its unsent bytes still count there.
    last: usize,
}

impl Fifos {
    /// The FIFOs of a link, each as `queue` says.
    pub(crate) fn new(config: &LinkConfig, queue: Queue, generation: u64) -> Self {
        let buffer = |queue, index| Buffer::new(queue, config.seed.wrapping_add(index), generation);
        let demand = config.demand.as_ref().map(Demand::classes);
        let (buffers, by_dscp) = match demand.as_ref().or(config.classes.as_ref()) {
            None => (vec![buffer(queue, 0)], [0; 64]),
            Some(classes) => {
                let limited = |packets: u64| Queue {
                    packets: queue.packets.min(packets),
                    ..queue
                };
                let fifos = classes.packets.iter().zip(0..);
                let buffers = fifos.map(|(&packets, index)| buffer(limited(packets), index));
                (buffers.collect(), classes.of_dscp)
            }
        };
        Self {
            buffers,
            by_dscp,
            last: 0,
        }
    }

    /// Number of classes.
    pub(crate) fn classes(&self) -> usize {
        self.buffers.len()
    }

    /// Class of the packet that goes next.
    pub(crate) fn first(&self) -> Option<u8> {
        let waits = |buffer: &Buffer| buffer.size().1 > 0;
        let index = self.buffers.iter().position(waits);
        index.map(|index| index as u8)
    }

    /// Class of the packet that went last.
    pub(crate) const fn last(&self) -> u8 {
        self.last as u8
    }

    /// These in the place of `old`, whose packet in hand goes on.
    pub(crate) fn after(mut self, old: &Self) -> Self {
        self.last = old.last;
        self
    }

    /// Bytes and packets that wait.
    pub(crate) fn size(&self) -> (u64, u64) {
        let sizes = self.buffers.iter().map(Buffer::size);
        sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1))
    }

    /// Bytes and packets of each FIFO, `pending` bytes of a packet in hand included.
    pub(crate) fn levels(&self, pending: u64) -> impl Iterator<Item = (u64, u64)> {
        self.buffers.iter().enumerate().map(move |(index, buffer)| {
            let (bytes, packets) = buffer.size();
            let pending = if index == self.last { pending } else { 0 };
            (bytes + pending, packets + u64::from(pending > 0))
        })
    }

    /// Offers a packet to the FIFO of its class, see [`Buffer::push`].
    pub(crate) fn push(
        &mut self,
        now: Nanos,
        packet: &[u8],
        pending: u64,
        ledger: &mut Ledger,
    ) -> bool {
        let index = usize::from(self.by_dscp[dscp(packet)]);
        let pending = if index == self.last { pending } else { 0 };
        self.buffers[index].push(now, packet, pending, ledger)
    }

    /// Takes the next packet for a frame that opens at `now`; false if there is none.
    pub(crate) fn pop(&mut self, now: Nanos, out: &mut Vec<u8>, ledger: &mut Ledger) -> bool {
        for (index, buffer) in self.buffers.iter_mut().enumerate() {
            if buffer.size().1 > 0 && buffer.pop(now, out, ledger) {
                self.last = index;
                return true;
            }
        }
        false
    }

    /// Takes everything out, with the time of arrival; active management has no say.
    pub(crate) fn drain(&mut self, mut sink: impl FnMut(Nanos, &[u8])) {
        for buffer in &mut self.buffers {
            buffer.drain(&mut sink);
        }
    }
}

/// Differentiated services code point (RFC 2474) of an IP packet; 0 of anything else.
fn dscp(packet: &[u8]) -> usize {
    let class = match *packet {
        [first, class, ..] if first >> 4 == 4 => class,
        [first, second, ..] if first >> 4 == 6 => first << 4 | second >> 4,
        _ => 0,
    };
    usize::from(class >> 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dscp_is_read_from_both_versions() {
        assert_eq!(dscp(&[0x45, 0xb8]), 46);
        assert_eq!(dscp(&[0x6b, 0x80]), 46);
        assert_eq!((dscp(&[]), dscp(&[0x45]), dscp(&[0x12, 0xff])), (0, 0, 0));
    }
}
