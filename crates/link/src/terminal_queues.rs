// SPDX-License-Identifier: GPL-3.0-or-later
//! The terminals that a carrier serves: what waits for each, and whose turn it is.
//!
//! Classes are served in strict priority over all terminals, as the gateway of `OpenSAND` does.
//! Within a class each terminal has a queue of its own and gets airtime by its weight (start-time
//! fair queueing: Goyal, Vin and Cheng, IEEE/ACM Transactions on Networking 5(5), 1997): a flood
//! fills its own queue, and a robust MODCOD costs the terminal that needs it. Terminals with the
//! same MODCOD are a group, and a frame holds packets of one group, as with `OpenSAND`'s scheduler.

use std::collections::VecDeque;

use crate::frame_format::Encapsulator;
use crate::ledger::Ledger;
use crate::queue::{FifoState, Fifos};
use crate::{LinkConfig, Nanos, Volume};
use dvb::modcod::ModCod;
use dvb::sdu::Filled;

/// GSE in front of a whole packet: header, protocol type, label.
const HEADER: u64 = 10;
/// Units of airtime in a nanosecond; 2 years of it are counted.
const UNITS: u64 = 256;

/// All terminals of a carrier.
#[derive(Debug)]
pub struct TerminalQueues {
    all: Vec<Lane>,
    /// Turns of the terminals for which something waits, the next one first; by id of their MODCOD,
    /// 0 is the carrier's.
    turns: Vec<VecDeque<Turn>>,
    /// Number of these.
    waiting: usize,
    /// Airtime of the latest turn of each class, from which on a terminal counts that was idle.
    clocks: Vec<u64>,
}

/// One terminal of a carrier.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) queue: Fifos,
    /// `None` on a line or wire.
    pub(crate) air: Option<Encapsulator>,
    weight: u64,
    /// Airtime by class over weight, in [`UNITS`].
    airtime: Vec<u64>,
    /// MODCOD of the terminal; `None`: the MODCOD of the carrier.
    modcod: Option<ModCod>,
    turn: Option<Turn>,
    dropped: Volume,
}

/// The order of turns is that of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    class: u8,
    airtime: u64,
    lane: u16,
}

/// The part of a frame that has packets of one terminal.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Index of the terminal.
    pub(crate) lane: usize,
    /// First byte.
    pub(crate) from: usize,
    /// What is in it.
    pub(crate) filled: Filled,
}

/// What the parts of a frame hold together.
pub(crate) fn total(parts: &[Part]) -> Filled {
    parts.iter().fold(Filled::default(), |sum, part| Filled {
        used: sum.used + part.filled.used,
        packets: sum.packets + part.filled.packets,
        bytes: sum.bytes + part.filled.bytes,
    })
}

impl Lane {
    /// Makes a terminal with an empty queue. `weight` is above 0; `place` is its index and the
    /// number of terminals.
    pub(crate) fn new(config: &LinkConfig, weight: u32, place: (u16, u16)) -> Self {
        let queue = Fifos::new(config, config.queue, 0);
        Self {
            airtime: vec![0; queue.classes()],
            queue,
            air: Encapsulator::new(&config.carrier, place),
            weight: u64::from(weight),
            modcod: None,
            turn: None,
            dropped: Volume::default(),
        }
    }

    /// Bytes of the packet in fragmentation that wait.
    pub(crate) fn pending(&self) -> u64 {
        self.air.as_ref().map_or(0, Encapsulator::pending) as u64
    }

    /// What waits, the rest of a packet in fragmentation included.
    pub(crate) fn size(&self) -> Volume {
        let pending = self.pending();
        let rest = Volume {
            packets: u64::from(pending > 0),
            bytes: pending,
        };
        self.queue.size() + rest
    }

    /// Takes out all that waits, the packet in fragmentation first and whole, with the times since
    /// when.
    pub(crate) fn take_out(&mut self, now: Nanos) -> Vec<(Nanos, Vec<u8>)> {
        let cut = self.air.as_mut().and_then(Encapsulator::take_back);
        let mut waiting: Vec<_> = cut.map(|packet| (now, packet)).into_iter().collect();
        self.queue
            .drain(|since, packet| waiting.push((since, packet.to_vec())));
        waiting
    }

    /// State of its FIFOs.
    fn fifos(&mut self) -> Vec<FifoState> {
        let pending = self.pending();
        self.queue.states(pending)
    }

    /// Whether a packet was taken from the queue and is not sent completely.
    pub(crate) fn holds(&self) -> bool {
        self.pending() > 0
    }

