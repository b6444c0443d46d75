// SPDX-License-Identifier: GPL-3.0-or-later
//! A terminal between two carriers.

use crate::Nanos;
use crate::change::Waiting;
use crate::channel::Channel;
use crate::config::{LinkConfig, LinkError, Reception};
use crate::demand::PlanPath;
use crate::frame_output::FrameOutput;
use crate::queue::Fifos;
use crate::slot_assignment::{Stations, Superframe};
use crate::terminal_queues::Lane;
use crate::transmitter::{Link, Transmitter};

/// What a terminal takes along from one shared carrier to another, see [`crate::Transfer`].
#[derive(Debug)]
pub struct Leaving {
    /// FIFOs of the terminal. They are empty, and keep their counters.
    pub(crate) queue: Fifos,
    /// Packets to keep, with the times since when they wait.
    pub(crate) waiting: Vec<(Nanos, Vec<u8>)>,
    pub(crate) channel: Channel,
    attenuation_db: f64,
    /// On a return link with demand assignment: the path of its slot plans, and their attenuation.
    pub(crate) plans: Option<PlanPath>,
    plan_attenuation_db: f64,
}

impl Leaving {
    pub(crate) fn new(
        config: &LinkConfig,
        channel: Channel,
        (queue, waiting): (Fifos, Vec<(Nanos, Vec<u8>)>),
        plans: Option<PlanPath>,
    ) -> Self {
        let attenuation = |it: Option<&Reception>| it.map_or(0.0, |it| it.attenuation_db);
        let of_plans = config
            .demand
            .as_ref()
            .and_then(|it| it.plans.reception.as_ref());
        Self {
            queue,
            waiting,
            channel,
            attenuation_db: attenuation(config.reception.as_ref()),
            plans,
            plan_attenuation_db: attenuation(of_plans),
        }
    }

    /// Due time of the last packet that was sent on the earlier carriers. Packets that are due
    /// later were sent on the new carrier.
    #[must_use]
    pub const fn last_due(&self) -> Nanos {
        self.channel.last_due()
    }

    /// Returns the link on the new carrier, with the present attenuation.
    pub(crate) fn onto(&self, config: &LinkConfig) -> LinkConfig {
        let mut config = config.clone();
        if let Some(reception) = &mut config.reception {
            reception.attenuation_db = self.attenuation_db;
        }
        let of_plans = config
            .demand
            .as_mut()
            .and_then(|it| it.plans.reception.as_mut());
        if let Some(reception) = of_plans {
            reception.attenuation_db = self.plan_attenuation_db;
        }
        config
    }
}

impl Link {
    /// A terminal that logs on at `since` and first asks for slots at `from`; it has some when a
    /// plan has come.
    pub(crate) fn joining(
        config: LinkConfig,
        since: Nanos,
        from: Nanos,
    ) -> Result<Self, LinkError> {
        let mut link = Self::with_stations(config, Stations::Joining { since, from })?;
        let none = &mut Superframe {
            start: since,
            slots: 0,
            starts: Vec::new(),
            free: 0,
            signalling: 0,
        };
        if let Some(framed) = &mut link.framed {
            framed.assign(&link.core.config.carrier, none);
        }
        Ok(link)
    }

    /// Goes on with the packets and FIFOs of the same terminal elsewhere, and the counters of its
    /// last stay here, `before`.
    pub(crate) fn go_on(&mut self, leaving: Leaving, before: Option<Self>) {
        self.core.ledger = before.map(|it| it.core.ledger).unwrap_or_default();
        self.core.channel.go_on(leaving.channel);
        let mut queue = leaving.queue;
        self.lanes.change(0, |lane| {
            let new = Fifos::new(&self.core.config, self.core.config.queue, 0);
            lane.queue = new.after(&mut queue);
        });
        self.take_over(0, leaving.waiting);
    }
}

impl<E: FrameOutput> Transmitter<E> {
    /// Takes out what waits for a terminal, with its FIFOs; what is not to be kept is dropped, or
    /// is returned to be flushed.
    pub(crate) fn vacate(
        &mut self,
        lane: usize,
        waiting: Waiting,
    ) -> (Fifos, Vec<(Nanos, Vec<u8>)>) {
        let core = &mut self.core;
        let empty = Fifos::new(&core.config, core.config.queue, core.generation);
        let (queue, packets) = self.lanes.change(lane, |lane| {
            let packets = lane.take_out(core.now);
            (std::mem::replace(&mut lane.queue, empty), packets)
        });
        if waiting == Waiting::Drop {
            self.lanes
                .discard(core.now, lane, &packets, &mut core.ledger);
            return (queue, Vec::new());
        }
        (queue, packets)
    }

    /// Packets of a terminal wait here from now on, which waited elsewhere before; those that do
    /// not fit are dropped.
    pub(crate) fn take_over(&mut self, lane: usize, packets: Vec<(Nanos, Vec<u8>)>) {
        let now = self.core.now;
        for (since, packet) in packets {
            if !self.lanes.accepts(lane, &packet) {
                let refused = [(since, packet)];
                self.lanes
                    .discard(now, lane, &refused, &mut self.core.ledger);
                continue;
            }
            if let Some(framed) = self.framed.as_mut().filter(|_| self.lanes.is_idle()) {
                framed.skip_to(now);
            }
            self.lanes.push(since, lane, &packet, &mut self.core.ledger);
        }
    }

    /// A terminal of a shared carrier comes in at `place`, where it was before, or at a new one.
    pub(crate) fn join(&mut self, place: Option<usize>, lane: Lane, queue: &mut Fifos) {
        self.lanes.join(place, lane, queue);
    }

    /// A terminal of a shared carrier, for which nothing waits, is gone.
    pub(crate) fn leave(&mut self, lane: usize) {
        self.lanes.leave(lane);
        self.idle_at(self.core.now);
    }
}
