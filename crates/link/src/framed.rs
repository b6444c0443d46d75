// SPDX-License-Identifier: GPL-3.0-or-later
//! A carrier with frames at work.

use crate::air::Encapsulator;
use crate::assign::Superframe;
use crate::core::Core;
use crate::exit::Exit;
use crate::grid::{Grid, Quota};
use crate::queue::Fifos;
use crate::signalling::Plans;
use crate::{Carrier, LinkConfig, Nanos};
use dvb::gse::MIN_DATA_FIELD;
use dvb::opensand::SMALLEST_REST;
use dvb::sdu::Filled;

/// Frames, and when they open.
#[derive(Debug)]
pub(crate) struct Framed {
    grid: Grid,
    quota: Quota,
    plans: Option<Plans>,
    pub(crate) air: Encapsulator,
    /// Next opening at which something may be sent.
    next: u64,
    /// Number of openings of the grid: that of the planned superframe with demand assignment, else unlimited.
    openings: u64,
    /// MODCOD or waveform.
    id: u8,
    /// Payload of the current frame, kept to save the allocation.
    frame: Vec<u8>,
    /// Packets are lost as in `OpenSAND` 8.2.0.
    defects: bool,
}

impl Framed {
    /// The frames of a carrier, the first one at `origin`; `None` for a wire.
    pub(crate) fn new(config: &LinkConfig, origin: Nanos) -> Option<Self> {
        let carrier = &config.carrier;
        Some(Self {
            plans: config.signalling.map(|it| Plans::new(it, origin)),
            grid: Grid::new(carrier, origin)?,
            quota: Quota::new(carrier),
            air: Encapsulator::new(carrier)?,
            next: 0,
            openings: u64::MAX,
            id: carrier.waveform_id(),
            frame: vec![0; carrier.frame_payload()],
            defects: matches!(carrier, Carrier::OpenSandForward { defects: true, .. }),
        })
    }

    /// Goes over to another MODCOD, waveform or rate at the first opening from `now` on, where the grid starts anew. The
    /// packet in fragmentation goes on in the new frames. Slots on demand stay where they were assigned.
    pub(crate) fn change(&mut self, carrier: &Carrier, now: Nanos) {
        self.id = carrier.waveform_id();
        self.frame.resize(carrier.frame_payload(), 0);
        if self.openings < u64::MAX {
            self.grid.retime(carrier);
            return;
        }
        let boundary = self.grid.start(self.grid.first_from(now).max(self.next));
        if let Some(grid) = Grid::new(carrier, boundary) {
            self.grid = grid;
        }
        self.quota = Quota::new(carrier);
        self.next = 0;
    }

    /// Goes over to the slots of a superframe; there is no opening behind them.
    pub(crate) fn assign(&mut self, carrier: &Carrier, superframe: Superframe) {
        let granted = carrier.with_slots(superframe.slots);
        self.openings = match granted {
            _ if superframe.slots == 0 => 0,
            // All bursts leave at one tick.
            Carrier::OpenSandReturn { .. } => 1,
            _ => superframe.slots.into(),
        };
        if let Some(grid) = Grid::new(&granted, superframe.start).filter(|_| self.openings > 0) {
            self.grid = grid;
        }
        self.quota = Quota::new(&granted);
        self.next = 0;
    }

    /// Openings before `now` have passed unused.
    pub(crate) fn skip_to(&mut self, now: Nanos) {
        self.next = self.next.max(self.grid.first_from(now));
    }

    /// Start and end of the next opening; `None` until slots are assigned.
    pub(crate) fn next_opening(&self) -> Option<(Nanos, Nanos)> {
        (self.next < self.openings).then(|| (self.grid.start(self.next), self.grid.end(self.next)))
    }

    /// Start and end of the next opening that sends a plan; `None` without plans.
    pub(crate) fn next_plan(&self) -> Option<(Nanos, Nanos)> {
        let due = self.plans.as_ref()?.due();
        let opening = self.next.max(self.grid.first_from(due));
        Some((self.grid.start(opening), self.grid.end(opening)))
    }

    /// Sends what the next opening of the grid holds.
    pub(crate) fn open(&mut self, queue: &mut Fifos, exit: &mut impl Exit, core: &mut Core) {
        let (start, end) = (self.grid.start(self.next), self.grid.end(self.next));
        self.next += 1;
        self.quota.open();
        while self.something_waits(start, queue) && self.quota.take() {
            self.send((start, end), queue, exit, core);
        }
        self.quota.close(self.something_waits(start, queue));
    }

    #[inline]
    fn something_waits(&self, start: Nanos, queue: &Fifos) -> bool {
        let is_due = |plans: &Plans| plans.due() <= start;
        self.air.pending() > 0 || queue.size().1 > 0 || self.plans.as_ref().is_some_and(is_due)
    }

    /// Sends one frame, filled with what is queued.
    fn send(
        &mut self,
        (start, end): (Nanos, Nanos),
        queue: &mut Fifos,
        exit: &mut impl Exit,
        core: &mut Core,
    ) {
        let ledger = &mut core.ledger;
        let frame = &mut self.frame[..];
        let plans = self
            .plans
            .as_mut()
            .map_or(0, |plans| plans.put(start, frame));
        let mut filled = Filled::default();
        if frame.len() - plans >= MIN_DATA_FIELD {
            let next = |packet: &mut Vec<u8>| queue.pop(start, packet, ledger);
            filled = self.air.fill(&mut frame[plans..], next);
        }
        let rest = frame.len() - plans - filled.used;
        if self.defects && (1..SMALLEST_REST).contains(&rest) && self.air.is_unsent() {
            if let Some(packet) = self.air.take_back() {
                ledger.drop(start, packet.len());
            }
            queue.drain(|_, packet| ledger.drop(start, packet.len()));
        }
        ledger.counters.signalling_bytes += plans as u64;
        ledger.frame(start, self.id, plans + filled.used, frame);
        if core.channel.loses_frame(end) {
            ledger.lose_frame(end, filled);
            exit.miss();
        } else {
            exit.deliver(end, frame, filled, core);
        }
    }
}
