// SPDX-License-Identifier: GPL-3.0-or-later
//! A forward carrier that several terminals share: one grid of frames, and a queue, a MODCOD and a
//! reception for each.

use crate::acm::Loop;
use crate::change::{Waiting, changed};
use crate::channel::Channel;
use crate::config::{LinkConfig, LinkError};
use crate::departing_terminal::Leaving;
use crate::direction_state::DirectionState;
use crate::event_queue::EventQueue;
use crate::frame_format::Decapsulator;
use crate::frame_output::{FrameOutput, Sent};
use crate::ledger::{Counters, Ledger};
use crate::queue::{FifoState, Fifos};
use crate::shared_carrier::SharedCarrier;
use crate::signalling::Assignments;
use crate::slot_assignment::Stations;
use crate::stage::{Accepted, Stage};
use crate::terminal_queues::{Lane, TerminalQueues, put};
use crate::transmitter::Transmitter;
use crate::{Carrier, Change, Nanos, Volume};
use dvb::dama::Request;
use dvb::modcod::ModCod;

/// Terminals that a carrier can have: fragment ids of GSE have 8 bits.
pub const MOST_TERMINALS: usize = 256;

/// The forward link of several terminals, as [`crate::Link`] is that of one.
///
/// A frame holds packets of terminals with the same MODCOD; each terminal receives or misses its
/// own part of it. Classes ([`LinkConfig::classes`]) are served in strict priority over all
/// terminals, terminals within a class by airtime and weight. Plans ([`LinkConfig::signalling`])
/// take the most robust MODCOD of all.
#[derive(Debug)]
pub struct SharedForward {
    sender: Transmitter<Downlinks>,
    /// Terminals that it can have, one after the other.
    room: u16,
    /// Smallest sum of propagation delay and time on air. No packet is due earlier.
    least: Nanos,
}

/// The terminals' receivers.
#[derive(Debug)]
pub(crate) struct Downlinks {
    terminals: Vec<Downlink>,
    /// Times at which packets of each terminal are due.
    due: EventQueue,
    /// Times at which terminals report their `Es/N0`, or reports arrive.
    reports: EventQueue,
}

#[derive(Debug)]
struct Downlink {
    config: LinkConfig,
    /// Whether the terminal is on this carrier now; otherwise it was on it before.
    is_here: bool,
    decapsulator: Decapsulator,
    channel: Channel,
    acm: Option<Loop>,
    ledger: Ledger,
    /// End of the last frame with a part for it, and whether it was lost.
    last: (Nanos, bool),
}

impl SharedForward {
    /// Idle terminals at time 0. Each has the configuration that its link alone would have, and its
    /// weight. The carrier is the first one's: others differ in label and MODCOD alone. Frames are
    /// lost on the way to each terminal.
    ///
    /// # Errors
    /// A configuration cannot be a link, or they cannot share a carrier.
    pub fn new(terminals: &[(LinkConfig, u32)]) -> Result<Self, LinkError> {
        Self::with_room(terminals, terminals.len())
    }

    /// The same with room for `most` terminals, of which some may come later.
    ///
    /// # Errors
    /// As [`SharedForward::new`].
    pub fn with_room(terminals: &[(LinkConfig, u32)], most: usize) -> Result<Self, LinkError> {
        let (first, _) = terminals.first().ok_or(LinkError::Shared)?;
        let is_possible = (terminals.len()..=MOST_TERMINALS).contains(&most);
        let room = u16::try_from(most).ok().filter(|_| is_possible);
        let room = room.ok_or(LinkError::Shared)?;
        let fits = |(config, weight): &(LinkConfig, u32)| {
            (1..=100).contains(weight) && can_share(config, first)
        };
        if !terminals.iter().all(fits) {
            return Err(LinkError::Shared);
        }
        let shared = LinkConfig {
            delay: 0,
            losses: Vec::new(),
            reception: None,
            acm: None,
            ..first.clone()
        };
        let mut lanes = Vec::new();
        let mut downlinks = Vec::new();
        for ((config, weight), index) in terminals.iter().zip(0..) {
            config.check()?;
            lanes.push(Lane::new(config, *weight, (index, room)));
            downlinks.push(Downlink::new(config, 0)?);
        }
        let mut lanes = TerminalQueues::new(lanes);
        let mut reports = EventQueue::new(most);
        for (index, downlink) in downlinks.iter().enumerate() {
            if let Some(modcod) = downlink.config.carrier.modcod() {
                lanes.set_modcod(index, modcod);
            }
            reports.set(index, downlink.acm.as_ref().map(Loop::next_event));
        }
        let exit = Downlinks {
            due: EventQueue::new(most),
            reports,
            terminals: downlinks,
        };
        let sender = Transmitter::with_lanes(shared, Stations::All, lanes, exit)?;
        let mut shared = Self {
            sender,
            room,
            least: 0,
        };
        shared.least = shared.least();
        Ok(shared)
    }

