// SPDX-License-Identifier: GPL-3.0-or-later
//! Demand assignment at work: terminals and planner, joined with the delay of the link.

use std::collections::VecDeque;

use crate::demand::{Demand, Load, Other};
use crate::{Carrier, Nanos};
use dvb::dama::{self, Arithmetic, Level, Plan, Planner, Request, Terminal, Timers};

/// The terminal whose packets travel on the link.
const OWN: u8 = 0;

/// Every terminal of a carrier, its planner, and what is on its way between them.
#[derive(Debug)]
pub(crate) struct Assigning {
    carrier: dama::Carrier,
    planner: Planner,
    terminals: Vec<Terminal>,
    /// Traffic of all terminals but the own one.
    others: Vec<Background>,
    requests: VecDeque<(Nanos, u8, Request)>,
    plans: VecDeque<(Nanos, Plan)>,
    next_plan: Nanos,
    next_superframe: Nanos,
    /// Free bursts of the plan that counts for the next superframe; `None` before the first plan.
    free: Option<u32>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing that the link sees.
    Inside,
    /// The own terminal asked for capacity.
    Requested,
    /// A superframe starts.
    Superframe(Superframe),
}

/// Assignment of a superframe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superframe {
    pub(crate) start: Nanos,
    /// Bursts of the own terminal.
    pub(crate) slots: u32,
    /// Bursts that no terminal got.
    pub(crate) free: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    AtGateway,
    Plan,
    AtTerminals,
    Request(u8),
    Superframe,
}

impl Assigning {
    /// Everybody logged on long before time 0; `None` for a carrier without bursts.
    pub(crate) fn new(demand: &Demand, carrier: &Carrier, delay: Nanos) -> Option<Self> {
        let carrier = carrier.dama()?;
        let agreements = || {
            let others = demand.others.iter().map(|other| other.agreement);
            std::iter::once(demand.agreement).chain(others)
        };
        let mut planner = Planner::new(carrier, demand.fca_kbps);
        for (id, agreement) in (OWN..).zip(agreements()) {
            planner.logon(id, agreement.share());
        }
        let count = demand.others.len() as u64 + 1;
        let terminal = |(index, agreement)| {
            let timers = Timers {
                // Spread, so that requests do not come all at once.
                first: demand.synchro * index / count,
                synchro: demand.synchro,
                round_trip: 2 * delay,
            };
            Terminal::new(carrier, agreement, timers)
        };
        let next_plan = match carrier.arithmetic {
            Arithmetic::Standard => delay.checked_rem(carrier.superframe).unwrap_or(0),
            Arithmetic::OpenSand => 0,
        };
        // Up to the arrival of the first plan those count that were made before.
        let early = (0..).map(|index| index * carrier.superframe);
        let early = early.take_while(|&at| at < next_plan.saturating_add(delay));
        let plans = early.map(|at| (at, planner.plan())).collect();
        Some(Self {
            carrier,
            terminals: (0..).zip(agreements()).map(terminal).collect(),
            others: demand.others.iter().map(Background::new).collect(),
            requests: VecDeque::new(),
            plans,
            planner,
            next_plan,
            next_superframe: 0,
            free: None,
        })
    }

    /// When the next thing happens.
    pub(crate) fn next_event(&self) -> Nanos {
        self.next().0
    }

    /// When the next superframe starts.
    pub(crate) fn next_superframe(&self) -> Nanos {
        self.next_superframe
    }

    /// The next thing; of one moment what arrives comes before what uses it.
    fn next(&self) -> (Nanos, Due) {
        let never = Nanos::MAX;
        let first = |at: Option<Nanos>, due: Due| (at.unwrap_or(never), due);
        let mut next = first(self.requests.front().map(|it| it.0), Due::AtGateway);
        let requests = (OWN..).zip(&self.terminals);
        let requests = requests.map(|(id, terminal)| (terminal.next_event(), Due::Request(id)));
        let fixed = [
            (self.next_plan, Due::Plan),
            first(self.plans.front().map(|it| it.0), Due::AtTerminals),
        ];
        let superframe = [(self.next_superframe, Due::Superframe)];
        for other in fixed.into_iter().chain(requests).chain(superframe) {
            if other.0 < next.0 {
                next = other;
            }
        }
        next
    }

