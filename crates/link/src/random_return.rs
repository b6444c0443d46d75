// SPDX-License-Identifier: GPL-3.0-or-later
//! A return carrier without assignment: its terminals send in slots that they draw, and bursts that
//! meet are lost.

use crate::change::{Waiting, changed};
use crate::channel::{Channel, frame_error_ratio};
use crate::config::{LinkConfig, LinkError};
use crate::departing_terminal::Leaving;
use crate::event_queue::EventQueue;
use crate::impairments::Impairing;
use crate::jitter::Jittering;
use crate::ledger::{Counters, Ledger};
use crate::loss::Losses;
use crate::queue::{FifoState, Fifos};
use crate::random::{Process, fraction, generator};
use crate::random_access::{Piece, RandomAccess, SaFrame, Sending};
use crate::shared_carrier::{ReturnCarrier, SharedCarrier};
use crate::shared_forward::MOST_TERMINALS;
use crate::stage::Accepted;
use crate::{Change, Nanos, Volume};
use dvb::aloha::{Receiver, decode};
use rand_pcg::Pcg64;

/// The return link of one terminal or several on a carrier with random access
/// ([`LinkConfig::random_access`]).
///
/// At the start of an SA frame each terminal takes what it sends: what was lost before, then
/// packets that wait. A packet comes out when all its bursts were decoded, with a cancelling
/// receiver at the end of an SA frame, also before one that was sent earlier. None comes out twice.
#[derive(Debug)]
pub struct RandomReturn {
    terminals: Vec<Station>,
    receiver: Receiver,
    /// Number of the next SA frame; it starts at this multiple of its length.
    next: u64,
    /// Times at which packets of each terminal are due.
    due: EventQueue,
    /// All slots of an SA frame, in some order: terminals draw from it.
    slots: Vec<u32>,
    now: Nanos,
}

#[derive(Debug)]
struct Station {
    config: LinkConfig,
    access: RandomAccess,
    frame: SaFrame,
    queue: Fifos,
    sending: Sending,
    channel: Channel,
    ledger: Ledger,
    random: Pcg64,
    /// Number of changes so far. Each change starts new random generators.
    generation: u64,
}

/// A burst of an SA frame, with the slots of those replicas that reach the gateway.
struct Burst {
    terminal: usize,
    piece: Piece,
    replicas: Vec<u32>,
}

impl Station {
    fn new(config: &LinkConfig) -> Result<Self, LinkError> {
        config.check()?;
        let access = config
            .random_access
            .as_ref()
            .ok_or(LinkError::RandomAccess)?;
        Ok(Self {
            frame: SaFrame::new(&config.carrier, access).ok_or(LinkError::RandomAccess)?,
            queue: Fifos::new(config, config.queue, 0),
            sending: Sending::new(*access),
            access: *access,
            channel: Channel::new(config),
            ledger: Ledger::default(),
            random: generator(config.seed, Process::Access, 0),
            generation: 0,
            config: config.clone(),
        })
    }

    fn is_idle(&self) -> bool {
        self.queue.size().packets == 0 && self.sending.is_idle()
    }

    /// The pieces that it sends in SA frame `number`, at `start`.
    fn take(&mut self, number: u64, start: Nanos) -> Vec<Piece> {
        let most = self.frame.slots / self.access.replicas;
        let Self {
            queue,
            sending,
            ledger,
            random,
            frame,
            ..
        } = self;
        let lose = |packet: &[u8]| ledger.lose(start, 1, packet.len() as u64);
        sending.learn((number, start), || fraction(random), lose);
        if !sending.is_ready(number) {
            return Vec::new();
        }
        let mut packet = Vec::new();
        while sending.has_room() && queue.pop(start, &mut packet, ledger) {
            let pieces = frame.bursts(packet.len());
            sending.add(std::mem::take(&mut packet), pieces);
        }
        sending.take(most as usize)
    }

    /// Draws the slots of `pieces` and sends them in the SA frame that starts at `start`.
    fn send(
        &mut self,
        start: Nanos,
        (terminal, pieces): (usize, Vec<Piece>),
        slots: &mut [u32],
    ) -> Vec<Burst> {
        let replicas = self.access.replicas;
        // A shuffle cut short (Durstenfeld, CACM 7(7), 1964): all slots of a terminal differ.
        let count = pieces.len() * replicas as usize;
        for place in 0..count {
            let rest = (slots.len() - place) as f64;
            slots.swap(place, place + (fraction(&mut self.random) * rest) as usize);
        }
        let mut drawn: Vec<_> = slots[..count].iter().copied().zip(0..).collect();
        drawn.sort_unstable();
        let burst = |piece| Burst {
            terminal,
            piece,
            replicas: Vec::new(),
        };
        let mut bursts: Vec<_> = pieces.into_iter().map(burst).collect();
        let payload = vec![0; self.frame.payload];
        let id = self.config.carrier.waveform_id();
        for (slot, index) in drawn {
            let at = start + self.frame.start(slot);
            self.ledger.frame(at, id, payload.len(), &payload);
            if !self.channel.loses_frame(at + self.frame.burst) {
                bursts[index / replicas as usize].replicas.push(slot);
            }
        }
        bursts
    }

