// SPDX-License-Identifier: GPL-3.0-or-later
//! The configuration of one direction.

use crate::{
    Acm, Carrier, Classes, Demand, Impairments, Jitter, Loss, LossModel, Nanos, Queue,
    RandomAccess, Signalling,
};
use dvb::acm::ErrorModel;
use dvb::modcod::ModCod;
use thiserror::Error;

/// Configuration of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// What carries the packets.
    pub carrier: Carrier,
    /// Propagation delay.
    pub delay: Nanos,
    /// Queue in front of the carrier. A [`Carrier::Wire`] has no queue and ignores it.
    pub queue: Queue,
    /// Loss processes; a unit is lost if any of them takes it.
    pub losses: Vec<Loss>,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Reordering, duplication and corruption of packets that come through.
    pub impairments: Impairments,
    /// Reception of the frames; `None`: perfect. A wire ignores it.
    pub reception: Option<Reception>,
    /// Selection of the MODCOD of a forward carrier; `None`: constant. Needs a reception.
    pub acm: Option<Acm>,
    /// Assignment of the slots on demand; `None`: the slots of the carrier in every superframe.
    pub demand: Option<Demand>,
    /// Random access in place of assigned slots, for [`crate::RandomReturn`]; `None`: slots are
    /// assigned.
    pub random_access: Option<RandomAccess>,
    /// Classes of traffic where slots are not on demand; `None`: one.
    pub classes: Option<Classes>,
    /// Slot plans that a forward carrier sends before all packets; `None`: no plans.
    pub signalling: Option<Signalling>,
    /// Seed of all random generators. The same seed and input give the same events.
    pub seed: u64,
}

/// Reception of frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reception {
    /// Carrier-to-noise ratio in dB, to hold against the threshold of MODCOD or waveform.
    pub es_n0_db: f64,
    /// Taken off it, dB.
    pub attenuation_db: f64,
    /// Threshold of the receiver in place of that of MODCOD or waveform, dB.
    pub minimal_es_n0_db: Option<f64>,
    /// What becomes of a frame at this ratio.
    pub errors: ErrorModel,
}

/// Fault of a configuration or of a change.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The symbol rate is outside 1 baud to 10 Gbaud.
    #[error("symbol rate of {0} baud is outside 1..=10000000000")]
    SymbolRate(u64),
    /// The rate is outside 1 bit/s to 100 Gbit/s.
    #[error("line of {0} bit/s is outside 1..=100000000000")]
    LineRate(u64),
    /// The code rate has no FECFRAME of this size.
    #[error("MODCOD {0} has no short FECFRAME")]
    NoShortFrame(ModCod),
    /// `OpenSAND` sends only whole BBFRAMEs in a tick.
    #[error("a BBFRAME of {frame} symbols never fits a tick of {tick} symbols")]
    FrameAboveTick {
        /// Symbols of a BBFRAME.
        frame: u64,
        /// Symbols of a tick.
        tick: u64,
    },
    /// A superframe without duration or without a granted slot carries nothing.
    #[error("superframe of {superframe_ns} ns with {slots} granted slots carries nothing")]
    NoSlots {
        /// Superframe duration.
        superframe_ns: Nanos,
        /// Granted slots.
        slots: u32,
    },
    /// A terminal sends one burst at a time.
    #[error("{slots} bursts of {burst_ns} ns do not fit a superframe of {superframe_ns} ns")]
    SlotsOverlap {
        /// Granted slots.
        slots: u32,
        /// Burst duration.
        burst_ns: Nanos,
        /// Superframe duration.
        superframe_ns: Nanos,
    },
    /// A probability of a loss model is not between 0 and 1.
    #[error("loss ratio {0} is outside 0..=1")]
    LossRatio(f64),
    /// The times of a loss model make no sense.
    #[error("times of a loss are 0, out of order or overlapping, or a trace of it is empty")]
    LossTime,
    /// The jitter is too long.
    #[error("jitter of {0} ns is above an hour")]
    Jitter(Nanos),
    /// The share of an impairment is none.
    #[error("share {0} of an impairment is outside 0..=1")]
    Share(f64),
    /// Reordering by no packet, or without a longest time.
    #[error("reordering needs at least one packet, and a longest time above 0 and up to an hour")]
    Reorder,
    /// `Es/N0` or the width of the error model is not a number, or the width is not above 0.
    #[error("Es/N0 must be a number, the width of its slope above 0")]
    Reception,
    /// Reception is perfect: there is no `Es/N0` to change.
    #[error("reception is perfect here: there is no Es/N0 to change")]
    NoReception,
    /// Only a forward carrier has MODCODs to choose from.
    #[error("only a forward carrier has MODCODs to choose from")]
    NoModcod,
    /// The MODCOD is fixed: there is no adaptive coding to return to.
    #[error("the link has no adaptive coding: set an id of a MODCOD")]
    NoAdaptiveCoding,
    /// The carrier can send no allowed MODCOD, or a time or level of the loop is invalid.
    #[error(
        "ACM needs a MODCOD that the carrier can send, a report period, a superframe, and levels in dB"
    )]
    Acm,
    /// The carrier takes no packet of this length.
    #[error("the carrier takes no packet of {0} bytes")]
    PacketLength(usize),
    /// The queue limit is 0, so no packet would be accepted.
    #[error("queue of 0 bytes or packets accepts no packet")]
    NoQueue,
    /// A time or number of the active queue management is 0 or too large.
    #[error("active queue management needs an interval, a quantum and 1 to 65536 flows")]
    Aqm,
    /// Demand assignment without bursts, FIFOs or a request period, or with more terminals than a
    /// plan can name.
    #[error(
        "demand assignment needs a return carrier, 1 to 64 FIFOs of 1 packet and more, a request period, and at most 255 other terminals"
    )]
    Demand,
    /// Random access without a return carrier, with demand assignment or adaptive coding, or with
    /// settings that no SA frame has; or on a link that is not for it.
    #[error(
        "random access needs a return carrier without demand assignment and adaptive coding, with 1 to 65535 superframes, replicas and packets, and slots for all replicas"
    )]
    RandomAccess,
    /// Classes without FIFOs, or a DSCP without one.
    #[error("classes need 1 to 64 FIFOs of 1 packet and more, and a FIFO for each DSCP")]
    Classes,
    /// Plans travel in BBFRAMEs of the standard, and count slots in 16 bits.
    #[error("plans need a DVB-S2 carrier, a superframe, and at most 65535 slots")]
    Signalling,
    /// The slots are assigned on demand.
    #[error("a carrier with demand assignment stays as it is")]
    OnDemand,
    /// Terminals that cannot share a carrier.
    #[error(
        "terminals share a DVB-S2 or DVB-RCS2 carrier of the same kind, rate, classes and request period, at most 256 with weights of 1 to 100"
    )]
    Shared,
    /// On a shared carrier each terminal has its own delay, outage, Es/N0, attenuation and MODCOD;
    /// the rest stays.
    #[error(
        "a shared carrier stays as it is but for a terminal's delay, outage, Es/N0, attenuation and MODCOD"
    )]
    SharedChange,
    /// On a carrier with random access losses, delay and reception change; the rest stays.
    #[error(
        "a carrier with random access stays as it is but for delay, losses, jitter, impairments, outage, Es/N0 and attenuation"
    )]
    RandomChange,
    /// A wire has no frames that one process could send to another.
    #[error("a wire has no frames to send to another process")]
    NoFrames,
    /// Only a handover changes the kind of carrier.
    #[error("another kind of carrier needs a handover")]
    OtherKind,
}

