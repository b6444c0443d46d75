// SPDX-License-Identifier: GPL-3.0-or-later
//! Changes of a link at known times: from the control socket, the timeline, and from a profile
//! whose attenuation or delay varies.

use std::mem::discriminant;
use std::sync::Arc;

use link::{Change, LinkError, Nanos};
use profile::{Delay, Leg, Profile};
use serde_json::{Map, Value};

/// Largest number of steps to look ahead for a change. One wake-up per so many steps has no
/// measurable cost.
const LOOK_AHEAD: usize = 64;

/// A change that is due at a time.
#[derive(Debug, Clone)]
pub struct Scheduled {
    /// Time since the start of all directions.
    pub at: Nanos,
    /// What.
    pub change: Change,
    /// Index of the terminal whose link changes; `None`: all terminals that share the direction.
    pub terminal: Option<usize>,
    /// Duration of an outage; `None`: until another change ends it.
    pub lasts: Option<Nanos>,
    /// The end of an outage that was given with its length.
    pub is_end: bool,
    /// The variation of the profile that continues after this change.
    pub variation: Option<Variation>,
    /// Origin of the change.
    pub origin: Origin,
    /// The field as in the request.
    pub requested: Map<String, Value>,
}

impl Scheduled {
    /// A change that holds until another one and is not reported with fields.
    #[must_use]
    pub fn new(at: Nanos, change: Change, origin: Origin) -> Self {
        Self {
            at,
            change,
            terminal: None,
            lasts: None,
            is_end: false,
            variation: None,
            origin,
            requested: Map::new(),
        }
    }

    /// Whether this change of an outage takes the place of an earlier one: of the same terminal, or
    /// of all, which holds for each.
    #[must_use]
    pub fn replaces(&self, earlier: &Self) -> bool {
        let is_same = self.terminal.is_none() || earlier.terminal == self.terminal;
        is_same && discriminant(&self.change) == discriminant(&earlier.change)
    }

    /// The change that follows this one, which was made at `at`: the end of an outage, or the next
    /// of a variation.
    #[must_use]
    pub fn next(&self, at: Nanos) -> Option<Self> {
        if let Some(variation) = &self.variation {
            return Some(variation.after(self.at));
        }
        let up = Change::Outage(false);
        let end = Self {
            is_end: true,
            terminal: self.terminal,
            requested: Map::from_iter([("outage".to_owned(), Value::Bool(false))]),
            ..Self::new(at.saturating_add(self.lasts?), up, self.origin)
        };
        Some(match self.change {
            Change::Plans(_) => end.for_plans(),
            _ => end,
        })
    }

    /// The same for the plans that travel on the direction, of which nothing is reported.
    #[must_use]
    pub fn for_plans(&self) -> Self {
        Self {
            change: Change::Plans(Box::new(self.change.clone())),
            requested: Map::new(),
            ..self.clone()
        }
    }

    /// Whether the change is reported in the metrics.
    #[must_use]
    pub const fn is_reported(&self) -> bool {
        !matches!(self.change, Change::Plans(_) | Change::Plan { .. })
    }
}

/// Origin of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The control socket.
    Control,
    /// The timeline of the configuration.
    Timeline,
    /// A file or a periodic attenuation of the profile.
    Profile,
}

impl Origin {
    /// Returns the word for it in the metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Timeline => "timeline",
            Self::Profile => "profile",
        }
    }
}

/// A change that was made, or that the link refused.
#[derive(Debug)]
pub struct Applied {
    /// Time since the start of all directions.
    pub at: Nanos,
    /// What.
    pub change: Scheduled,
    /// Why the link was not changed.
    pub error: Option<LinkError>,
}

/// One quantity of one direction over time. Files without loop hold their last value.
#[derive(Debug, Clone)]
pub struct Variation {
    profile: Arc<Profile>,
    what: What,
    /// Index of the terminal that has this profile; `None`: the profile is that of all terminals.
    terminal: Option<usize>,
    /// Time 0 of the variation, since the start of all directions.
    zero: Nanos,
}

#[derive(Debug, Clone, Copy)]
enum What {
    ForwardEsN0,
    ReturnEsN0,
    /// The `Es/N0` of plans, which travel on the forward link.
    PlanEsN0,
    Delay,
}

