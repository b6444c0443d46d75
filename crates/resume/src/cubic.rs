// SPDX-License-Identifier: GPL-3.0-or-later
//! CUBIC (RFC 9438) in bytes. quinn's own cannot be given a window or a slow start threshold, which
//! RFC 9959 needs.

use std::time::{Duration, Instant};

/// Share of the window that is left after a congestion event (RFC 9438 section 4.6).
pub const BETA: f64 = 0.7;
/// Segments per cubic second (RFC 9438 section 5).
const C: f64 = 0.4;
/// Growth of Reno's estimate in segments per window (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// Congestion avoidance since its begin (RFC 9438 section 4.1).
#[derive(Debug, Clone, Copy)]
struct Epoch {
    began: Instant,
    /// Seconds until the window is `w_max` again.
    k: f64,
    /// What Reno's window would be, bytes.
    w_est: f64,
}

/// The congestion window of one path.
#[derive(Debug, Clone)]
pub struct Cubic {
    mtu: f64,
    window: f64,
    ssthresh: u64,
    /// Window before the last reduction, perhaps lowered by fast convergence, bytes.
    w_max: f64,
    epoch: Option<Epoch>,
    /// Packets sent until then belong to a congestion event that has been answered.
    recovery: Option<Instant>,
}

impl Cubic {
    /// Slow start from `window` bytes with packets of `mtu` bytes.
    #[must_use]
    pub fn new(window: u64, mtu: u16) -> Self {
        Self {
            mtu: mtu.into(),
            window: window as f64,
            ssthresh: u64::MAX,
            w_max: 0.0,
            epoch: None,
            recovery: None,
        }
    }

    /// Congestion window, bytes.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window as u64
    }

    /// Slow start threshold, bytes; the highest number before a congestion event.
    #[must_use]
    pub fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    /// Smallest window (RFC 9002 section 7.2), bytes.
    #[must_use]
    pub fn minimum(&self) -> u64 {
        2 * self.mtu as u64
    }

    /// Starts again with a window and a slow start threshold, bytes.
    pub fn set(&mut self, window: u64, ssthresh: u64) {
        self.window = window.max(self.minimum()) as f64;
        self.ssthresh = ssthresh;
        self.w_max = 0.0;
        self.epoch = None;
        self.recovery = None;
    }

    /// Sets the packet size, bytes.
    pub fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu.into();
        self.window = self.window.max(self.minimum() as f64);
    }

    /// `bytes` of a packet sent at `sent` are acknowledged. A window that was not used does not
    /// grow (RFC 9438 section 5.8).
    pub fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: Duration,
    ) {
        if app_limited || self.recovery.is_some_and(|at| sent <= at) {
            return;
        }
        if self.window() < self.ssthresh {
            self.window += bytes as f64;
        } else {
            self.avoid_congestion(now, bytes as f64, rtt);
        }
    }

    fn avoid_congestion(&mut self, now: Instant, bytes: f64, rtt: Duration) {
        let mut epoch = self.epoch.unwrap_or_else(|| self.epoch_from(now));
        let t = now.saturating_duration_since(epoch.began).as_secs_f64();
        // Reno's own rate once it has passed the window before the reduction.
        let alpha = if epoch.w_est < self.w_max { ALPHA } else { 1.0 };
        epoch.w_est += alpha * self.mtu * bytes / self.window;
        if self.w_cubic(t, epoch.k) < epoch.w_est {
            self.window = self.window.max(epoch.w_est);
        } else {
            let target = self.w_cubic(t + rtt.as_secs_f64(), epoch.k);
            let target = target.clamp(self.window, 1.5 * self.window);
            self.window += (target - self.window) * bytes / self.window;
        }
        self.epoch = Some(epoch);
    }

    fn epoch_from(&mut self, now: Instant) -> Epoch {
        self.w_max = self.w_max.max(self.window);
        Epoch {
            began: now,
            k: ((self.w_max - self.window) / self.mtu / C).cbrt(),
            w_est: self.window,
        }
    }

    /// RFC 9438 section 4.2, figure 1; bytes.
    fn w_cubic(&self, t: f64, k: f64) -> f64 {
        C * (t - k).powi(3) * self.mtu + self.w_max
    }

    /// The newest lost or marked packet was sent at `sent`.
    pub fn on_congestion(&mut self, now: Instant, sent: Instant, is_persistent: bool) {
        if !is_persistent && self.recovery.is_some_and(|at| sent <= at) {
            return;
        }
        // Fast convergence, RFC 9438 section 4.7.
        self.w_max = if self.window < self.w_max {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.ssthresh = ((self.window * BETA) as u64).max(self.minimum());
        self.window = self.ssthresh as f64;
        self.epoch = None;
        self.recovery = Some(now);
        if is_persistent {
            self.window = self.minimum() as f64;
            self.recovery = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Acknowledges the whole window once per round trip of 100 ms.
    fn rounds(cubic: &mut Cubic, start: Instant, count: u32) -> Instant {
        for round in 1..=count {
            let sent = start + 100 * MS * (round - 1);
            let now = sent + 100 * MS;
            for _ in 0..cubic.window() / 1000 {
                cubic.on_ack(now, sent, 1000, false, 100 * MS);
            }
        }
        start + 100 * MS * count
    }

    #[test]
    fn slow_start_doubles_each_round_trip() {
        let mut cubic = Cubic::new(10_000, 1000);
        rounds(&mut cubic, Instant::now(), 3);
        assert_eq!(cubic.window(), 80_000);
    }

    #[test]
    fn the_window_is_back_after_k_seconds() {
        let start = Instant::now();
        let mut cubic = Cubic::new(1_000_000, 1000);
        cubic.on_congestion(start, start, false);
        assert_eq!((cubic.window(), cubic.ssthresh()), (700_000, 700_000));
        // K = cbrt(300 segments / 0.4) = 9.09 s.
        let before = rounds(&mut cubic, start + MS, 85);
        assert!(cubic.window() < 1_000_000, "{}", cubic.window());
        rounds(&mut cubic, before, 10);
        assert!(
            (1_000_000..1_010_000).contains(&cubic.window()),
            "{}",
            cubic.window()
        );
    }

    #[test]
    fn one_event_reduces_once_and_a_smaller_second_one_converges_fast() {
        let start = Instant::now();
        let mut cubic = Cubic::new(100_000, 1000);
        cubic.on_congestion(start + MS, start, false);
        cubic.on_congestion(start + 2 * MS, start, false);
        assert_eq!(cubic.window(), 70_000);
        cubic.on_congestion(start + 4 * MS, start + 3 * MS, false);
        assert_eq!((cubic.window(), cubic.w_max), (49_000, 59_500.0));
    }

    #[test]
    fn persistent_congestion_leaves_two_packets() {
        let now = Instant::now();
        let mut cubic = Cubic::new(100_000, 1000);
        cubic.on_congestion(now, now, true);
        assert_eq!((cubic.window(), cubic.ssthresh()), (2_000, 70_000));
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let now = Instant::now();
        let mut cubic = Cubic::new(10_000, 1000);
        cubic.on_ack(now + MS, now, 1000, true, MS);
        assert_eq!(cubic.window(), 10_000);
    }

    #[test]
    fn a_small_window_grows_at_least_as_renos() {
        let start = Instant::now();
        let mut cubic = Cubic::new(10_000, 1000);
        cubic.on_congestion(start, start, false);
        rounds(&mut cubic, start + MS, 20);
        // 0.53 segments per round trip up to 10 segments, then one.
        assert!(
            (15_000..30_000).contains(&cubic.window()),
            "{}",
            cubic.window()
        );
    }
}
