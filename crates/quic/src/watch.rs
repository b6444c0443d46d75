// SPDX-License-Identifier: GPL-3.0-or-later
//! State of quinn's congestion controller that quinn does not report itself: bytes in flight, what
//! was acknowledged and after which time, and whether there was anything to send.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::{Connection, RttEstimator};

/// A sender's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderState {
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Bytes sent, neither acknowledged nor declared lost; exact after each acknowledgement.
    pub in_flight_bytes: u64,
    /// The window is below the slow start threshold (RFC 9002 section 7.3.1).
    pub is_slow_start: bool,
    /// Before the last acknowledgement the window had room, but nothing to send was there or
    /// allowed by flow control.
    pub is_app_limited: bool,
    /// Rate that the controller sets, bit/s; `None`: the window alone limits.
    pub pacing_bps: Option<u64>,
    /// What was acknowledged until now.
    pub acks: Acknowledged,
}

/// Packets that were acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Their number.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From sending to acknowledgement, the sum over all packets: with the time that the peer waits
    /// before it acknowledges, which a smoothed round-trip time leaves out if the peer reports it.
    pub waited: Duration,
}

impl Acknowledged {
    /// Counts a packet.
    pub(crate) fn add(&mut self, bytes: u64, waited: Duration) {
        self.packets += 1;
        self.bytes += bytes;
        self.waited += waited;
    }

    /// Mean time until the acknowledgement, of the packets since `before`, ms; `None` without any.
    #[must_use]
    pub fn mean_ms(self, before: Self) -> Option<f64> {
        let packets = self.packets.saturating_sub(before.packets);
        let waited = self.waited.saturating_sub(before.waited);
        (packets > 0).then(|| waited.as_secs_f64() * 1e3 / packets as f64)
    }
}

impl SenderState {
    /// The state with a window and threshold in bytes (`None`: not left slow start yet), a pacing
    /// rate in bytes/s, and what was observed: bytes in flight, whether there was nothing to send,
    /// and what was acknowledged.
    #[must_use]
    pub fn new(
        cwnd_bytes: u64,
        ssthresh: Option<u64>,
        pacing_rate: Option<u64>,
        (in_flight_bytes, is_app_limited, acks): (u64, bool, Acknowledged),
    ) -> Self {
        Self {
            cwnd_bytes,
            in_flight_bytes,
            is_slow_start: ssthresh.is_none_or(|threshold| cwnd_bytes < threshold),
            is_app_limited,
            pacing_bps: pacing_rate.map(|bytes| bytes * 8),
            acks,
        }
    }
}

/// Returns the state of a connection made with [`crate::transport`]; `None` with another
/// controller.
#[must_use]
pub fn sender_state(connection: &Connection) -> Option<SenderState> {
    let controller = connection.congestion_state().clone_box().into_any();
    let observed = controller.downcast::<Observed>().ok()?;
    let metrics = observed.inner.metrics();
    Some(SenderState::new(
        metrics.congestion_window,
        metrics.ssthresh,
        metrics.pacing_rate,
        (observed.in_flight, observed.is_app_limited, observed.acks),
    ))
}

/// Builds observed controllers.
pub(crate) struct ObservedFactory(pub Arc<dyn ControllerFactory + Send + Sync>);

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
struct Observed {
    inner: Box<dyn Controller>,
    in_flight: u64,
    is_app_limited: bool,
    acks: Acknowledged,
}

impl Controller for Observed {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.in_flight += bytes;
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.acks.add(bytes, now.saturating_duration_since(sent));
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
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
        lost_bytes: u64,
    ) {
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
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

#[cfg(test)]
pub(crate) mod tests {
    use quinn_proto::congestion::CubicConfig;

    use super::*;

    /// Any moment: only differences count.
    #[expect(
        clippy::disallowed_methods,
        reason = "std has no other way to make one"
    )]
    pub(crate) fn origin() -> Instant {
        Instant::now()
    }

    #[test]
    fn in_flight_is_sent_less_lost_until_an_acknowledgement_reports_it() {
        let now = origin();
        let mut observed = Observed {
            inner: Arc::new(CubicConfig::default()).build(now, 1200),
            in_flight: 0,
            is_app_limited: false,
            acks: Acknowledged::default(),
        };
        observed.on_sent(now, 5_000, 3);
        observed.on_congestion_event(now, now, false, 1_200);
        assert_eq!(observed.in_flight, 3_800);
        observed.on_end_acks(now, 2_400, true, Some(2));
        assert_eq!((observed.in_flight, observed.is_app_limited), (2_400, true));
        let ms = Duration::from_millis;
        observed.acks.add(1_200, ms(600));
        let before = observed.acks;
        observed.acks.add(1_200, ms(800));
        observed.acks.add(600, ms(900));
        assert_eq!(observed.acks.mean_ms(before), Some(850.0));
        assert_eq!(observed.acks.bytes, 3_000);
        assert_eq!(before.mean_ms(before), None);
        let copy = observed.clone_box().into_any();
        assert_eq!(copy.downcast::<Observed>().ok().unwrap().in_flight, 2_400);
    }
}
