// SPDX-License-Identifier: GPL-3.0-or-later
//! FIFOs in front of a carrier: one for each class of traffic, served in strict priority.

use super::waits::{Waited, Waits};
use super::{Buffer, Queue};
use crate::demand::Demand;
use crate::ledger::Ledger;
use crate::{LinkConfig, Nanos, Volume};

/// Classes of traffic in front of a carrier, each with a FIFO, in strict priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Most packets in each FIFO, at least 1; highest priority first; 1 to 64 FIFOs. Each holds
    /// what [`LinkConfig::queue`] says.
    pub packets: Vec<u64>,
    /// Index of the FIFO of each DSCP.
    pub of_dscp: [u8; 64],
}

impl Classes {
    /// Whether every DSCP has a FIFO, and every FIFO has room for a packet.
    pub(crate) fn is_possible(&self) -> bool {
        let known = |index: &u8| usize::from(*index) < self.packets.len();
        (1..=64).contains(&self.packets.len())
            && self.packets.iter().all(|&packets| packets > 0)
            && self.of_dscp.iter().all(known)
    }
}

/// State of a FIFO, and its counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FifoState {
    /// What waits, the rest of a packet in fragmentation included.
    pub queue: Volume,
    /// What was offered.
    pub offered: Volume,
    /// What left it for a frame.
    pub sent: Volume,
    /// What it dropped, by its limit or its active management.
    pub dropped: Volume,
    /// Waiting times of the packets that left the FIFO since the last call, from arrival to the
    /// opening of the frame.
    pub waits: Vec<Waited>,
}

/// Figures of a FIFO.
#[derive(Debug)]
struct Figures {
    offered: Volume,
    sent: Volume,
    dropped: Volume,
    waits: Waits,
}

/// The FIFOs of a queue; without classes there is one.
#[derive(Debug)]
pub(crate) struct Fifos {
    buffers: Vec<Buffer>,
    /// One for each buffer.
    figures: Vec<Figures>,
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
        let figures = || Figures {
            offered: Volume::default(),
            sent: Volume::default(),
            dropped: Volume::default(),
            waits: Waits::new(),
        };
        Self {
            figures: std::iter::repeat_with(figures)
                .take(buffers.len())
                .collect(),
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
        let waits = |buffer: &Buffer| buffer.size().packets > 0;
        let index = self.buffers.iter().position(waits);
        index.map(|index| index as u8)
    }

    /// Class of the packet that went last.
    pub(crate) const fn last(&self) -> u8 {
        self.last as u8
    }

    /// These in the place of `old`, whose packet in hand goes on, and whose figures do.
    pub(crate) fn after(mut self, old: &mut Self) -> Self {
        self.last = old.last;
        if self.figures.len() == old.figures.len() {
            std::mem::swap(&mut self.figures, &mut old.figures);
        }
        self
    }

    /// What waits.
    pub(crate) fn size(&self) -> Volume {
        self.buffers.iter().map(Buffer::size).sum()
    }

    /// What waits in each FIFO, `pending` bytes of a packet in hand included.
    pub(crate) fn levels(&self, pending: u64) -> impl Iterator<Item = Volume> {
        self.buffers.iter().enumerate().map(move |(index, buffer)| {
            let bytes = if index == self.last { pending } else { 0 };
            let rest = Volume {
                packets: u64::from(bytes > 0),
                bytes,
            };
            buffer.size() + rest
        })
    }

    /// State of each FIFO; `pending` as in [`Fifos::levels`].
    pub(crate) fn states(&mut self, pending: u64) -> Vec<FifoState> {
        let levels: Vec<_> = self.levels(pending).collect();
        let figures = self.figures.iter_mut();
        let states = levels
            .into_iter()
            .zip(figures)
            .map(|(queue, it)| FifoState {
                queue,
                offered: it.offered,
                sent: it.sent,
                dropped: it.dropped,
                waits: it.waits.take(),
            });
        states.collect()
    }

    /// Offers a packet to the FIFO of its class, see [`Buffer::push`].
    #[inline]
    pub(crate) fn push(
        &mut self,
        now: Nanos,
        packet: &[u8],
        pending: u64,
        ledger: &mut Ledger,
    ) -> bool {
        let index = usize::from(self.by_dscp[dscp(packet)]);
        let pending = if index == self.last { pending } else { 0 };
        let before = ledger.counters.dropped();
        let is_taken = self.buffers[index].push(now, packet, pending, ledger);
        let figures = &mut self.figures[index];
        figures.offered += Volume::of_packet(packet.len());
        figures.dropped += ledger.counters.dropped() - before;
        is_taken
    }

    /// Takes the next packet for a frame that opens at `now`. Returns false if there is none.
    #[inline]
    pub(crate) fn pop(&mut self, now: Nanos, out: &mut Vec<u8>, ledger: &mut Ledger) -> bool {
        let fifos = self.buffers.iter_mut().zip(&mut self.figures);
        for (index, (buffer, figures)) in fifos.enumerate() {
            if buffer.size().packets == 0 {
                continue;
            }
            let before = ledger.counters.dropped();
            let came = buffer.pop(now, out, ledger);
            figures.dropped += ledger.counters.dropped() - before;
            if let Some(came) = came {
                figures.sent += Volume::of_packet(out.len());
                figures.waits.record(now.saturating_sub(came));
                self.last = index;
                return true;
            }
        }
        false
    }

    /// Drops everything.
    pub(crate) fn drop_all(&mut self, now: Nanos, ledger: &mut Ledger) {
        for (buffer, figures) in self.buffers.iter_mut().zip(&mut self.figures) {
            figures.dropped += buffer.size();
            buffer.drain(|_, packet| ledger.drop(now, packet.len()));
        }
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
    fn p331_packets_and_bytes_of_a_fifo_add_up() {
        let queue = Queue {
            packets: 2,
            ..Queue::drop_tail(10_000)
        };
        let config = LinkConfig::new(crate::Carrier::line(1), 0, queue, 1);
        let mut fifos = Fifos::new(&config, queue, 0);
        let mut ledger = Ledger::default();
        for length in [100, 200, 400] {
            fifos.push(0, &vec![0x45; length], 0, &mut ledger);
        }
        assert!(fifos.pop(0, &mut Vec::new(), &mut ledger));
        let state = fifos.states(0).remove(0);
        assert_eq!(state.offered, Volume::new(3, 700));
        assert_eq!(state.queue, Volume::new(1, 200));
        assert_eq!(state.sent, Volume::new(1, 100));
        assert_eq!(state.dropped, Volume::new(1, 400));
        fifos.drop_all(0, &mut ledger);
        let state = fifos.states(0).remove(0);
        assert_eq!(state.dropped, Volume::new(2, 600));
    }

    #[test]
    fn dscp_is_read_from_both_versions() {
        assert_eq!(dscp(&[0x45, 0xb8]), 46);
        assert_eq!(dscp(&[0x6b, 0x80]), 46);
        assert_eq!((dscp(&[]), dscp(&[0x45]), dscp(&[0x12, 0xff])), (0, 0, 0));
    }
}
