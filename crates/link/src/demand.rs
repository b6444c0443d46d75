// SPDX-License-Identifier: GPL-3.0-or-later
//! A return carrier whose slots are assigned on demand (ETSI EN 301 545-2, [`dvb::dama`]).

use crate::loss::Losses;
use crate::random::{Process, generator, hits};
use crate::{Carrier, Change, Classes, LinkError, Loss, LossUnit, Nanos, Reception};
use dvb::dama::{self, Access, Agreement, Arithmetic};
use rand_pcg::Pcg64;

/// Demand assignment of a [`Carrier::Return`] or [`Carrier::OpenSandReturn`], whose `slots` are
/// then the most that the terminal may be granted in a superframe.
///
/// A request is a burst of its own, in a slot that the carrier keeps for it, and lost with it;
/// `OpenSAND`'s requests take no slot and no time. A plan travels on the forward link and is lost
/// with its frames; each has the propagation delay. Superframes of the terminal begin at multiples
/// of their duration. The gateway plans at its own superframe starts: those moments at which bursts
/// sent at a superframe start arrive (standard), or the terminal's (`OpenSAND`, whose start of
/// frame is not delayed).
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// FIFOs of the terminal, highest priority first; 1 to 64. Each holds what
    /// [`crate::LinkConfig::queue`] says.
    pub fifos: Vec<Fifo>,
    /// Index of the FIFO of each DSCP.
    pub fifo_of_dscp: [u8; 64],
    /// What the terminal may ask for.
    pub agreement: Agreement,
    /// Free capacity that each terminal is given, kbit/s.
    pub fca_kbps: u32,
    /// Time between two requests of a terminal, above 0.
    pub synchro: Nanos,
    /// Terminals that share the carrier. Their requests and plans are not lost.
    pub others: Vec<Other>,
    /// What plans meet on their way.
    pub plans: Plans,
}

/// The forward link as far as plans are concerned. Losses are drawn anew for them; outages, windows
/// and fades are the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plans {
    /// Loss processes of the forward link; only those that lose frames matter.
    pub losses: Vec<Loss>,
    /// Reception of the forward link; `None`: perfect.
    pub reception: Option<Reception>,
    /// What plans need, dB: the threshold of its most robust MODCOD.
    pub threshold_db: f64,
}

impl Plans {
    /// Applies a change of the forward link, as far as it concerns plans.
    pub(crate) fn change(&mut self, change: &Change) {
        let reception = self.reception.as_mut();
        match (change, reception) {
            (Change::Losses(losses), _) => self.losses.clone_from(losses),
            (Change::EsN0(db), Some(reception)) => reception.es_n0_db = *db,
            (Change::Attenuation(db), Some(reception)) => reception.attenuation_db = *db,
            _ => {}
        }
    }

    fn error_ratio(&self) -> f64 {
        self.reception
            .map_or(0.0, |it| it.frame_error_ratio(self.threshold_db))
    }
}

/// The way of the plans at work.
#[derive(Debug)]
pub(crate) struct PlanPath {
    losses: Losses,
    reception: Pcg64,
    error_ratio: f64,
    is_down: bool,
}

impl PlanPath {
    pub(crate) fn new(plans: &Plans, seed: u64) -> Self {
        Self {
            losses: Losses::new(&plans.losses, plan_seed(seed), 0),
            reception: generator(plan_seed(seed), Process::Quality, 0),
            error_ratio: plans.error_ratio(),
            is_down: false,
        }
    }

    /// Continues on another carrier, whose forward link is `plans`.
    pub(crate) fn go_on(self, plans: &Plans) -> Self {
        Self {
            error_ratio: plans.error_ratio(),
            ..self
        }
    }

    /// Whether a plan sent at `now` is lost.
    pub(crate) fn loses(&mut self, now: Nanos) -> bool {
        let lost = self.losses.lose(LossUnit::Frame, now);
        let unclear = self.error_ratio > 0.0 && hits(&mut self.reception, self.error_ratio);
        lost || unclear || self.is_down
    }

    /// Takes over a change that `plans` has already taken.
    pub(crate) fn change(&mut self, change: &Change, plans: &Plans, seed: u64, generation: u64) {
        match change {
            Change::Losses(losses) => {
                self.losses = Losses::new(losses, plan_seed(seed), generation);
            }
            Change::Outage(is_down) => self.is_down = *is_down,
            _ => {}
        }
        self.error_ratio = plans.error_ratio();
    }
}

/// Plans draw apart from the bursts of the link that they are for.
const fn plan_seed(seed: u64) -> u64 {
    !seed
}

/// A FIFO of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fifo {
    /// Kind of capacity of the FIFO.
    pub access: Access,
    /// Most packets in it, at least 1.
    pub packets: u64,
}

/// Another terminal of the carrier: it competes for slots, its traffic is a volume without packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Limits of its requests.
    pub agreement: Agreement,
    /// Kind of its requests.
    pub access: Access,
    /// Traffic of the terminal.
    pub load: Vec<Load>,
}

/// Traffic at a constant rate for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Start.
    pub from: Nanos,
    /// End.
    pub until: Nanos,
    /// Burst payload that it fills, kbit/s.
    pub kbps: u32,
}

/// Terminals that a plan can name, the own one included.
const MOST_TERMINALS: usize = 256;

impl Demand {
    /// Returns the FIFOs as classes.
    pub(crate) fn classes(&self) -> Classes {
        Classes {
            packets: self.fifos.iter().map(|fifo| fifo.packets).collect(),
            of_dscp: self.fifo_of_dscp,
        }
    }

    pub(crate) fn check(&self, carrier: &Carrier) -> Result<(), LinkError> {
        let is_possible = carrier.dama().is_some()
            && self.classes().is_possible()
            && self.synchro > 0
            && self.others.len() < MOST_TERMINALS;
        if is_possible {
            Ok(())
        } else {
            Err(LinkError::Demand)
        }
    }

    /// Longest time from a request to the end of its effect.
    pub(crate) fn memory(&self, carrier: &Carrier, delay: Nanos) -> Nanos {
        let superframe = carrier.dama().map_or(0, |it| it.superframe);
        self.synchro + 2 * delay + superframe * (u64::from(self.agreement.duration) + 2)
    }
}

impl Carrier {
    /// The carrier as the planner sees it; `None` where there are no bursts.
    pub(crate) fn dama(&self) -> Option<dama::Carrier> {
        let (symbol_rate, superframe, waveform, arithmetic) = match *self {
            Self::Return {
                symbol_rate,
                superframe,
                waveform,
                ..
            } => (symbol_rate, superframe, waveform, Arithmetic::Standard),
            Self::OpenSandReturn {
                symbol_rate,
                superframe,
                waveform,
                ..
            } => (symbol_rate, superframe, waveform, Arithmetic::OpenSand),
            Self::Forward { .. }
            | Self::OpenSandForward { .. }
            | Self::Line { .. }
            | Self::Wire => return None,
        };
        Some(dama::Carrier {
            symbol_rate,
            superframe,
            waveform,
            arithmetic,
        })
    }

    /// Returns the carrier with another number of slots per superframe.
    pub(crate) fn with_slots(mut self, granted: u32) -> Self {
        if let Self::Return { slots, .. } | Self::OpenSandReturn { slots, .. } = &mut self {
            *slots = granted;
        }
        self
    }
}
