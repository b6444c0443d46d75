// SPDX-License-Identifier: GPL-3.0-or-later
//! A return carrier that several terminals share: one planner assigns its slots to those that ask.

use crate::change::Waiting;
use crate::channel::Channel;
use crate::config::{LinkConfig, LinkError};
use crate::demand::PlanPath;
use crate::departing_terminal::Leaving;
use crate::event_queue::EventQueue;
use crate::gateway::Gateway;
use crate::ledger::Counters;
use crate::queue::FifoState;
use crate::shared_carrier::{ReturnCarrier, SharedCarrier};
use crate::shared_forward::MOST_TERMINALS;
use crate::signalling::{Assigned, Assignments, numbers};
use crate::slot_assignment::Stations;
use crate::stage::{Accepted, Stage};
use crate::terminal_queues::put;
use crate::transmitter::Link;
use crate::{Carrier, Change, Nanos, Volume};
use dvb::dama::{self, Grant, Plan, Slot, slots};

/// The return link of several terminals, as [`Link`] is that of one.
///
/// Each terminal is a [`Link`] with a queue, a waveform and a reception of its own. What they share
/// is the planner: their requests reach it in their own bursts, its plan names each slot of a
/// superframe once, and is lost for each by itself. Between two plans the terminals know nothing of
/// each other.
#[derive(Debug)]
pub struct SharedReturn {
    terminals: Vec<Link>,
    /// Terminals that it can have, one after the other.
    room: usize,
    /// Whose superframes count as those of the carrier, and its counters when they began to.
    watched: Option<(usize, Counters)>,
    /// What was counted before.
    counted: Counters,
    gateway: Gateway,
    carrier: dama::Carrier,
    common: Common,
    delay: Nanos,
    /// Paths by which plans reach each terminal.
    paths: Vec<PlanPath>,
    /// Times at which packets of each terminal may be due.
    due: EventQueue,
    /// Assignments to which plans are written.
    said: Option<Assignments>,
    now: Nanos,
}

impl SharedReturn {
    /// Idle terminals at time 0, all logged on. Each has the configuration that its link alone
    /// would have, with demand assignment and without other terminals; carrier but for the
    /// waveform, delay, request period and free capacity are the same.
    ///
    /// # Errors
    /// A configuration cannot be a link, or they cannot share a carrier.
    pub fn new(terminals: &[LinkConfig]) -> Result<Self, LinkError> {
        Self::with_room(terminals, terminals.len())
    }

    /// The same with room for `most` terminals, of which some may come later.
    ///
    /// # Errors
    /// As [`SharedReturn::new`].
    pub fn with_room(terminals: &[LinkConfig], most: usize) -> Result<Self, LinkError> {
        let first = terminals.first().ok_or(LinkError::Shared)?;
        let count = terminals.len();
        let (carrier, common) = shared(first).ok_or(LinkError::Shared)?;
        let is_shared = |it: &LinkConfig| shared(it).is_some_and(|(_, other)| other == common);
        let is_possible = (count..=MOST_TERMINALS).contains(&most);
        if !is_possible || !terminals.iter().all(is_shared) {
            return Err(LinkError::Shared);
        }
        let demands = || terminals.iter().filter_map(|it| it.demand.as_ref());
        let agreements: Vec<_> = demands().map(|it| it.agreement).collect();
        let link = |(index, config): (usize, &LinkConfig)| {
            Link::with_stations(config.clone(), Stations::Shared { index, count })
        };
        let links: Result<Vec<_>, _> = terminals.iter().enumerate().map(link).collect();
        let rates = (common.fca_kbps, common.synchro);
        let mut gateway = Gateway::new(carrier, first.delay, rates, &agreements);
        for (id, config) in (0..=u8::MAX).zip(terminals) {
            let waveform = config.carrier.dama().map(|it| it.waveform);
            if let Some(waveform) = waveform {
                gateway.retune(id, waveform);
            }
        }
        let early = gateway.early_plans(first.delay);
        let seeds = terminals.iter().map(|it| it.seed);
        let paths = demands().zip(seeds);
        let mut this = Self {
            terminals: links?,
            room: most,
            watched: Some((0, Counters::default())),
            counted: Counters::default(),
            gateway,
            carrier,
            common,
            delay: first.delay,
            paths: paths
                .map(|(it, seed)| PlanPath::new(&it.plans, seed))
                .collect(),
            due: EventQueue::new(most),
            said: None,
            now: 0,
        };
        for (at, plan) in early {
            this.deliver(None, at, &plan);
        }
        Ok(this)
    }

