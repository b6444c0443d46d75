// SPDX-License-Identifier: GPL-3.0-or-later
//! The state of every role of a direction: configuration, ACM loop, slot assignment, channel,
//! counters.

use crate::Nanos;
use crate::acm::Loop;
use crate::carrier::Carrier;
use crate::change::{Change, changed};
use crate::channel::{Channel, frame_error_ratio};
use crate::config::{LinkConfig, LinkError};
use crate::impairments::Impairing;
use crate::jitter::Jittering;
use crate::ledger::Ledger;
use crate::loss::Losses;
use crate::slot_assignment::{Assigning, Stations};

/// State that all roles share.
#[derive(Debug)]
pub struct DirectionState {
    pub(crate) config: LinkConfig,
    pub(crate) acm: Option<Loop>,
    pub(crate) assigning: Option<Assigning>,
    pub(crate) channel: Channel,
    pub(crate) ledger: Ledger,
    pub(crate) now: Nanos,
    /// Number of changes so far. Each change starts new random generators.
    pub(crate) generation: u64,
}

/// What a step of adaptive coding did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adapted {
    /// No event was due.
    Nothing,
    /// An event without consequence for the carrier.
    Worked,
    /// The carrier is another one since then.
    Retuned(Nanos),
}

impl DirectionState {
    /// At the time since when `stations` of the demand assignment are here.
    pub(crate) fn new(mut config: LinkConfig, stations: Stations) -> Result<Self, LinkError> {
        let since = stations.since();
        config.check()?;
        if config.random_access.is_some() {
            return Err(LinkError::RandomAccess);
        }
        let mut acm = None;
        if let Some(settings) = &config.acm {
            let selector = settings.selector(&config.carrier)?;
            config.carrier = config.carrier.with_coding(selector.current());
            acm = Some(Loop::new(settings, selector, since));
        }
        Ok(Self {
            acm,
            assigning: Assigning::new(&config, stations),
            channel: Channel::new(&config),
            ledger: Ledger::default(),
            now: since,
            generation: 0,
            config,
        })
    }

    /// Works off the next event of adaptive coding if it comes before now and not after `opening`.
    #[inline]
    pub(crate) fn adapt(&mut self, opening: Option<Nanos>) -> Adapted {
        let (Some(acm), Some(reception)) = (&mut self.acm, &self.config.reception) else {
            return Adapted::Nothing;
        };
        let at = acm.next_event();
        if at >= self.now || opening.is_some_and(|start| start < at) {
            return Adapted::Nothing;
        }
        let until = opening.unwrap_or(self.now - 1);
        acm.step(reception.effective_es_n0_db(), self.channel.delay, until);
        let carrier = self.adapted(self.config.carrier);
        if carrier == self.config.carrier {
            return Adapted::Worked;
        }
        self.retune(carrier);
        Adapted::Retuned(at)
    }

    /// The carrier with the MODCOD or waveform that adaptive coding chooses, if it does.
    fn adapted(&self, carrier: Carrier) -> Carrier {
        let choice = self.acm.as_ref().and_then(Loop::choice);
        choice.map_or(carrier, |coding| carrier.with_coding(coding))
    }

    /// Changes to another carrier of the same kind.
    fn retune(&mut self, carrier: Carrier) {
        self.config.carrier = carrier;
        if let (Some(assigning), Some(dama)) = (&mut self.assigning, carrier.dama()) {
            assigning.retune(dama.waveform);
        }
        self.channel.frame_error_ratio = frame_error_ratio(&self.config);
    }

    /// Takes the configuration after a change, if it is possible.
    pub(crate) fn reconfigure(&mut self, change: &Change) -> Result<(), LinkError> {
        let is_on_demand = self.config.demand.is_some();
        if is_on_demand
            && matches!(
                change,
                Change::SymbolRate(_) | Change::Carrier(_) | Change::Handover(_)
            )
        {
            return Err(LinkError::OnDemand);
        }
        let config = changed(&self.config, change)?;
        config.check()?;
        self.generation += 1;
        self.config = config;
        Ok(())
    }

    /// Applies a change that [`DirectionState::reconfigure`] has taken.
    pub(crate) fn apply(&mut self, change: &Change) {
        let (seed, generation) = (self.config.seed, self.generation);
        match change {
            Change::Delay(delay) => {
                self.channel.delay = *delay;
                if let Some(assigning) = &mut self.assigning {
                    assigning.set_delay(*delay);
                }
            }
            Change::Losses(losses) => self.channel.losses = Losses::new(losses, seed, generation),
            Change::Jitter(jitter) => {
                self.channel.jitter = Jittering::new(*jitter, seed, generation);
            }
            Change::Impairment(_) => {
                let impairments = self.config.impairments;
                self.channel
                    .impair(Impairing::new(impairments, seed, generation));
            }
            Change::Outage(is_down) => self.channel.is_down = *is_down,
            Change::EsN0(_) | Change::Attenuation(_) | Change::Queue(_) | Change::Transfer(_) => {}
            Change::Modcod(modcod) => {
                self.hold(modcod.is_some());
                self.retune(self.adapted(self.config.carrier));
            }
            Change::SymbolRate(_) | Change::Carrier(_) => self.retune(self.config.carrier),
            Change::Handover(handover) => {
                self.hold(false);
                self.config.carrier = self.adapted(handover.carrier);
                self.channel.delay = handover.delay;
            }
            Change::Plans(change) => {
                if let (Some(assigning), Some(demand)) = (&mut self.assigning, &self.config.demand)
                {
                    let path = &mut assigning.plan_path;
                    path.change(change, &demand.plans, seed, generation);
                }
            }
            Change::Plan {
                grant,
                free,
                signalling,
            } => {
                if let Some(assigning) = &mut self.assigning {
                    let at = self.now.saturating_add(self.channel.delay);
                    assigning.receive_plan(at, *grant, (*free, *signalling));
                }
            }
        }
        self.channel.frame_error_ratio = frame_error_ratio(&self.config);
    }

    fn hold(&mut self, is_held: bool) {
        if let Some(acm) = &mut self.acm {
            acm.hold(is_held);
        }
    }
}
