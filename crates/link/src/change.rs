// SPDX-License-Identifier: GPL-3.0-or-later
//! Changes of a link at run time.

use crate::channel::frame_error_ratio;
use crate::framed::Framed;
use crate::jitter::Jittering;
use crate::loss::Losses;
use crate::queue::Fifos;
use crate::{Carrier, Jitter, Link, LinkConfig, LinkError, Loss, Nanos, Queue};
use dvb::dama::Grant;
use dvb::modcod::ModCod;

/// What can change while a link runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Propagation delay. Packets in flight keep theirs, and no packet overtakes another.
    Delay(Nanos),
    /// Loss processes, in place of those before; they start anew. Their times count from the start of the link.
    Losses(Vec<Loss>),
    /// Jitter, in place of the one before.
    Jitter(Jitter),
    /// True: nothing that is sent from now on gets through, until false. Frames are sent all the same.
    Outage(bool),
    /// C/N in dB of the frames sent from now on.
    Cn(f64),
    /// What is taken off the C/N of the frames sent from now on, dB.
    Attenuation(f64),
    /// MODCOD from the next frame on, until `None` lets adaptive coding choose again.
    Modcod(Option<ModCod>),
    /// Symbols per second from the next opening of the frame grid on.
    SymbolRate(u64),
    /// Queue. What waits moves into it, oldest first; what does not fit is dropped.
    Queue(Queue),
    /// MODCOD, waveform, symbol rate or slots of the same kind of carrier, from the next opening of the frame grid on;
    /// the grid starts anew there. Not with demand assignment.
    Carrier(Carrier),
    /// Another link from now on. Not with demand assignment.
    Handover(Handover),
    /// Losses, outage, C/N or attenuation of the forward link, for the plans that this return link is assigned by; nothing
    /// without demand assignment.
    Plans(Box<Change>),
    /// A plan that another process made has come, and takes effect a propagation from now.
    Plan {
        /// Bursts of the terminal.
        grant: Grant,
        /// Bursts that nobody got.
        free: u32,
        /// Bursts kept for requests.
        signalling: u32,
    },
}

impl Change {
    /// It says that the link, or its way for plans, is down or up.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Outage(_) => true,
            Self::Plans(change) => change.is_outage(),
            _ => false,
        }
    }
}

/// The link that takes over. Losses, jitter and reception stay; where there is adaptive coding, it chooses the MODCOD, also
/// after one was held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Handover {
    /// Its carrier, whose frame grid starts at the moment of the handover.
    pub carrier: Carrier,
    /// Its propagation delay. Packets in flight keep theirs, and no packet overtakes another.
    pub delay: Nanos,
    /// Its queue.
    pub queue: Queue,
    /// What becomes of what waits at that moment. Fragments already on air are of no use to the new receiver: the packet
    /// in fragmentation counts as waiting, whole.
    pub waiting: Waiting,
}

/// What becomes of waiting packets at a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Moves to the new queue; what does not fit is dropped.
    Keep,
    /// Leaves the old link at once, with its delay and its losses of packets.
    Flush,
    /// Is dropped.
    Drop,
}

impl Link {
    /// Advances to `now` and changes the link.
    ///
    /// # Errors
    /// The link cannot be so; it goes on as it was.
    pub fn set(&mut self, now: Nanos, change: Change) -> Result<(), LinkError> {
        let is_on_demand = self.config.demand.is_some();
        if is_on_demand && matches!(change, Change::Carrier(_) | Change::Handover(_)) {
            return Err(LinkError::OnDemand);
        }
        self.advance(now);
        let config = changed(&self.config, &change)?;
        config.check()?;
        self.generation += 1;
        self.config = config;
        self.apply(change);
        self.channel.frame_error_ratio = frame_error_ratio(&self.config);
        Ok(())
    }