    /// Counters of a terminal: packets offered, dropped, lost and released; frames are those that
    /// had a part for it.
    #[must_use]
    pub fn counters(&self, terminal: usize) -> Counters {
        let counters = self.sender.exit().terminals[terminal].ledger.counters;
        let dropped = self.sender.lanes().lane(terminal).dropped();
        Counters {
            packets_dropped: dropped.packets,
            bytes_dropped: dropped.bytes,
            ..counters
        }
    }

    /// The MODCOD that a terminal is sent.
    #[must_use]
    pub fn modcod(&self, terminal: usize) -> Option<ModCod> {
        self.sender.lanes().lane(terminal).modcod()
    }

    /// The carrier: its frames and counters, whoever they are for.
    #[must_use]
    pub fn carrier_counters(&self) -> Counters {
        self.sender.counters()
    }

    /// The plans in its frames are those of a return link from now on, see [`crate::Link::hear`].
    pub fn hear(&mut self, assignments: &Assignments) {
        self.sender.hear(assignments);
    }

    /// Keeps every frame from now on, see [`crate::Link::record_frames`].
    pub fn record_frames(&mut self) {
        self.sender.record_frames();
    }

    /// Frames recorded since the last call.
    pub fn take_frames(&mut self) -> Vec<crate::Frame> {
        self.sender.take_frames()
    }

    fn least(&self) -> Nanos {
        let carrier = &self.sender.config().carrier;
        let terminals = &self.sender.exit().terminals;
        let terminals = || terminals.iter().filter(|it| it.is_here);
        let delay = terminals().map(|it| it.channel.delay).min();
        let codings = terminals().flat_map(Downlink::modcods);
        let frame = codings.map(|modcod| carrier.with_modcod(modcod).frame_duration());
        delay.unwrap_or(0) + frame.min().unwrap_or(0)
    }
}

impl SharedCarrier for SharedForward {
    fn push(&mut self, now: Nanos, terminal: usize, packet: &[u8]) -> Accepted {
        let accepted = self.sender.push_for(now, terminal, packet);
        let ledger = &mut self.sender.exit_mut().terminals[terminal].ledger;
        ledger.offer(now, packet.len());
        accepted
    }

    fn advance(&mut self, now: Nanos) {
        self.sender.advance(now);
    }

    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<(Nanos, usize)> {
        self.advance(now);
        self.sender.exit_mut().pop(now, out)
    }

    fn next_event(&self) -> Option<Nanos> {
        let due = self.sender.exit().due.next().map(|(at, _)| at);
        let opening = self.sender.opening().filter(|_| !self.sender.is_idle());
        let frame = opening.map(|(start, _)| start.saturating_add(self.least));
        due.into_iter().chain(frame).min()
    }

    /// Advances to `now` and changes the link of a terminal: its delay, outage, `Es/N0`,
    /// attenuation or MODCOD (`None`: by its reports again).
    fn set(&mut self, now: Nanos, terminal: usize, change: &Change) -> Result<(), LinkError> {
        self.advance(now);
        let downlink = &mut self.sender.exit_mut().terminals[terminal];
        let tuned = downlink.set(change)?;
        if let Some(modcod) = tuned {
            self.sender.set_modcod(terminal, modcod);
        }
        self.least = self.least();
        Ok(())
    }

    fn check(&self, place: Option<usize>, config: &LinkConfig) -> Result<(), LinkError> {
        config.check()?;
        if let Some(acm) = &config.acm {
            acm.selector(&config.carrier)?;
        }
        let terminals = self.sender.exit().terminals.len();
        let has_room = place.is_some() || terminals < usize::from(self.room);
        if has_room && can_share(config, self.sender.config()) {
            Ok(())
        } else {
            Err(LinkError::Shared)
        }
    }

    /// Advances to `now` and takes a terminal off the carrier, with what is in flight to it.
    fn leave(
        &mut self,
        now: Nanos,
        terminal: usize,
        waiting: Waiting,
    ) -> Result<Leaving, LinkError> {
        self.advance(now);
        let now = self.sender.core().now;
        let (queue, mut packets) = self.sender.vacate(terminal, waiting);
        let exit = self.sender.exit_mut();
        let downlink = &mut exit.terminals[terminal];
        if waiting == Waiting::Flush {
            downlink.flush(now, std::mem::take(&mut packets));
        }
        let leaving = downlink.leave((queue, packets));
        exit.due.set(terminal, None);
        exit.reports.set(terminal, None);
        self.sender.leave(terminal);
        self.least = self.least();
        Ok(leaving)
    }

