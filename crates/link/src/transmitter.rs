// SPDX-License-Identifier: GPL-3.0-or-later
//! The sending side of a direction: queue, frames, losses of frames. [`Link`] has the receiving
//! side, too.

use crate::acm::Loop;
use crate::change::{Change, Handover, Waiting};
use crate::config::{LinkConfig, LinkError};
use crate::direction_state::{Adapted, DirectionState};
use crate::frame_format::{Decapsulator, Encapsulator};
use crate::frame_output::{FrameOutput, Sent};
use crate::framed::Framed;
use crate::ledger::{Event, Frame};
use crate::line::Line;
use crate::queue::{FifoState, Fifos, Queue};
use crate::signalling::Assignments;
use crate::slot_assignment::{Assigning, Stations, Step, Superframe};
use crate::stage::{Accepted, Stage};
use crate::terminal_queues::{Lane, TerminalQueues, total};
use crate::{Carrier, Nanos, Volume};
use dvb::dama::{Level, Request};
use dvb::modcod::ModCod;
use dvb::sdu::Filled;

/// The sending side of a direction, and its exit.
///
/// Frames open at fixed times whether the caller is punctual or not: a call first works off all
/// that should have happened before its `now`. A packet pushed at `now` can enter a frame that
/// opens at `now` or later. A `now` before an earlier one is taken as the earlier one.
#[derive(Debug)]
pub struct Transmitter<E> {
    pub(crate) core: DirectionState,
    pub(crate) framed: Option<Framed>,
    line: Option<Line>,
    pub(crate) lanes: TerminalQueues,
    exit: E,
}

/// A whole direction: packets in, packets out.
pub type Link = Transmitter<Local>;

/// The receiver in the same process; `None` on a wire.
#[derive(Debug)]
pub struct Local(Option<Decapsulator>);

impl Link {
    /// An idle link at time 0.
    ///
    /// # Errors
    /// The configuration cannot be a link.
    pub fn new(config: LinkConfig) -> Result<Self, LinkError> {
        Self::with_stations(config, Stations::All)
    }

    pub(crate) fn with_stations(config: LinkConfig, stations: Stations) -> Result<Self, LinkError> {
        let exit = Local(Decapsulator::new(&config.carrier));
        Self::with_exit(config, stations, exit)
    }
}

impl FrameOutput for Local {
    const IS_LOCAL: bool = true;

    fn deliver(&mut self, sent: &Sent<'_>, core: &mut DirectionState) {
        let (end, filled) = (sent.end, total(sent.parts));
        let channel = &mut core.channel;
        let Some(decapsulator) = &mut self.0 else {
            return;
        };
        let counters = &mut core.ledger.counters;
        let mut kept = Filled::default();
        decapsulator.receive(sent.frame, |packet| {
            if channel.loses_packet(end) {
                return;
            }
            kept.packets += 1;
            kept.bytes += packet.len() as u64;
            channel.deliver(end, packet, counters);
        });
        // Packets come out in the frame that holds their last byte, or never.
        let lost = (filled.packets - kept.packets, filled.bytes - kept.bytes);
        core.ledger.lose(end, lost.0, lost.1);
    }

    fn miss(&mut self) {
        if let Some(decapsulator) = &mut self.0 {
            decapsulator.miss();
        }
    }

    fn request(&mut self, request: Request, end: Nanos, core: &mut DirectionState) {
        if let Some(assigning) = &mut core.assigning {
            assigning.receive_request(end.saturating_add(core.channel.delay), request);
        }
    }

    /// On a wire a frame is a packet, so that losses of both units act.
    fn send_unframed(&mut self, end: Nanos, packet: &[u8], core: &mut DirectionState) {
        let channel = &mut core.channel;
        if channel.loses_frame(end) | channel.loses_packet(end) {
            core.ledger.lose(end, 1, packet.len() as u64);
        } else {
            channel.deliver(end, packet, &mut core.ledger.counters);
        }
    }

    fn renew(&mut self, carrier: &Carrier) {
        self.0 = Decapsulator::new(carrier);
    }
}

impl<E: FrameOutput> Transmitter<E> {
    pub(crate) fn with_exit(
        config: LinkConfig,
        stations: Stations,
        exit: E,
    ) -> Result<Self, LinkError> {
        let lanes = TerminalQueues::new(vec![Lane::new(&config, 1, (0, 1))]);
        Self::with_lanes(config, stations, lanes, exit)
    }

    /// A carrier for several terminals.
    pub(crate) fn with_lanes(
        config: LinkConfig,
        stations: Stations,
        lanes: TerminalQueues,
        exit: E,
    ) -> Result<Self, LinkError> {
        let core = DirectionState::new(config, stations)?;
        Ok(Self {
            framed: Framed::new(&core.config, 0),
            line: Line::new(&core.config.carrier, 0),
            lanes,
            core,
            exit,
        })
    }