/// What varies by itself, in the order of [`crate::directions::DIRECTIONS`].
#[must_use]
pub fn variations(profile: &Profile) -> [Vec<Variation>; 4] {
    of_terminal(profile, None, profile.is_on_demand())
}

/// The same of the terminal with this index, whose profile this is. `has_plans`: its slots come
/// with plans.
pub(crate) fn of_terminal(
    profile: &Profile,
    terminal: Option<usize>,
    has_plans: bool,
) -> [Vec<Variation>; 4] {
    let profile = Arc::new(profile.clone());
    let (gw, st) = (&profile.gw_physical, &profile.st_profile.physical);
    let varies = |legs: [&Leg; 2]| legs.into_iter().any(|leg| !leg.is_constant());
    let delay = [&gw.delay, &st.delay]
        .iter()
        .any(|it| it.step_ns().is_some());
    let of = |what: What| Variation {
        profile: Arc::clone(&profile),
        what,
        terminal,
        zero: 0,
    };
    let some = |is_there: bool, what| is_there.then(|| of(what));
    let fades = varies([&gw.uplink, &st.downlink]);
    let forward = [some(fades, What::ForwardEsN0), some(delay, What::Delay)];
    let back = [
        some(varies([&st.uplink, &gw.downlink]), What::ReturnEsN0),
        some(fades && has_plans, What::PlanEsN0),
        some(delay, What::Delay),
    ];
    [
        forward.into_iter().flatten().collect(),
        back.into_iter().flatten().collect(),
        Vec::new(),
        Vec::new(),
    ]
}

impl Variation {
    /// The first change, for a time 0 of `zero`.
    #[must_use]
    pub fn start(&self, zero: Nanos) -> Scheduled {
        let started = Self {
            zero,
            ..self.clone()
        };
        started.scheduled(0)
    }

    /// Returns the change that follows the change at `at`.
    #[must_use]
    pub fn after(&self, at: Nanos) -> Scheduled {
        let mut elapsed = at.saturating_sub(self.zero);
        let now = self.change(elapsed);
        for _ in 0..LOOK_AHEAD {
            elapsed = self.next_step(elapsed);
            if self.change(elapsed) != now {
                break;
            }
        }
        self.scheduled(elapsed)
    }

    fn scheduled(&self, elapsed: Nanos) -> Scheduled {
        let change = self.change(elapsed);
        let requested = match change {
            Change::EsN0(db) => Some(("es_n0_db", (db * 1e3).round() / 1e3)),
            Change::Delay(ns) => Some(("delay_ms", ns as f64 / 1e6)),
            _ => None,
        };
        let requested = requested.map(|(name, value)| (name.to_owned(), Value::from(value)));
        Scheduled {
            variation: Some(self.clone()),
            terminal: self.terminal,
            requested: requested.into_iter().collect(),
            ..Scheduled::new(self.zero.saturating_add(elapsed), change, Origin::Profile)
        }
    }

    fn change(&self, elapsed: Nanos) -> Change {
        let step = elapsed / self.attenuation_step() + 1;
        match self.what {
            What::ForwardEsN0 => Change::EsN0(self.profile.forward_es_n0_db(step)),
            What::ReturnEsN0 => Change::EsN0(self.profile.return_es_n0_db(step)),
            What::PlanEsN0 => {
                Change::Plans(Box::new(Change::EsN0(self.profile.forward_es_n0_db(step))))
            }
            What::Delay => Change::Delay(self.profile.one_way_delay_at(elapsed)),
        }
    }

    fn attenuation_step(&self) -> Nanos {
        (u64::from(self.profile.settings.acm_refresh_ms) * 1_000_000).max(1)
    }

    /// Start of the step after the one of `elapsed`; the delays of the two ground entities step
    /// apart.
    fn next_step(&self, elapsed: Nanos) -> Nanos {
        let of = |step: Nanos| (elapsed / step + 1).saturating_mul(step);
        match self.what {
            What::ForwardEsN0 | What::ReturnEsN0 | What::PlanEsN0 => of(self.attenuation_step()),
            What::Delay => {
                let (gw, st) = (&self.profile.gw_physical, &self.profile.st_profile.physical);
                let steps = [&gw.delay, &st.delay]
                    .into_iter()
                    .filter_map(Delay::step_ns);
                steps.map(of).min().unwrap_or(Nanos::MAX)
            }
        }
    }
}

#[cfg(test)]
#[path = "scheduled_tests.rs"]
mod tests;
