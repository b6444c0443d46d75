// SPDX-License-Identifier: GPL-3.0-or-later

use super::*;
use proptest::prelude::*;

#[derive(Default)]
struct Wires {
    sent: Vec<Vec<u8>>,
    delivered: Vec<Vec<u8>>,
}

impl Output for Wires {
    fn send(&mut self, datagram: &[u8]) {
        self.sent.push(datagram.to_vec());
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.delivered.push(packet.to_vec());
    }
}

fn end(session: u64) -> Session {
    end_with(session, Code::new(2, 10).ok().into())
}

fn end_with(session: u64, protection: Protection) -> Session {
    let parameters = Parameters {
        session,
        protection,
        delivery: Delivery::Immediate,
        mtu: 1400,
        peer_timeout: 5000 * MS,
    };
    Session::new(parameters, 0)
}

/// Runs both ends from `now` for a second, without losses.
fn second(ends: &mut [Session; 2], wires: &mut [Wires; 2], now: Nanos) {
    for step in 0..100 {
        let now = now + step * 10 * MS;
        for side in 0..2 {
            ends[side].timeout(now, &mut wires[side]);
            for datagram in std::mem::take(&mut wires[side].sent) {
                ends[1 - side].receive(now, &datagram, &mut wires[1 - side]);
            }
        }
    }
}

#[test]
fn ends_hear_each_other_and_carry_packets_both_ways() {
    let (mut ends, mut wires) = ([end(1), end(2)], [Wires::default(), Wires::default()]);
    ends[0].push(0, b"early", &mut wires[0]);
    assert_eq!(ends[0].dropped().unconnected, 1);
    second(&mut ends, &mut wires, 0);
    for side in 0..2 {
        let peer_window = 10;
        assert_eq!(ends[side].events(), [Event::Connected { peer_window }]);
        ends[side].push(1000 * MS, b"packet", &mut wires[side]);
    }
    second(&mut ends, &mut wires, 1000 * MS);
    for side in 0..2 {
        assert_eq!(wires[side].delivered, [b"packet"]);
        assert_eq!(ends[side].dropped().unexpected, 0);
    }
}

#[test]
fn an_end_that_starts_anew_begins_new_streams() {
    let (mut ends, mut wires) = ([end(1), end(2)], [Wires::default(), Wires::default()]);
    second(&mut ends, &mut wires, 0);
    for number in 0..50 {
        ends[0].push(1000 * MS, &[number], &mut wires[0]);
    }
    second(&mut ends, &mut wires, 1000 * MS);
    ends[1] = end(3);
    second(&mut ends, &mut wires, 2000 * MS);
    ends[0].push(3000 * MS, b"again", &mut wires[0]);
    second(&mut ends, &mut wires, 3000 * MS);
    assert_eq!(wires[1].delivered.len(), 51);
    let lost = |end: &Session| end.receiver().unwrap().counters().lost;
    assert_eq!(ends.each_ref().map(lost), [0, 0]);
}

#[test]
fn packets_in_flight_to_an_end_that_starts_anew_do_not_hold_up_its_streams() {
    let (mut ends, mut wires) = ([end(1), end(2)], [Wires::default(), Wires::default()]);
    second(&mut ends, &mut wires, 0);
    for number in 0..2000_u32 {
        ends[0].push(1000 * MS, &number.to_be_bytes(), &mut wires[0]);
    }
    second(&mut ends, &mut wires, 1000 * MS);
    ends[1] = end(3);
    // Before the peer has heard of it, a greeting and data for the end before arrive.
    ends[0].timeout(3000 * MS, &mut wires[0]);
    ends[0].push(3000 * MS, b"in flight", &mut wires[0]);
    for datagram in std::mem::take(&mut wires[0].sent) {
        ends[1].receive(3000 * MS, &datagram, &mut wires[1]);
    }
    second(&mut ends, &mut wires, 3000 * MS);
    ends[0].push(4000 * MS, b"again", &mut wires[0]);
    second(&mut ends, &mut wires, 4000 * MS);
    assert_eq!(wires[1].delivered.last().unwrap(), b"again");
    assert_eq!(ends[1].receiver().unwrap().counters().late, 0);
}

#[test]
fn a_silent_peer_and_one_with_another_mtu_are_named() {
    let mut alone = end(1);
    let mut wires = Wires::default();
    for now in (0..5000).map(|ms| ms * MS) {
        alone.timeout(now, &mut wires);
    }
    assert_eq!(alone.events(), []);
    assert_eq!(alone.next_timeout(), 5000 * MS);
    alone.timeout(5000 * MS, &mut wires);
    assert_eq!(alone.events(), [Event::Silent(None)]);
    let other = Hello {
        session: 2,
        peer: 1,
        window: 0,
        mtu: 1300,
        wants_reports: false,
    };
    alone.receive(5000 * MS, &other.frame(), &mut wires);
    assert_eq!((alone.events(), alone.dropped().foreign), (vec![], 1));
    alone.timeout(10_000 * MS, &mut wires);
    assert_eq!(alone.events(), [Event::Silent(Some(Misfit::Mtu(1300)))]);
    assert!(!alone.is_connected());
}

#[test]
fn a_peer_of_another_version_is_named_once_it_is_all_that_was_heard() {
    let mut alone = end(1);
    let mut wires = Wires::default();
    let older = [&b"\x80SFEC\x01"[..], &[1; 20]].concat();
    alone.receive(0, &older, &mut wires);
    assert_eq!((alone.events(), alone.dropped().foreign), (vec![], 1));
    assert!(wires.sent.is_empty());
    alone.timeout(5000 * MS, &mut wires);
    assert_eq!(alone.events(), [Event::Silent(Some(Misfit::Version(1)))]);
    assert!(!alone.is_connected());
}