    /// Loses every packet if the one in hand is not cut, as `OpenSAND` 8.2.0 does where it does not
    /// fit a frame.
    pub(crate) fn lose_all(&mut self, now: Nanos, ledger: &mut Ledger) {
        let Some(air) = self.air.as_mut().filter(|air| air.is_unsent()) else {
            return;
        };
        if let Some(packet) = air.take_back() {
            ledger.drop(now, packet.len());
        }
        self.queue.drop_all(now, ledger);
    }

    /// The MODCOD that it is sent; `None`: the carrier's.
    pub(crate) const fn modcod(&self) -> Option<ModCod> {
        self.modcod
    }

    /// What its queue dropped.
    pub(crate) const fn dropped(&self) -> Volume {
        self.dropped
    }

    /// Class of the next packet. A packet in fragmentation has the class of the packets that it
    /// delays.
    fn class(&self) -> Option<u8> {
        let first = self.queue.first();
        if self.pending() == 0 {
            return first;
        }
        let last = self.queue.last();
        Some(first.map_or(last, |first| first.min(last)))
    }

    fn group(&self) -> usize {
        self.modcod.map_or(0, |modcod| usize::from(modcod.id))
    }

    /// Adds the drops that the ledger has counted since `before`.
    fn note_drops(&mut self, before: Volume, ledger: &Ledger) {
        self.dropped += ledger.counters.dropped() - before;
    }
}

impl TerminalQueues {
    /// Makes the queues of at least one terminal, all empty.
    pub(crate) fn new(lanes: Vec<Lane>) -> Self {
        let classes = lanes.iter().map(|lane| lane.airtime.len()).max();
        Self {
            turns: vec![VecDeque::with_capacity(lanes.len())],
            waiting: 0,
            clocks: vec![0; classes.unwrap_or(0)],
            all: lanes,
        }
    }

    pub(crate) fn lane(&self, index: usize) -> &Lane {
        &self.all[index]
    }

    /// State of the FIFOs of a terminal, see [`FifoState::waits`].
    pub(crate) fn fifos(&mut self, index: usize) -> Vec<FifoState> {
        self.all[index].fifos()
    }

    /// To be changed; what waits afterwards has its turn.
    pub(crate) fn change<T>(&mut self, index: usize, change: impl FnOnce(&mut Lane) -> T) -> T {
        let changed = change(&mut self.all[index]);
        self.list(index);
        changed
    }

    /// Nothing waits for any terminal.
    pub(crate) const fn is_idle(&self) -> bool {
        self.waiting == 0
    }

    /// Whether the format of the carrier can carry this packet.
    pub(crate) fn accepts(&self, index: usize, packet: &[u8]) -> bool {
        let air = self.all[index].air.as_ref();
        air.is_some_and(|air| air.accepts(packet))
    }

    /// Offers a packet for a terminal; false if its queue dropped it.
    pub(crate) fn push(
        &mut self,
        now: Nanos,
        index: usize,
        packet: &[u8],
        ledger: &mut Ledger,
    ) -> bool {
        let lane = &mut self.all[index];
        let before = ledger.counters.dropped();
        let pending = lane.pending();
        let is_taken = lane.queue.push(now, packet, pending, ledger);
        lane.note_drops(before, ledger);
        self.list(index);
        is_taken
    }

    /// Drops packets of a terminal that nothing holds any more.
    pub(crate) fn discard(
        &mut self,
        now: Nanos,
        index: usize,
        packets: &[(Nanos, Vec<u8>)],
        ledger: &mut Ledger,
    ) {
        let before = ledger.counters.dropped();
        for (_, packet) in packets {
            ledger.drop(now, packet.len());
        }
        self.all[index].note_drops(before, ledger);
    }

    /// A terminal comes in at `place`, where it was before, or at a new one, its FIFOs after
    /// `queue`.
    pub(crate) fn join(&mut self, place: Option<usize>, mut lane: Lane, queue: &mut Fifos) {
        lane.queue = lane.queue.after(queue);
        let index = place.unwrap_or(self.all.len());
        if let Some(before) = put(&mut self.all, place, lane) {
            self.all[index].dropped = before.dropped;
        }
    }

    /// No MODCOD has to be one that this terminal receives, for which nothing waits.
    pub(crate) fn leave(&mut self, index: usize) {
        self.all[index].modcod = None;
    }

