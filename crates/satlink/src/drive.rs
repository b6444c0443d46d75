// SPDX-License-Identifier: GPL-3.0-or-later
//! The loop that drives directions: wait, read, push, pop, write. Generic over clock and devices.

use std::io;

use hdrhistogram::Histogram;
use link::{Accepted, Counters, Link, Nanos};

/// Packets read at most before due packets are released again.
const BATCH: usize = 64;
/// Largest packet a TUN device can hand over.
const MAX_PACKET: usize = 65_535;
/// Largest release error that is told apart, ns; worse ones count as this.
const MAX_LATE_NS: u64 = 60_000_000_000;

/// Clock and devices of the directions that share a thread, numbered from 0.
pub trait Io {
    /// Time since the start of all directions.
    fn now(&self) -> Nanos;

    /// Sleeps until there is input for a direction or the deadline has come; `false` when all shall end.
    ///
    /// # Errors
    /// The device of a direction is gone.
    fn wait(&mut self, deadline: Nanos) -> Result<bool, Gone>;

    /// Reads one packet, `None` when there is none.
    ///
    /// # Errors
    /// The device is gone.
    fn read(&mut self, direction: usize, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Writes one packet; `false` when the device would not take it.
    ///
    /// # Errors
    /// The device is gone.
    fn write(&mut self, direction: usize, packet: &[u8]) -> io::Result<bool>;
}

/// A direction that cannot go on, and why.
#[derive(Debug)]
pub struct Gone(pub usize, pub io::Error);

/// Drives directions until a stop; every interval of each is `report`ed.
///
/// A wake costs far more than a packet, so each serves them all, in the order given: where that is the order in which
/// packets and their answers travel, what one direction writes is read by the next in the same turn.
///
/// # Errors
/// A device is gone.
pub fn run(
    drives: &mut [Drive],
    io: &mut impl Io,
    mut report: impl FnMut(usize, Snapshot),
) -> Result<(), Gone> {
    loop {
        let deadline = drives.iter().map(Drive::deadline).min().unwrap_or(0);
        if !io.wait(deadline)? {
            return Ok(());
        }
        for (index, drive) in drives.iter_mut().enumerate() {
            let report = |snapshot| report(index, snapshot);
            drive
                .turn(index, io, report)
                .map_err(|error| Gone(index, error))?;
        }
    }
}

/// State of a direction at the end of a metrics interval. Counters run from the start.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot {
    /// Number of intervals since the start.
    pub tick: u64,
    /// What the link did.
    pub counters: Counters,
    /// Waiting bytes and packets.
    pub queue: (u64, u64),
    /// Packets, and their bytes, that the receiving device would not take.
    pub refused: (u64, u64),
    /// Release error of the interval's packets; `None` without packets.
    pub late: Option<Late>,
}

/// Release error: time of the write less the due time, µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Late {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

impl Late {
    /// Figures of a histogram of ns; `None` when it is empty.
    fn of(histogram: &Histogram<u32>) -> Option<Self> {
        let us = |ns: u64| ns as f64 / 1e3;
        (!histogram.is_empty()).then(|| Self {
            p50: us(histogram.value_at_quantile(0.5)),
            p99: us(histogram.value_at_quantile(0.99)),
            max: us(histogram.max()),
        })
    }
}

