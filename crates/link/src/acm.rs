// SPDX-License-Identifier: GPL-3.0-or-later
//! Adaptive coding and modulation: the loop from the terminal's `Es/N0` to the gateway's MODCOD (EN
//! 302 307-1 annex D).

use std::collections::VecDeque;

use crate::carrier::Coding;
use crate::{Carrier, LinkError, Nanos};
use dvb::acm::Selector;

/// How the MODCOD of a forward carrier follows what the terminal receives, and the waveform of a
/// return carrier what the gateway does.
///
/// Times are the sender's, as those of all changes: an `Es/N0` at `t` is that of what is sent at
/// `t`. The terminal sees it a propagation later and reports it at the next superframe of the
/// return link; the report travels as long as the frames do, and the gateway acts on it with the
/// next frame. Of a return carrier the gateway sees it, says so with the plan of its next
/// superframe, and the terminal acts on it at the start of a superframe of its own. Reports are not
/// lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Acm {
    /// MODCODs or waveforms to choose from, each with its threshold.
    pub allowed: Vec<Coding>,
    /// Added to every threshold, dB: a fade of s dB/s seen t seconds late needs s * t.
    pub margin_db: f64,
    /// Required in addition before the MODCOD goes up, dB.
    pub hysteresis_db: f64,
    /// Time between two reports, above 0.
    pub period: Nanos,
    /// Time of the first report, counted from the start of the link.
    pub phase: Nanos,
    /// Superframe of the return link, above 0.
    pub superframe: Nanos,
    /// Whether reports have thresholds of MODCODs ([`dvb::opensand::reported_db`]) instead of the
    /// measured values.
    pub reports_thresholds: bool,
}

impl Acm {
    /// The choice at work on a carrier, from the carrier's MODCOD or waveform on.
    pub(crate) fn selector(&self, carrier: &Carrier) -> Result<Selector<Coding>, LinkError> {
        let start = carrier.threshold_db().ok_or(LinkError::NoModcod)?;
        let allowed = self
            .allowed
            .iter()
            .filter_map(|&coding| carrier.rung(coding));
        let times = self.period > 0 && self.superframe > 0;
        let levels = self.margin_db.is_finite() && self.hysteresis_db >= 0.0;
        if !times || !levels {
            return Err(LinkError::Acm);
        }
        let selector = Selector::of(allowed.collect(), self.margin_db, self.hysteresis_db);
        let start_centi_db = (start * 100.0).round() as i16;
        Ok(selector.ok_or(LinkError::Acm)?.starting_at(start_centi_db))
    }
}

/// The loop at work.
#[derive(Debug)]
pub(crate) struct Loop {
    selector: Selector<Coding>,
    period: Nanos,
    superframe: Nanos,
    reports_thresholds: bool,
    /// The choice comes with a plan, and acts with a superframe.
    is_planned: bool,
    /// Time of the next measurement of the `Es/N0`.
    next: Nanos,
    reports: VecDeque<Report>,
    /// The last `Es/N0` acted on.
    known: Option<f64>,
    /// Whether a change holds the MODCOD, so that the loop does not choose it.
    is_held: bool,
}

#[derive(Debug)]
struct Report {
    arrives: Nanos,
    es_n0_db: f64,
}

impl Loop {
    /// The loop of a link that starts at `since`.
    pub(crate) fn new(acm: &Acm, selector: Selector<Coding>, since: Nanos) -> Self {
        Self {
            is_planned: matches!(selector.current(), Coding::Waveform(..)),
            selector,
            period: acm.period,
            superframe: acm.superframe,
            reports_thresholds: acm.reports_thresholds,
            next: since.saturating_add(acm.phase),
            reports: VecDeque::new(),
            known: None,
            is_held: false,
        }
    }

    /// What the loop chooses; `None` while something else is held.
    pub(crate) fn choice(&self) -> Option<Coding> {
        (!self.is_held).then(|| self.selector.current())
    }

    /// Holds the present MODCOD, or lets the loop choose again.
    pub(crate) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Time at which the next report is made or arrives.
    pub(crate) fn next_event(&self) -> Nanos {
        let arrival = self.reports.front().map(|report| report.arrives);
        arrival.map_or(self.next, |arrival| arrival.min(self.next))
    }

    /// Works off the next event: the choice may be another one then.
    ///
    /// `es_n0_db` holds until `until` at least, so that reports which would say nothing new can be
    /// passed over.
    pub(crate) fn step(&mut self, es_n0_db: f64, delay: Nanos, until: Nanos) {
        if self
            .reports
            .front()
            .is_some_and(|report| report.arrives <= self.next)
        {
            if let Some(report) = self.reports.pop_front() {
                self.known = Some(report.es_n0_db);
                let reported = if self.reports_thresholds {
                    dvb::opensand::reported_db(report.es_n0_db)
                } else {
                    report.es_n0_db
                };
                self.selector.report(reported);
            }
            return;
        }
        let is_known = self
            .known
            .is_some_and(|known| known.total_cmp(&es_n0_db).is_eq());
        if is_known && self.reports.is_empty() {
            let periods = (until.saturating_sub(self.next) / self.period).saturating_add(1);
            self.next = self
                .next
                .saturating_add(periods.saturating_mul(self.period));
            return;
        }
        let seen = self.next.saturating_add(delay);
        let superframe = self.superframe;
        let next_superframe = |time: Nanos| time.div_ceil(superframe).saturating_mul(superframe);
        let mut arrives = if self.is_planned {
            // The gateway's superframes start when what is sent at the start of the terminal's
            // arrives.
            let phase = delay % superframe;
            next_superframe(seen - phase) + phase
        } else {
            next_superframe(seen)
        };
        arrives = arrives.saturating_add(delay);
        if self.is_planned {
            arrives = next_superframe(arrives);
        }
        let last = self.reports.back().map_or(0, |report| report.arrives);
        let arrives = arrives.max(last);
        self.reports.push_back(Report { arrives, es_n0_db });
        self.next = self.next.saturating_add(self.period);
    }
}