    fn apply(&mut self, change: Change) {
        let (seed, generation) = (self.config.seed, self.generation);
        match change {
            Change::Delay(delay) => {
                self.channel.delay = delay;
                if let Some(assigning) = &mut self.assigning {
                    assigning.set_delay(delay);
                }
            }
            Change::Losses(losses) => self.channel.losses = Losses::new(&losses, seed, generation),
            Change::Jitter(jitter) => {
                self.channel.jitter = Jittering::new(jitter, seed, generation);
            }
            Change::Outage(is_down) => self.channel.is_down = is_down,
            Change::Cn(_) | Change::Attenuation(_) => {}
            Change::Queue(queue) => self.replace_queue(queue),
            Change::Modcod(modcod) => {
                if let Some(acm) = &mut self.acm {
                    acm.hold(modcod.is_some());
                }
                self.retune(self.adapted(self.config.carrier), self.now);
            }
            Change::SymbolRate(_) | Change::Carrier(_) => {
                self.retune(self.config.carrier, self.now);
            }
            Change::Handover(handover) => self.hand_over(handover),
            Change::Plans(change) => {
                if let (Some(assigning), Some(demand)) = (&mut self.assigning, &self.config.demand)
                {
                    assigning
                        .way
                        .change(&change, &demand.plans, seed, generation);
                }
            }
            Change::Plan {
                grant,
                free,
                signalling,
            } => {
                if let Some(assigning) = &mut self.assigning {
                    let at = self.now.saturating_add(self.channel.delay);
                    assigning.hear_plan(at, grant, (free, signalling));
                }
            }
        }
    }

    fn replace_queue(&mut self, queue: Queue) {
        let pending = self
            .framed
            .as_ref()
            .map_or(0, |framed| framed.air.pending());
        let new = Fifos::new(&self.config, queue, self.generation).after(&self.queue);
        let mut old = std::mem::replace(&mut self.queue, new);
        old.drain(|since, packet| {
            self.queue
                .push(since, packet, pending as u64, &mut self.ledger);
        });
    }

    fn hand_over(&mut self, handover: Handover) {
        let new = Fifos::new(&self.config, handover.queue, self.generation);
        let mut old = std::mem::replace(&mut self.queue, new);
        let mut waiting = Vec::new();
        let cut = self
            .framed
            .as_mut()
            .and_then(|framed| framed.air.take_back());
        waiting.extend(cut.map(|packet| (self.now, packet)));
        old.drain(|since, packet| waiting.push((since, packet.to_vec())));
        if handover.waiting == Waiting::Flush {
            for (_, packet) in waiting.drain(..) {
                self.send_by_wire(&packet);
            }
        }
        if let Some(acm) = &mut self.acm {
            acm.hold(false);
        }
        self.config.carrier = self.adapted(handover.carrier);
        self.framed = Framed::new(&self.config, self.now);
        self.channel.delay = handover.delay;
        for (since, packet) in waiting {
            let accepts = |framed: &Framed| framed.air.accepts(&packet);
            match (&self.framed, handover.waiting) {
                (None, Waiting::Keep) => self.send_by_wire(&packet),
                (Some(framed), Waiting::Keep) if accepts(framed) => {
                    self.queue.push(since, &packet, 0, &mut self.ledger);
                }
                _ => self.ledger.drop(self.now, packet.len()),
            }
        }
    }
}

/// The configuration after a change.
fn changed(config: &LinkConfig, change: &Change) -> Result<LinkConfig, LinkError> {
    let mut config = config.clone();
    let reception = config.reception.as_mut().ok_or(LinkError::NoReception);
    match change {
        Change::Delay(delay) => config.delay = *delay,
        Change::Losses(losses) => config.losses.clone_from(losses),
        Change::Jitter(jitter) => config.jitter = *jitter,
        Change::Outage(_) | Change::Plan { .. } => {}
        Change::Plans(change) => {
            if let Some(demand) = &mut config.demand {
                demand.plans.change(change);
            }
        }
        Change::Cn(cn_db) => reception?.cn_db = *cn_db,
        Change::Attenuation(db) => reception?.attenuation_db = *db,
        Change::Queue(queue) => config.queue = *queue,
        Change::Modcod(modcod) => {
            let own = config.carrier.modcod().ok_or(LinkError::NoModcod)?;
            config.carrier = config.carrier.with_modcod(modcod.unwrap_or(own));
        }
        Change::SymbolRate(rate) => config.carrier = config.carrier.with_symbol_rate(*rate),
        Change::Carrier(carrier) => {
            let kind = std::mem::discriminant(carrier);
            if kind != std::mem::discriminant(&config.carrier) {
                return Err(LinkError::OtherKind);
            }
            config.carrier = *carrier;
        }
        Change::Handover(handover) => {
            config.carrier = handover.carrier;
            config.delay = handover.delay;
            config.queue = handover.queue;
        }
    }
    Ok(config)
}
