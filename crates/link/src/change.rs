// SPDX-License-Identifier: GPL-3.0-or-later
//! Changes of a link at run time.

use crate::{Carrier, Impairments, Jitter, LinkConfig, LinkError, Loss, Nanos, Queue, Reorder};
use dvb::dama::Grant;
use dvb::modcod::ModCod;

/// What can change while a link runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Propagation delay. Packets in flight keep theirs, and no packet overtakes another.
    Delay(Nanos),
    /// Loss processes that replace the present ones. They start in their initial state, and their
    /// times count from the start of the link.
    Losses(Vec<Loss>),
    /// Jitter, in place of the one before.
    Jitter(Jitter),
    /// One of the impairments, in place of the one before; it starts anew. What is held back goes on
    /// at once.
    Impairment(Impairment),
    /// True: everything sent from now on is lost, until false. Frames are sent nevertheless.
    Outage(bool),
    /// `Es/N0` in dB of the frames sent from now on.
    EsN0(f64),
    /// Reduces the `Es/N0` of the frames sent from now on, dB.
    Attenuation(f64),
    /// MODCOD from the next frame on, until `None` lets adaptive coding choose again.
    Modcod(Option<ModCod>),
    /// Symbols per second from the next opening of the frame grid on.
    SymbolRate(u64),
    /// Queue. Waiting packets move into it, oldest first; those that do not fit are dropped.
    Queue(Queue),
    /// MODCOD, waveform, symbol rate or slots of the same kind of carrier, from the next opening of
    /// the frame grid on; the grid starts anew there. Not with demand assignment.
    Carrier(Carrier),
    /// Another link from now on. Not with demand assignment.
    Handover(Handover),
    /// Another carrier of several terminals from now on; of shared carriers alone.
    Transfer(Box<Transfer>),
    /// Change of losses, outage, `Es/N0` or attenuation on the forward link, which carries the slot
    /// plans of this return link. Has no effect without demand assignment.
    Plans(Box<Change>),
    /// A plan that another process made has come, and takes effect a propagation from now.
    Plan {
        /// Bursts of the terminal.
        grant: Grant,
        /// Bursts that were not granted.
        free: u32,
        /// Bursts kept for requests.
        signalling: u32,
    },
}

/// A change of one of the impairments; the others stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Impairment {
    /// `None`: packets keep their order.
    Reorder(Option<Reorder>),
    /// Share of the packets.
    Duplicate(f64),
    /// Share of the UDP datagrams.
    Corrupt(f64),
}

impl Impairment {
    fn of(self, before: Impairments) -> Impairments {
        match self {
            Self::Reorder(reorder) => Impairments { reorder, ..before },
            Self::Duplicate(duplicate) => Impairments {
                duplicate,
                ..before
            },
            Self::Corrupt(corrupt) => Impairments { corrupt, ..before },
        }
    }
}

impl Change {
    /// Whether the change begins an outage of the link or of its plans (true), or ends one (false);
    /// `None` if it does neither.
    #[must_use]
    pub fn outage(&self) -> Option<bool> {
        match self {
            Self::Outage(is_down) => Some(*is_down),
            Self::Plans(change) => change.outage(),
            _ => None,
        }
    }
}

/// The link that takes over. Losses, jitter and reception stay; where there is adaptive coding, it
/// chooses the MODCOD, also after one was held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Handover {
    /// Carrier of the new link. Its frame grid starts at the moment of the handover.
    pub carrier: Carrier,
    /// Propagation delay of the new link. Packets in flight keep their delay, and no packet
    /// overtakes another.
    pub delay: Nanos,
    /// Queue of the new link.
    pub queue: Queue,
    /// What happens to waiting packets. Fragments already on air are of no use to the new receiver:
    /// the packet in fragmentation counts as waiting, whole.
    pub waiting: Waiting,
}

/// The carrier that a terminal belongs to from now on, and its link there: that of another gateway.
///
/// What is in frames on air is in flight, and comes by the old carrier with its delay; no packet
/// overtakes another. A packet in fragmentation counts as waiting, whole. Losses, jitter, outage
/// and attenuation stay; all else is as in `config`. On a return carrier the terminal is logged on
/// anew: the planner grants it slots with its next plan, and has none of its old requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// Index of the carrier among those of the direction.
    pub carrier: usize,
    /// Configuration of the terminal's link, as if the terminal were alone.
    pub config: LinkConfig,
    /// What happens to packets that wait on the old carrier.
    pub waiting: Waiting,
}

/// What happens to waiting packets at a handover or transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Moves to the new queue; what does not fit is dropped.
    Keep,
    /// Leaves the old link at once, with its delay and its losses of packets.
    Flush,
    /// Is dropped.
    Drop,
}

/// A MODCOD with the profile's threshold, where ACM may choose it, too.
fn in_profile(config: &LinkConfig, modcod: ModCod) -> ModCod {
    let mut known = config.choices().filter_map(|it| it.modcod());
    known.find(|it| it.id == modcod.id).unwrap_or(modcod)
}

/// The configuration after a change.
pub(crate) fn changed(config: &LinkConfig, change: &Change) -> Result<LinkConfig, LinkError> {
    let mut config = config.clone();
    let reception = config.reception.as_mut().ok_or(LinkError::NoReception);
    match change {
        Change::Delay(delay) => config.delay = *delay,
        Change::Losses(losses) => config.losses.clone_from(losses),
        Change::Jitter(jitter) => config.jitter = *jitter,
        Change::Impairment(impairment) => {
            config.impairments = impairment.of(config.impairments);
        }
        Change::Outage(_) | Change::Plan { .. } => {}
        Change::Plans(change) => {
            if let Some(demand) = &mut config.demand {
                demand.plans.change(change);
            }
        }
        Change::EsN0(es_n0_db) => reception?.es_n0_db = *es_n0_db,
        Change::Attenuation(db) => reception?.attenuation_db = *db,
        Change::Queue(queue) => config.queue = *queue,
        Change::Modcod(modcod) => {
            let own = config.carrier.modcod().ok_or(LinkError::NoModcod)?;
            if modcod.is_none() && config.acm.is_none() {
                return Err(LinkError::NoAdaptiveCoding);
            }
            let held = modcod.map_or(own, |it| in_profile(&config, it));
            config.carrier = config.carrier.with_modcod(held);
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
        Change::Transfer(_) => return Err(LinkError::SharedChange),
    }
    Ok(config)
}
