// SPDX-License-Identifier: GPL-3.0-or-later
//! The loop under virtual time.

use super::*;
use crate::scheduled::Origin;
use link::{Carrier, Change, Link, LinkConfig, Queue, Sender};
const MS: Nanos = 1_000_000;

/// Virtual time: a wait jumps to the deadline or to the next arrival, and every write takes
/// `write_ns`.
#[derive(Default)]
struct Fake {
    now: Nanos,
    stop_at: Nanos,
    write_ns: Nanos,
    arrivals: VecDeque<(Nanos, Vec<u8>)>,
    /// So much later than it comes, input ends a wait.
    patience: Nanos,
    /// What direction 0 writes comes in at direction 1 at once.
    chained: bool,
    between: VecDeque<Vec<u8>>,
    written: Vec<(Nanos, Vec<u8>)>,
    waits: usize,
    refuse: bool,
    gone: bool,
    changes: VecDeque<(Nanos, Scheduled)>,
}

impl Io for Fake {
    fn now(&self) -> Nanos {
        self.now
    }

    fn wait(&mut self, deadline: Nanos, _: Nanos) -> Result<bool, Gone> {
        self.waits += 1;
        if self.gone {
            return Err(Gone(0, io::Error::from_raw_os_error(libc::EBADFD)));
        }
        let arrival = self
            .next_arrival()
            .map_or(Nanos::MAX, |at| at + self.patience);
        self.now = self.now.max(deadline.min(arrival).min(self.stop_at));
        Ok(self.now < self.stop_at)
    }

    fn read(&mut self, direction: usize, buffer: &mut [u8]) -> io::Result<Option<(Nanos, usize)>> {
        let now = self.now;
        let is_there = |at| at <= now;
        let packet = if direction == 1 {
            self.between.pop_front().map(|packet| (now, packet))
        } else if self.next_arrival().is_some_and(is_there) {
            self.arrivals.pop_front()
        } else {
            None
        };
        Ok(packet.map(|(came, packet)| {
            buffer[..packet.len()].copy_from_slice(&packet);
            (came, packet.len())
        }))
    }

    fn write(&mut self, direction: usize, bundle: &mut Bundle) -> io::Result<bool> {
        self.now += self.write_ns;
        let (_, packet) = bundle.finish();
        if self.chained && direction == 0 {
            self.between.push_back(packet.to_vec());
        } else {
            self.written.push((self.now, packet.to_vec()));
        }
        Ok(!self.refuse)
    }

    fn take_change(&mut self, _: usize) -> Option<Scheduled> {
        let is_there = self.changes.front().is_some_and(|(at, _)| *at <= self.now);
        is_there
            .then(|| self.changes.pop_front())?
            .map(|(_, change)| change)
    }
}