    /// Writes its plans there from now on.
    pub fn say(&mut self, assignments: &Assignments) {
        self.said = Some(assignments.clone());
    }

    /// Stores the counters up to `now`, before terminals come or go.
    fn count(&mut self, now: Nanos) {
        self.counted = self.superframes(now);
        self.watched = None;
    }

    /// Takes the counters of the carrier from the terminal that is now the first.
    fn watch(&mut self) {
        let mut all = self.terminals.iter();
        let first = all.position(|it| it.core().assigning.is_some());
        self.watched = first.map(|index| (index, self.counters(self.now, index)));
    }

    /// A terminal's side of the link.
    pub fn terminal(&mut self, terminal: usize) -> &mut Link {
        &mut self.terminals[terminal]
    }

    /// Plans a superframe at `at` with the requests that have arrived.
    fn plan(&mut self, at: Nanos) {
        for (id, link) in (0..=u8::MAX).zip(&mut self.terminals) {
            link.advance(at);
            let waveform = link.config().carrier.dama().map(|it| it.waveform);
            if let Some(waveform) = waveform {
                self.gateway.retune(id, waveform);
            }
            let requests = link.core_mut().assigning.iter_mut();
            for (arrives, request) in
                requests.flat_map(|it| std::iter::from_fn(|| it.take_request()))
            {
                self.gateway.expect(arrives, id, request);
            }
        }
        while self.gateway.next_request().is_some_and(|next| next <= at) {
            self.gateway.take_request();
        }
        let plan = self.gateway.next(self.delay);
        self.deliver(Some(at), at.saturating_add(self.delay), &plan);
    }

    /// A plan that was made at `made` takes effect at `at`; one that was made before all can be
    /// lost by none.
    fn deliver(&mut self, made: Option<Nanos>, at: Nanos, plan: &Plan) {
        let mut grants = vec![Grant::default(); self.terminals.len()];
        for (&id, &grant) in &plan.grants {
            grants[usize::from(id)] = grant;
        }
        let bursts: Vec<_> = grants.iter().map(Grant::bursts).collect();
        let is_shared = bursts.iter().filter(|&&it| it > 0).count() > 1;
        let said = self.said.as_ref().zip(made);
        let slots = if is_shared || said.is_some() {
            slots(&self.carrier, &bursts)
        } else {
            Vec::new()
        };
        if let Some((said, made)) = said {
            said.post(Assigned {
                made,
                superframe: at.div_ceil(self.carrier.superframe),
                terminals: numbers(&self.carrier, slots.iter().copied(), std::iter::empty()),
            });
        }
        // A terminal that sends alone does so evenly, also without starts of its own.
        let mut starts = if is_shared {
            starts(&bursts, &slots)
        } else {
            Vec::new()
        };
        for (index, (link, &grant)) in self.terminals.iter_mut().zip(&grants).enumerate() {
            let path = &mut self.paths[index];
            let core = link.core_mut();
            let Some(assigning) = &mut core.assigning else {
                continue;
            };
            if made.is_some_and(|made| path.loses(made)) {
                core.ledger.counters.plans_lost += 1;
            } else {
                let starts = starts.get_mut(index).map(std::mem::take);
                let rest = (plan.free, plan.signalling);
                assigning.share_plan(at, grant, rest, starts.unwrap_or_default());
            }
        }
        (0..self.terminals.len()).for_each(|index| self.announce(index));
    }

