// SPDX-License-Identifier: GPL-3.0-or-later
//! The state machine of one direction.

use crate::acm::Loop;
use crate::assign::{Assigning, Step, Superframe};
use crate::channel::{Channel, frame_error_ratio};
use crate::datagram::{Datagram, HEADER};
use crate::framed::Framed;
use crate::grid::Grid;
use crate::ledger::{Counters, Event, Frame, Ledger};
use crate::part::{Came, Inlet, Part};
use crate::queue::Fifos;
use crate::ring::Ring;
use crate::{Carrier, LinkConfig, LinkError, Nanos, Reception};
use dvb::dama::{Level, Request};

/// What became of a packet that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Waits for the carrier.
    Queued,
    /// The queue was full or chose to drop it early, or the carrier cannot carry the packet: no IP, empty, or too long for
    /// GSE or RLE.
    Dropped,
}

/// One direction of a link.
///
/// Frames open at fixed times whether the caller is punctual or not: a call first works off all that should have happened
/// before its `now`. A packet pushed at `now` can enter a frame that opens at `now` or later. A `now` before an earlier
/// one is taken as the earlier one.
#[derive(Debug)]
pub struct Link {
    pub(crate) config: LinkConfig,
    pub(crate) framed: Option<Framed>,
    pub(crate) acm: Option<Loop>,
    /// Where the sender is another process.
    inlet: Option<Inlet>,
    pub(crate) assigning: Option<Assigning>,
    pub(crate) queue: Fifos,
    pub(crate) channel: Channel,
    pub(crate) ledger: Ledger,
    pub(crate) now: Nanos,
    /// Changes so far: each starts generators of its own.
    pub(crate) generation: u64,
}

impl Link {
    /// An idle link at time 0.
    ///
    /// # Errors
    /// The configuration cannot be a link.
    pub fn new(mut config: LinkConfig) -> Result<Self, LinkError> {
        config.check()?;
        let mut acm = None;
        if let Some(wanted) = &config.acm {
            let selector = wanted.selector(&config.carrier)?;
            config.carrier = config.carrier.with_coding(selector.current());
            acm = Some(Loop::new(wanted, selector));
        }
        let in_flight = Ring::for_bytes(bytes_in_flight(&config));
        Ok(Self {
            framed: framed(&config),
            inlet: inlet(&config),
            acm,
            assigning: Assigning::new(&config),
            queue: Fifos::new(&config, config.queue, 0),
            channel: Channel::new(&config, in_flight),
            ledger: Ledger::default(),
            now: 0,
            generation: 0,
            config,
        })
    }

    /// What this link was asked to be, changes included.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Advances to `now` and offers one packet of 1 to 65 535 bytes, or a datagram where the link takes those.
    pub fn push(&mut self, now: Nanos, packet: &[u8]) -> Accepted {
        self.advance(now);
        if self.config.part.takes_datagrams() {
            return self.take_datagram(packet);
        }
        self.ledger.offer(self.now, packet.len());
        let idle = self.is_idle();
        let is_taken = match &mut self.framed {
            Some(framed) if framed.air.accepts(packet) => {
                if idle {
                    framed.skip_to(self.now);
                }
                let pending = framed.air.pending() as u64;
                self.queue.push(self.now, packet, pending, &mut self.ledger)
            }
            None if (1..=65_535).contains(&packet.len()) => {
                self.send_by_wire(packet);
                true
            }
            _ => {
                self.ledger.drop(self.now, packet.len());
                false
            }
        };
        if is_taken {
            Accepted::Queued
        } else {
            Accepted::Dropped
        }
    }

    fn take_datagram(&mut self, datagram: &[u8]) -> Accepted {
        let Some(inlet) = &mut self.inlet else {
            return self.relay(datagram);
        };
        if let (Ok(Datagram::Request(request)), Some(assigning)) =
            (Datagram::parse(datagram), &mut self.assigning)
        {
            assigning.hear_request(self.now.saturating_add(self.channel.delay), request);
            return Accepted::Queued;
        }
        let (channel, ledger, now) = (&mut self.channel, &mut self.ledger, self.now);
        let mut lost = (0, 0);
        let came = inlet.take(datagram, |packet| {
            if channel.loses_packet(now) {
                lost = (lost.0 + 1, lost.1 + packet.len() as u64);
            } else {
                channel.deliver(now, packet);
            }
        });
        ledger.lose(now, lost.0, lost.1);
        let Came::Frame { missed } = came else {
            return Accepted::Dropped;
        };
        ledger.receive(datagram.len() - HEADER, missed);
        Accepted::Queued
    }

    /// The satellite passes on what is a frame, a request or a plan.
    fn relay(&mut self, datagram: &[u8]) -> Accepted {
        match Datagram::parse(datagram) {
            Ok(Datagram::Frame { payload, .. }) => self.ledger.receive(payload.len(), 0),
            Ok(Datagram::Request(_) | Datagram::Plan { .. }) => {}
            Ok(Datagram::Hello) | Err(_) => return Accepted::Dropped,
        }
        self.channel.pass(self.now, datagram);
        Accepted::Queued
    }