impl LinkConfig {
    /// The carrier with each coding that adaptive coding may choose.
    pub(crate) fn choices(&self) -> impl Iterator<Item = Carrier> {
        let allowed = self.acm.iter().flat_map(|acm| &acm.allowed);
        allowed.map(|&coding| self.carrier.with_coding(coding))
    }

    /// A perfect link: no loss, jitter, impairment or reception fault.
    #[must_use]
    pub const fn new(carrier: Carrier, delay: Nanos, queue: Queue, seed: u64) -> Self {
        Self {
            carrier,
            delay,
            queue,
            losses: Vec::new(),
            jitter: Jitter::None,
            impairments: Impairments {
                reorder: None,
                duplicate: 0.0,
                corrupt: 0.0,
            },
            reception: None,
            acm: None,
            demand: None,
            random_access: None,
            classes: None,
            signalling: None,
            seed,
        }
    }

    /// Checks that this can be a link.
    ///
    /// # Errors
    /// The first fault found, see [`LinkError`].
    pub fn check(&self) -> Result<(), LinkError> {
        self.losses.iter().try_for_each(|loss| loss.model.check())?;
        self.jitter.check()?;
        self.impairments.check()?;
        self.reception.iter().try_for_each(Reception::check)?;
        if self.carrier != Carrier::Wire {
            self.queue.check()?;
        }
        self.carrier.check()?;
        if let Some(demand) = &self.demand {
            demand.check(&self.carrier)?;
            let losses = demand.plans.losses.iter();
            losses
                .map(|loss| &loss.model)
                .try_for_each(LossModel::check)?;
            demand
                .plans
                .reception
                .iter()
                .try_for_each(Reception::check)?;
        }
        if let Some(access) = &self.random_access {
            if self.demand.is_some() || self.acm.is_some() {
                return Err(LinkError::RandomAccess);
            }
            access.check(&self.carrier)?;
        }
        if self.classes.as_ref().is_some_and(|it| !it.is_possible()) {
            return Err(LinkError::Classes);
        }
        if let Some(signalling) = &self.signalling {
            let is_forward = matches!(self.carrier, Carrier::Forward { .. });
            if !is_forward || signalling.period == 0 || signalling.slots > u16::MAX.into() {
                return Err(LinkError::Signalling);
            }
        }
        if let Some(acm) = &self.acm {
            self.reception.ok_or(LinkError::NoReception)?;
            acm.selector(&self.carrier)?;
        }
        Ok(())
    }
}

impl Reception {
    /// A constant `Es/N0` in dB, with the threshold of each MODCOD or waveform as a gate.
    #[must_use]
    pub const fn gate(es_n0_db: f64) -> Self {
        Self {
            es_n0_db,
            attenuation_db: 0.0,
            minimal_es_n0_db: None,
            errors: ErrorModel::Gate,
        }
    }

    /// `Es/N0` that is left, dB.
    #[must_use]
    pub fn effective_es_n0_db(&self) -> f64 {
        self.es_n0_db - self.attenuation_db
    }

    /// Probability that a frame which needs `own_db` is not understood.
    pub(crate) fn frame_error_ratio(&self, own_db: f64) -> f64 {
        let threshold_db = self.minimal_es_n0_db.unwrap_or(own_db);
        self.errors
            .frame_error_ratio(self.effective_es_n0_db(), threshold_db)
    }

    fn check(&self) -> Result<(), LinkError> {
        let is_slope = match self.errors {
            ErrorModel::Gate => true,
            ErrorModel::Logistic { width_db } => width_db > 0.0 && width_db.is_finite(),
        };
        let threshold_db = self.minimal_es_n0_db.unwrap_or(0.0);
        if is_slope && self.effective_es_n0_db().is_finite() && threshold_db.is_finite() {
            Ok(())
        } else {
            Err(LinkError::Reception)
        }
    }
}