    /// Advances to `now` and offers one packet of 1 to 65 535 bytes.
    pub fn push(&mut self, now: Nanos, packet: &[u8]) -> Accepted {
        self.push_for(now, 0, packet)
    }

    /// Offers a packet for terminal `lane` of a shared carrier.
    pub(crate) fn push_for(&mut self, now: Nanos, lane: usize, packet: &[u8]) -> Accepted {
        self.advance(now);
        let now = self.core.now;
        self.core.ledger.offer(now, packet.len());
        let idle = self.is_idle();
        let is_taken = match &mut self.framed {
            Some(framed) if self.lanes.accepts(lane, packet) => {
                if idle {
                    framed.skip_to(now);
                }
                self.lanes.push(now, lane, packet, &mut self.core.ledger)
            }
            None if (1..=65_535).contains(&packet.len()) => {
                if let Some(line) = &mut self.line {
                    if idle {
                        line.skip_to(now);
                    }
                    self.lanes.push(now, lane, packet, &mut self.core.ledger)
                } else {
                    self.exit.send_unframed(now, packet, &mut self.core);
                    true
                }
            }
            _ => {
                self.core.ledger.drop(now, packet.len());
                false
            }
        };
        if is_taken {
            Accepted::Queued
        } else {
            Accepted::Dropped
        }
    }

    /// Start and end of the next frame with something to send; `None` while there is none, or no
    /// slot for it.
    pub(crate) fn opening(&self) -> Option<(Nanos, Nanos)> {
        let framed = self.framed.as_ref()?;
        if self.is_idle() {
            return framed.next_plan();
        }
        framed.next_opening()
    }

    /// Works off the next event of adaptive coding if it comes before now and not after `opening`.
    fn adapt(&mut self, opening: Option<Nanos>) -> bool {
        if let Some(at) = self.exit.adapt(self.core.now, opening, &mut self.lanes) {
            self.idle_at(at);
            return true;
        }
        let adapted = self.core.adapt(opening);
        if let Adapted::Retuned(at) = adapted {
            self.retune(at);
        }
        adapted != Adapted::Nothing
    }

    /// If no packet waits, continues the grid in the MODCOD that all terminals receive.
    pub(crate) fn idle_at(&mut self, at: Nanos) {
        let modcod = self.lanes.most_robust();
        let modcod = modcod.filter(|_| self.lanes.is_idle());
        if let (Some(framed), Some(modcod)) = (&mut self.framed, modcod) {
            framed.tune(&self.core.config.carrier, modcod, at);
        }
    }

    /// Goes over to the carrier in force at the first opening from `at` on.
    fn retune(&mut self, at: Nanos) {
        let carrier = &self.core.config.carrier;
        if let Some(framed) = &mut self.framed {
            framed.change(carrier, at);
        }
        if let Some(line) = &mut self.line {
            line.change(carrier);
        }
    }

    /// Works off the next event of the demand assignment if it comes before now and not after
    /// `opening`.
    fn assign(&mut self, opening: Option<Nanos>) -> bool {
        let Some(assigning) = &mut self.core.assigning else {
            return false;
        };
        let at = assigning.next_event();
        if at >= self.core.now || opening.is_some_and(|start| start < at) {
            return false;
        }
        let (lane, config) = (self.lanes.lane(0), &self.core.config);
        let levels = || levels(config, lane);
        match assigning.step(self.core.channel.delay, levels) {
            Step::Inside => {}
            Step::Requested { request, end } => self.send_request(request, end),
            Step::PlanLost => self.core.ledger.counters.plans_lost += 1,
            Step::Superframe(mut superframe) => self.begin(&mut superframe),
        }
        true
    }

    /// A request leaves in a burst that ends at `end`.
    fn send_request(&mut self, request: Request, end: Nanos) {
        let asks = u64::from(request != Request::default());
        let counters = &mut self.core.ledger.counters;
        counters.requests += asks;
        counters.rbdc_kbps += u64::from(request.rbdc_kbps);
        counters.vbdc_bursts += u64::from(request.vbdc_bursts);
        if self.core.channel.loses_frame(end) {
            self.core.ledger.counters.requests_lost += asks;
        } else {
            self.exit.request(request, end, &mut self.core);
        }
    }