    /// A piece was decoded at `at`; the packet comes out if it is whole.
    fn receive(&mut self, piece: Piece, at: Nanos) {
        let known = at.saturating_add(2 * self.channel.delay);
        let Some(whole) = self.sending.decoded(piece, known) else {
            return;
        };
        if self.channel.loses_packet(at) {
            self.ledger.lose(at, 1, whole.bytes.len() as u64);
        } else {
            let counters = &mut self.ledger.counters;
            self.channel.deliver(at, &whole.bytes, counters);
        }
    }
}

impl RandomReturn {
    /// Idle terminals at time 0. Each has the configuration of its own link; carrier but for the
    /// waveform, delay, SA frame and receiver are the same.
    ///
    /// # Errors
    /// A configuration cannot be a link, or they cannot share a carrier.
    pub fn new(terminals: &[LinkConfig]) -> Result<Self, LinkError> {
        let first = terminals.first().ok_or(LinkError::Shared)?;
        let access = first.random_access.ok_or(LinkError::RandomAccess)?;
        let frame = |it: &LinkConfig| {
            let mut frame = SaFrame::new(&it.carrier, it.random_access.as_ref()?)?;
            frame.payload = 0;
            Some(frame)
        };
        let slots = frame(first).ok_or(LinkError::RandomAccess)?.slots;
        let receiver = |it: &LinkConfig| it.random_access.map(|it| it.receiver);
        let is_shared = |it: &LinkConfig| {
            (frame(it), receiver(it), it.delay)
                == (frame(first), Some(access.receiver), first.delay)
        };
        if terminals.len() > MOST_TERMINALS || !terminals.iter().all(is_shared) {
            return Err(LinkError::Shared);
        }
        let stations = terminals.iter().map(Station::new);
        Ok(Self {
            terminals: stations.collect::<Result<_, _>>()?,
            receiver: access.receiver,
            next: 0,
            due: EventQueue::new(terminals.len()),
            slots: (0..slots).collect(),
            now: 0,
        })
    }

    fn length(&self) -> Nanos {
        self.terminals[0].frame.length
    }

    /// Works off the SA frame that starts at `start`.
    fn send(&mut self, start: Nanos) {
        let mut bursts = Vec::new();
        for (index, station) in self.terminals.iter_mut().enumerate() {
            if station.is_idle() {
                continue;
            }
            let pieces = station.take(self.next, start);
            bursts.extend(station.send(start, (index, pieces), &mut self.slots));
        }
        let slots: Vec<_> = bursts
            .iter_mut()
            .map(|it| std::mem::take(&mut it.replicas))
            .collect();
        let decoded = decode(self.slots.len() as u32, &slots, self.receiver);
        let mut came = Vec::new();
        for (burst, slot) in bursts.into_iter().zip(decoded) {
            let station = &mut self.terminals[burst.terminal];
            let frame = station.frame;
            let end = start.saturating_add(frame.length);
            if let Some(slot) = slot {
                let at = match self.receiver {
                    Receiver::Diversity => start + frame.start(slot) + frame.burst,
                    Receiver::Cancelling => end,
                };
                came.push((at, burst));
            } else {
                station.ledger.counters.frames_lost += u64::from(station.access.replicas);
                // An acknowledgement would be there by the start of an SA frame.
                let loops = (frame.length + 2 * station.channel.delay).div_ceil(frame.length);
                let timeout = loops.max(station.access.timeout.into());
                let known = start.saturating_add(timeout.saturating_mul(frame.length));
                station.sending.missed(burst.piece, known);
            }
        }
        came.sort_by_key(|it| it.0);
        for (at, burst) in came {
            let station = &mut self.terminals[burst.terminal];
            station.receive(burst.piece, at);
            self.due.set(burst.terminal, station.channel.next_due());
        }
    }
}

