// SPDX-License-Identifier: GPL-3.0-or-later
//! The state machine of one direction.

use crate::air::Air;
use crate::grid::Grid;
use crate::loss::Bernoulli;
use crate::ring::Ring;
use crate::{LinkConfig, LinkError, LossUnit, Nanos};
use dvb::sdu::Filled;

/// What became of a packet that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Waits for the carrier.
    Queued,
    /// The queue was full, or the carrier cannot carry the packet: no IP, empty, or too long for GSE or RLE.
    Dropped,
}

/// What a link did since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub packets_in: u64,
    /// Bytes offered.
    pub bytes_in: u64,
    /// Packets handed out by `pop`.
    pub packets_out: u64,
    /// Bytes handed out by `pop`.
    pub bytes_out: u64,
    /// Packets dropped at the queue.
    pub packets_dropped: u64,
    /// Bytes dropped at the queue.
    pub bytes_dropped: u64,
    /// Packets lost on air, by either loss unit.
    pub packets_lost: u64,
    /// Bytes of these packets.
    pub bytes_lost: u64,
    /// BBFRAMEs or bursts sent.
    pub frames_sent: u64,
    /// Frames lost, contained in `frames_sent`.
    pub frames_lost: u64,
    /// Payload bytes offered by the frames sent.
    pub frame_bytes_available: u64,
    /// Bytes of these that are not padding.
    pub frame_bytes_used: u64,
}

impl Counters {
    fn lose(&mut self, packets: u64, bytes: u64) {
        self.packets_lost += packets;
        self.bytes_lost += bytes;
    }
}

/// The carrier of a link that has frames.
#[derive(Debug)]
struct Framed {
    grid: Grid,
    air: Air,
    /// Next frame that may open.
    next: u64,
    /// Payload of the frame in hand, kept to save the allocation.
    frame: Vec<u8>,
}

/// One direction of a link.
///
/// Frames open at fixed times whether the caller is punctual or not: a call first works off all that should have happened
/// before its `now`. A packet pushed at `now` can enter a frame that opens at `now` or later. A `now` before an earlier
/// one is taken as the earlier one.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    loss: Bernoulli,
    framed: Option<Framed>,
    queue: Ring,
    in_flight: Ring,
    now: Nanos,
    counters: Counters,
}

impl Link {
    /// An idle link at time 0.
    ///
    /// # Errors
    /// The configuration cannot be a link.
    pub fn new(config: LinkConfig) -> Result<Self, LinkError> {
        config.check()?;
        let carrier = &config.carrier;
        let framed = Grid::new(carrier)
            .zip(Air::new(carrier))
            .map(|(grid, air)| Framed {
                grid,
                air,
                next: 0,
                frame: vec![0; carrier.frame_payload()],
            });
        Ok(Self {
            loss: Bernoulli::new(config.loss.ratio, config.seed),
            framed,
            queue: Ring::for_bytes(config.queue_bytes),
            in_flight: Ring::for_bytes(bytes_in_flight(&config)),
            now: 0,
            counters: Counters::default(),
            config,
        })
    }

    /// What this link was asked to be.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Advances to `now` and offers one packet of 1 to 65 535 bytes.
    pub fn push(&mut self, now: Nanos, packet: &[u8]) -> Accepted {
        self.advance(now);
        let len = packet.len() as u64;
        self.counters.packets_in += 1;
        self.counters.bytes_in += len;
        if !self.has_room_for(packet) {
            self.counters.packets_dropped += 1;
            self.counters.bytes_dropped += len;
            return Accepted::Dropped;
        }
        let idle = self.is_idle();
        match &mut self.framed {
            Some(framed) => {
                if idle {
                    framed.next = framed.next.max(framed.grid.first_from(self.now));
                }
                self.queue.push(self.now, packet);
            }
            None if self.loss.next() => self.counters.lose(1, len),
            None => self
                .in_flight
                .push(self.now.saturating_add(self.config.delay), packet),
        }
        Accepted::Queued
    }

    /// Works off what happens before `now`. `push` and `pop` do this themselves; useful before reading the counters.
    pub fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        while !self.is_idle() {
            let Some(framed) = &mut self.framed else {
                return;
            };
            if framed.grid.start(framed.next) >= self.now {
                return;
            }
            self.send_frame();
        }
    }

    /// Next moment at which `pop` may have something, `None` while idle.
    ///
    /// It never passes over a release; a `pop` at that moment may still be in vain, for a frame can be lost or hold only
    /// part of a packet.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        self.in_flight.front().or_else(|| {
            let framed = self.framed.as_ref().filter(|_| !self.is_idle())?;
            Some(
                framed
                    .grid
                    .end(framed.next)
                    .saturating_add(self.config.delay),
            )
        })
    }

    /// Advances to `now`, moves the oldest packet due at or before `now` to `out` (cleared first) and gives its due time.
    pub fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<Nanos> {
        self.advance(now);
        self.in_flight.front().filter(|&due| due <= self.now)?;
        let due = self.in_flight.pop(out)?;
        self.counters.packets_out += 1;
        self.counters.bytes_out += out.len() as u64;
        Some(due)
    }

    /// What the link did up to the last `push`, `pop` or `advance`.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes and packets that wait, the rest of a packet in fragmentation included.
    #[must_use]
    pub fn queue(&self) -> (u64, u64) {
        let pending = self
            .framed
            .as_ref()
            .map_or(0, |framed| framed.air.pending()) as u64;
        let (bytes, packets) = self.queue.size();
        (bytes + pending, packets + u64::from(pending > 0))
    }

    fn is_idle(&self) -> bool {
        self.queue().1 == 0
    }

    fn has_room_for(&self, packet: &[u8]) -> bool {
        match &self.framed {
            Some(framed) => {
                framed.air.accepts(packet)
                    && self.queue().0 + packet.len() as u64 <= self.config.queue_bytes
            }
            None => (1..=65_535).contains(&packet.len()),
        }
    }

    /// Sends the next frame of the grid, filled with what is queued.
    fn send_frame(&mut self) {
        let Some(Framed {
            grid,
            air,
            next,
            frame,
        }) = &mut self.framed
        else {
            return;
        };
        let due = grid.end(*next).saturating_add(self.config.delay);
        *next += 1;
        let filled = air.fill(frame, |packet| self.queue.pop(packet).is_some());
        self.counters.frames_sent += 1;
        self.counters.frame_bytes_available += frame.len() as u64;
        self.counters.frame_bytes_used += filled.used as u64;
        if self.config.loss.unit == LossUnit::Frame && self.loss.next() {
            self.counters.frames_lost += 1;
            self.counters.lose(filled.packets, filled.bytes);
            air.miss();
            return;
        }
        let mut kept = Filled::default();
        air.receive(frame, |packet| {
            if self.config.loss.unit == LossUnit::Packet && self.loss.next() {
                return;
            }
            kept.packets += 1;
            kept.bytes += packet.len() as u64;
            self.in_flight.push(due, packet);
        });
        // Packets come out in the frame that holds their last byte, or never.
        self.counters
            .lose(filled.packets - kept.packets, filled.bytes - kept.bytes);
    }
}

/// Bytes between sender and receiver of a saturated carrier; 0 for a wire, where nothing bounds them.
fn bytes_in_flight(config: &LinkConfig) -> u64 {
    let time = config
        .delay
        .saturating_add(2 * config.carrier.frame_duration());
    (config.carrier.rate_bps().unwrap_or(0.0) / 8.0 * time as f64 / 1e9) as u64
}
