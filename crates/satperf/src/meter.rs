// SPDX-License-Identifier: GPL-3.0-or-later
//! From totals at moments to lines of intervals and a summary.

use std::time::{Duration, Instant};

use crate::record::{Counts, Interval, Side, Summary};
use crate::stack::{Stats, ZeroRtt};

/// Time between two lines.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// Payload whose arrival is timed, bytes: draft-kuhn-quic-4-sat-07 section 3.
const MARKS: [u64; 3] = [2_000_000, 10_000_000, 100_000_000];

/// Measures one connection at one end.
#[derive(Debug)]
pub struct Meter {
    side: Side,
    start: Instant,
    handshake: Option<Duration>,
    first: Option<Duration>,
    last: Option<Duration>,
    marks: [Option<Duration>; 3],
    bytes: u64,
    handed: bool,
    line: Instant,
    line_bytes: u64,
    line_stats: Stats,
}

impl Meter {
    /// Begins at time 0.
    pub fn new(side: Side, start: Instant) -> Self {
        Self {
            side,
            start,
            handshake: None,
            first: None,
            last: None,
            marks: [None; 3],
            bytes: 0,
            handed: false,
            line: start,
            line_bytes: 0,
            line_stats: Stats::default(),
        }
    }

    /// Time since time 0.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    /// The handshake is complete.
    pub fn connected(&mut self, now: Instant) {
        self.handshake.get_or_insert(self.age(now));
    }

    /// Takes the total of payload received in order so far.
    pub fn received(&mut self, now: Instant, bytes: u64) {
        if bytes <= self.bytes {
            return;
        }
        let age = self.age(now);
        self.bytes = bytes;
        self.first.get_or_insert(age);
        self.last = Some(age);
        for (mark, reached) in MARKS.into_iter().zip(&mut self.marks) {
            if bytes >= mark {
                reached.get_or_insert(age);
            }
        }
    }

    /// The stack has taken all payload of this end.
    pub fn handed(&mut self, is_all: bool) {
        self.handed = is_all;
    }

    /// When the next line is due.
    pub fn due(&self) -> Instant {
        self.line + INTERVAL
    }

    /// The line from the last one until `now`; `None` if no time has passed.
    pub fn interval(&mut self, now: Instant, stats: &Stats) -> Option<Interval> {
        let length = now.saturating_duration_since(self.line).as_secs_f64();
        if length == 0.0 {
            return None;
        }
        let bytes = self.bytes - self.line_bytes;
        let line = Interval {
            side: self.side,
            t_s: self.age(now).as_secs_f64(),
            length_s: length,
            bytes,
            goodput_bps: bytes as f64 * 8.0 / length,
            cwnd_bytes: stats.cwnd_bytes,
            rtt_ms: millis(stats.rtt),
            in_flight_bytes: stats.sender.map(|it| it.in_flight_bytes),
            slow_start: stats.sender.map(|it| it.is_slow_start),
            app_limited: stats.sender.map(|it| it.is_app_limited),
            handed: self.handed,
            counts: Counts::between(&self.line_stats, stats),
        };
        (self.line, self.line_bytes, self.line_stats) = (now, self.bytes, *stats);
        Some(line)
    }

    /// What it came to. `failure`: why it did not end well.
    pub fn summary(
        &self,
        now: Instant,
        stats: &Stats,
        failure: Option<String>,
        zero_rtt: ZeroRtt,
    ) -> Summary {
        let seconds = |age: Option<Duration>| age.map(|age| age.as_secs_f64());
        let [two, ten, hundred] = self.marks.map(seconds);
        let busy = self.last.filter(|last| !last.is_zero());
        Summary {
            side: self.side,
            status: if failure.is_none() { "ok" } else { "failed" },
            reason: failure.unwrap_or_else(|| "done".into()),
            t_s: self.age(now).as_secs_f64(),
            handshake_ms: self.handshake.map(millis),
            zero_rtt,
            time_to_first_byte_ms: self.first.map(millis),
            bytes: self.bytes,
            goodput_bps: busy.map(|last| self.bytes as f64 * 8.0 / last.as_secs_f64()),
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
        let mut meter = Meter::new(Side::Client, start);
        meter.connected(at(start, 40));
        meter.received(at(start, 60), 1_000_000);
        let stats = Stats {
            sent_packets: 10,
            acks_sent: Some(4),
            sent_bytes: 400,
            lost_bytes: 100,
            ..Stats::default()
        };
        let line = serde_json::to_value(meter.interval(at(start, 100), &stats)).unwrap();
        assert_eq!(
            (&line["bytes"], &line["goodput_bps"]),
            (&1_000_000.into(), &80_000_000.0.into())
        );
        meter.received(at(start, 150), 2_500_000);
        let stats = Stats {
            sent_packets: 15,
            acks_sent: Some(7),
            ..stats
        };
        let line = serde_json::to_value(meter.interval(at(start, 200), &stats)).unwrap();
        assert_eq!(
            (&line["bytes"], &line["sent_packets"], &line["acks_sent"]),
            (&1_500_000.into(), &5.into(), &3.into())
        );
        assert_eq!(line["acks_received"], serde_json::Value::Null);
        assert!(meter.interval(at(start, 200), &stats).is_none());

        let summary = meter.summary(at(start, 250), &stats, None, ZeroRtt::NotAsked);
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
    fn nothing_received_is_no_goodput() {
        let start = Instant::now();
        let failed = Meter::new(Side::Client, start).summary(
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
