// SPDX-License-Identifier: GPL-3.0-or-later
//! The loop that drives directions: wait, read, push, pop, write. Generic over clock and devices.

use std::collections::VecDeque;
use std::io;

use hdrhistogram::Histogram;
use link::{Accepted, Carrier, Change, Counters, Link, Nanos};

use crate::order::{Applied, Order};

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

    /// Takes one order from the direction's mailbox, without waiting.
    fn order(&mut self, direction: usize) -> Option<Order>;
}

/// A direction that cannot go on, and why.
#[derive(Debug)]
pub struct Gone(pub usize, pub io::Error);

/// Drives directions until a stop; every interval and every change of each is `report`ed.
///
/// A wake costs far more than a packet, so each serves them all, in the order given: where that is the order in which
/// packets and their answers travel, what one direction writes is read by the next in the same turn.
///
/// # Errors
/// A device is gone.
pub fn run(
    drives: &mut [Drive],
    io: &mut impl Io,
    mut report: impl FnMut(usize, Report),
) -> Result<(), Gone> {
    loop {
        let deadline = drives.iter().map(Drive::deadline).min().unwrap_or(0);
        if !io.wait(deadline)? {
            return Ok(());
        }
        for (index, drive) in drives.iter_mut().enumerate() {
            let report = |message| report(index, message);
            drive
                .turn(index, io, report)
                .map_err(|error| Gone(index, error))?;
        }
    }
}

