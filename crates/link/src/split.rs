// SPDX-License-Identifier: GPL-3.0-or-later
//! The roles of a direction whose ends are processes of their own, joined by [`Datagram`]s: the
//! sender's frames leave at their end, the satellite passes them on, the receiver has losses of
//! packets, delay and jitter.

use crate::change::Change;
use crate::config::{LinkConfig, LinkError};
use crate::datagram::{Datagram, HEADER};
use crate::direction_state::{Adapted, DirectionState};
use crate::frame_format::Decapsulator;
use crate::frame_output::{FrameOutput, Sent};
use crate::slot_assignment::{Assigning, Stations, Step};
use crate::stage::{Accepted, Stage};
use crate::terminal_queues::total;
use crate::transmitter::Transmitter;
use crate::{Carrier, Nanos};
use dvb::dama::Request;

/// Packets in, datagrams out: queue, frames, and losses of frames, outages and reception among
/// them.
pub type Sender = Transmitter<Numbered>;

/// Numbers the frames of a [`Sender`] and sends them off.
#[derive(Debug)]
pub struct Numbered {
    session: u32,
    sequence: u32,
    datagram: Vec<u8>,
}

impl Sender {
    /// An idle sender at time 0. `session` differs from start to start.
    ///
    /// # Errors
    /// The configuration cannot be a link, or has no frames.
    pub fn new(config: LinkConfig, session: u32) -> Result<Self, LinkError> {
        has_frames(&config.carrier)?;
        let exit = Numbered {
            session,
            sequence: 0,
            datagram: Vec::new(),
        };
        Self::with_exit(config, Stations::Terminal, exit)
    }
}

impl FrameOutput for Numbered {
    const IS_LOCAL: bool = false;

    fn deliver(&mut self, sent: &Sent<'_>, core: &mut DirectionState) {
        // A plan alone leaves by a datagram of its own.
        if total(sent.parts).used > 0 {
            let frame = Datagram::Frame {
                session: self.session,
                sequence: self.sequence,
                payload: sent.frame,
            };
            frame.write(&mut self.datagram);
            core.channel.pass(sent.end, &self.datagram);
            self.miss();
        }
    }

    /// A lost frame takes its number and is not sent.
    fn miss(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
    }

    fn request(&mut self, request: Request, end: Nanos, core: &mut DirectionState) {
        let mut datagram = Vec::new();
        Datagram::Request(request).write(&mut datagram);
        core.channel.pass(end, &datagram);
    }

    fn send_unframed(&mut self, _: Nanos, packet: &[u8], core: &mut DirectionState) {
        core.ledger.drop(core.now, packet.len());
    }

    /// Does not restart the numbers, because the receiver would take frames from 0 for old frames.
    fn renew(&mut self, _: &Carrier) {}
}

/// The transparent satellite, which sends each datagram on at once.
#[derive(Debug)]
pub struct Relay(DirectionState);

/// The receiving side, which takes packets out of datagrams. With demand assignment it has the
/// planner and the other terminals.
#[derive(Debug)]
pub struct Receiver {
    core: DirectionState,
    decapsulator: Decapsulator,
    /// Session and the number that comes next.
    expected: Option<(u32, u32)>,
}

impl Relay {
    /// A satellite at time 0.
    ///
    /// # Errors
    /// The configuration cannot be a link.
    pub fn new(config: LinkConfig) -> Result<Self, LinkError> {
        DirectionState::new(config, Stations::Satellite).map(Self)
    }

    /// Advances to `now` and passes on what is a frame, a request or a plan.
    pub fn push(&mut self, now: Nanos, datagram: &[u8]) -> Accepted {
        self.advance(now);
        match Datagram::parse(datagram) {
            Ok(Datagram::Frame { payload, .. }) => self.0.ledger.receive(payload.len(), 0),
            Ok(Datagram::Request(_) | Datagram::Plan { .. }) => {}
            Ok(Datagram::Hello) | Err(_) => return Accepted::Dropped,
        }
        self.0.channel.pass(self.0.now, datagram);
        Accepted::Queued
    }
}

impl Receiver {
    /// An idle receiver at time 0.
    ///
    /// # Errors
    /// The configuration cannot be a link, or has no frames.
    pub fn new(config: LinkConfig) -> Result<Self, LinkError> {
        let decapsulator = has_frames(&config.carrier)?;
        Ok(Self {
            core: DirectionState::new(config, Stations::Gateway)?,
            decapsulator,
            expected: None,
        })
    }