    /// Works off what happens before `now`. `push` and `pop` do this themselves; useful before reading the counters.
    pub fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        loop {
            let opening = self.opening().map(|(start, _)| start);
            let opening = opening.filter(|&start| start < self.now);
            if self.adapt(opening) || self.assign(opening) {
                continue;
            }
            let (Some(framed), Some(start)) = (&mut self.framed, opening) else {
                return;
            };
            // Openings before a plan have passed unused.
            framed.skip_to(start);
            framed.open(&mut self.queue, &mut self.channel, &mut self.ledger);
        }
    }

    /// Start and end of the next frame with something to send; `None` while there is none, or no slot for it.
    fn opening(&self) -> Option<(Nanos, Nanos)> {
        let framed = self.framed.as_ref()?;
        if self.is_idle() {
            return framed.next_plan();
        }
        framed.next_opening()
    }

    /// Works off the next thing of the demand assignment if it comes before now and not after `opening`.
    fn assign(&mut self, opening: Option<Nanos>) -> bool {
        let Some(assigning) = &mut self.assigning else {
            return false;
        };
        let at = assigning.next_event();
        if at >= self.now || opening.is_some_and(|start| start < at) {
            return false;
        }
        let (queue, config, framed) = (&self.queue, &self.config, self.framed.as_ref());
        let levels = || framed.map_or_else(Vec::new, |framed| levels(config, framed, queue));
        match assigning.step(self.channel.delay, levels) {
            Step::Inside => {}
            Step::Requested { request, end } => self.send_request(request, end),
            Step::PlanLost => self.ledger.counters.plans_lost += 1,
            Step::Superframe(superframe) => self.begin(superframe),
        }
        true
    }

    /// A request leaves in a burst that ends at `end`.
    fn send_request(&mut self, request: Request, end: Nanos) {
        let asks = u64::from(request != Request::default());
        self.ledger.counters.requests += asks;
        if self.channel.loses_frame(end) {
            self.ledger.counters.requests_lost += asks;
        } else if let Part::Sender { .. } = self.config.part {
            let mut datagram = Vec::new();
            Datagram::Request(request).write(&mut datagram);
            self.channel.pass(end, &datagram);
        } else if let Some(assigning) = &mut self.assigning {
            assigning.hear_request(end.saturating_add(self.channel.delay), request);
        }
    }

    /// A superframe begins.
    fn begin(&mut self, superframe: Superframe) {
        if let Some(framed) = &mut self.framed {
            framed.assign(&self.config.carrier, superframe);
        }
        let counters = &mut self.ledger.counters;
        counters.superframes += 1;
        counters.slots_assigned += u64::from(superframe.slots);
        counters.slots_free += u64::from(superframe.free);
        counters.slots_signalling += u64::from(superframe.signalling);
    }

    /// Moves the oldest plan for the terminal in another process to `out` (cleared first), as a datagram.
    pub fn tell(&mut self, out: &mut Vec<u8>) -> bool {
        let told = self.assigning.as_mut().and_then(Assigning::tell);
        out.clear();
        out.extend(told.iter().flatten());
        told.is_some()
    }

    /// Works off the next event of adaptive coding if it comes before now and not after `opening`.
    fn adapt(&mut self, opening: Option<Nanos>) -> bool {
        let (Some(acm), Some(reception)) = (&mut self.acm, &self.config.reception) else {
            return false;
        };
        let at = acm.next_event();
        if at >= self.now || opening.is_some_and(|start| start < at) {
            return false;
        }
        let until = opening.unwrap_or(self.now - 1);
        let cn_db = reception.effective_cn_db();
        acm.step(cn_db, self.channel.delay, until);
        let carrier = self.adapted(self.config.carrier);
        if carrier != self.config.carrier {
            self.retune(carrier, at);
        }
        true
    }

    /// The carrier with the MODCOD or waveform that adaptive coding chooses, if it does.
    pub(crate) fn adapted(&self, carrier: Carrier) -> Carrier {
        let choice = self.acm.as_ref().and_then(Loop::choice);
        choice.map_or(carrier, |coding| carrier.with_coding(coding))
    }

    /// Goes over to another carrier of the same kind at the first opening from `at` on.
    pub(crate) fn retune(&mut self, carrier: Carrier, at: Nanos) {
        self.config.carrier = carrier;
        if let Some(framed) = &mut self.framed {
            framed.change(&carrier, at);
        }
        if let (Some(assigning), Some(dama)) = (&mut self.assigning, carrier.dama()) {
            assigning.retune(dama.waveform);
        }
        self.channel.frame_error_ratio = frame_error_ratio(&self.config);
    }

    /// Next moment at which `pop` may have something, `None` while idle.
    ///
    /// It never passes over a release; a `pop` at that moment may still be in vain, for a frame can be lost or hold only
    /// part of a packet, and jitter comes on top.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        let due = self.channel.next_due().or_else(|| self.next_frame());
        let is_split = self.config.part != Part::Whole;
        let message = self
            .assigning
            .as_ref()
            .filter(|_| is_split)
            .map(Assigning::next_message);
        due.into_iter().chain(message).min()
    }

    /// When a frame that waits may have something for `pop`.
    fn next_frame(&self) -> Option<Nanos> {
        if self.is_idle() {
            return None;
        }
        let delay = self.config.part.delay(self.config.delay);
        let Some((start, end)) = self.opening() else {
            // The next superframe may bring a slot.
            let superframe = self.assigning.as_ref()?.next_superframe();
            return Some(superframe.saturating_add(delay));
        };
        // Until the frame opens, adaptive coding may make it shorter.
        let report = self.acm.as_ref().map(Loop::next_event);
        let report = report.filter(|&report| report <= start);
        Some(report.unwrap_or(end).saturating_add(delay))
    }

    /// Advances to `now`, moves the oldest packet due at or before `now` to `out` (cleared first) and gives its due time.
    pub fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<Nanos> {
        self.advance(now);
        let due = self.channel.pop(self.now, out)?;
        if matches!(self.config.part, Part::Whole | Part::Receiver) {
            self.ledger.release(due, out.len());
        }
        Some(due)
    }

    /// C/N that is left of the frames sent now, dB; `None`: reception is perfect.
    #[must_use]
    pub fn cn_db(&self) -> Option<f64> {
        let reception = self.config.reception.as_ref();
        reception.map(Reception::effective_cn_db)
    }

    /// What the link did up to the last `push`, `pop`, `set` or `advance`.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.ledger.counters
    }

    /// Keeps every event from now on, until [`Link::take_events`] fetches them. Memory grows with them: for tests and
    /// analysis, not for the real-time loop.
    pub fn record_events(&mut self) {
        self.ledger.log.get_or_insert_default();
    }

    /// Events recorded since the last call, in the order of their working off.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.ledger
            .log
            .as_mut()
            .map_or_else(Vec::new, std::mem::take)
    }

    /// Keeps every frame sent from now on, until [`Link::take_frames`] fetches them; memory as with
    /// [`Link::record_events`].
    pub fn record_frames(&mut self) {
        self.ledger.frames.get_or_insert_default();
    }

    /// Frames recorded since the last call, in the order of their sending.
    pub fn take_frames(&mut self) -> Vec<Frame> {
        self.ledger
            .frames
            .as_mut()
            .map_or_else(Vec::new, std::mem::take)
    }

    /// Bytes and packets that wait, the rest of a packet in fragmentation included.
    #[must_use]
    pub fn queue(&self) -> (u64, u64) {
        let pending = self.pending();
        let (bytes, packets) = self.queue.size();
        (bytes + pending, packets + u64::from(pending > 0))
    }

    fn pending(&self) -> u64 {
        let framed = self.framed.as_ref();
        framed.map_or(0, |framed| framed.air.pending()) as u64
    }

    fn is_idle(&self) -> bool {
        self.queue().1 == 0
    }

    /// On a wire a frame is a packet, so that losses of both units act.
    pub(crate) fn send_by_wire(&mut self, packet: &[u8]) {
        if self.channel.loses_frame(self.now) | self.channel.loses_packet(self.now) {
            self.ledger.lose(self.now, 1, packet.len() as u64);
        } else {
            self.channel.deliver(self.now, packet);
        }
    }
}