/// What a direction tells.
#[derive(Debug)]
pub enum Report {
    /// An interval has ended.
    Snapshot(Snapshot),
    /// The link has changed, or would not.
    Applied(Applied),
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
    /// Carrier in force.
    pub carrier: Carrier,
    /// C/N of what is sent, dB; `None`: reception is perfect.
    pub cn_db: Option<f64>,
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
    /// Changes to come, by time.
    orders: VecDeque<Order>,
    /// Changes to report.
    applied: Vec<Applied>,
    /// The last moment the link has seen.
    seen: Nanos,
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
            orders: VecDeque::new(),
            applied: Vec::new(),
            seen: 0,
            late_total: late.clone(),
            late,
            input: vec![0; MAX_PACKET],
            output: Vec::with_capacity(MAX_PACKET),
        }
    }

    /// When the direction has something to do without input.
    fn deadline(&self) -> Nanos {
        let tick = self.next_tick * self.interval;
        let change = self.orders.front().map_or(tick, |order| order.at.min(tick));
        self.link
            .next_event()
            .map_or(change, |event| event.min(change))
    }

    /// Takes an order: it is carried out at its time, after those of the same time that came before.
    pub fn schedule(&mut self, order: Order) {
        let place = self.orders.partition_point(|other| other.at <= order.at);
        self.orders.insert(place, order);
    }

    /// Carries out what is due. Called before every packet, so that a change acts at its time however late the thread is.
    fn obey(&mut self, now: Nanos) {
        while self.orders.front().is_some_and(|order| order.at <= now) {
            let Some(order) = self.orders.pop_front() else {
                return;
            };
            let at = order.at.max(self.seen);
            if matches!(order.change, Change::Outage(_)) {
                // The newest word on an outage holds: an end that an earlier one announced is off.
                self.orders.retain(|other| !other.is_end);
            }
            if let Some(next) = order.next(at) {
                self.schedule(next);
            }
            let error = self.link.set(at, order.change.clone()).err();
            self.seen = at;
            self.applied.push(Applied { at, order, error });
        }
        self.seen = self.seen.max(now);
    }

    /// Takes what came in, releases what is due, reports the intervals that have ended.
    fn turn(
        &mut self,
        direction: usize,
        io: &mut impl Io,
        mut report: impl FnMut(Report),
    ) -> io::Result<()> {
        while let Some(order) = io.order(direction) {
            self.schedule(order);
        }
        self.obey(io.now());
        self.take_input(direction, io)?;
        self.release(direction, io)?;
        for applied in self.applied.drain(..) {
            report(Report::Applied(applied));
        }
        // A late thread owes every interval it slept through: lines of the four directions are joined by tick.
        while io.now() >= self.next_tick * self.interval {
            report(Report::Snapshot(self.snapshot()));
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
            let now = io.now();
            self.obey(now);
            let packet = &self.input[..length];
            // What is no IP packet never reached the modem: it is neither traffic nor a drop.
            if is_ip(packet) {
                let _: Accepted = self.link.push(now, packet);
            }
        }
        Ok(())
    }

    fn release(&mut self, direction: usize, io: &mut impl Io) -> io::Result<()> {
        loop {
            let now = io.now();
            self.obey(now);
            let Some(due) = self.link.pop(now, &mut self.output) else {
                return Ok(());
            };
            if !io.write(direction, &self.output)? {
                self.refused.0 += 1;
                self.refused.1 += self.output.len() as u64;
            }
            let late = io.now().saturating_sub(due);
            self.late.saturating_record(late);
            self.late_total.saturating_record(late);
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let late = Late::of(&self.late);
        self.late.reset();
        Snapshot {
            tick: self.next_tick,
            counters: self.link.counters(),
            queue: self.link.queue(),
            carrier: self.link.config().carrier,
            cn_db: self.link.cn_db(),
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
    use crate::order::Origin;
    use link::{LinkConfig, Queue};
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
        orders: VecDeque<(Nanos, Order)>,
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

        fn order(&mut self, _: usize) -> Option<Order> {
            let is_there = self.orders.front().is_some_and(|(at, _)| *at <= self.now);
            is_there
                .then(|| self.orders.pop_front())?
                .map(|(_, order)| order)
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
        run(&mut drives, fake, |_, report| {
            if let Report::Snapshot(snapshot) = report {
                snapshots.push(snapshot);
            }
        })
        .unwrap();
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

    fn order(at: Nanos, change: Change) -> Order {
        Order::new(at, change, Origin::Timeline)
    }

    /// Moments at which packets leave, and at which changes were carried out.
    fn changed(fake: &mut Fake, orders: Vec<Order>) -> (Vec<Nanos>, Vec<Nanos>) {
        let mut drive = Drive::new(wire(40 * MS), 10 * MS);
        for order in orders {
            drive.schedule(order);
        }
        let mut applied = Vec::new();
        run(&mut [drive], fake, |_, report| {
            if let Report::Applied(one) = report {
                assert!(one.error.is_none());
                applied.push(one.at);
            }
        })
        .unwrap();
        (fake.written.iter().map(|(at, _)| *at).collect(), applied)
    }

    fn every_ms(stop_at: Nanos) -> Fake {
        Fake {
            stop_at,
            arrivals: (1..20).map(|ms| (ms * MS, ipv4(100, 1))).collect(),
            ..Fake::default()
        }
    }

    #[test]
    fn changes_act_at_their_time_whatever_order_they_came_in() {
        let orders = vec![
            order(9 * MS, Change::Delay(30 * MS)),
            order(4 * MS + 1, Change::Delay(60 * MS)),
        ];
        let (left, applied) = changed(&mut every_ms(200 * MS), orders);
        assert_eq!(applied, [4 * MS + 1, 9 * MS]);
        let delays = |ms: Nanos| {
            if ms < 5 {
                40
            } else if ms < 9 {
                60
            } else {
                30
            }
        };
        let mut last = 0;
        let expected: Vec<_> = (1..20)
            .map(|ms| {
                last = last.max((ms + delays(ms)) * MS);
                last
            })
            .collect();
        assert_eq!(left, expected);
    }

    #[test]
    fn order_from_the_mailbox_never_acts_in_the_past() {
        let mut fake = every_ms(200 * MS);
        let late = order(3 * MS, Change::Delay(50 * MS));
        fake.orders = [(7 * MS, late)].into();
        let (left, applied) = changed(&mut fake, Vec::new());
        // Packets up to 6 ms have been taken already: the change comes right after them.
        assert_eq!(applied, [6 * MS]);
        assert_eq!((left[5], left[6]), (46 * MS, 57 * MS));
    }

    #[test]
    fn outage_ends_by_itself_unless_a_newer_one_says_otherwise() {
        let outage = |at: Nanos, lasts: Nanos| Order {
            lasts: Some(lasts),
            ..order(at, Change::Outage(true))
        };
        let (left, applied) = changed(
            &mut every_ms(100 * MS),
            vec![outage(2 * MS + 1, 4 * MS), outage(4 * MS + 1, 4 * MS)],
        );
        assert_eq!(applied, [2 * MS + 1, 4 * MS + 1, 8 * MS + 1]);
        assert_eq!(left.len(), 2 + 11);
        assert_eq!(left[2], 49 * MS);
    }
}