impl SharedCarrier for RandomReturn {
    fn push(&mut self, now: Nanos, terminal: usize, packet: &[u8]) -> Accepted {
        self.advance(now);
        let station = &mut self.terminals[terminal];
        station.ledger.offer(self.now, packet.len());
        let is_ip = matches!(packet.first().map(|byte| byte >> 4), Some(4 | 6));
        if !is_ip || packet.len() > dvb::rle::MAX_SDU {
            station.ledger.drop(self.now, packet.len());
            return Accepted::Dropped;
        }
        if station.queue.push(self.now, packet, 0, &mut station.ledger) {
            Accepted::Queued
        } else {
            Accepted::Dropped
        }
    }

    fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        loop {
            if self.terminals.iter().all(Station::is_idle) {
                // SA frames without bursts have passed.
                self.next = self.next.max(self.now.div_ceil(self.length()));
            }
            let start = self.next.saturating_mul(self.length());
            if start >= self.now {
                return;
            }
            self.send(start);
            self.next += 1;
        }
    }

    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<(Nanos, usize)> {
        self.advance(now);
        let (_, index) = self.due.next().filter(|&(at, _)| at <= self.now)?;
        let station = &mut self.terminals[index];
        let due = station.channel.pop(self.now, out)?;
        station.ledger.release(due, out.len());
        self.due.set(index, station.channel.next_due());
        Some((due, index))
    }

    fn next_event(&self) -> Option<Nanos> {
        let is_busy = !self.terminals.iter().all(Station::is_idle);
        // What starts then is worked off after it.
        let frame = is_busy.then(|| self.next.saturating_mul(self.length()).saturating_add(1));
        let due = self.due.next().map(|(at, _)| at);
        due.into_iter().chain(frame).min()
    }

    /// Advances to `now` and changes the link of a terminal: its delay, losses, jitter,
    /// impairments, outage, `Es/N0` or attenuation.
    fn set(&mut self, now: Nanos, terminal: usize, change: &Change) -> Result<(), LinkError> {
        self.advance(now);
        let station = &mut self.terminals[terminal];
        match change {
            Change::Delay(_)
            | Change::Losses(_)
            | Change::Jitter(_)
            | Change::Impairment(_)
            | Change::Outage(_)
            | Change::EsN0(_)
            | Change::Attenuation(_) => {}
            // There are none.
            Change::Plans(_) => return Ok(()),
            _ => return Err(LinkError::RandomChange),
        }
        let config = changed(&station.config, change)?;
        config.check()?;
        station.generation += 1;
        let (channel, seed, generation) = (&mut station.channel, config.seed, station.generation);
        match change {
            Change::Delay(delay) => channel.delay = *delay,
            Change::Losses(losses) => channel.losses = Losses::new(losses, seed, generation),
            Change::Jitter(jitter) => channel.jitter = Jittering::new(*jitter, seed, generation),
            Change::Impairment(_) => {
                channel.impair(Impairing::new(config.impairments, seed, generation));
            }
            Change::Outage(is_down) => channel.is_down = *is_down,
            _ => channel.frame_error_ratio = frame_error_ratio(&config),
        }
        station.config = config;
        Ok(())
    }

    fn check(&self, _: Option<usize>, _: &LinkConfig) -> Result<(), LinkError> {
        Err(LinkError::RandomAccess)
    }

    fn leave(&mut self, _: Nanos, _: usize, _: Waiting) -> Result<Leaving, LinkError> {
        Err(LinkError::Shared)
    }

    fn join(
        &mut self,
        _: Nanos,
        _: Option<usize>,
        _: &LinkConfig,
        _: Leaving,
    ) -> Result<usize, LinkError> {
        Err(LinkError::RandomAccess)
    }

    /// What waits at a terminal, or is on its way and not yet decoded.
    fn queue(&self, terminal: usize) -> Volume {
        let station = &self.terminals[terminal];
        station.queue.size() + station.sending.size()
    }

    fn fifos(&mut self, terminal: usize) -> Vec<FifoState> {
        self.terminals[terminal].queue.states(0)
    }

    fn config(&self, terminal: usize) -> &LinkConfig {
        &self.terminals[terminal].config
    }
}

impl ReturnCarrier for RandomReturn {
    /// Counters of a terminal up to `now`: frames are bursts with their replicas, lost ones those
    /// of a burst that was not decoded. There are no superframes and slots of its own.
    fn counters(&mut self, now: Nanos, terminal: usize) -> Counters {
        self.advance(now);
        self.terminals[terminal].ledger.counters
    }

    fn superframes(&mut self, now: Nanos) -> Counters {
        self.counters(now, 0)
    }

    fn next_plan(&self) -> Option<Nanos> {
        None
    }
}