    fn announce(&mut self, terminal: usize) {
        let next = self.terminals[terminal].next_event();
        self.due.set(terminal, next);
    }
}

impl SharedCarrier for SharedReturn {
    fn push(&mut self, now: Nanos, terminal: usize, packet: &[u8]) -> Accepted {
        self.advance(now);
        // Its own time: another terminal's packet may be read first and have come later.
        let accepted = self.terminals[terminal].push(now, packet);
        self.announce(terminal);
        accepted
    }

    /// Processes all events before `now` that concern more than one terminal.
    fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        while self.gateway.next_plan() < self.now {
            self.plan(self.gateway.next_plan());
        }
    }

    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<(Nanos, usize)> {
        self.advance(now);
        while let Some((_, index)) = self.due.next().filter(|&(at, _)| at <= self.now) {
            let due = self.terminals[index].pop(self.now, out);
            let next = self.terminals[index].next_event();
            if let Some(due) = due {
                self.due.set(index, next);
                return Some((due, index));
            }
            self.due.set(index, next.map(|at| at.max(self.now + 1)));
        }
        None
    }

    fn next_event(&self) -> Option<Nanos> {
        self.due.next().map(|(at, _)| at)
    }

    /// Advances to `now` and changes the link of a terminal: its outage, `Es/N0` or attenuation, or
    /// those of its plans.
    fn set(&mut self, now: Nanos, terminal: usize, change: &Change) -> Result<(), LinkError> {
        self.advance(now);
        match change {
            Change::Outage(_) | Change::EsN0(_) | Change::Attenuation(_) | Change::Plans(_) => {}
            _ => return Err(LinkError::SharedChange),
        }
        let link = &mut self.terminals[terminal];
        link.set(self.now, change)?;
        let config = link.config();
        if let (Change::Plans(change), Some(demand)) = (change, &config.demand) {
            let generation = link.core().generation;
            self.paths[terminal].change(change, &demand.plans, config.seed, generation);
        }
        self.announce(terminal);
        Ok(())
    }

    fn check(&self, place: Option<usize>, config: &LinkConfig) -> Result<(), LinkError> {
        config.check()?;
        if let Some(acm) = &config.acm {
            acm.selector(&config.carrier)?;
        }
        let has_room = place.is_some() || self.terminals.len() < self.room;
        match shared(config).filter(|(_, common)| has_room && *common == self.common) {
            Some(_) => Ok(()),
            None => Err(LinkError::Shared),
        }
    }

    /// Advances to `now` and takes a terminal off the carrier, with what is in flight from it.
    /// Plans do not name it any more.
    fn leave(
        &mut self,
        now: Nanos,
        terminal: usize,
        waiting: Waiting,
    ) -> Result<Leaving, LinkError> {
        self.count(now);
        let link = &mut self.terminals[terminal];
        link.advance(self.now);
        let (queue, mut packets) = link.vacate(0, waiting);
        if waiting == Waiting::Flush {
            link.flush(std::mem::take(&mut packets));
        }
        let core = link.core_mut();
        core.assigning = None;
        core.acm = None;
        let plans = core.config.demand.as_ref();
        let plans = plans.map(|it| PlanPath::new(&it.plans, core.config.seed));
        let plans = plans.map(|it| std::mem::replace(&mut self.paths[terminal], it));
        let nothing = Channel::new(&core.config);
        let channel = std::mem::replace(&mut core.channel, nothing);
        let leaving = Leaving::new(&core.config, channel, (queue, packets), plans);
        self.gateway.log_off(terminal as u8);
        self.announce(terminal);
        self.watch();
        Ok(leaving)
    }

    /// Advances to `now` and takes a terminal on, at `place` if it was here before; its index, see
    /// [`SharedReturn::check`]. It is logged on: the next plan has slots for it, and one of these
    /// for its first request.
    fn join(
        &mut self,
        now: Nanos,
        place: Option<usize>,
        config: &LinkConfig,
        mut leaving: Leaving,
    ) -> Result<usize, LinkError> {
        self.check(place, config)?;
        self.count(now);
        let config = leaving.onto(config);
        let demand = config.demand.clone().ok_or(LinkError::Shared)?;
        let from = self.gateway.next_planned(self.delay);
        let link = Link::joining(config.clone(), self.now, from)?;
        let path = leaving.plans.take().map(|it| it.go_on(&demand.plans));
        let path = path.unwrap_or_else(|| PlanPath::new(&demand.plans, config.seed));
        let index = place.unwrap_or(self.terminals.len());
        let id = u8::try_from(index).map_err(|_| LinkError::Shared)?;
        self.gateway
            .log_on(id, &demand.agreement, (from, demand.synchro));
        if let Some(carrier) = link.config().carrier.dama() {
            self.gateway.retune(id, carrier.waveform);
        }
        put(&mut self.paths, place, path);
        let stay = put(&mut self.terminals, place, link);
        self.terminals[index].go_on(leaving, stay);
        self.announce(index);
        self.watch();
        Ok(index)
    }

    fn queue(&self, terminal: usize) -> Volume {
        self.terminals[terminal].queue()
    }

    fn fifos(&mut self, terminal: usize) -> Vec<FifoState> {
        self.terminals[terminal].fifos()
    }

    fn config(&self, terminal: usize) -> &LinkConfig {
        self.terminals[terminal].config()
    }
}