/// Frames of the part that sends; none on a wire.
fn framed(config: &LinkConfig) -> Option<Framed> {
    if config.part.takes_datagrams() {
        return None;
    }
    Framed::new(config, 0)
}

/// Decapsulation of the part that receives alone.
fn inlet(config: &LinkConfig) -> Option<Inlet> {
    if config.part != Part::Receiver {
        return None;
    }
    Inlet::new(&config.carrier)
}

/// What the terminal has to ask for, FIFO by FIFO.
fn levels(config: &LinkConfig, framed: &Framed, queue: &Fifos) -> Vec<Level> {
    let payload = config.carrier.frame_payload() as u64;
    let fifos = config.demand.iter().flat_map(|demand| &demand.fifos);
    let sizes = queue.levels(framed.air.pending() as u64);
    fifos
        .zip(sizes)
        .map(|(fifo, (bytes, packets))| Level {
            access: fifo.access,
            bytes: framed.air.on_air(bytes, packets, payload),
        })
        .collect()
}

/// Bytes between sender and receiver of a saturated carrier; 0 for a wire, where nothing bounds them.
fn bytes_in_flight(config: &LinkConfig) -> u64 {
    let openings = Grid::new(&config.carrier, 0).map_or(0.0, |grid| 2.0 * grid.spacing());
    let time = config.delay as f64 + openings + config.jitter.most_ns();
    let allowed = config.acm.iter().flat_map(|acm| &acm.allowed);
    let rate_bps = allowed
        .map(|&coding| config.carrier.with_coding(coding))
        .chain([config.carrier])
        .filter_map(|carrier| carrier.rate_bps())
        .fold(0.0, f64::max);
    (rate_bps / 8.0 * time / 1e9) as u64
}
