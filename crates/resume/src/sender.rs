// SPDX-License-Identifier: GPL-3.0-or-later
//! The phases of a sender over CUBIC. Numbers are those of 1-RTT packets; handshake packets have
//! lower ones.

use std::time::{Duration, Instant};

use crate::cubic::{BETA, Cubic};
use crate::observer::Observer;
use crate::phase::{Phase, PhaseUpdate, Trigger};
use crate::store::Parameters;

/// Largest jump, bytes (`max_jump`, RFC 9959 section 3.3).
pub const MAX_JUMP: u64 = 64 << 20;
/// A path whose round-trip time is at most this part of the saved one is another path (RFC 9959
/// section 3.2).
const SHORTER: u32 = 2;
/// So is one whose round-trip time is longer than this many saved ones (RFC 9959 section 4.2.1).
const LONGER: u32 = 10;
/// quinn's pacer sends a window in this share of a round trip.
const PACED_SHARE: f64 = 0.8;
/// Packets that quinn's pacer may send at once.
const BURST: u64 = 10;

/// What is done with saved parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// RFC 9959.
    Careful,
    /// The whole saved window from the first packet, without confirmation or retreat: a bad
    /// example, for comparisons.
    Unvalidated,
}

/// What the jump was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    /// Its window, bytes.
    pub bytes: u64,
    /// Bytes declared lost until its last packet was acknowledged.
    pub lost_bytes: u64,
    /// It was taken back.
    pub retreated: bool,
}

/// The initial window, once it is full.
#[derive(Debug, Clone, Copy)]
struct InitialFlight {
    /// Number of its last packet.
    last: u64,
    /// Bytes sent after it.
    later: u64,
}

/// The packets of the jump.
#[derive(Debug, Clone, Copy)]
struct Unvalidated {
    began: Instant,
    first: u64,
    /// Number of the last packet, and when it was sent.
    last: Option<(u64, Instant)>,
}

/// Congestion control of one path with Careful Resume.
#[derive(Debug, Clone)]
pub struct Sender {
    cubic: Cubic,
    mtu: u64,
    initial_window: u64,
    phase: Phase,
    saved: Option<Parameters>,
    /// Bytes in flight: exact after each acknowledgement, from then on sent less lost.
    flight: u64,
    largest_sent: Option<u64>,
    initial: Option<InitialFlight>,
    /// Bytes that the path is known to carry.
    pipe_size: u64,
    unvalidated: Option<Unvalidated>,
    /// Losses of packets sent until then are those of the jump that was taken back.
    retreated: Option<Instant>,
    jump: Option<Jump>,
    observer: Observer,
    rtt: Duration,
    updates: Vec<PhaseUpdate>,
}

impl Sender {
    /// A new connection with an initial window (bytes), packets of `mtu` bytes, and what was saved
    /// for its path.
    #[must_use]
    pub fn new(
        now: Instant,
        initial_window: u64,
        mtu: u16,
        saved: Option<Parameters>,
        mode: Mode,
    ) -> Self {
        let mut sender = Self {
            cubic: Cubic::new(initial_window, mtu),
            mtu: mtu.into(),
            initial_window,
            phase: Phase::Observe,
            saved,
            flight: 0,
            largest_sent: None,
            initial: None,
            pipe_size: 0,
            unvalidated: None,
            retreated: None,
            jump: None,
            observer: Observer::default(),
            rtt: Duration::ZERO,
            updates: Vec::new(),
        };
        match (saved, mode) {
            (None, _) => {}
            (Some(_), Mode::Careful) => {
                sender.phase = Phase::Reconnaissance;
                sender.updates.push(PhaseUpdate {
                    old: None,
                    ..sender.update(now, Phase::Reconnaissance, None)
                });
            }
            (Some(Parameters { cwnd_bytes, .. }), Mode::Unvalidated) => {
                sender.cubic.set(cwnd_bytes, u64::MAX);
                sender.phase = Phase::Normal;
            }
        }
        sender
    }

    /// Congestion window, bytes: most that may be in flight.
    #[must_use]
    pub fn window(&self) -> u64 {
        match (self.phase, self.jump) {
            (Phase::Unvalidated, Some(jump)) => jump.bytes,
            _ => self.cubic.window(),
        }
    }

    /// The window for a pacer that sends a window in 0.8 round trips. In a jump it is first 0.8 of
    /// the window and then opens with what is in flight: the jump takes 0.98 round trips (RFC 9959
    /// section 3.3: one).
    #[must_use]
    pub fn paced_window(&self) -> u64 {
        let window = self.window();
        if self.phase != Phase::Unvalidated {
            return window;
        }
        let begin = (window as f64 * PACED_SHARE) as u64;
        begin.max(window.min(self.flight + BURST * self.mtu))
    }