    fn join(
        &mut self,
        now: Nanos,
        place: Option<usize>,
        config: &LinkConfig,
        leaving: Leaving,
    ) -> Result<usize, LinkError> {
        self.check(place, config)?;
        self.advance(now);
        let config = leaving.onto(config);
        let (now, count) = (self.sender.core().now, self.sender.exit().terminals.len());
        let index = place.unwrap_or(count);
        let downlink = Downlink::new(&config, now)?;
        let Leaving {
            mut queue,
            waiting,
            channel,
            ..
        } = leaving;
        let lane = Lane::new(&config, 1, (index as u16, self.room));
        self.sender.join(place, lane, &mut queue);
        let modcod = downlink.config.carrier.modcod();
        let exit = self.sender.exit_mut();
        let before = put(&mut exit.terminals, place, downlink);
        let downlink = &mut exit.terminals[index];
        downlink.ledger = before.map(|it| it.ledger).unwrap_or_default();
        downlink.channel.go_on(channel);
        exit.due.set(index, downlink.channel.next_due());
        exit.reports
            .set(index, downlink.acm.as_ref().map(Loop::next_event));
        if let Some(modcod) = modcod {
            self.sender.set_modcod(index, modcod);
        }
        self.sender.take_over(index, waiting);
        self.least = self.least();
        Ok(index)
    }

    fn queue(&self, terminal: usize) -> Volume {
        self.sender.lanes().lane(terminal).size()
    }

    /// State of the gateway's FIFOs for a terminal, see [`Stage::fifos`].
    fn fifos(&mut self, terminal: usize) -> Vec<FifoState> {
        self.sender.fifos_of(terminal)
    }

    fn config(&self, terminal: usize) -> &LinkConfig {
        &self.sender.exit().terminals[terminal].config
    }
}

/// Whether a terminal can share the carrier of another terminal.
fn can_share(config: &LinkConfig, first: &LinkConfig) -> bool {
    let same = |carrier: &Carrier| match *carrier {
        Carrier::Forward { .. } => Some(alike(carrier)),
        _ => None,
    };
    same(&config.carrier).is_some()
        && same(&config.carrier) == same(&first.carrier)
        && (&config.classes, &config.signalling) == (&first.classes, &first.signalling)
}

/// What terminals of a carrier have in common.
fn alike(carrier: &Carrier) -> Carrier {
    let mut carrier = *carrier;
    if let (Carrier::Forward { modcod, label, .. }, Some(common)) = (&mut carrier, ModCod::by_id(1))
    {
        (*modcod, *label) = (common, [0; 6]);
    }
    carrier
}

impl Downlink {
    /// On the carrier since a moment.
    fn new(config: &LinkConfig, since: Nanos) -> Result<Self, LinkError> {
        let mut config = config.clone();
        let mut acm = None;
        if let Some(settings) = &config.acm {
            let selector = settings.selector(&config.carrier)?;
            config.carrier = config.carrier.with_coding(selector.current());
            acm = Some(Loop::new(settings, selector, since));
        }
        Ok(Self {
            decapsulator: Decapsulator::new(&config.carrier).ok_or(LinkError::NoFrames)?,
            channel: Channel::new(&config),
            is_here: true,
            acm,
            ledger: Ledger::default(),
            last: (Nanos::MAX, false),
            config,
        })
    }

    /// Packets leave at once, without a frame.
    fn flush(&mut self, now: Nanos, packets: Vec<(Nanos, Vec<u8>)>) {
        for (_, packet) in packets {
            let channel = &mut self.channel;
            if channel.loses_frame(now) | channel.loses_packet(now) {
                self.ledger.lose(now, 1, packet.len() as u64);
            } else {
                channel.deliver(now, &packet, &mut self.ledger.counters);
            }
        }
    }

    /// Removes the terminal, which is on another carrier from now on.
    fn leave(&mut self, packets: (Fifos, Vec<(Nanos, Vec<u8>)>)) -> Leaving {
        self.is_here = false;
        self.acm = None;
        let nothing = Channel::new(&self.config);
        let channel = std::mem::replace(&mut self.channel, nothing);
        Leaving::new(&self.config, channel, packets, None)
    }

    /// MODCODs that it may be sent.
    fn modcods(&self) -> impl Iterator<Item = ModCod> {
        let carriers = self.config.choices().chain([self.config.carrier]);
        carriers.filter_map(|it| it.modcod())
    }