impl Fake {
    fn next_arrival(&self) -> Option<Nanos> {
        self.arrivals.front().map(|(at, _)| *at)
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
    let mut drives = [Drive::new(wire(delay), 10 * MS, MS)];
    let mut snapshots = Vec::new();
    run(&mut drives, fake, |_, report| {
        if let Report::Snapshot(snapshot) = report {
            snapshots.push(*snapshot);
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
fn packets_that_are_read_late_leave_as_if_they_had_not() {
    let arrivals: Vec<_> = (0..50).map(|ms| (MS + ms * MS, ipv4(100, 1))).collect();
    let left = |patience: Nanos| {
        let mut fake = Fake {
            stop_at: 200 * MS,
            arrivals: arrivals.clone().into(),
            patience,
            ..Fake::default()
        };
        let changes = vec![change(20 * MS + 1, Change::Delay(60 * MS))];
        (changed(&mut fake, changes).0, fake.waits)
    };
    let (punctual, late) = (left(0), left(7 * MS));
    assert_eq!(punctual.0.len(), 50);
    assert_eq!(punctual.0, late.0);
    assert!(late.1 < punctual.1);
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
    let mut drives = [Drive::new(wire(MS), 10 * MS, 7000)];
    let mut snapshots = Vec::new();
    run(&mut drives, &mut fake, |_, report| {
        if let Report::Snapshot(snapshot) = report {
            snapshots.push(snapshot);
        }
    })
    .unwrap();
    assert_eq!(snapshots.last().unwrap().late_packets, 3);
    let late = drives[0].late_total().unwrap();
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
fn a_backlog_of_one_direction_delays_another_by_a_turn_at_most() {
    let mut fake = Fake {
        stop_at: 50 * MS,
        write_ns: 12_000,
        arrivals: (0..1000).map(|_| (MS, ipv4(60, 1))).collect(),
        between: (0..100).map(|_| ipv4(60, 2)).collect(),
        ..Fake::default()
    };
    let mut drives = [2 * MS; 2].map(|delay| Drive::new(wire(delay), 10 * MS, MS));
    run(&mut drives, &mut fake, |_, _| {}).unwrap();
    let order: Vec<u8> = fake.written.iter().map(|(_, packet)| packet[19]).collect();
    assert_eq!(order.len(), 1100);
    let last = order.iter().rposition(|&mark| mark == 2).unwrap();
    // 100 of the second direction next to as many of the first, a turn ahead: nine writes of 12 us,
    // and one.
    assert!(last < 220, "{last}");
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
    assert_eq!(snapshots.last().unwrap().refused, Volume::of_packet(100));
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
    let mut drives = [Drive::new(wire(0), MS, MS)];
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
    let mut drives = [2 * MS, 3 * MS].map(|delay| Drive::new(wire(delay), 10 * MS, MS));
    run(&mut drives, &mut fake, |_, _| {}).unwrap();
    assert_eq!(fake.written, [(6 * MS, ipv4(100, 1))]);
    // Arrival, release of the first, release of the second, stop.
    assert_eq!(fake.waits, 4);
}

fn change(at: Nanos, change: Change) -> Scheduled {
    Scheduled::new(at, change, Origin::Timeline)
}

/// Moments at which packets leave, and at which changes were carried out.
fn changed(fake: &mut Fake, changes: Vec<Scheduled>) -> (Vec<Nanos>, Vec<Nanos>) {
    let mut drive = Drive::new(wire(40 * MS), 10 * MS, MS);
    for change in changes {
        drive.schedule(change);
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
// promise: P7
fn changes_act_at_their_time_whatever_order_they_came_in() {
    let changes = vec![
        change(9 * MS, Change::Delay(30 * MS)),
        change(4 * MS + 1, Change::Delay(60 * MS)),
    ];
    let (left, applied) = changed(&mut every_ms(200 * MS), changes);
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
fn change_from_the_mailbox_never_acts_in_the_past() {
    let mut fake = every_ms(200 * MS);
    let late = change(3 * MS, Change::Delay(50 * MS));
    fake.changes = [(7 * MS, late)].into();
    let (left, applied) = changed(&mut fake, Vec::new());
    // Packets up to 6 ms have been taken already: the change comes right after them.
    assert_eq!(applied, [6 * MS]);
    assert_eq!((left[5], left[6]), (46 * MS, 57 * MS));
}

#[test]
fn outage_ends_by_itself_unless_a_newer_one_says_otherwise() {
    let outage = |at: Nanos, lasts: Nanos| Scheduled {
        lasts: Some(lasts),
        ..change(at, Change::Outage(true))
    };
    let (left, applied) = changed(
        &mut every_ms(100 * MS),
        vec![outage(2 * MS + 1, 4 * MS), outage(4 * MS + 1, 4 * MS)],
    );
    assert_eq!(applied, [2 * MS + 1, 4 * MS + 1, 8 * MS + 1]);
    assert_eq!(left.len(), 2 + 11);
    assert_eq!(left[2], 49 * MS);
}

#[test]
fn an_outage_of_all_outlasts_an_earlier_one_of_a_terminal() {
    let of_one = Scheduled {
        terminal: Some(0),
        lasts: Some(4 * MS),
        ..change(2 * MS + 1, Change::Outage(true))
    };
    let of_all = change(4 * MS + 1, Change::Outage(true));
    let (left, applied) = changed(&mut every_ms(100 * MS), vec![of_one, of_all]);
    assert_eq!(applied, [2 * MS + 1, 4 * MS + 1]);
    assert_eq!(left.len(), 2);
}

#[test]
fn a_newer_outage_of_a_terminal_outlasts_one_of_all() {
    let of_all = Scheduled {
        lasts: Some(4 * MS),
        ..change(2 * MS + 1, Change::Outage(true))
    };
    let own = |at: Nanos, is_down: bool, lasts: Option<Nanos>| Scheduled {
        terminal: Some(0),
        lasts,
        ..change(at, Change::Outage(is_down))
    };
    let until_changed = vec![own(4 * MS + 1, true, None), own(9 * MS + 1, false, None)];
    let for_5_ms = vec![own(4 * MS + 1, true, Some(5 * MS))];
    for mut changes in [until_changed, for_5_ms] {
        changes.push(of_all.clone());
        let (left, applied) = changed(&mut every_ms(100 * MS), changes);
        assert_eq!(applied, [2 * MS + 1, 4 * MS + 1, 6 * MS + 1, 9 * MS + 1]);
        // The end of the one of all, at 6 ms, brings nothing back; the terminal's own does.
        assert_eq!(left[..3], [41 * MS, 42 * MS, 50 * MS]);
    }
}

#[test]
fn a_plan_of_another_process_counts_from_when_it_came() {
    let agreement = dvb::dama::Agreement {
        cra_kbps: 0,
        rbdc_max_kbps: None,
        vbdc_max_kbit: Some(1000),
        duration: 23,
    };
    let fifo = link::Fifo {
        access: dvb::dama::Access::Vbdc,
        packets: 100,
    };
    let carrier = Carrier::Return {
        symbol_rate: 16_000_000,
        waveform: dvb::rcs2::Waveform::by_id(12).unwrap(),
        superframe: 26_500_000,
        slots: 791,
    };
    let config = LinkConfig {
        demand: Some(link::Demand {
            fifos: vec![fifo],
            fifo_of_dscp: [0; 64],
            agreement,
            fca_kbps: 0,
            synchro: 1000 * MS,
            others: Vec::new(),
            plans: link::Plans::default(),
        }),
        ..LinkConfig::new(carrier, 20 * MS, Queue::drop_tail(10_000), 1)
    };
    let grant = dvb::dama::Grant {
        vbdc: 2,
        ..dvb::dama::Grant::default()
    };
    let (free, signalling) = (0, 0);
    let plan = Change::Plan {
        grant,
        free,
        signalling,
    };
    let mut fake = Fake {
        arrivals: [(MS, ipv4(100, 1))].into(),
        changes: [(90 * MS, Scheduled::new(0, plan, Origin::Control))].into(),
        ..Fake::default()
    };
    let mut drive = Drive::new(Sender::new(config, 1).unwrap(), 1000 * MS, MS);
    let mut written = |now: Nanos| {
        fake.now = now;
        drive.turn(0, &mut fake, |_| {}).unwrap();
        fake.written.len()
    };
    // The request of time 0. The thread looks at the link at 80 ms, and at 90 when the plan has
    // come.
    assert_eq!([2 * MS, 80 * MS, 90 * MS].map(&mut written), [1, 1, 1]);
    // The plan acts at 110 ms, after the superframe of 106 ms has begun.
    assert_eq!([131 * MS, 134 * MS].map(&mut written), [1, 2]);
}