    /// Works off the next thing. `delay` is the propagation delay, `levels` the FIFOs of the own terminal.
    pub(crate) fn step(&mut self, delay: Nanos, levels: impl FnOnce() -> Vec<Level>) -> Step {
        let (now, due) = self.next();
        match due {
            Due::AtGateway => {
                if let Some((_, id, request)) = self.requests.pop_front() {
                    self.planner.request(id, request);
                }
            }
            Due::Plan => {
                let plan = self.planner.plan();
                self.next_plan += self.carrier.superframe;
                self.plans.push_back((now.saturating_add(delay), plan));
            }
            Due::AtTerminals => self.take_plan(),
            Due::Request(id) => return self.request(now, id, delay, levels),
            Due::Superframe => return Step::Superframe(self.superframe(now)),
        }
        Step::Inside
    }

    fn take_plan(&mut self) {
        let Some((_, plan)) = self.plans.pop_front() else {
            return;
        };
        for (id, grant) in plan.grants {
            if let Some(terminal) = self.terminals.get_mut(usize::from(id)) {
                terminal.assign(grant);
            }
        }
        self.free = Some(plan.free);
    }

    fn request(
        &mut self,
        now: Nanos,
        id: u8,
        delay: Nanos,
        levels: impl FnOnce() -> Vec<Level>,
    ) -> Step {
        let index = usize::from(id);
        let levels = match index.checked_sub(1).and_then(|it| self.others.get_mut(it)) {
            Some(other) => vec![other.level(now)],
            None => levels(),
        };
        let Some(request) = self.terminals[index].request(now, &levels) else {
            return Step::Inside;
        };
        self.requests
            .push_back((now.saturating_add(delay), id, request));
        if id == OWN && request != Request::default() {
            Step::Requested
        } else {
            Step::Inside
        }
    }

    fn superframe(&mut self, now: Nanos) -> Superframe {
        self.next_superframe += self.carrier.superframe;
        let mut bursts = self.terminals.iter_mut().map(|it| it.superframe().bursts());
        let slots = bursts.next().unwrap_or(0);
        for (other, bursts) in self.others.iter_mut().zip(bursts) {
            other.send(now, u64::from(bursts) * self.carrier.burst_bytes());
        }
        Superframe {
            start: now,
            slots,
            free: self.free.take().unwrap_or(0),
        }
    }
}

/// Traffic of a terminal as a volume that grows at the rates of its load.
#[derive(Debug)]
struct Background {
    access: dama::Access,
    load: Vec<Load>,
    /// All that came up to a moment, in 1e-6 bit, and what of it was sent.
    sent: u128,
}

/// 1e-6 bit in a byte: kbit/s times ns gives such.
const BYTE: u128 = 8_000_000;

impl Background {
    fn new(other: &Other) -> Self {
        Self {
            access: other.access,
            load: other.load.clone(),
            sent: 0,
        }
    }

    fn waiting(&self, now: Nanos) -> u128 {
        let came = |load: &Load| {
            let time = now.min(load.until).saturating_sub(load.from);
            u128::from(time) * u128::from(load.kbps)
        };
        self.load.iter().map(came).sum::<u128>() - self.sent
    }

    fn level(&mut self, now: Nanos) -> Level {
        Level {
            access: self.access,
            bytes: u64::try_from(self.waiting(now).div_ceil(BYTE)).unwrap_or(u64::MAX),
        }
    }

    fn send(&mut self, now: Nanos, bytes: u64) {
        self.sent += self.waiting(now).min(u128::from(bytes) * BYTE);
    }
}
