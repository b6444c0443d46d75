// SPDX-License-Identifier: GPL-3.0-or-later
//! Careful Resume as a congestion controller of quinn. What its interface does not permit:
//! - a pacing rate: see [`Sender::paced_window`];
//! - one packet at once in Safe Retreat: nothing is sent until the flight is below the window;
//! - the change of the peer's port alone (a rebinding NAT) looks like no change of the path.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

use crate::phase::{Phase, PhaseUpdate, Trigger};
use crate::sender::{Jump, Mode, Sender};
use crate::store::Parameters;

/// How a connection starts.
#[derive(Debug, Clone, Copy)]
pub struct Started {
    /// Initial window, bytes.
    pub initial_window: u64,
    /// What was saved for its path.
    pub saved: Option<Parameters>,
    /// What is done with it.
    pub mode: Mode,
}

/// What is known of the controllers of a connection.
#[derive(Debug, Default)]
struct Record {
    has_path: bool,
    updates: Vec<PhaseUpdate>,
    phase: Option<Phase>,
    learned: Option<Parameters>,
    jump: Option<Jump>,
    /// The path changed: neither what was saved nor what was learned before is of the path in use.
    path_changed: bool,
}

/// One connection: makes its controller, and has what it reports.
#[derive(Debug, Clone)]
pub struct Resumption {
    started: Started,
    record: Arc<Mutex<Record>>,
}

impl Resumption {
    /// A connection that starts.
    #[must_use]
    pub fn new(started: Started) -> Self {
        Self {
            started,
            record: Arc::default(),
        }
    }

    /// Changes of the phase since the last call.
    #[must_use]
    pub fn take_updates(&self) -> Vec<PhaseUpdate> {
        std::mem::take(&mut self.record().updates)
    }

    /// What the connection learned about its path.
    #[must_use]
    pub fn learned(&self) -> Option<Parameters> {
        let record = self.record();
        record.learned.filter(|_| !record.path_changed)
    }

    /// The jump, if there was one.
    #[must_use]
    pub fn jump(&self) -> Option<Jump> {
        self.record().jump
    }

    /// What was saved may be used again: neither a retreat nor another path spoke against it.
    #[must_use]
    pub fn is_saved_valid(&self) -> bool {
        let record = self.record();
        !record.path_changed && !record.jump.is_some_and(|jump| jump.retreated)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        // A record is complete after each statement.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, sender: &mut Sender) {
        let mut record = self.record();
        record.updates.append(&mut sender.take_updates());
        record.phase = Some(sender.phase());
        record.learned = sender.learned();
        record.jump = sender.jump();
    }

    /// The controller of the first path, or of another one: that starts without what was saved.
    fn sender(&self, now: Instant, mtu: u16) -> Sender {
        let Started {
            initial_window,
            mut saved,
            mode,
        } = self.started;
        {
            let mut record = self.record();
            if std::mem::replace(&mut record.has_path, true) {
                saved = None;
                record.path_changed = true;
                if let Some(old) = record.phase.filter(|phase| *phase != Phase::Observe) {
                    record.updates.push(PhaseUpdate {
                        at: now,
                        old: Some(old),
                        new: Phase::Normal,
                        pipe_size: 0,
                        first_unvalidated: None,
                        last_unvalidated: None,
                        window: initial_window,
                        ssthresh: None,
                        restored: None,
                        trigger: Some(Trigger::PathChanged),
                    });
                }
            }
        }
        let mut sender = Sender::new(now, initial_window, mtu, saved, mode);
        self.note(&mut sender);
        sender
    }
}

impl ControllerFactory for Resumption {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(CarefulResume {
            sender: self.sender(now, current_mtu),
            connection: Self::clone(&self),
        })
    }
}

/// The controller of one path.
#[derive(Debug, Clone)]
struct CarefulResume {
    sender: Sender,
    connection: Resumption,
}

impl Controller for CarefulResume {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.sender.sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.sender.acked(now, sent, bytes, app_limited, rtt.get());
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.sender
            .end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        self.connection.note(&mut self.sender);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.sender
            .congestion(now, sent, is_persistent_congestion, lost_bytes);
        self.connection.note(&mut self.sender);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.sender.set_mtu(new_mtu);
    }

    /// quinn sends only what leaves at least one byte of the window free.
    fn window(&self) -> u64 {
        self.sender.paced_window() + 1
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.sender.window();
        metrics.ssthresh = Some(self.sender.ssthresh());
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.connection.started.initial_window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn resumption() -> Resumption {
        Resumption::new(Started {
            initial_window: 12_000,
            saved: Some(Parameters {
                cwnd_bytes: 4_000_000,
                rtt: Duration::from_millis(650),
            }),
            mode: Mode::Careful,
        })
    }

    #[test]
    fn another_path_does_not_use_what_was_saved() {
        let (now, connection) = (Instant::now(), resumption());
        let factory = Arc::new(connection.clone());
        Arc::clone(&factory).build(now, 1200);
        assert!(connection.is_saved_valid());
        factory.build(now, 1200);
        assert!(!connection.is_saved_valid());
        assert_eq!(connection.learned(), None);
        let phases: Vec<_> = connection.take_updates();
        let [first, change] = phases.as_slice() else {
            panic!("{phases:?}")
        };
        assert_eq!((first.old, first.new), (None, Phase::Reconnaissance));
        assert_eq!(
            (change.old, change.trigger),
            (Some(Phase::Reconnaissance), Some(Trigger::PathChanged))
        );
    }

    #[test]
    fn the_whole_window_can_be_sent() {
        let connection = Arc::new(resumption());
        // quinn stops at `in_flight + packet >= window`.
        assert_eq!(connection.build(Instant::now(), 1200).window(), 12_001);
    }

    #[test]
    fn the_event_has_the_names_of_the_draft() {
        let connection = resumption();
        Arc::new(connection.clone()).build(Instant::now(), 1200);
        let data = connection.take_updates()[0].qlog();
        assert_eq!(data["new_phase"], "reconnaissance");
        assert_eq!(data["restored_data"]["saved_congestion_window"], 4_000_000);
        assert_eq!(data["restored_data"]["saved_rtt"], 650.0);
        assert_eq!(data.get("old_phase"), None);
    }
}
