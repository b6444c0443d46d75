// SPDX-License-Identifier: GPL-3.0-or-later
//! Demand assignment of a link: terminals and planner, and the delay between them.

use std::collections::{BTreeMap, VecDeque};

use crate::datagram::Datagram;
use crate::demand::{Load, Other, PlanPath};
use crate::gateway::{Gateway, first_request};
use crate::signalling::{Assigned, Assignments, numbers};
use crate::{LinkConfig, Nanos};
use dvb::dama::{
    self, Agreement, Arithmetic, Grant, Level, Plan, Request, Terminal, Timers, slots,
};
use dvb::rcs2::Waveform;

/// The terminal whose packets travel on the link.
const OWN: u8 = 0;

/// Stations of the demand assignment that are in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stations {
    /// All: one process.
    All,
    /// The own terminal.
    Terminal,
    /// One of several terminals with packets of their own, by index and number of all; the planner
    /// is with their carrier.
    Shared { index: usize, count: usize },
    /// The same, since a moment later than 0; `from` is that of its first request.
    Joining { since: Nanos, from: Nanos },
    /// The planner and the other terminals.
    Gateway,
    /// None: the satellite.
    Satellite,
}

impl Stations {
    /// Time since which the terminals are on the carrier.
    pub(crate) const fn since(self) -> Nanos {
        match self {
            Self::Joining { since, .. } => since,
            _ => 0,
        }
    }
}

/// Every terminal of a carrier, its planner, and what is on its way between them, as far as a
/// process has it.
#[derive(Debug)]
pub(crate) struct Assigning {
    carrier: dama::Carrier,
    /// Path by which plans reach the own terminal.
    pub(crate) plan_path: PlanPath,
    gateway: Option<Gateway>,
    own: Option<Terminal>,
    /// Whether the own terminal is one of several in this process.
    is_shared: bool,
    others: Vec<Background>,
    /// Requests for the planner of a shared carrier, by time of arrival.
    requests: VecDeque<(Nanos, Request)>,
    plans: VecDeque<Arrival>,
    /// Plans for the own terminal where it is in another process, as datagrams.
    outgoing: VecDeque<Vec<u8>>,
    /// Assignments to which plans are written.
    said: Option<Assignments>,
    next_superframe: Nanos,
    /// Starts of the bursts in the next superframe; empty: evenly spread.
    starts: Vec<Nanos>,
    /// Free bursts and those for requests in the plan that counts for the next superframe.
    rest: (u32, u32),
}

/// A plan on its way to the terminals.
#[derive(Debug)]
struct Arrival {
    /// Time of arrival.
    at: Nanos,
    /// Bursts of the own terminal; `None`: the plan is lost for it.
    own: Option<Grant>,
    /// Bursts of the others, by id.
    others: BTreeMap<u8, Grant>,
    /// Free bursts, and those for requests.
    rest: (u32, u32),
    /// Starts of the bursts of the own terminal, as in [`Superframe`].
    starts: Vec<Nanos>,
}

