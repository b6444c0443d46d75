// SPDX-License-Identifier: GPL-3.0-or-later
//! State of noq's congestion controller that noq does not report itself, as [`crate::sender_state`]
//! has it of quinn's.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

use crate::{Acknowledged, SenderState};

/// Returns the state of a controller of [`super::transport`]; `None` of another one.
#[must_use]
pub fn sender_state(controller: &dyn Controller) -> Option<SenderState> {
    let observed = controller
        .clone_box()
        .into_any()
        .downcast::<Observed>()
        .ok()?;
    let metrics = observed.inner.metrics();
    Some(SenderState::new(
        metrics.congestion_window,
        metrics.ssthresh,
        metrics.pacing_rate,
        (observed.in_flight, observed.is_app_limited, observed.acks),
    ))
}

/// Builds observed controllers.
pub(super) struct ObservedFactory(pub Arc<dyn ControllerFactory + Send + Sync>);

impl ControllerFactory for ObservedFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Observed {
            inner: Arc::clone(&self.0).build(now, current_mtu),
            in_flight: 0,
            is_app_limited: false,
            acks: Acknowledged::default(),
        })
    }
}

/// A controller that decides as `inner` does.
#[derive(Debug)]
struct Observed {
    inner: Box<dyn Controller>,
    in_flight: u64,
    is_app_limited: bool,
    acks: Acknowledged,
}

impl Controller for Observed {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.inner.on_sent(now, bytes, largest_pn);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.in_flight += u64::from(bytes);
        self.inner.on_packet_sent(now, bytes, pn);
    }

    fn on_cwnd_limited(&mut self) {
        self.inner.on_cwnd_limited();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.acks.add(bytes, now.saturating_duration_since(sent));
        self.inner.on_ack(now, sent, bytes, pn, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        (self.in_flight, self.is_app_limited) = (in_flight, app_limited);
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        self.inner.on_congestion_event(
            now,
            sent,
            is_persistent_congestion,
            is_ecn,
            lost_bytes,
            largest_lost_pn,
        );
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(lost_bytes.into());
        self.inner.on_packet_lost(lost_bytes, pn, now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.inner.on_spurious_congestion_event();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn on_ack_frequency_update(&mut self, threshold: u64, requested_max_ack_delay: Duration) {
        self.inner
            .on_ack_frequency_update(threshold, requested_max_ack_delay);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            ..*self
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