/// One direction is adaptive, the other is not: the losses of the first alone are reported.
#[test]
fn an_adaptive_end_follows_the_reports_of_the_peer_and_falls_back_in_silence() {
    let mut ends = [end_with(1, Protection::Adaptive), end(2)];
    let mut wires = [Wires::default(), Wires::default()];
    second(&mut ends, &mut wires, 0);
    ends[0].events();
    let codes = |end: &mut Session| -> Vec<(u16, bool)> {
        let events = end.events().into_iter();
        let codes = events.filter_map(|event| match event {
            Event::Code { code, report } => Some((code.step(), report.is_some())),
            _ => None,
        });
        codes.collect()
    };
    for number in 0..2000_u64 {
        let now = (1000 + number) * MS;
        ends[0].push(now, &[1; 20], &mut wires[0]);
        let is_lost = number % 600 < 30 && number >= 600;
        for side in 0..2 {
            ends[side].timeout(now, &mut wires[side]);
            for datagram in std::mem::take(&mut wires[side].sent) {
                if side == 1 || !is_lost {
                    ends[1 - side].receive(now, &datagram, &mut wires[1 - side]);
                }
            }
        }
    }
    assert_eq!(codes(&mut ends[0]), [(2, true)]);
    assert!(ends[0].reports() >= 7 && ends[1].reports() == 0);
    // The first run of 30 packets comes before the first report of one.
    assert_eq!(ends[1].receiver().unwrap().counters().lost, 30);
    // The peer goes away: the code stays, as it is above what a blind end needs.
    ends[0].timeout(8500 * MS, &mut wires[0]);
    assert_eq!(codes(&mut ends[0]), []);
    assert_eq!(ends[0].sender().code().unwrap().step(), 2);
}

#[test]
fn test_t53_reports_that_were_not_asked_for_are_counted() {
    let (mut ends, mut wires) = ([end(1), end(2)], [Wires::default(), Wires::default()]);
    second(&mut ends, &mut wires, 0);
    let report = [2, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 1];
    ends[0].receive(1000 * MS, &report, &mut wires[0]);
    assert_eq!((ends[0].reports(), ends[0].dropped().unexpected), (0, 1));
}

/// In the queue of a connection with congestion control greetings may wait behind much data.
#[test]
fn a_peer_that_sends_data_is_not_silent() {
    let (mut ends, mut wires) = ([end(1), end(2)], [Wires::default(), Wires::default()]);
    second(&mut ends, &mut wires, 0);
    ends[1].events();
    for now in (1000..9000).step_by(10).map(|ms| ms * MS) {
        ends[0].push(now, b"packet", &mut wires[0]);
        for datagram in std::mem::take(&mut wires[0].sent) {
            ends[1].receive(now, &datagram, &mut wires[1]);
        }
        ends[1].timeout(now, &mut wires[1]);
    }
    assert_eq!(ends[1].events(), []);
    ends[1].timeout(14_000 * MS, &mut wires[1]);
    assert_eq!(ends[1].events(), [Event::Silent(None)]);
}

/// Of another version, of another MTU, of a session that does not know this one, and one with a
/// number that was guessed.
#[test]
fn test_t62_forged_greetings_end_nothing_and_are_counted() {
    let (mut ends, mut wires) = ([end(1), end(2)], [Wires::default(), Wires::default()]);
    second(&mut ends, &mut wires, 0);
    for end in &mut ends {
        end.events();
    }
    let forged = |session, peer, mtu| {
        let (window, wants_reports) = (0, false);
        Hello {
            session,
            peer,
            window,
            mtu,
            wants_reports,
        }
        .frame()
    };
    let older = [&b"\x80SFEC\x01"[..], &[1; 20]].concat();
    let greetings = [
        older,
        forged(2, 1, 1300),
        forged(9, 0, 1400),
        forged(9, 8, 1400),
    ];
    for greeting in &greetings {
        wires[0].sent.clear();
        ends[0].receive(1000 * MS, greeting, &mut wires[0]);
        let answered: usize = wires[0].sent.iter().map(Vec::len).sum();
        assert!(answered <= greeting.len());
    }
    assert_eq!(ends[0].dropped().foreign, 4);
    assert_eq!((ends[0].is_connected(), ends[0].events()), (true, vec![]));
    ends[0].push(1000 * MS, b"packet", &mut wires[0]);
    second(&mut ends, &mut wires, 1000 * MS);
    assert_eq!(wires[1].delivered, [b"packet"]);
    assert_eq!(ends.each_mut().map(Session::events), [vec![], vec![]]);
}

#[test]
fn data_without_a_greeting_and_foreign_datagrams_are_counted() {
    let mut alone = end(1);
    let mut wires = Wires::default();
    Sender::new(None).push(0, b"packet", |frame| alone.receive(0, frame, &mut wires));
    for foreign in [&b"\x7fELF"[..], b"\x80SFEC\x02", b"\xff", b""] {
        alone.receive(0, foreign, &mut wires);
    }
    let dropped = alone.dropped();
    assert_eq!((dropped.unexpected, dropped.foreign), (1, 4));
    assert!(wires.delivered.is_empty());
}

proptest! {
    #[test]
    fn any_datagrams_leave_an_end_working(
        datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..40),
    ) {
        let (mut ends, mut wires) = ([end(1), end(2)], [Wires::default(), Wires::default()]);
        second(&mut ends, &mut wires, 0);
        for datagram in &datagrams {
            ends[0].receive(1000 * MS, datagram, &mut wires[0]);
        }
        second(&mut ends, &mut wires, 1000 * MS);
        prop_assert!(ends[0].is_connected());
    }
}