    /// Slow start threshold, bytes.
    #[must_use]
    pub fn ssthresh(&self) -> u64 {
        self.cubic.ssthresh()
    }

    /// Phase of the connection.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Bytes that the path is known to carry (`PipeSize`).
    #[must_use]
    pub fn pipe_size(&self) -> u64 {
        self.pipe_size
    }

    /// The jump, if there was one.
    #[must_use]
    pub fn jump(&self) -> Option<Jump> {
        self.jump
    }

    /// What is worth saving for this path.
    #[must_use]
    pub fn learned(&self) -> Option<Parameters> {
        self.observer.parameters(self.initial_window)
    }

    /// Returns the changes of the phase since the last call.
    pub fn take_updates(&mut self) -> Vec<PhaseUpdate> {
        std::mem::take(&mut self.updates)
    }

    /// Sets the packet size, bytes.
    pub fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu.into();
        self.cubic.set_mtu(mtu);
    }

    /// Packets up to number `last` are sent.
    pub fn sent(&mut self, now: Instant, bytes: u64, last: u64) {
        self.flight += bytes;
        self.largest_sent = self.largest_sent.max(Some(last));
        match self.phase {
            Phase::Reconnaissance => self.count_initial(bytes, last),
            Phase::Unvalidated if self.flight + self.mtu > self.window() => {
                self.end_jump(now, Trigger::LastUnvalidatedPacketSent);
            }
            Phase::Unvalidated => self.limit_jump(now),
            _ => {}
        }
    }

    fn count_initial(&mut self, bytes: u64, last: u64) {
        match &mut self.initial {
            Some(initial) => initial.later += bytes,
            None if self.flight + self.mtu > self.initial_window => {
                self.initial = Some(InitialFlight { last, later: 0 });
            }
            None => {}
        }
    }

    /// A packet sent at `sent` is acknowledged; `rtt` is the current round-trip time.
    pub fn acked(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: Duration,
    ) {
        self.rtt = rtt;
        self.flight = self.flight.saturating_sub(bytes);
        self.observer.acked(now, sent, bytes);
        if matches!(
            self.phase,
            Phase::Unvalidated | Phase::Validating | Phase::SafeRetreat
        ) {
            self.pipe_size += bytes;
        }
        if !matches!(self.phase, Phase::Unvalidated | Phase::SafeRetreat) {
            self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
        }
    }

    /// All packets of an acknowledgement were reported; `in_flight` is exact, `largest` the largest
    /// one acknowledged.
    pub fn end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest: Option<u64>,
    ) {
        self.flight = in_flight;
        self.observer.end_acks(now, app_limited);
        let has_acked = |number: u64| largest.is_some_and(|largest| largest >= number);
        let jump = self.unvalidated;
        match self.phase {
            Phase::Reconnaissance => {
                let is_confirmed = self
                    .initial
                    .is_some_and(|it| has_acked(it.last) && in_flight <= it.later);
                if is_confirmed && !app_limited {
                    self.confirm(now);
                }
            }
            Phase::Unvalidated if jump.is_some_and(|it| has_acked(it.first)) => {
                self.end_jump(now, Trigger::FirstUnvalidatedPacketAcknowledged);
            }
            Phase::Unvalidated => self.limit_jump(now),
            Phase::Validating | Phase::SafeRetreat => {
                let last = jump.and_then(|it| it.last);
                if last.is_some_and(|(number, _)| has_acked(number)) {
                    self.end_validation(now);
                }
            }
            Phase::Observe | Phase::Normal => {}
        }
    }

    /// Packets are lost (`lost_bytes` above 0) or marked (0); the newest one was sent at `sent`.
    pub fn congestion(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent: bool,
        lost_bytes: u64,
    ) {
        self.flight = self.flight.saturating_sub(lost_bytes);
        let trigger = match lost_bytes {
            0 => Trigger::EcnCe,
            _ => Trigger::PacketLoss,
        };
        let is_of_jump = self.is_of_jump(sent);
        if let (true, Some(jump)) = (is_of_jump, &mut self.jump) {
            jump.lost_bytes += lost_bytes;
        }
        if is_persistent {
            return self.stop(now, sent, trigger);
        }
        match self.phase {
            Phase::Reconnaissance => {
                self.cubic.on_congestion(now, sent, false);
                self.enter(now, Phase::Normal, Some(trigger));
            }
            Phase::Unvalidated | Phase::Validating => self.retreat(now, trigger),
            Phase::Normal if is_of_jump && self.retreated.is_none() => self.retreat(now, trigger),
            Phase::Normal if self.retreated.is_some_and(|until| sent <= until) => {}
            Phase::SafeRetreat => {}
            Phase::Observe | Phase::Normal => self.cubic.on_congestion(now, sent, false),
        }
    }

    /// A packet sent at `sent` belongs to the jump. Its loss may be found after its last packet was
    /// acknowledged.
    fn is_of_jump(&self, sent: Instant) -> bool {
        self.unvalidated.is_some_and(|jump| {
            jump.began <= sent && jump.last.is_none_or(|(_, until)| sent <= until)
        })
    }

    /// The initial window is acknowledged: jumps if the path is the saved one and something is
    /// gained.
    fn confirm(&mut self, now: Instant) {
        let (Some(saved), Some(rtt)) = (self.saved, self.observer.min_rtt()) else {
            return;
        };
        if rtt <= saved.rtt / SHORTER || rtt > saved.rtt * LONGER {
            return self.enter(now, Phase::Normal, Some(Trigger::RttNotValidated));
        }
        let bytes = MAX_JUMP.min(saved.cwnd_bytes / 2);
        if bytes <= self.cubic.window() {
            return self.enter(now, Phase::Normal, None);
        }
        self.start_jump(now, bytes);
    }

    fn start_jump(&mut self, now: Instant, bytes: u64) {
        self.pipe_size = self.flight;
        self.jump = Some(Jump {
            bytes,
            lost_bytes: 0,
            retreated: false,
        });
        self.unvalidated = Some(Unvalidated {
            began: now,
            first: self.largest_sent.map_or(0, |number| number + 1),
            last: None,
        });
        self.enter(now, Phase::Unvalidated, Some(Trigger::CwndLimited));
    }

    /// The jump takes a round trip at most.
    fn limit_jump(&mut self, now: Instant) {
        let began = self.unvalidated.map(|jump| jump.began);
        if began.is_some_and(|began| now.saturating_duration_since(began) > self.rtt) {
            self.end_jump(now, Trigger::RttExceeded);
        }
    }

    /// All of the jump is sent, as much as there was.
    fn end_jump(&mut self, now: Instant, trigger: Trigger) {
        self.mark_last(now);
        if self.flight < self.initial_window || self.flight <= self.pipe_size {
            let window = self.pipe_size.max(self.initial_window);
            self.cubic.set(window, u64::MAX);
            return self.enter(now, Phase::Normal, Some(Trigger::RateLimited));
        }
        self.cubic.set(self.flight, u64::MAX);
        self.enter(now, Phase::Validating, Some(trigger));
    }

    fn mark_last(&mut self, now: Instant) {
        if let (Some(jump), Some(number)) = (&mut self.unvalidated, self.largest_sent) {
            jump.last.get_or_insert((number, now));
        }
    }

    fn retreat(&mut self, now: Instant, trigger: Trigger) {
        self.mark_last(now);
        self.retreated = Some(now);
        if let Some(jump) = &mut self.jump {
            jump.retreated = true;
        }
        self.cubic.set(self.pipe_size / 2, u64::MAX);
        self.enter(now, Phase::SafeRetreat, Some(trigger));
    }

    /// The last packet of the jump is acknowledged.
    fn end_validation(&mut self, now: Instant) {
        let trigger = if self.phase == Phase::SafeRetreat {
            let ssthresh = (self.pipe_size as f64 * BETA) as u64;
            self.cubic
                .set(self.cubic.window(), ssthresh.max(self.cubic.minimum()));
            Trigger::ExitRecovery
        } else {
            Trigger::LastUnvalidatedPacketAcknowledged
        };
        self.enter(now, Phase::Normal, Some(trigger));
    }

    /// Persistent congestion ends Careful Resume.
    fn stop(&mut self, now: Instant, sent: Instant, trigger: Trigger) {
        let is_resuming = !matches!(self.phase, Phase::Observe | Phase::Normal);
        self.cubic.on_congestion(now, sent, true);
        if is_resuming {
            if let Some(jump) = &mut self.jump {
                jump.retreated = true;
                self.retreated = Some(now);
            }
            self.enter(now, Phase::Normal, Some(trigger));
        }
    }

    fn enter(&mut self, now: Instant, phase: Phase, trigger: Option<Trigger>) {
        let old = std::mem::replace(&mut self.phase, phase);
        let update = self.update(now, phase, trigger);
        self.updates.push(PhaseUpdate {
            old: Some(old),
            ..update
        });
    }

    fn update(&self, at: Instant, new: Phase, trigger: Option<Trigger>) -> PhaseUpdate {
        let ssthresh = self.cubic.ssthresh();
        PhaseUpdate {
            at,
            old: None,
            new,
            pipe_size: self.pipe_size,
            first_unvalidated: self.unvalidated.map(|jump| jump.first),
            last_unvalidated: self.unvalidated.and_then(|jump| Some(jump.last?.0)),
            window: self.window(),
            ssthresh: (ssthresh < u64::MAX).then_some(ssthresh),
            restored: self.saved,
            trigger,
        }
    }
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
