// SPDX-License-Identifier: GPL-3.0-or-later
//! Queues in front of a carrier: a limit, and active management that drops or marks before it is
//! reached.

mod codel;
mod dualpi2;
mod ecn;
mod fifos;
mod fq;
mod pie;
mod waits;

use crate::ledger::Ledger;
use crate::ring::Ring;
use crate::{LinkError, Nanos, Volume};
use dualpi2::DualQueue;
pub(crate) use fifos::Fifos;
pub use fifos::{Classes, FifoState};
use fq::FlowQueues;
pub use waits::Waited;

/// Queue of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Most bytes of waiting IP packets; at least 1.
    pub bytes: u64,
    /// Most waiting packets; at least 1.
    pub packets: u64,
    /// Active management.
    pub aqm: Aqm,
    /// Mark ECN-capable packets (RFC 3168) where the active management would drop them. The limit
    /// always drops. `DualPI2` marks in any case.
    pub ecn: bool,
}

/// Active queue management. Times of waiting are taken in model time, from the arrival to the frame
/// that opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aqm {
    /// Drop-tail: the limit alone.
    #[default]
    DropTail,
    /// One queue with `CoDel` (RFC 8289).
    CoDel(CoDel),
    /// Queues per flow with a `CoDel` each (RFC 8290). At the limit the flow with the most bytes
    /// loses its oldest packet.
    FqCoDel(FqCoDel),
    /// PIE (RFC 8033).
    Pie(Pie),
    /// Dual queue with coupled PI2 (RFC 9332): one for L4S, one for all others.
    DualPi2(DualPi2),
}

/// Parameters of `CoDel`. The defaults are those of RFC 8289 for paths up to about 100 ms round
/// trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// Acceptable standing sojourn time, 5 ms. At least the duration of a frame, or the frames
    /// themselves are a fault.
    pub target: Nanos,
    /// Time in which the sojourn time must fall below the target, 100 ms; at least the worst round
    /// trip: a geostationary path wants 600 ms and more.
    pub interval: Nanos,
}

/// Parameters of `FQ-CoDel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDel {
    /// Parameters of each flow's `CoDel`.
    pub codel: CoDel,
    /// Hash buckets, 1024.
    pub flows: u32,
    /// Bytes that a flow may send in its turn, 1514.
    pub quantum: u32,
}

/// Parameters of PIE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pie {
    /// Reference delay, 15 ms.
    pub target: Nanos,
    /// Time between two updates of the drop probability, 15 ms.
    pub update: Nanos,
    /// Length of a burst that passes untouched after calm, 150 ms.
    pub burst: Nanos,
}

/// Parameters of `DualPI2`. The defaults are those of RFC 9332 appendix A for round trips up to
/// 100 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DualPi2 {
    /// Reference delay of the classic queue, 15 ms.
    pub target: Nanos,
    /// Time between two updates of the base probability, 16 ms; at least 1.
    pub update: Nanos,
    /// Waiting time above which an L4S packet is marked whatever the classic queue does, 1 ms. At
    /// least the duration of a frame, or the frames themselves are marked.
    pub step: Nanos,
}

impl Default for CoDel {
    fn default() -> Self {
        Self {
            target: 5_000_000,
            interval: 100_000_000,
        }
    }
}

impl Default for FqCoDel {
    fn default() -> Self {
        Self {
            codel: CoDel::default(),
            flows: 1024,
            quantum: 1514,
        }
    }
}

impl Default for Pie {
    fn default() -> Self {
        Self {
            target: 15_000_000,
            update: 15_000_000,
            burst: 150_000_000,
        }
    }
}

impl Default for DualPi2 {
    fn default() -> Self {
        Self {
            target: 15_000_000,
            update: 16_000_000,
            step: 1_000_000,
        }
    }
}

impl Queue {
    /// A drop-tail queue of this many bytes and any number of packets.
    #[must_use]
    pub const fn drop_tail(bytes: u64) -> Self {
        Self {
            bytes,
            packets: u64::MAX,
            aqm: Aqm::DropTail,
            ecn: false,
        }
    }

    pub(crate) fn check(&self) -> Result<(), LinkError> {
        if self.bytes == 0 || self.packets == 0 {
            return Err(LinkError::NoQueue);
        }
        let is_possible = match self.aqm {
            Aqm::DropTail => true,
            Aqm::CoDel(codel) => codel.interval > 0,
            Aqm::FqCoDel(fq) => {
                fq.codel.interval > 0 && (1..=65_536).contains(&fq.flows) && fq.quantum > 0
            }
            Aqm::Pie(pie) => pie.update > 0,
            Aqm::DualPi2(dual) => dual.update > 0,
        };
        if is_possible {
            Ok(())
        } else {
            Err(LinkError::Aqm)
        }
    }
}

/// A queue at work.
#[derive(Debug)]
struct Buffer {
    queue: Queue,
    discipline: Discipline,
}