    /// A terminal receives another MODCOD from now on. A packet in fragmentation goes on in it.
    pub(crate) fn set_modcod(&mut self, index: usize, modcod: ModCod) {
        self.unlist(index);
        let groups = self.turns.len().max(usize::from(modcod.id) + 1);
        self.turns.resize_with(groups, VecDeque::new);
        self.all[index].modcod = Some(modcod);
        self.list(index);
    }

    /// MODCOD of the terminal whose turn it is; `None`: the carrier's.
    pub(crate) fn modcod(&self) -> Option<ModCod> {
        if self.turns.len() == 1 {
            return None;
        }
        let fronts = self.turns.iter().filter_map(VecDeque::front);
        let lane = usize::from(fronts.min()?.lane);
        self.all[lane].modcod
    }

    /// MODCOD that every terminal receives; `None`: the carrier's.
    pub(crate) fn most_robust(&self) -> Option<ModCod> {
        let modcods = self.all.iter().filter_map(|lane| lane.modcod);
        modcods.min_by_key(|modcod| modcod.es_n0_centi_db)
    }

    /// Fills `room` with packets of the next terminal of a MODCOD, for as long as it is its turn. A
    /// byte of a frame that opens at `start` costs `price` ns of airtime / [`UNITS`]. `None`:
    /// nothing waits in this MODCOD.
    pub(crate) fn serve(
        &mut self,
        modcod: Option<ModCod>,
        room: &mut [u8],
        (start, price): (Nanos, u64),
        ledger: &mut Ledger,
    ) -> Option<(usize, Filled)> {
        let turns = &self.turns[modcod.map_or(0, |modcod| usize::from(modcod.id))];
        let turn = *turns.front()?;
        let rival = turns.get(1).copied();
        let is_alone = self.waiting == 1;
        let clock = &mut self.clocks[usize::from(turn.class)];
        *clock = turn.airtime.max(*clock);
        let index = usize::from(turn.lane);
        let lane = &mut self.all[index];
        let before = ledger.counters.dropped();
        let (queue, airtime, weight) = (&mut lane.queue, &mut lane.airtime, lane.weight);
        let next = |packet: &mut Vec<u8>| {
            let own = |class: u8| (class, airtime[usize::from(class)]);
            let goes_on = rival.is_none_or(|rival| {
                let first = queue.first();
                first.is_some_and(|class| own(class) <= (rival.class, rival.airtime))
            });
            if !goes_on || !queue.pop(start, packet, ledger) {
                return false;
            }
            if !is_alone {
                let cost = (packet.len() as u64 + HEADER) * price / weight;
                airtime[usize::from(queue.last())] += cost;
            }
            true
        };
        let filled = lane.air.as_mut().map(|air| air.fill(room, next));
        lane.note_drops(before, ledger);
        self.list(index);
        Some((index, filled.unwrap_or_default()))
    }

    /// What a byte of a frame costs in [`UNITS`] of airtime.
    pub(crate) const fn price(frame_ns: Nanos, payload: usize) -> u64 {
        frame_ns * UNITS / payload as u64
    }

    /// Brings the turn of a terminal in line with what waits for it.
    fn list(&mut self, index: usize) {
        let lane = &mut self.all[index];
        let class = lane.class();
        let is_in_line = match (lane.turn, class) {
            (None, None) => true,
            (Some(turn), Some(class)) => {
                turn.class == class && turn.airtime == lane.airtime[usize::from(class)]
            }
            _ => false,
        };
        if is_in_line {
            return;
        }
        self.unlist(index);
        let Some(class) = class else { return };
        let lane = &mut self.all[index];
        let airtime = &mut lane.airtime[usize::from(class)];
        *airtime = self.clocks[usize::from(class)].max(*airtime);
        let turn = Turn {
            class,
            airtime: *airtime,
            lane: index as u16,
        };
        lane.turn = Some(turn);
        let turns = &mut self.turns[lane.group()];
        turns.insert(turns.partition_point(|other| *other < turn), turn);
        self.waiting += 1;
    }

    fn unlist(&mut self, index: usize) {
        let lane = &mut self.all[index];
        let Some(turn) = lane.turn.take() else { return };
        let turns = &mut self.turns[lane.group()];
        turns.remove(turns.partition_point(|other| *other < turn));
        self.waiting -= 1;
    }
}

/// Puts what a terminal has on a carrier at its place there, or at a new one; what was there
/// before.
pub(crate) fn put<T>(all: &mut Vec<T>, place: Option<usize>, new: T) -> Option<T> {
    if let Some(index) = place {
        return Some(std::mem::replace(&mut all[index], new));
    }
    all.push(new);
    None
}