impl Arrival {
    /// A plan of all terminals in one process.
    fn of_all(at: Nanos, plan: Plan) -> Self {
        Self {
            at,
            own: plan.grants.get(&OWN).copied(),
            rest: (plan.free, plan.signalling),
            others: plan.grants,
            starts: Vec::new(),
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing that the link sees.
    Inside,
    /// The own terminal sent a request in a burst that ends at `end`.
    Requested { request: Request, end: Nanos },
    /// The own terminal missed a plan.
    PlanLost,
    /// A superframe of the own terminal starts.
    Superframe(Superframe),
}

/// Assignment of a superframe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superframe {
    pub(crate) start: Nanos,
    /// Bursts of the own terminal.
    pub(crate) slots: u32,
    /// Their starts from `start` on; empty: evenly spread.
    pub(crate) starts: Vec<Nanos>,
    /// Bursts that no terminal got.
    pub(crate) free: u32,
    /// Bursts kept for requests.
    pub(crate) signalling: u32,
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
    /// All terminals are logged on since when they are here. `None` without demand assignment, or
    /// for a process without a part in it.
    pub(crate) fn new(config: &LinkConfig, stations: Stations) -> Option<Self> {
        let (has_own, has_planner) = match stations {
            Stations::All => (true, true),
            Stations::Terminal | Stations::Shared { .. } | Stations::Joining { .. } => {
                (true, false)
            }
            Stations::Gateway => (false, true),
            Stations::Satellite => return None,
        };
        let demand = config.demand.as_ref()?;
        let carrier = config.carrier.dama()?;
        let delay = config.delay;
        let others = demand.others.iter().map(|other| other.agreement);
        let agreements: Vec<_> = std::iter::once(demand.agreement).chain(others).collect();
        let (own, count) = match stations {
            Stations::Shared { index, count } => (index, count),
            _ => (0, agreements.len()),
        };
        let from = match stations {
            Stations::Joining { from, .. } => from,
            _ => 0,
        };
        let terminal = |index: usize, agreement: Agreement| {
            let timers = Timers {
                first: from + first_request(demand.synchro, index, count),
                synchro: demand.synchro,
                round_trip: round_trip(carrier, delay),
            };
            Terminal::new(carrier, agreement, timers)
        };
        let others = demand.others.iter().filter(|_| has_planner);
        let others = (1..).zip(others).map(|(index, other)| {
            let terminal = terminal(index, other.agreement);
            Background::new(other, terminal)
        });
        let rates = (demand.fca_kbps, demand.synchro);
        let mut gateway = has_planner.then(|| Gateway::new(carrier, delay, rates, &agreements));
        // Up to the arrival of the first plan those count that were made before.
        let early = gateway.iter_mut().flat_map(|it| it.early_plans(delay));
        let plans = early.map(|(at, plan)| Arrival::of_all(at, plan)).collect();
        Some(Self {
            carrier,
            plan_path: PlanPath::new(&demand.plans, config.seed),
            gateway,
            own: has_own.then(|| terminal(own, demand.agreement)),
            is_shared: matches!(stations, Stations::Shared { .. } | Stations::Joining { .. }),
            others: others.collect(),
            requests: VecDeque::new(),
            plans,
            outgoing: VecDeque::new(),
            said: None,
            next_superframe: stations.since().div_ceil(carrier.superframe) * carrier.superframe,
            starts: Vec::new(),
            rest: (0, 0),
        })
    }

    /// The own terminal sends another waveform from now on.
    pub(crate) fn retune(&mut self, waveform: Waveform) {
        if let Some(own) = &mut self.own {
            own.retune(waveform);
        }
        if let Some(gateway) = &mut self.gateway {
            gateway.retune(OWN, waveform);
        }
    }

    /// Changes the propagation delay; all terminals adopt it at once.
    pub(crate) fn set_delay(&mut self, delay: Nanos) {
        let round_trip = round_trip(self.carrier, delay);
        let others = self.others.iter_mut().map(|other| &mut other.terminal);
        for terminal in self.own.iter_mut().chain(others) {
            terminal.set_round_trip(round_trip);
        }
    }

    /// Time of the next event.
    pub(crate) fn next_event(&self) -> Nanos {
        self.next().0
    }

    /// Start of the next superframe of the own terminal.
    pub(crate) fn next_superframe(&self) -> Nanos {
        self.next_superframe
    }

    /// Time at which a request or a plan has to be sent to another process; `None` if one process
    /// has all parts.
    pub(crate) fn next_message(&self) -> Option<Nanos> {
        match (&self.own, &self.gateway) {
            (Some(own), None) if !self.is_shared => Some(own.next_event()),
            (None, Some(gateway)) => Some(gateway.next_plan()),
            _ => None,
        }
    }

    /// Returns the next event. At equal times an arrival comes before the event that uses it.
    fn next(&self) -> (Nanos, Due) {
        let never = Nanos::MAX;
        let first = |at: Option<Nanos>, due: Due| (at.unwrap_or(never), due);
        let gateway = self.gateway.as_ref();
        let mut next = first(gateway.and_then(Gateway::next_request), Due::AtGateway);
        let others = self.others.iter().map(|other| &other.terminal);
        let terminals = [self.own.as_ref()].into_iter().chain(others.map(Some));
        let requests = (OWN..=u8::MAX).zip(terminals);
        let requests =
            requests.map(|(id, it)| first(it.map(Terminal::next_event), Due::Request(id)));
        let fixed = [
            first(gateway.map(Gateway::next_plan), Due::Plan),
            first(self.plans.front().map(|it| it.at), Due::AtTerminals),
        ];
        let superframe = [(self.next_superframe, Due::Superframe)];
        for other in fixed.into_iter().chain(requests).chain(superframe) {
            if other.0 < next.0 {
                next = other;
            }
        }
        next
    }

    /// Works off the next thing. `delay` is the propagation delay, `levels` the FIFOs of the own
    /// terminal.
    pub(crate) fn step(&mut self, delay: Nanos, levels: impl FnOnce() -> Vec<Level>) -> Step {
        let (now, due) = self.next();
        match due {
            Due::AtGateway => {
                if let Some(gateway) = &mut self.gateway {
                    gateway.take_request();
                }
            }
            Due::Plan => {
                let plan = self.gateway.as_mut().map(|gateway| gateway.next(delay));
                if let Some(plan) = plan {
                    return self.send_plan(now, delay, plan);
                }
            }
            Due::AtTerminals => self.apply_plan(now),
            Due::Request(id) => return self.request(now, id, delay, levels),
            Due::Superframe => {
                let superframe = self.superframe(now);
                return superframe.map_or(Step::Inside, Step::Superframe);
            }
        }
        Step::Inside
    }

    /// Writes the plans there from now on.
    pub(crate) fn say(&mut self, assignments: Assignments) {
        self.said = Some(assignments);
    }

    /// The slots of a plan that arrives at `at`: those of the own terminal are where it sends,
    /// evenly spread; the others have no bursts, and are in those that are left.
    fn assigned(&self, made: Nanos, at: Nanos, plan: &Plan) -> Assigned {
        let own = plan.grants.get(&OWN).map_or(0, Grant::bursts);
        let others = plan.grants.iter().filter(|it| *it.0 != OWN);
        let others = others.map(|(&id, grant)| (id.into(), grant.bursts()));
        Assigned {
            made,
            superframe: at.div_ceil(self.carrier.superframe),
            terminals: numbers(
                &self.carrier,
                slots(&self.carrier, &[own]).into_iter(),
                others,
            ),
        }
    }

    /// Sends a plan on its way; it may be lost for the own terminal.
    fn send_plan(&mut self, now: Nanos, delay: Nanos, mut plan: Plan) -> Step {
        if let Some(said) = &self.said {
            said.post(self.assigned(now, now.saturating_add(delay), &plan));
        }
        let is_lost = self.plan_path.loses(now);
        if self.own.is_none() && !is_lost {
            let mut datagram = Vec::new();
            Datagram::Plan {
                grant: plan.grants.get(&OWN).copied().unwrap_or_default(),
                free: plan.free,
                signalling: plan.signalling,
            }
            .write(&mut datagram);
            self.outgoing.push_back(datagram);
        }
        if is_lost {
            plan.grants.remove(&OWN);
        }
        let at = now.saturating_add(delay);
        self.plans.push_back(Arrival::of_all(at, plan));
        if is_lost {
            Step::PlanLost
        } else {
            Step::Inside
        }
    }

    /// The oldest plan for the terminal in another process, as a datagram.
    pub(crate) fn take_plan(&mut self) -> Option<Vec<u8>> {
        self.outgoing.pop_front()
    }

    /// A plan of another process takes effect at `at`.
    pub(crate) fn receive_plan(&mut self, at: Nanos, grant: Grant, rest: (u32, u32)) {
        self.keep_apart(at);
        self.share_plan(at, grant, rest, Vec::new());
    }

    /// A plan of the planner of a shared carrier takes effect at `at`; `starts` as in
    /// [`Superframe`].
    pub(crate) fn share_plan(
        &mut self,
        at: Nanos,
        grant: Grant,
        rest: (u32, u32),
        starts: Vec<Nanos>,
    ) {
        self.plans.push_back(Arrival {
            at,
            own: Some(grant),
            others: BTreeMap::new(),
            rest,
            starts,
        });
    }

    /// The oldest request for the planner of a shared carrier, and when it arrives.
    pub(crate) fn take_request(&mut self) -> Option<(Nanos, Request)> {
        self.requests.pop_front()
    }

    /// Moves the superframes of a terminal away from a moment at which a plan arrives, if they
    /// start close to it: the clocks of two processes are not in step, and what comes a little
    /// later than the last time must not miss its superframe.
    fn keep_apart(&mut self, arrives: Nanos) {
        let superframe = i128::from(self.carrier.superframe);
        let ahead = i128::from(self.next_superframe) - i128::from(arrives);
        let wait = ahead.rem_euclid(superframe);
        if wait.min(superframe - wait) < superframe / 8 {
            self.next_superframe += (superframe / 2 - wait).rem_euclid(superframe) as Nanos;
        }
    }

    /// A request of the own terminal reaches the gateway at `at`.
    pub(crate) fn receive_request(&mut self, at: Nanos, request: Request) {
        match &mut self.gateway {
            Some(gateway) => gateway.expect(at, OWN, request),
            None => self.requests.push_back((at, request)),
        }
    }

    fn apply_plan(&mut self, now: Nanos) {
        let Some(plan) = self.plans.pop_front() else {
            return;
        };
        if let (Some(own), Some(grant)) = (&mut self.own, plan.own) {
            own.assign(now, grant);
            self.starts = plan.starts;
            self.rest = plan.rest;
        }
        for (id, other) in (OWN + 1..=u8::MAX).zip(&mut self.others) {
            if let Some(&grant) = plan.others.get(&id) {
                other.terminal.assign(now, grant);
            }
        }
    }

    fn request(
        &mut self,
        now: Nanos,
        id: u8,
        delay: Nanos,
        levels: impl FnOnce() -> Vec<Level>,
    ) -> Step {
        let end = now.saturating_add(burst(self.carrier));
        let other = usize::from(id)
            .checked_sub(1)
            .and_then(|it| self.others.get_mut(it));
        if let Some(other) = other {
            let level = other.level(now);
            let request = other.terminal.request(now, &[level]);
            let at = end.saturating_add(delay);
            if let (Some(request), Some(gateway)) = (request, &mut self.gateway) {
                gateway.expect(at, id, request);
            }
            return Step::Inside;
        }
        let request = self
            .own
            .as_mut()
            .and_then(|own| own.request(now, &levels()));
        request.map_or(Step::Inside, |request| Step::Requested { request, end })
    }

    fn superframe(&mut self, now: Nanos) -> Option<Superframe> {
        self.next_superframe += self.carrier.superframe;
        let burst_bytes = self.carrier.burst_bytes();
        for other in &mut self.others {
            let bursts = self.carrier.sent(other.terminal.superframe().bursts());
            other.send(now, u64::from(bursts) * burst_bytes);
        }
        let granted = self.own.as_mut()?.superframe().bursts();
        let slots = self.carrier.sent(granted);
        let (free, signalling) = std::mem::take(&mut self.rest);
        Some(Superframe {
            start: now,
            slots,
            starts: std::mem::take(&mut self.starts),
            free: free.saturating_sub(slots.saturating_sub(granted)),
            signalling,
        })
    }
}

/// Time from the start of a request to the arrival of a plan made at once, ns.
fn round_trip(carrier: dama::Carrier, delay: Nanos) -> Nanos {
    2 * delay + burst(carrier)
}

/// Time on air of a request, ns.
fn burst(carrier: dama::Carrier) -> Nanos {
    match carrier.arithmetic {
        Arithmetic::Standard => carrier.waveform.symbols * 1_000_000_000 / carrier.symbol_rate,
        Arithmetic::OpenSand => 0,
    }
}

/// Another terminal, its traffic as a volume that grows at the rates of its load.
#[derive(Debug)]
struct Background {
    terminal: Terminal,
    access: dama::Access,
    load: Vec<Load>,
    /// Volume sent, 1e-6 bit.
    sent: u128,
}

/// A byte in units of 1e-6 bit, which is kbit/s times ns.
const BYTE: u128 = 8_000_000;

impl Background {
    fn new(other: &Other, terminal: Terminal) -> Self {
        Self {
            terminal,
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