#[derive(Debug)]
enum Discipline {
    DropTail(Ring),
    CoDel(Ring, CoDel, codel::Controller),
    Pie(Ring, Box<pie::Controller>),
    Flows(Box<FlowQueues>),
    Dual(Box<DualQueue>),
}

/// Bytes of a full-size packet. A queue that holds no more never drops (`maxpacket` of RFC 8289
/// section 5.2).
const FULL_SIZE: u64 = 1500;

impl Buffer {
    fn new(queue: Queue, seed: u64, generation: u64) -> Self {
        let discipline = match queue.aqm {
            Aqm::DropTail => Discipline::DropTail(Ring::default()),
            Aqm::CoDel(codel) => {
                Discipline::CoDel(Ring::default(), codel, codel::Controller::default())
            }
            Aqm::Pie(pie) => {
                let controller = pie::Controller::new(pie, seed, generation);
                Discipline::Pie(Ring::default(), Box::new(controller))
            }
            Aqm::FqCoDel(fq) => Discipline::Flows(Box::new(FlowQueues::new(fq, seed, generation))),
            Aqm::DualPi2(dual) => Discipline::Dual(Box::new(DualQueue::new(dual))),
        };
        Self { queue, discipline }
    }

    /// What waits.
    fn size(&self) -> Volume {
        match &self.discipline {
            Discipline::DropTail(ring) | Discipline::CoDel(ring, ..) | Discipline::Pie(ring, _) => {
                ring.size()
            }
            Discipline::Flows(flows) => flows.size(),
            Discipline::Dual(queues) => queues.size(),
        }
    }

    /// Offers a packet; `pending` bytes of another one wait outside of this queue and count towards
    /// its limit. False if the packet was dropped. Every drop is in the ledger.
    fn push(&mut self, now: Nanos, packet: &[u8], pending: u64, ledger: &mut Ledger) -> bool {
        let ecn = self.queue.ecn;
        let has_room = self.has_room(packet.len() as u64, 1, pending);
        let kept = match &mut self.discipline {
            Discipline::Flows(_) => return self.push_to_flow(now, packet, pending, ledger),
            _ if !has_room => false,
            Discipline::DropTail(ring) | Discipline::CoDel(ring, ..) => {
                ring.push(now, packet);
                true
            }
            Discipline::Dual(queues) => {
                queues.push(now, packet);
                true
            }
            Discipline::Pie(ring, controller) => controller.push(ecn, now, ring, packet, ledger),
        };
        if !kept {
            ledger.drop(now, packet.len());
        }
        kept
    }

    /// Takes the next packet for a frame that opens at `now`, and returns its arrival time; `None`
    /// if there is none.
    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>, ledger: &mut Ledger) -> Option<Nanos> {
        let ecn = self.queue.ecn;
        match &mut self.discipline {
            Discipline::DropTail(ring) => ring.pop(out),
            Discipline::CoDel(ring, codel, controller) => {
                controller.pop(*codel, ecn, now, ring, out, ledger)
            }
            Discipline::Pie(ring, controller) => controller.pop(now, ring, out),
            Discipline::Flows(flows) => flows.pop(ecn, now, out, ledger),
            Discipline::Dual(queues) => queues.pop(now, out, ledger),
        }
    }

    /// Takes everything out, with the time of arrival; active management has no say.
    fn drain(&mut self, mut sink: impl FnMut(Nanos, &[u8])) {
        let mut packet = Vec::new();
        match &mut self.discipline {
            Discipline::DropTail(ring) | Discipline::CoDel(ring, ..) | Discipline::Pie(ring, _) => {
                while let Some(time) = ring.pop(&mut packet) {
                    sink(time, &packet);
                }
            }
            Discipline::Flows(flows) => flows.drain(sink),
            Discipline::Dual(queues) => queues.drain(sink),
        }
    }

    /// Whether the queue has room for so many more bytes and packets.
    fn has_room(&self, bytes: u64, packets: u64, pending: u64) -> bool {
        let waiting = self.size();
        waiting.bytes + pending + bytes <= self.queue.bytes
            && waiting.packets + u64::from(pending > 0) + packets <= self.queue.packets
    }

    fn push_to_flow(
        &mut self,
        now: Nanos,
        packet: &[u8],
        pending: u64,
        ledger: &mut Ledger,
    ) -> bool {
        if packet.len() as u64 + pending > self.queue.bytes {
            ledger.drop(now, packet.len());
            return false;
        }
        let mut kept = true;
        let mut own = None;
        loop {
            let has_room = own.is_some() && self.has_room(0, 0, pending);
            let Discipline::Flows(flows) = &mut self.discipline else {
                return false;
            };
            let Some(index) = own else {
                own = Some(flows.push(now, packet));
                continue;
            };
            if has_room || flows.size().packets == 0 {
                return kept;
            }
            // The new packet is the last of its flow: it is gone when the flow is empty.
            kept &= flows.drop_from_fattest(now, ledger) != (index, true);
        }
    }
}
