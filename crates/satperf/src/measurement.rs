// SPDX-License-Identifier: GPL-3.0-or-later
//! Times and totals of one connection at one endpoint: lines of intervals and a summary.

use std::time::{Duration, Instant};

use crate::record::{Counts, Interval, Side, Summary};
use crate::stack::{Stats, ZeroRtt};

/// Time between two lines.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// Payload whose arrival is timed, bytes: draft-kuhn-quic-4-sat-07 section 3.
const MARKS: [u64; 3] = [2_000_000, 10_000_000, 100_000_000];

/// Measures one connection at one end.
#[derive(Debug)]
pub struct Measurement {
    side: Side,
    start: Instant,
    /// When the handshake was complete.
    pub connected: Option<Instant>,
    /// When this end knew what to send, if it is the sender.
    pub requested: Option<Instant>,
    /// When the first payload byte arrived.
    pub first_byte: Option<Instant>,
    last_byte: Option<Instant>,
    marks: [Option<Instant>; 3],
    /// Payload received in order.
    pub bytes: u64,
    /// The stack has taken all payload of this end.
    pub handed: bool,
    line: Instant,
    line_bytes: u64,
    line_stats: Stats,
}

impl Measurement {
    /// Begins at time 0.
    #[must_use]
    pub fn new(side: Side, start: Instant) -> Self {
        Self {
            side,
            start,
            connected: None,
            requested: None,
            first_byte: None,
            last_byte: None,
            marks: [None; 3],
            bytes: 0,
            handed: false,
            line: start,
            line_bytes: 0,
            line_stats: Stats::default(),
        }
    }

    fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.start)
    }

    /// Notes the total of payload received in order.
    pub fn received(&mut self, now: Instant, bytes: u64) {
        if bytes <= self.bytes {
            return;
        }
        self.bytes = bytes;
        self.first_byte.get_or_insert(now);
        self.last_byte = Some(now);
        for (mark, reached) in MARKS.into_iter().zip(&mut self.marks) {
            if bytes >= mark {
                reached.get_or_insert(now);
            }
        }
    }

    /// When the next line is due.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.line + INTERVAL
    }

    /// Returns the line from the last one until `now`; `None` if no time has passed.
    pub fn interval(&mut self, now: Instant, stats: &Stats) -> Option<Interval> {
        let length = now.saturating_duration_since(self.line).as_secs_f64();
        if length == 0.0 {
            return None;
        }
        let bytes = self.bytes - self.line_bytes;
        let line = Interval {
            side: self.side,
            t_s: self.since_start(now).as_secs_f64(),
            length_s: length,
            bytes,
            goodput_bps: bytes as f64 * 8.0 / length,
            cwnd_bytes: stats.cwnd_bytes,
            rtt_ms: millis(stats.rtt),
            in_flight_bytes: stats.sender.map(|it| it.in_flight_bytes),
            slow_start: stats.sender.map(|it| it.is_slow_start),
            app_limited: stats.sender.map(|it| it.is_app_limited),
            pacing_bps: stats.sender.and_then(|it| it.pacing_bps),
            sent_bytes: stats.sent_bytes,
            acked_bytes: stats.sender.map(|it| it.acks.bytes),
            ack_ms: stats.ack_ms(&self.line_stats),
            handed: self.handed,
            counts: Counts::between(&self.line_stats, stats),
        };
        (self.line, self.line_bytes, self.line_stats) = (now, self.bytes, *stats);
        Some(line)
    }

    /// Returns the last line.
    #[must_use]
    pub fn summary(
        &self,
        now: Instant,
        stats: &Stats,
        failure: Option<String>,
        zero_rtt: ZeroRtt,
    ) -> Summary {
        let after = |at: Option<Instant>| at.map(|at| self.since_start(at));
        let seconds = |at| after(at).map(|it| it.as_secs_f64());
        let [two, ten, hundred] = self.marks.map(seconds);
        let busy = seconds(self.last_byte).filter(|last| *last > 0.0);
        Summary {
            side: self.side,
            status: if failure.is_none() { "ok" } else { "failed" },
            reason: failure.unwrap_or_else(|| "done".into()),
            t_s: self.since_start(now).as_secs_f64(),
            handshake_ms: after(self.connected).map(millis),
            zero_rtt,
            time_to_first_byte_ms: after(self.first_byte).map(millis),
            bytes: self.bytes,
            goodput_bps: busy.map(|last| self.bytes as f64 * 8.0 / last),
            reached_2mb_s: two,
            reached_10mb_s: ten,
            reached_100mb_s: hundred,
            data_equal: None,
            counts: Counts::between(&Stats::default(), stats),
            sent_bytes: stats.sent_bytes,
            lost_bytes: stats.lost_bytes,
            retransmitted_share: if stats.sent_bytes == 0 {
                0.0
            } else {
                stats.lost_bytes as f64 / stats.sent_bytes as f64
            },
            cpu_s: 0.0,
            careful_resume: None,
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn intervals_are_differences_and_the_summary_totals() {
        let start = Instant::now();
        let mut measured = Measurement::new(Side::Client, start);
        measured.connected = Some(at(start, 40));
        measured.received(at(start, 60), 1_000_000);
        let stats = Stats {
            sent_packets: 10,
            acks_sent: Some(4),
            sent_bytes: 400,
            lost_bytes: 100,
            ..Stats::default()
        };
        let line = serde_json::to_value(measured.interval(at(start, 100), &stats)).unwrap();
        assert_eq!(
            (&line["bytes"], &line["goodput_bps"]),
            (&1_000_000.into(), &80_000_000.0.into())
        );
        measured.received(at(start, 150), 2_500_000);
        let stats = Stats {
            sent_packets: 15,
            acks_sent: Some(7),
            ..stats
        };
        let line = serde_json::to_value(measured.interval(at(start, 200), &stats)).unwrap();
        assert_eq!(
            (&line["bytes"], &line["sent_packets"], &line["acks_sent"]),
            (&1_500_000.into(), &5.into(), &3.into())
        );
        assert_eq!(line["acks_received"], serde_json::Value::Null);
        assert!(measured.interval(at(start, 200), &stats).is_none());

        let summary = measured.summary(at(start, 250), &stats, None, ZeroRtt::NotAsked);
        assert_eq!((summary.status, summary.reason.as_str()), ("ok", "done"));
        assert_eq!(
            (summary.handshake_ms, summary.time_to_first_byte_ms),
            (Some(40.0), Some(60.0))
        );
        assert_eq!(
            (summary.reached_2mb_s, summary.reached_10mb_s),
            (Some(0.15), None)
        );
        assert!((summary.goodput_bps.unwrap() - 2_500_000.0 * 8.0 / 0.15).abs() < 1.0);
        assert!((summary.retransmitted_share - 0.25).abs() < 1e-9);
    }

    #[test]
    fn nothing_received_has_no_goodput() {
        let start = Instant::now();
        let failed = Measurement::new(Side::Client, start).summary(
            start,
            &Stats::default(),
            Some("gone".into()),
            ZeroRtt::NotAsked,
        );
        assert_eq!(
            (failed.status, failed.goodput_bps, failed.bytes),
            ("failed", None, 0)
        );
    }
}
