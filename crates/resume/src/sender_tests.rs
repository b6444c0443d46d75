// SPDX-License-Identifier: GPL-3.0-or-later
//! The examples of RFC 9959 to the packet, and properties over random paths.

use proptest::prelude::*;

use super::*;

const PACKET: u64 = 1000;
const INITIAL: u64 = 10;
const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_millis(600);

/// A sender and the packets that it has in flight, oldest first.
struct Path {
    sender: Sender,
    now: Instant,
    next: u64,
    in_flight: std::collections::VecDeque<(u64, Instant)>,
    largest_acked: Option<u64>,
}

impl Path {
    fn new(saved_packets: u64) -> Self {
        let now = Instant::now() + 100 * RTT;
        let saved = Parameters {
            cwnd_bytes: saved_packets * PACKET,
            rtt: RTT,
        };
        Self {
            sender: Sender::new(now, INITIAL * PACKET, 1000, Some(saved), Mode::Careful),
            now,
            next: 0,
            in_flight: std::collections::VecDeque::new(),
            largest_acked: None,
        }
    }

    /// Sends up to `most` packets, as the window allows; returns how many.
    fn send(&mut self, most: u64) -> u64 {
        let mut sent = 0;
        while sent < most && self.flight() + PACKET <= self.sender.window() {
            self.sender.sent(self.now, PACKET, self.next);
            self.in_flight.push_back((self.next, self.now));
            self.next += 1;
            sent += 1;
        }
        sent
    }

    fn flight(&self) -> u64 {
        self.in_flight.len() as u64 * PACKET
    }

    fn ack_sent_over(&mut self, count: u64, rtt: Duration) {
        for _ in 0..count {
            let Some((number, _)) = self.in_flight.pop_front() else {
                return;
            };
            let sent = self.now.checked_sub(rtt).unwrap();
            self.sender.acked(self.now, sent, PACKET, false, rtt);
            self.largest_acked = self.largest_acked.max(Some(number));
            let (flight, largest) = (self.flight(), self.largest_acked);
            self.sender.end_acks(self.now, flight, false, largest);
        }
    }

    fn ack(&mut self, count: u64) {
        self.ack_sent_over(count, RTT);
    }

    fn lose(&mut self, count: u64) {
        for _ in 0..count {
            let Some((_, sent)) = self.in_flight.pop_front() else {
                return;
            };
            self.sender.congestion(self.now, sent, false, PACKET);
        }
    }

    fn packets(bytes: u64) -> u64 {
        bytes / PACKET
    }

    fn window(&self) -> u64 {
        Self::packets(self.sender.window())
    }

    /// The RFC's example: initial window of 10, 29 in flight at the jump, 300 saved.
    fn at_the_jump() -> Self {
        let mut path = Self::new(300);
        path.sender.cubic.set(29 * PACKET, u64::MAX);
        assert_eq!(path.send(29), 29);
        path.now += RTT;
        path.sender.rtt = RTT;
        path.sender.start_jump(path.now, 150 * PACKET);
        path
    }
}

#[test]
// promise: P73
fn example_of_a_jump_that_is_validated() {
    let mut path = Path::at_the_jump();
    assert_eq!(
        (path.sender.phase(), path.window()),
        (Phase::Unvalidated, 150)
    );
    assert_eq!(path.send(1000), 121);
    assert_eq!(
        (path.sender.phase(), path.window()),
        (Phase::Validating, 150)
    );
    // Slow start by the rest of the ordinary flight; the jump's last packet is number 149.
    path.now += RTT;
    path.ack(149);
    assert_eq!(path.sender.phase(), Phase::Validating);
    path.ack(1);
    assert_eq!((path.sender.phase(), path.window()), (Phase::Normal, 300));
    let triggers: Vec<_> = path
        .sender
        .take_updates()
        .iter()
        .map(|it| it.trigger)
        .collect();
    assert_eq!(
        triggers,
        [
            None,
            Some(Trigger::CwndLimited),
            Some(Trigger::LastUnvalidatedPacketSent),
            Some(Trigger::LastUnvalidatedPacketAcknowledged)
        ]
    );
}