    /// A superframe begins.
    fn begin(&mut self, superframe: &mut Superframe) {
        if let Some(framed) = &mut self.framed {
            framed.assign(&self.core.config.carrier, superframe);
        }
        let counters = &mut self.core.ledger.counters;
        counters.superframes += 1;
        counters.slots_assigned += u64::from(superframe.slots);
        counters.slots_free += u64::from(superframe.free);
        counters.slots_signalling += u64::from(superframe.signalling);
    }

    /// Delay between the end of a frame and the release of its packets.
    fn delay(&self) -> Nanos {
        if E::IS_LOCAL {
            self.core.config.delay
        } else {
            0
        }
    }

    /// Time at which the next frame may have packets for `pop`.
    fn next_frame(&self) -> Option<Nanos> {
        if self.is_idle() {
            return None;
        }
        // Superframes and reports are worked off after their moment: with a delay of 0 at the next
        // one.
        let delay = self.delay();
        if let Some(line) = &self.line {
            return Some(line.free().saturating_add(delay));
        }
        let Some((start, end)) = self.opening() else {
            // The next superframe may bring a slot.
            let superframe = self.core.assigning.as_ref()?.next_superframe();
            return Some(superframe.saturating_add(delay.max(1)));
        };
        // Until the frame opens, adaptive coding may make it shorter.
        let report = self.core.acm.as_ref().map(Loop::next_event);
        let report = report.filter(|&report| report <= start);
        Some(report.map_or(end.saturating_add(delay), |at| {
            at.saturating_add(delay.max(1))
        }))
    }

    fn replace_queue(&mut self, queue: Queue) {
        let core = &mut self.core;
        let new = Fifos::new(&core.config, queue, core.generation);
        self.lanes.change(0, |lane| {
            let pending = lane.pending();
            let new = new.after(&mut lane.queue);
            let mut old = std::mem::replace(&mut lane.queue, new);
            old.drain(|since, packet| {
                lane.queue.push(since, packet, pending, &mut core.ledger);
            });
        });
    }

    fn hand_over(&mut self, handover: Handover) {
        let new = Fifos::new(&self.core.config, handover.queue, self.core.generation);
        let now = self.core.now;
        let mut waiting = self.lanes.change(0, |lane| {
            let waiting = lane.take_out(now);
            lane.queue = new.after(&mut lane.queue);
            waiting
        });
        if handover.waiting == Waiting::Flush {
            self.flush(std::mem::take(&mut waiting));
        }
        self.core.apply(&Change::Handover(handover));
        let carrier = self.core.config.carrier;
        let air = Encapsulator::new(&carrier, (0, 1));
        self.lanes.change(0, |lane| lane.air = air);
        let heard = self.framed.as_ref().and_then(Framed::heard);
        self.framed = Framed::new(&self.core.config, now);
        if let Some(heard) = &heard {
            self.hear(heard);
        }
        self.line = Line::new(&carrier, now);
        self.exit.renew(&carrier);
        for (since, packet) in waiting {
            let queues = self.line.is_some() || self.lanes.accepts(0, &packet);
            match (&self.framed, handover.waiting) {
                (_, Waiting::Keep) if queues => {
                    self.lanes.push(since, 0, &packet, &mut self.core.ledger);
                }
                (None, Waiting::Keep) => self.exit.send_unframed(now, &packet, &mut self.core),
                _ => self.core.ledger.drop(self.core.now, packet.len()),
            }
        }
    }

    /// Packets leave at once, without a frame.
    pub(crate) fn flush(&mut self, packets: Vec<(Nanos, Vec<u8>)>) {
        for (_, packet) in packets {
            self.exit
                .send_unframed(self.core.now, &packet, &mut self.core);
        }
    }

    /// Reads the plans for its frames from the `assignments` of a return link from now on. Has no
    /// effect without [`LinkConfig::signalling`].
    pub fn hear(&mut self, assignments: &Assignments) {
        if let Some(framed) = &mut self.framed {
            framed.hear(assignments.clone());
        }
    }

    /// Writes plans to `assignments` from now on. Has no effect without demand assignment.
    pub fn say(&mut self, assignments: &Assignments) {
        if let Some(assigning) = &mut self.core.assigning {
            assigning.say(assignments.clone());
        }
    }

    /// Keeps every event from now on, until [`Link::take_events`] fetches them. Memory grows with
    /// them: for tests and analysis, not for the real-time loop.
    pub fn record_events(&mut self) {
        self.core.ledger.log.get_or_insert_default();
    }

