// SPDX-License-Identifier: GPL-3.0-or-later
//! The gateway's part of the demand assignment: requests on their way to it, and a plan for every
//! superframe.

use std::collections::VecDeque;

use crate::Nanos;
use dvb::dama::{self, Agreement, Arithmetic, Plan, Planner, Request};
use dvb::rcs2::Waveform;

/// Clock of a terminal that sends no requests.
const NO_CLOCK: (Nanos, Nanos) = (Nanos::MAX, 1);

/// The planner, and when it plans.
#[derive(Debug)]
pub(crate) struct Gateway {
    carrier: dama::Carrier,
    planner: Planner,
    /// First request and period of every terminal.
    clocks: Vec<(Nanos, Nanos)>,
    /// By time of arrival.
    requests: VecDeque<(Nanos, u8, Request)>,
    next_plan: Nanos,
}

/// Returns the time at which terminal `index` of `count` sends its first request. These times are
/// spread, so that requests do not come all at once.
pub(crate) fn first_request(synchro: Nanos, index: usize, count: usize) -> Nanos {
    synchro * index as u64 / count as u64
}

impl Gateway {
    /// All terminals are logged on at time 0, by index.
    pub(crate) fn new(
        carrier: dama::Carrier,
        delay: Nanos,
        (fca_kbps, synchro): (u32, Nanos),
        agreements: &[Agreement],
    ) -> Self {
        let mut planner = Planner::new(carrier, fca_kbps);
        for (id, agreement) in (0..=u8::MAX).zip(agreements) {
            planner.logon(id, agreement.share());
        }
        let count = agreements.len();
        let clock = |index| (first_request(synchro, index, count), synchro);
        Self {
            carrier,
            planner,
            clocks: (0..count).map(clock).collect(),
            requests: VecDeque::new(),
            next_plan: first_plan(carrier, delay),
        }
    }

    /// The plans that count until the first one arrives that is made from time 0 on, and when each
    /// is there.
    pub(crate) fn early_plans(&mut self, delay: Nanos) -> Vec<(Nanos, Plan)> {
        let starts = (0..).map(|index| index * self.carrier.superframe);
        let until = self.next_plan.saturating_add(delay);
        let starts: Vec<_> = starts.take_while(|&at| at < until).collect();
        let plan = |at| (at, self.plan(at));
        starts.into_iter().map(plan).collect()
    }

    /// Time at which the next plan is made.
    pub(crate) const fn next_plan(&self) -> Nanos {
        self.next_plan
    }

    /// Time at which the next request arrives.
    pub(crate) fn next_request(&self) -> Option<Nanos> {
        self.requests.front().map(|request| request.0)
    }

    /// Logs a terminal on, possibly again, with the time of its first request and the period of
    /// requests.
    pub(crate) fn log_on(&mut self, id: u8, agreement: &Agreement, clock: (Nanos, Nanos)) {
        self.planner.logon(id, agreement.share());
        let count = self.clocks.len().max(usize::from(id) + 1);
        self.clocks.resize(count, NO_CLOCK);
        self.clocks[usize::from(id)] = clock;
    }

    /// A terminal logs off: its requests on their way are of no use.
    pub(crate) fn log_off(&mut self, id: u8) {
        self.planner.logoff(id);
        self.requests.retain(|request| request.1 != id);
        if let Some(clock) = self.clocks.get_mut(usize::from(id)) {
            *clock = NO_CLOCK;
        }
    }

    /// The first superframe that a plan can be for that is not made yet.
    pub(crate) fn next_planned(&self, delay: Nanos) -> Nanos {
        self.superframe_from(self.next_plan.saturating_add(delay))
    }

    fn superframe_from(&self, time: Nanos) -> Nanos {
        time.div_ceil(self.carrier.superframe) * self.carrier.superframe
    }

    /// A terminal sends another waveform from now on.
    pub(crate) fn retune(&mut self, id: u8, waveform: Waveform) {
        self.planner.retune(id, waveform);
    }

    /// A request will arrive at `at`.
    pub(crate) fn expect(&mut self, at: Nanos, id: u8, request: Request) {
        let place = self.requests.partition_point(|other| other.0 <= at);
        self.requests.insert(place, (at, id, request));
    }

    /// The next request arrives.
    pub(crate) fn take_request(&mut self) {
        if let Some((_, id, request)) = self.requests.pop_front() {
            self.planner.request(id, request);
        }
    }

    /// Makes the plan that is due, for the first superframe that starts when it has arrived.
    pub(crate) fn next(&mut self, delay: Nanos) -> Plan {
        let made = self.next_plan;
        self.next_plan += self.carrier.superframe;
        self.plan(made.saturating_add(delay))
    }

    /// The plan for the first superframe that starts at `arrives` or later.
    fn plan(&mut self, arrives: Nanos) -> Plan {
        let start = self.superframe_from(arrives);
        let end = start + self.carrier.superframe;
        let before = |time: Nanos, (first, period): (Nanos, Nanos)| {
            time.saturating_sub(first).div_ceil(period)
        };
        let clocks = self.clocks.iter();
        let signalling = match self.carrier.arithmetic {
            Arithmetic::Standard => clocks
                .map(|&clock| before(end, clock) - before(start, clock))
                .sum(),
            Arithmetic::OpenSand => 0,
        };
        self.planner
            .plan(u32::try_from(signalling).unwrap_or(u32::MAX))
    }
}

/// Returns the time at which the gateway's superframes start.
fn first_plan(carrier: dama::Carrier, delay: Nanos) -> Nanos {
    match carrier.arithmetic {
        Arithmetic::Standard => delay.checked_rem(carrier.superframe).unwrap_or(0),
        Arithmetic::OpenSand => 0,
    }
}