#[test]
fn example_of_a_sender_without_enough_data() {
    let mut path = Path::at_the_jump();
    path.send(21);
    path.now += RTT + MS;
    // 50 are in flight, more than the 29 that were confirmed.
    path.sender.end_acks(path.now, path.flight(), true, None);
    assert_eq!(
        (path.sender.phase(), path.window()),
        (Phase::Validating, 50)
    );

    let mut idle = Path::at_the_jump();
    idle.now += RTT + MS;
    idle.sender.end_acks(idle.now, 29 * PACKET, true, None);
    assert_eq!((idle.sender.phase(), idle.window()), (Phase::Normal, 29));
    let last = idle.sender.take_updates().pop().unwrap();
    assert_eq!(last.trigger, Some(Trigger::RateLimited));
}

#[test]
fn example_of_a_loss_while_validating() {
    let mut path = Path::at_the_jump();
    path.send(1000);
    path.now += RTT;
    // 29 in flight at the jump and 34 acknowledged since: PipeSize is 63.
    path.ack(34);
    path.lose(1);
    assert_eq!(Path::packets(path.sender.pipe_size()), 63);
    assert_eq!(
        (path.sender.phase(), path.window()),
        (Phase::SafeRetreat, 31)
    );
    path.lose(58);
    path.ack(57);
    assert_eq!((path.sender.phase(), path.window()), (Phase::Normal, 31));
    assert_eq!(Path::packets(path.sender.pipe_size()), 120);
    assert_eq!(path.sender.ssthresh(), 84 * PACKET, "120 x 0.7");
    let jump = path.sender.jump().unwrap();
    assert!(jump.retreated);
    assert_eq!(Path::packets(jump.lost_bytes), 59);
}

#[test]
fn marks_of_routers_are_signs_of_congestion_too() {
    let mut path = Path::at_the_jump();
    path.send(50);
    path.sender.congestion(path.now, path.now, false, 0);
    assert_eq!(path.sender.phase(), Phase::SafeRetreat);
    let last = path.sender.take_updates().pop().unwrap();
    assert_eq!(last.trigger, Some(Trigger::EcnCe));
    assert_eq!(serde_json::to_value(Trigger::EcnCe).unwrap(), "ECN_CE");
}

#[test]
fn a_loss_found_after_the_last_acknowledgement_takes_the_jump_back() {
    let mut path = Path::at_the_jump();
    path.send(1000);
    let sent = path.now;
    path.now += RTT;
    path.ack(150);
    assert_eq!(path.sender.phase(), Phase::Normal);
    path.sender.congestion(path.now, sent, false, PACKET);
    assert_eq!(path.sender.phase(), Phase::SafeRetreat);
}

#[test]
fn persistent_congestion_ends_the_jump() {
    let mut path = Path::at_the_jump();
    path.send(1000);
    path.sender.congestion(path.now, path.now, true, PACKET);
    assert_eq!((path.sender.phase(), path.window()), (Phase::Normal, 2));
    assert!(path.sender.jump().unwrap().retreated);
}

/// Confirms the initial window over `rtt`.
fn confirmed(saved_packets: u64, rtt: Duration) -> Path {
    let mut path = Path::new(saved_packets);
    path.send(100);
    path.now += rtt;
    while path.sender.phase() == Phase::Reconnaissance {
        path.ack_sent_over(1, rtt);
        path.send(2);
    }
    path
}

#[test]
fn the_initial_window_confirms_the_path() {
    let mut path = Path::new(300);
    assert_eq!(path.send(100), INITIAL);
    path.now += RTT;
    path.ack(9);
    assert_eq!(path.sender.phase(), Phase::Reconnaissance);
    path.ack(1);
    assert_eq!(
        (path.sender.phase(), path.window()),
        (Phase::Unvalidated, 150)
    );
    assert_eq!(path.sender.jump().unwrap().bytes, 150 * PACKET);
}

#[test]
fn another_round_trip_time_is_another_path() {
    for (rtt, phase) in [
        (RTT / 2, Phase::Normal),
        (RTT / 2 + MS, Phase::Unvalidated),
        (RTT * 10, Phase::Unvalidated),
        (RTT * 10 + MS, Phase::Normal),
    ] {
        let mut path = confirmed(300, rtt);
        assert_eq!(path.sender.phase(), phase, "{rtt:?}");
        let last = path.sender.take_updates().pop().unwrap();
        assert_eq!(
            last.trigger == Some(Trigger::RttNotValidated),
            phase == Phase::Normal
        );
    }
}

