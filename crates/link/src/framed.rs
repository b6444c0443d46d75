// SPDX-License-Identifier: GPL-3.0-or-later
//! A carrier with frames at work.

use crate::direction_state::DirectionState;
use crate::frame_grid::{Grid, Quota};
use crate::frame_output::{FrameOutput, Sent};
use crate::signalling::{Assignments, Plans};
use crate::slot_assignment::Superframe;
use crate::terminal_queues::{Part, TerminalQueues, total};
use crate::{Carrier, LinkConfig, Nanos};
use dvb::gse::MIN_DATA_FIELD;
use dvb::modcod::ModCod;
use dvb::opensand::SMALLEST_REST;

/// Frames, and when they open.
#[derive(Debug)]
pub(crate) struct Framed {
    grid: Grid,
    quota: Quota,
    plans: Option<Plans>,
    /// Next opening at which something may be sent.
    next: u64,
    /// Number of openings of the grid: that of the planned superframe with demand assignment, else
    /// unlimited.
    openings: u64,
    /// Starts of the openings where they are not those of the grid.
    starts: Vec<Nanos>,
    /// MODCOD or waveform.
    id: u8,
    /// Airtime of a byte, see [`TerminalQueues::price`].
    price: u64,
    /// Payload of the current frame, kept to save the allocation.
    frame: Vec<u8>,
    /// Terminals that the current frame serves, kept as well.
    parts: Vec<Part>,
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
            next: 0,
            openings: u64::MAX,
            starts: Vec::new(),
            id: carrier.waveform_id(),
            price: price(carrier),
            frame: vec![0; carrier.frame_payload()],
            parts: Vec::new(),
            defects: matches!(carrier, Carrier::OpenSandForward { defects: true, .. }),
        })
    }

    /// Sets the gateway that assigns slots from now on.
    pub(crate) fn hear(&mut self, assignments: Assignments) {
        if let Some(plans) = &mut self.plans {
            plans.hear(assignments);
        }
    }

    /// Returns the gateway that assigns slots.
    pub(crate) fn heard(&self) -> Option<Assignments> {
        self.plans.as_ref().and_then(Plans::heard)
    }

    /// Goes over to another MODCOD, waveform or rate at the first opening from `now` on, where the
    /// grid starts anew. The packet in fragmentation goes on in the new frames. Slots on demand
    /// stay where they were assigned.
    pub(crate) fn change(&mut self, carrier: &Carrier, now: Nanos) {
        self.id = carrier.waveform_id();
        self.price = price(carrier);
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

    /// Goes over to a MODCOD of a shared carrier at the first opening from `now` on, unless it is
    /// in it.
    pub(crate) fn tune(&mut self, carrier: &Carrier, modcod: ModCod, now: Nanos) {
        if modcod.id != self.id {
            self.change(&carrier.with_modcod(modcod), now);
        }
    }

    /// Changes to the slots of a superframe. There is no opening after them.
    pub(crate) fn assign(&mut self, carrier: &Carrier, superframe: &mut Superframe) {
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
        self.starts = std::mem::take(&mut superframe.starts);
        let starts = self.starts.iter_mut();
        starts.for_each(|start| *start += superframe.start);
    }

    /// Start and end of an opening.
    #[inline]
    fn span(&self, opening: u64) -> (Nanos, Nanos) {
        match (self.starts.get(opening as usize), self.grid.burst()) {
            (Some(&start), Some(burst)) => (start, start.saturating_add(burst)),
            _ => self.grid.span(opening),
        }
    }

    /// First opening that starts at or after `time`.
    #[inline]
    fn first_from(&self, time: Nanos) -> u64 {
        if self.starts.is_empty() {
            return self.grid.first_from(time);
        }
        self.starts.partition_point(|&start| start < time) as u64
    }

    /// Openings before `now` have passed unused.
    pub(crate) fn skip_to(&mut self, now: Nanos) {
        self.next = self.next.max(self.first_from(now));
    }

    /// Start and end of the next opening; `None` until slots are assigned.
    pub(crate) fn next_opening(&self) -> Option<(Nanos, Nanos)> {
        (self.next < self.openings).then(|| self.span(self.next))
    }

    /// Start and end of the next opening that sends a plan; `None` without plans.
    pub(crate) fn next_plan(&self) -> Option<(Nanos, Nanos)> {
        let due = self.plans.as_ref()?.due();
        let opening = self.next.max(self.grid.first_from(due));
        Some(self.grid.span(opening))
    }

    /// Sends what the next opening of the grid holds, in the MODCOD of the terminal whose turn it
    /// is.
    pub(crate) fn open(
        &mut self,
        lanes: &mut TerminalQueues,
        exit: &mut impl FrameOutput,
        core: &mut DirectionState,
    ) {
        let (start, mut end) = self.span(self.next);
        let modcod = if self.owes_plan(start) {
            lanes.most_robust()
        } else {
            lanes.modcod()
        };
        if let Some(modcod) = modcod {
            self.tune(&core.config.carrier, modcod, start);
            end = self.span(self.next).1;
        }
        self.next += 1;
        self.quota.open();
        while self.something_waits(start, lanes) && self.quota.take() {
            self.fill(start, modcod, lanes, core);
            self.send(end, exit, core);
        }
        self.quota.close(self.something_waits(start, lanes));
    }

    #[inline]
    fn something_waits(&self, start: Nanos, lanes: &TerminalQueues) -> bool {
        !lanes.is_idle() || self.owes_plan(start)
    }

    #[inline]
    fn owes_plan(&self, start: Nanos) -> bool {
        let plans = self.plans.as_ref();
        plans.is_some_and(|plans| plans.due() <= start)
    }

    /// Fills a frame with what is queued for the terminals of a MODCOD.
    fn fill(
        &mut self,
        start: Nanos,
        modcod: Option<ModCod>,
        lanes: &mut TerminalQueues,
        core: &mut DirectionState,
    ) {
        let ledger = &mut core.ledger;
        let frame = &mut self.frame[..];
        let plans = self
            .plans
            .as_mut()
            .map_or(0, |plans| plans.put(start, frame));
        let mut used = plans;
        self.parts.clear();
        while frame.len() - used >= MIN_DATA_FIELD {
            let room = &mut frame[used..];
            let Some((lane, filled)) = lanes.serve(modcod, room, (start, self.price), ledger)
            else {
                break;
            };
            let from = used;
            used += filled.used;
            self.parts.push(Part { lane, from, filled });
            if lanes.lane(lane).holds() {
                break;
            }
        }
        frame[used..].fill(0);
        let rest = frame.len() - used;
        if self.defects && (1..SMALLEST_REST).contains(&rest) {
            lanes.change(0, |lane| lane.lose_all(start, ledger));
        }
        ledger.counters.signalling_bytes += plans as u64;
        ledger.frame(start, self.id, used, frame);
    }

    /// Sends the frame.
    fn send(&mut self, end: Nanos, exit: &mut impl FrameOutput, core: &mut DirectionState) {
        if core.channel.loses_frame(end) {
            core.ledger.lose_frame(end, total(&self.parts));
            exit.miss();
        } else {
            let sent = Sent {
                end,
                id: self.id,
                frame: &self.frame,
                parts: &self.parts,
            };
            exit.deliver(&sent, core);
        }
    }
}

fn price(carrier: &Carrier) -> u64 {
    TerminalQueues::price(carrier.frame_duration(), carrier.frame_payload())
}