/// One direction: its link, what it measures, and buffers allocated before it starts.
pub struct Drive {
    link: Link,
    interval: Nanos,
    next_tick: u64,
    refused: (u64, u64),
    late: Histogram<u32>,
    late_total: Histogram<u32>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Drive {
    /// A direction at time 0 that reports every `interval` ns.
    #[must_use]
    pub fn new(link: Link, interval: Nanos) -> Self {
        // Two digits: a percentile is right within 1 %. The bounds are valid, so this cannot fail.
        #[expect(clippy::expect_used)]
        let late =
            Histogram::new_with_bounds(1, MAX_LATE_NS, 2).expect("constant bounds are valid");
        Self {
            link,
            interval,
            next_tick: 1,
            refused: (0, 0),
            late_total: late.clone(),
            late,
            input: vec![0; MAX_PACKET],
            output: Vec::with_capacity(MAX_PACKET),
        }
    }

    /// When the direction has something to do without input.
    fn deadline(&self) -> Nanos {
        let tick = self.next_tick * self.interval;
        self.link.next_event().map_or(tick, |event| event.min(tick))
    }

    /// Takes what came in, releases what is due, reports the intervals that have ended.
    fn turn(
        &mut self,
        direction: usize,
        io: &mut impl Io,
        mut report: impl FnMut(Snapshot),
    ) -> io::Result<()> {
        self.take_input(direction, io)?;
        self.release(direction, io)?;
        // A late thread owes every interval it slept through: lines of the four directions are joined by tick.
        while io.now() >= self.next_tick * self.interval {
            report(self.snapshot());
            self.next_tick += 1;
        }
        Ok(())
    }

    /// Release error over the whole run; `None` without packets.
    #[must_use]
    pub fn late_total(&self) -> Option<Late> {
        Late::of(&self.late_total)
    }

    /// Offers what can be read; a bounded number, so that due packets do not wait for a flood.
    fn take_input(&mut self, direction: usize, io: &mut impl Io) -> io::Result<()> {
        for _ in 0..BATCH {
            let Some(length) = io.read(direction, &mut self.input)? else {
                break;
            };
            let packet = &self.input[..length];
            // What is no IP packet never reached the modem: it is neither traffic nor a drop.
            if is_ip(packet) {
                let _: Accepted = self.link.push(io.now(), packet);
            }
        }
        Ok(())
    }

    fn release(&mut self, direction: usize, io: &mut impl Io) -> io::Result<()> {
        while let Some(due) = self.link.pop(io.now(), &mut self.output) {
            if !io.write(direction, &self.output)? {
                self.refused.0 += 1;
                self.refused.1 += self.output.len() as u64;
            }
            let late = io.now().saturating_sub(due);
            self.late.saturating_record(late);
            self.late_total.saturating_record(late);
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Snapshot {
        let late = Late::of(&self.late);
        self.late.reset();
        Snapshot {
            tick: self.next_tick,
            counters: self.link.counters(),
            queue: self.link.queue(),
            refused: self.refused,
            late,
        }
    }
}

/// True for IPv4 and IPv6 by the version field.
fn is_ip(packet: &[u8]) -> bool {
    matches!(packet.first().map(|byte| byte >> 4), Some(4 | 6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::{Carrier, LinkConfig, Queue};
    use std::collections::VecDeque;

    const MS: Nanos = 1_000_000;

    /// Virtual time: a wait jumps to the deadline or to the next arrival, and every write takes `write_ns`.
    #[derive(Default)]
    struct Fake {
        now: Nanos,
        stop_at: Nanos,
        write_ns: Nanos,
        arrivals: VecDeque<(Nanos, Vec<u8>)>,
        /// What direction 0 writes comes in at direction 1 at once.
        chained: bool,
        between: VecDeque<Vec<u8>>,
        written: Vec<(Nanos, Vec<u8>)>,
        waits: usize,
        refuse: bool,
        gone: bool,
    }

    impl Io for Fake {
        fn now(&self) -> Nanos {
            self.now
        }

        fn wait(&mut self, deadline: Nanos) -> Result<bool, Gone> {
            self.waits += 1;
            if self.gone {
                return Err(Gone(0, io::Error::from_raw_os_error(libc::EBADFD)));
            }
            let arrival = self.arrivals.front().map_or(Nanos::MAX, |(at, _)| *at);
            self.now = self.now.max(deadline.min(arrival).min(self.stop_at));
            Ok(self.now < self.stop_at)
        }

        fn read(&mut self, direction: usize, buffer: &mut [u8]) -> io::Result<Option<usize>> {
            let packet = if direction == 1 {
                self.between.pop_front()
            } else if self.arrivals.front().is_some_and(|(at, _)| *at <= self.now) {
                self.arrivals.pop_front().map(|(_, packet)| packet)
            } else {
                None
            };
            Ok(packet.map(|packet| {
                buffer[..packet.len()].copy_from_slice(&packet);
                packet.len()
            }))
        }

        fn write(&mut self, direction: usize, packet: &[u8]) -> io::Result<bool> {
            self.now += self.write_ns;
            if self.chained && direction == 0 {
                self.between.push_back(packet.to_vec());
            } else {
                self.written.push((self.now, packet.to_vec()));
            }
            Ok(!self.refuse)
        }
    }

    fn ipv4(length: usize, mark: u8) -> Vec<u8> {
        let mut packet = vec![mark; length];
        packet[0] = 0x45;
        packet
    }

    fn wire(delay: Nanos) -> Link {
        let queue = Queue::drop_tail(0);
        Link::new(LinkConfig::new(Carrier::Wire, delay, queue, 1)).unwrap()
    }

    fn drive_one(fake: &mut Fake, delay: Nanos) -> (Drive, Vec<Snapshot>) {
        let mut drives = [Drive::new(wire(delay), 10 * MS)];
        let mut snapshots = Vec::new();
        run(&mut drives, fake, |_, snapshot| snapshots.push(snapshot)).unwrap();
        let [drive] = drives;
        (drive, snapshots)
    }

    #[test]
    fn packets_leave_in_order_at_their_due_time() {
        let arrivals = [
            (MS, ipv4(100, 1)),
            (MS, ipv4(200, 2)),
            (3 * MS, ipv4(300, 3)),
        ];
        let mut fake = Fake {
            stop_at: 100 * MS,
            arrivals: arrivals.clone().into(),
            ..Fake::default()
        };
        let (drive, snapshots) = drive_one(&mut fake, 40 * MS);
        let expected: Vec<_> = arrivals
            .into_iter()
            .map(|(at, packet)| (at + 40 * MS, packet))
            .collect();
        assert_eq!(fake.written, expected);
        assert!(drive.late_total().unwrap().max < 1e-9);
        assert_eq!(snapshots.len(), 9);
        assert_eq!(snapshots.last().unwrap().counters.packets_out, 3);
        assert_eq!(snapshots[4].late.map(|late| late.max), Some(0.0));
        assert!(snapshots[5].late.is_none());
    }

    #[test]
    fn idle_direction_wakes_for_reports_alone() {
        let mut fake = Fake {
            stop_at: 1000 * MS,
            ..Fake::default()
        };
        let (_, snapshots) = drive_one(&mut fake, 40 * MS);
        assert_eq!(snapshots.len(), 99);
        assert_eq!(fake.waits, 100);
    }

    #[test]
    fn slow_writes_count_as_release_error() {
        let arrivals: VecDeque<_> = (0..10).map(|mark| (MS, ipv4(100, mark))).collect();
        let mut fake = Fake {
            stop_at: 100 * MS,
            write_ns: 1000,
            arrivals,
            ..Fake::default()
        };
        let (drive, _) = drive_one(&mut fake, MS);
        let late = drive.late_total().unwrap();
        assert!(
            (late.max - 10.0).abs() < 0.2 && (late.p50 - 5.0).abs() < 0.2,
            "{late:?}"
        );
    }

    #[test]
    fn foreign_packets_are_ignored_and_floods_bounded() {
        let mut arrivals: VecDeque<_> = (0..200).map(|_| (MS, ipv4(60, 0))).collect();
        arrivals.push_front((MS, vec![0x00, 1, 2]));
        arrivals.push_front((MS, Vec::new()));
        let mut fake = Fake {
            stop_at: 50 * MS,
            arrivals,
            ..Fake::default()
        };
        let (_, snapshots) = drive_one(&mut fake, 0);
        let counters = snapshots.last().unwrap().counters;
        assert_eq!((counters.packets_in, counters.packets_out), (200, 200));
        // 202 reads in batches of 64: four wakes for input, five for reports and the stop.
        assert!(fake.waits <= 10, "{}", fake.waits);
    }

    #[test]
    fn refused_packets_are_counted() {
        let arrivals = [(MS, ipv4(100, 1))].into();
        let mut fake = Fake {
            stop_at: 50 * MS,
            refuse: true,
            arrivals,
            ..Fake::default()
        };
        let (_, snapshots) = drive_one(&mut fake, MS);
        assert_eq!(snapshots.last().unwrap().refused, (1, 100));
    }

    #[test]
    fn late_thread_reports_every_interval() {
        let arrivals = [(MS, ipv4(100, 1))].into();
        let mut fake = Fake {
            stop_at: 100 * MS,
            write_ns: 35 * MS,
            arrivals,
            ..Fake::default()
        };
        let (_, snapshots) = drive_one(&mut fake, MS);
        let ticks: Vec<_> = snapshots.iter().map(|snapshot| snapshot.tick).collect();
        assert_eq!(ticks, (1..=9).collect::<Vec<_>>());
    }

    #[test]
    fn missing_device_ends_all() {
        let mut fake = Fake {
            gone: true,
            ..Fake::default()
        };
        let mut drives = [Drive::new(wire(0), MS)];
        let Gone(direction, error) = run(&mut drives, &mut fake, |_, _| {}).unwrap_err();
        assert_eq!((direction, error.raw_os_error()), (0, Some(libc::EBADFD)));
    }

    #[test]
    fn next_direction_reads_what_was_written_in_the_same_turn() {
        let mut fake = Fake {
            stop_at: 9 * MS,
            arrivals: [(MS, ipv4(100, 1))].into(),
            chained: true,
            ..Fake::default()
        };
        let mut drives = [2 * MS, 3 * MS].map(|delay| Drive::new(wire(delay), 10 * MS));
        run(&mut drives, &mut fake, |_, _| {}).unwrap();
        assert_eq!(fake.written, [(6 * MS, ipv4(100, 1))]);
        // Arrival, release of the first, release of the second, stop.
        assert_eq!(fake.waits, 4);
    }
}