    /// Events recorded since the last call, in the order of their working off.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.core
            .ledger
            .log
            .as_mut()
            .map_or_else(Vec::new, std::mem::take)
    }

    /// Keeps every frame sent from now on, until [`Link::take_frames`] fetches them; memory as with
    /// [`Link::record_events`].
    pub fn record_frames(&mut self) {
        self.core.ledger.frames.get_or_insert_default();
    }

    /// Frames recorded since the last call, in the order of their sending.
    pub fn take_frames(&mut self) -> Vec<Frame> {
        self.core
            .ledger
            .frames
            .as_mut()
            .map_or_else(Vec::new, std::mem::take)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.lanes.is_idle()
    }

    /// What waits for each terminal.
    pub(crate) const fn lanes(&self) -> &TerminalQueues {
        &self.lanes
    }

    /// A terminal of a shared carrier receives another MODCOD from now on.
    pub(crate) fn set_modcod(&mut self, lane: usize, modcod: ModCod) {
        self.lanes.set_modcod(lane, modcod);
        self.idle_at(self.core.now);
    }

    /// State of the FIFOs of a terminal; none on a wire, which has no queue.
    pub(crate) fn fifos_of(&mut self, lane: usize) -> Vec<FifoState> {
        if self.framed.is_none() && self.line.is_none() {
            return Vec::new();
        }
        self.lanes.fifos(lane)
    }

    pub(crate) const fn exit(&self) -> &E {
        &self.exit
    }

    pub(crate) const fn exit_mut(&mut self) -> &mut E {
        &mut self.exit
    }
}

impl<E: FrameOutput> Stage for Transmitter<E> {
    fn core(&self) -> &DirectionState {
        &self.core
    }

    fn core_mut(&mut self) -> &mut DirectionState {
        &mut self.core
    }

    fn advance(&mut self, now: Nanos) {
        self.core.now = self.core.now.max(now);
        if let Some(line) = &mut self.line {
            let (exit, core) = (&mut self.exit, &mut self.core);
            self.lanes
                .change(0, |lane| line.send(&mut lane.queue, exit, core));
            return;
        }
        loop {
            let opening = self.opening().map(|(start, _)| start);
            let opening = opening.filter(|&start| start < self.core.now);
            if self.adapt(opening) || self.assign(opening) {
                continue;
            }
            let (Some(framed), Some(start)) = (&mut self.framed, opening) else {
                return;
            };
            if self.lanes.is_idle() {
                // Openings before a plan have passed unused.
                framed.skip_to(start);
            }
            framed.open(&mut self.lanes, &mut self.exit, &mut self.core);
        }
    }

    fn offer(&mut self, now: Nanos, packet: &[u8]) {
        // Anything but an IP packet is neither traffic nor a drop: it never reached the modem.
        if matches!(packet.first().map(|byte| byte >> 4), Some(4 | 6)) {
            let _: Accepted = self.push(now, packet);
        }
    }

    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<Nanos> {
        self.advance(now);
        let due = self.core.channel.pop(self.core.now, out)?;
        if E::IS_LOCAL {
            self.core.ledger.release(due, out.len());
        }
        Some(due)
    }

    fn set(&mut self, now: Nanos, change: &Change) -> Result<(), LinkError> {
        self.advance(now);
        self.core.reconfigure(change)?;
        if let Change::Handover(handover) = change {
            self.hand_over(*handover);
            return Ok(());
        }
        self.core.apply(change);
        match change {
            Change::Queue(queue) => self.replace_queue(*queue),
            Change::Modcod(_) | Change::SymbolRate(_) | Change::Carrier(_) => {
                self.retune(self.core.now);
            }
            _ => {}
        }
        Ok(())
    }

    fn next_event(&self) -> Option<Nanos> {
        let channel = &self.core.channel;
        let due = channel.next_in_flight().or_else(|| {
            self.next_frame()
                .into_iter()
                .chain(channel.next_due())
                .min()
        });
        let assigning = self.core.assigning.as_ref();
        let message = assigning.and_then(Assigning::next_message);
        due.into_iter().chain(message).min()
    }

    /// The rest of the delay is for the work on a packet.
    fn patience(&self) -> Nanos {
        self.delay() / 2
    }

    fn queue(&self) -> Volume {
        self.lanes.lane(0).size()
    }

    fn fifos(&mut self) -> Vec<FifoState> {
        self.fifos_of(0)
    }
}

/// What the terminal has to ask for, FIFO by FIFO.
fn levels(config: &LinkConfig, lane: &Lane) -> Vec<Level> {
    let Some(air) = &lane.air else {
        return Vec::new();
    };
    let payload = config.carrier.frame_payload() as u64;
    let fifos = config.demand.iter().flat_map(|demand| &demand.fifos);
    let sizes = lane.queue.levels(lane.pending());
    fifos
        .zip(sizes)
        .map(|(fifo, size)| Level {
            access: fifo.access,
            bytes: air.on_air(size.bytes, size.packets, payload),
        })
        .collect()
}