#[test]
fn a_loss_of_the_initial_window_leaves_ordinary_congestion_control() {
    let mut path = Path::new(300);
    path.send(100);
    path.now += RTT;
    path.lose(1);
    assert_eq!((path.sender.phase(), path.window()), (Phase::Normal, 7));
    path.ack(100);
    assert!(path.sender.jump().is_none());
}

#[test]
fn nothing_is_gained_by_a_small_set() {
    let path = confirmed(40, RTT);
    assert_eq!((path.sender.phase(), path.window()), (Phase::Normal, 20));
}

#[test]
fn the_jump_is_paced_over_a_round_trip() {
    let mut path = confirmed(2000, RTT);
    // The model of quinn's pacer: 1.25 windows per round trip.
    let (mut t, mut sent) = (0.0, 0);
    while path.sender.phase() == Phase::Unvalidated {
        let window = path.sender.paced_window();
        assert!(
            path.flight() + PACKET <= window,
            "the window never stops the jump"
        );
        t += PACKET as f64 / (1.25 * window as f64);
        sent += path.send(1);
    }
    let share = 1000.0 * t / sent as f64;
    assert!(
        (0.96..=1.0).contains(&share),
        "{share} of the gap RTT / window"
    );
}

#[test]
fn the_bad_example_starts_with_the_whole_window() {
    let saved = Parameters {
        cwnd_bytes: 300 * PACKET,
        rtt: RTT,
    };
    let sender = Sender::new(
        Instant::now(),
        INITIAL * PACKET,
        1000,
        Some(saved),
        Mode::Unvalidated,
    );
    assert_eq!(sender.window(), 300 * PACKET);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Send(u64),
    Ack(u64),
    Lose(u64),
    Mark,
    Wait(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..200_u64).prop_map(Step::Send),
        4 => (1..60_u64).prop_map(Step::Ack),
        1 => (1..20_u64).prop_map(Step::Lose),
        1 => Just(Step::Mark),
        2 => (1..700_u32).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..80)
}

impl Path {
    fn step(&mut self, step: Step) {
        match step {
            Step::Send(count) => {
                self.send(count);
            }
            Step::Ack(count) => self.ack(count),
            Step::Lose(count) => self.lose(count),
            Step::Mark => self.sender.congestion(self.now, self.now, false, 0),
            Step::Wait(ms) => self.now += MS * ms,
        }
    }
}

proptest! {
    #[test]
    // promise: P73
    fn before_confirmation_no_more_than_ordinary_slow_start(steps in steps(), saved in 10..5000_u64) {
        let mut path = Path::new(saved);
        let mut sent_before_any_ack = 0;
        let mut acked = 0;
        for step in steps {
            let before = path.in_flight.len() as u64;
            path.step(step);
            let after = path.in_flight.len() as u64;
            if path.sender.phase() != Phase::Reconnaissance {
                break;
            }
            match step {
                Step::Send(_) if path.largest_acked.is_none() => sent_before_any_ack += after - before,
                Step::Ack(_) => acked += before - after,
                _ => {}
            }
            prop_assert!(sent_before_any_ack <= INITIAL);
            prop_assert!(path.window() <= INITIAL + acked);
        }
    }

    #[test]
    fn after_a_sign_of_congestion_half_the_pipe_and_no_growth(steps in steps(), saved in 100..5000_u64) {
        let mut path = confirmed(saved, RTT);
        let mut bound = None;
        for step in steps {
            path.step(step);
            if path.sender.phase() == Phase::SafeRetreat {
                let limit = *bound.get_or_insert(path.sender.pipe_size() / 2);
                let window = path.sender.window();
                prop_assert!(window <= limit.max(2 * PACKET), "{window} of {limit}");
                bound = Some(limit.min(window).max(2 * PACKET));
            } else if bound.is_some() {
                prop_assert_eq!(path.sender.phase(), Phase::Normal);
                prop_assert!(path.sender.ssthresh() <= path.sender.pipe_size());
                break;
            }
        }
    }

    #[test]
    fn a_jump_is_half_of_what_was_saved_at_most(saved in 10..5000_u64) {
        let mut path = confirmed(saved, RTT);
        path.send(u64::MAX);
        prop_assert!(path.window() <= (saved / 2).max(2 * INITIAL));
    }
}