impl ReturnCarrier for SharedReturn {
    fn counters(&mut self, now: Nanos, terminal: usize) -> Counters {
        self.advance(now);
        self.terminals[terminal].advance(self.now);
        self.terminals[terminal].counters()
    }

    /// Superframes of the carrier up to `now`, with what was free in them, as the first terminal on
    /// it counts them.
    fn superframes(&mut self, now: Nanos) -> Counters {
        self.advance(now);
        let mut sum = self.counted;
        if let Some((terminal, from)) = self.watched {
            let now = self.counters(self.now, terminal);
            sum += Counters {
                superframes: now.superframes - from.superframes,
                slots_free: now.slots_free - from.slots_free,
                slots_signalling: now.slots_signalling - from.slots_signalling,
                ..Counters::default()
            };
        }
        sum
    }

    fn next_plan(&self) -> Option<Nanos> {
        Some(self.gateway.next_plan())
    }
}

/// Starts of the bursts of each terminal.
fn starts(bursts: &[u32], slots: &[Slot]) -> Vec<Vec<Nanos>> {
    let room = |&count: &u32| Vec::with_capacity(count as usize);
    let mut starts: Vec<_> = bursts.iter().map(room).collect();
    for slot in slots {
        starts[slot.terminal].push(slot.start);
    }
    starts
}

/// What terminals of a carrier have in common.
#[derive(Debug, PartialEq)]
struct Common {
    symbol_rate: u64,
    superframe: Nanos,
    burst_symbols: u64,
    delay: Nanos,
    fca_kbps: u32,
    synchro: Nanos,
}

/// The carrier and what is common on it; `None` for a link that cannot share.
fn shared(config: &LinkConfig) -> Option<(dama::Carrier, Common)> {
    let demand = config.demand.as_ref().filter(|it| it.others.is_empty())?;
    let is_standard = matches!(config.carrier, Carrier::Return { .. });
    let carrier = config.carrier.dama().filter(|_| is_standard)?;
    let common = Common {
        symbol_rate: carrier.symbol_rate,
        superframe: carrier.superframe,
        burst_symbols: carrier.waveform.symbols,
        delay: config.delay,
        fca_kbps: demand.fca_kbps,
        synchro: demand.synchro,
    };
    Some((carrier, common))
}
