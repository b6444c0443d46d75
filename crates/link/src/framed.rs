// SPDX-License-Identifier: GPL-3.0-or-later
//! A carrier with frames at work.

use crate::air::Air;
use crate::assign::Superframe;
use crate::channel::Channel;
use crate::grid::{Grid, Quota};
use crate::ledger::Ledger;
use crate::part::{Outlet, Part};
use crate::queue::Fifos;
use crate::{Carrier, Nanos};
use dvb::sdu::Filled;

/// Frames, and when they open.
#[derive(Debug)]
pub(crate) struct Framed {
    grid: Grid,
    quota: Quota,
    /// Where the receiver is another process.
    outlet: Option<Outlet>,
    pub(crate) air: Air,
    /// Next opening at which something may be sent.
    next: u64,
    /// Openings of the grid; without end but for superframes on demand.
    openings: u64,
    /// MODCOD or waveform.
    id: u8,
    /// Payload of the frame in hand, kept to save the allocation.
    frame: Vec<u8>,
}

impl Framed {
    /// The frames of a carrier, the first one at `origin`; `None` for a wire.
    pub(crate) fn new(carrier: &Carrier, origin: Nanos, part: Part) -> Option<Self> {
        Some(Self {
            outlet: Outlet::new(part),
            grid: Grid::new(carrier, origin)?,
            quota: Quota::new(carrier),
            air: Air::new(carrier)?,
            next: 0,
            openings: u64::MAX,
            id: carrier.waveform_id(),
            frame: vec![0; carrier.frame_payload()],
        })
    }

    /// Goes over to another MODCOD, waveform or rate at the first opening from `now` on, where the grid starts anew. The
    /// packet in fragmentation goes on in the new frames.
    pub(crate) fn change(&mut self, carrier: &Carrier, now: Nanos) {
        let boundary = self.grid.start(self.grid.first_from(now).max(self.next));
        if let Some(grid) = Grid::new(carrier, boundary) {
            self.grid = grid;
        }
        self.quota = Quota::new(carrier);
        self.next = 0;
        self.id = carrier.waveform_id();
        self.frame.resize(carrier.frame_payload(), 0);
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

    /// Sends what the next opening of the grid holds.
    pub(crate) fn open(&mut self, queue: &mut Fifos, channel: &mut Channel, ledger: &mut Ledger) {
        let (start, end) = (self.grid.start(self.next), self.grid.end(self.next));
        self.next += 1;
        self.quota.open();
        while self.something_waits(queue) && self.quota.take() {
            self.send(start, end, queue, channel, ledger);
        }
        self.quota.close(self.something_waits(queue));
    }

    fn something_waits(&self, queue: &Fifos) -> bool {
        self.air.pending() > 0 || queue.size().1 > 0
    }

    /// Sends one frame, filled with what is queued.
    fn send(
        &mut self,
        start: Nanos,
        end: Nanos,
        queue: &mut Fifos,
        channel: &mut Channel,
        ledger: &mut Ledger,
    ) {
        let frame = &mut self.frame[..];
        let filled = self
            .air
            .fill(frame, |packet| queue.pop(start, packet, ledger));
        ledger.frame(start, self.id, filled.used, frame);
        if channel.loses_frame(end) {
            ledger.lose_frame(end, filled);
            self.air.miss();
            if let Some(outlet) = &mut self.outlet {
                outlet.skip();
            }
            return;
        }
        if let Some(outlet) = &mut self.outlet {
            channel.pass(end, outlet.frame(frame));
            return;
        }
        let mut kept = Filled::default();
        self.air.receive(frame, |packet| {
            if channel.loses_packet(end) {
                return;
            }
            kept.packets += 1;
            kept.bytes += packet.len() as u64;
            channel.deliver(end, packet);
        });
        // Packets come out in the frame that holds their last byte, or never.
        let lost = (filled.packets - kept.packets, filled.bytes - kept.bytes);
        ledger.lose(end, lost.0, lost.1);
    }
}