    /// Advances to `now` and takes a datagram.
    pub fn push(&mut self, now: Nanos, datagram: &[u8]) -> Accepted {
        self.advance(now);
        let (payload, missed) = match Datagram::parse(datagram) {
            Ok(Datagram::Request(request)) => {
                let Some(assigning) = &mut self.core.assigning else {
                    return Accepted::Dropped;
                };
                let at = self.core.now.saturating_add(self.core.channel.delay);
                assigning.receive_request(at, request);
                return Accepted::Queued;
            }
            Ok(Datagram::Frame {
                session,
                sequence,
                payload,
            }) => match self.missed(session, sequence) {
                Some(missed) => (payload, missed),
                None => return Accepted::Dropped,
            },
            _ => return Accepted::Dropped,
        };
        let (channel, now) = (&mut self.core.channel, self.core.now);
        let counters = &mut self.core.ledger.counters;
        let mut lost = (0, 0);
        self.decapsulator.receive(payload, |packet| {
            if channel.loses_packet(now) {
                lost = (lost.0 + 1, lost.1 + packet.len() as u64);
            } else {
                channel.deliver(now, packet, counters);
            }
        });
        self.core.ledger.lose(now, lost.0, lost.1);
        self.core.ledger.receive(datagram.len() - HEADER, missed);
        Accepted::Queued
    }

    /// Frames missed since the one before; `None` for a frame that was overtaken or came twice.
    fn missed(&mut self, session: u32, sequence: u32) -> Option<u32> {
        let missed = match self.expected {
            Some((known, next)) if known == session => sequence.wrapping_sub(next),
            // The sender has started anew: what was open will never be complete, and what went
            // before is unknown.
            Some(_) => {
                self.decapsulator.miss();
                0
            }
            None => 0,
        };
        if missed > u32::MAX / 2 {
            return None;
        }
        if missed > 0 {
            self.decapsulator.miss();
        }
        self.expected = Some((session, sequence.wrapping_add(1)));
        Some(missed)
    }
}

/// The receiver of a carrier's frames.
fn has_frames(carrier: &Carrier) -> Result<Decapsulator, LinkError> {
    Decapsulator::new(carrier).ok_or(LinkError::NoFrames)
}

impl Stage for Relay {
    fn core(&self) -> &DirectionState {
        &self.0
    }

    fn core_mut(&mut self) -> &mut DirectionState {
        &mut self.0
    }

    fn advance(&mut self, now: Nanos) {
        self.0.now = self.0.now.max(now);
        while self.0.adapt(None) != Adapted::Nothing {}
    }

    fn offer(&mut self, now: Nanos, datagram: &[u8]) {
        let _: Accepted = self.push(now, datagram);
    }
}

impl Stage for Receiver {
    fn core(&self) -> &DirectionState {
        &self.core
    }

    fn core_mut(&mut self) -> &mut DirectionState {
        &mut self.core
    }

    fn advance(&mut self, now: Nanos) {
        let core = &mut self.core;
        core.now = core.now.max(now);
        while core.adapt(None) != Adapted::Nothing {}
        let Some(assigning) = &mut core.assigning else {
            return;
        };
        while assigning.next_event() < core.now {
            if assigning.step(core.channel.delay, Vec::new) == Step::PlanLost {
                core.ledger.counters.plans_lost += 1;
            }
        }
    }

    fn offer(&mut self, now: Nanos, datagram: &[u8]) {
        let _: Accepted = self.push(now, datagram);
    }

    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<Nanos> {
        self.advance(now);
        let due = self.core.channel.pop(self.core.now, out)?;
        self.core.ledger.release(due, out.len());
        Some(due)
    }

    fn set(&mut self, now: Nanos, change: &Change) -> Result<(), LinkError> {
        self.advance(now);
        let renewed = match change {
            Change::Handover(handover) => Some(has_frames(&handover.carrier)?),
            _ => None,
        };
        self.core.reconfigure(change)?;
        self.core.apply(change);
        if let Some(decapsulator) = renewed {
            self.decapsulator = decapsulator;
        }
        Ok(())
    }

    fn next_event(&self) -> Option<Nanos> {
        let assigning = self.core.assigning.as_ref();
        let message = assigning.and_then(Assigning::next_message);
        self.core
            .channel
            .next_due()
            .into_iter()
            .chain(message)
            .min()
    }

    fn take_plan(&mut self, out: &mut Vec<u8>) -> bool {
        let plan = self.core.assigning.as_mut().and_then(Assigning::take_plan);
        out.clear();
        out.extend(plan.iter().flatten());
        plan.is_some()
    }
}
