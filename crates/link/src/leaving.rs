// SPDX-License-Identifier: GPL-3.0-or-later
//! A terminal between two carriers.

use crate::Nanos;
use crate::channel::Channel;
use crate::config::{LinkConfig, Reception};
use crate::demand::PlanPath;
use crate::queue::Fifos;

/// What a terminal takes along from one shared carrier to another, see [`crate::Transfer`].
#[derive(Debug)]
pub struct Leaving {
    /// Its FIFOs, empty: their figures go on.
    pub(crate) queue: Fifos,
    /// Packets to keep, with the times since when they wait.
    pub(crate) waiting: Vec<(Nanos, Vec<u8>)>,
    pub(crate) channel: Channel,
    attenuation_db: f64,
    /// Of a return link with demand assignment: the way of its plans, and their attenuation.
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

    /// What is due until then was sent on the carriers before, what is due later on the new one.
    #[must_use]
    pub const fn last_due(&self) -> Nanos {
        self.channel.last_due()
    }

    /// The link on the new carrier, with the attenuation in force.
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

/// Puts what a terminal has on a carrier at its place there, or at a new one; what was there before.
pub(crate) fn put<T>(all: &mut Vec<T>, place: Option<usize>, new: T) -> Option<T> {
    if let Some(index) = place {
        return Some(std::mem::replace(&mut all[index], new));
    }
    all.push(new);
    None
}