    /// Takes what a frame has for this terminal; `ended`: the packets whose last byte is in it.
    fn take(&mut self, sent: &Sent<'_>, part: &[u8], ended: Volume) {
        let end = sent.end;
        if self.last.0 != end {
            self.channel.frame_error_ratio = self.error_ratio(sent.id);
        }
        let Self {
            channel, ledger, ..
        } = self;
        if self.last.0 != end {
            self.last = (end, channel.loses_frame(end));
            ledger.counters.frames_sent += 1;
            ledger.counters.frames_lost += u64::from(self.last.1);
            if let Some(frames) = ledger.counters.frames_by_id.get_mut(usize::from(sent.id)) {
                *frames += 1;
            }
        }
        ledger.counters.frame_bytes_used += part.len() as u64;
        let mut kept = Volume::default();
        if self.last.1 {
            self.decapsulator.miss();
        } else {
            self.decapsulator.receive(part, |packet| {
                if !channel.loses_packet(end) {
                    kept += Volume::of_packet(packet.len());
                    channel.deliver(end, packet, &mut ledger.counters);
                }
            });
        }
        let lost = ended - kept;
        ledger.lose(end, lost.packets, lost.bytes);
    }

    /// Probability that a frame in this MODCOD is not understood: by the profile's threshold, or
    /// the standard's.
    fn error_ratio(&self, id: u8) -> f64 {
        let Some(reception) = &self.config.reception else {
            return 0.0;
        };
        let own = self.modcods().find(|it| it.id == id);
        let threshold_db = own
            .or_else(|| ModCod::by_id(id))
            .map_or(0.0, ModCod::es_n0_db);
        reception.frame_error_ratio(threshold_db)
    }

    /// Works off the next report; returns the MODCOD if it is another one then. Reception stays
    /// until `until` at least.
    fn adapt(&mut self, until: Nanos) -> Option<ModCod> {
        let (acm, reception) = (self.acm.as_mut()?, self.config.reception.as_ref()?);
        acm.step(reception.effective_es_n0_db(), self.channel.delay, until);
        let carrier = self.config.carrier.with_coding(acm.choice()?);
        if carrier == self.config.carrier {
            return None;
        }
        self.config.carrier = carrier;
        carrier.modcod()
    }

    /// The MODCOD after a change, if the change sets it.
    fn set(&mut self, change: &Change) -> Result<Option<ModCod>, LinkError> {
        let mut config = changed(&self.config, change)?;
        config.check()?;
        let mut tuned = None;
        match change {
            Change::Delay(delay) => self.channel.delay = *delay,
            Change::Outage(is_down) => self.channel.is_down = *is_down,
            Change::EsN0(_) | Change::Attenuation(_) => {}
            Change::Modcod(modcod) => {
                if let Some(acm) = &mut self.acm {
                    acm.hold(modcod.is_some());
                    let choice = acm.choice();
                    config.carrier =
                        choice.map_or(config.carrier, |it| config.carrier.with_coding(it));
                }
                tuned = config.carrier.modcod();
            }
            _ => return Err(LinkError::SharedChange),
        }
        self.config = config;
        Ok(tuned)
    }
}

impl Downlinks {
    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<(Nanos, usize)> {
        let (_, index) = self.due.next().filter(|&(at, _)| at <= now)?;
        let terminal = &mut self.terminals[index];
        let due = terminal.channel.pop(now, out)?;
        terminal.ledger.release(due, out.len());
        self.due.set(index, terminal.channel.next_due());
        Some((due, index))
    }
}

impl FrameOutput for Downlinks {
    const IS_LOCAL: bool = false;

    fn deliver(&mut self, sent: &Sent<'_>, _: &mut DirectionState) {
        for part in sent.parts {
            let terminal = &mut self.terminals[part.lane];
            let bytes = &sent.frame[part.from..part.from + part.filled.used];
            let ended = Volume {
                packets: part.filled.packets,
                bytes: part.filled.bytes,
            };
            terminal.take(sent, bytes, ended);
            self.due.set(part.lane, terminal.channel.next_due());
        }
    }

    fn miss(&mut self) {}

    fn request(&mut self, _: Request, _: Nanos, _: &mut DirectionState) {}

    fn send_unframed(&mut self, _: Nanos, packet: &[u8], core: &mut DirectionState) {
        core.ledger.drop(core.now, packet.len());
    }

    fn adapt(
        &mut self,
        now: Nanos,
        opening: Option<Nanos>,
        lanes: &mut TerminalQueues,
    ) -> Option<Nanos> {
        let is_due = |at: Nanos| at < now && opening.is_none_or(|start| at <= start);
        let (at, index) = self.reports.next().filter(|next| is_due(next.0))?;
        let terminal = &mut self.terminals[index];
        if let Some(modcod) = terminal.adapt(opening.unwrap_or(now - 1)) {
            lanes.set_modcod(index, modcod);
        }
        let next = terminal.acm.as_ref().map(Loop::next_event);
        self.reports.set(index, next);
        Some(at)
    }

    fn renew(&mut self, _: &Carrier) {}
}
