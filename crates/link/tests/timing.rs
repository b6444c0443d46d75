// SPDX-License-Identifier: GPL-3.0-or-later
//! Release times to the nanosecond, and what the frames hold.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use common::{GEO, Release, back, config, drain, forward, link, lossy, packet, run};
use link::{
    Accepted, Carrier, Change, Handover, LinkConfig, LinkError, LossUnit, Queue, Stage, Waiting,
    echo_rtt,
};

fn dues(released: &[Release]) -> Vec<u64> {
    released.iter().map(|release| release.due - GEO).collect()
}

#[test]
// promise: P3
fn forward_frames_open_on_the_grid_and_release_at_their_end() {
    // QPSK 1/4 at 40 Mbaud: a frame each 812.25 us.
    let config = config(forward(40_000_000, 1));
    let (released, link) = run(
        &config,
        &[(0, 100), (1, 100), (812_250, 100), (1_000_000_000, 100)],
    );
    // At 0: the frame that opens at 0. At 1 ns: the next, as does the packet that comes at the
    // moment it opens.
    assert_eq!(
        dues(&released),
        [812_250, 1_624_500, 1_624_500, 1_001_504_250]
    );
    assert_eq!(link.counters().frames_sent, 3);
}

#[test]
fn forward_packet_that_needs_several_frames() {
    // 1991 bytes of data field: 1500 bytes fit, the next packet is cut after 1991 - 1510 - 13
    // bytes.
    let config = config(forward(40_000_000, 1));
    let (released, link) = run(&config, &[(5, 1500), (5, 1500), (5, 4000)]);
    // 3000 bytes in two frames, the last 4000 in 958 and 1988 and the rest.
    assert_eq!(dues(&released), [1_624_500, 2_436_750, 4_061_250]);
    assert_eq!(link.counters().frames_sent, 4);
}

#[test]
fn forward_grid_does_not_drift_at_an_odd_symbol_rate() {
    // 32 490 symbols at 7 Mbaud: 4.641428571... ms; frame 7 million starts after exactly 32 490 s.
    let config = config(forward(7_000_000, 1));
    let seconds = 32_490_000_000_000;
    let (released, _) = run(
        &config,
        &[(seconds - 1, 40), (seconds, 40), (seconds + 1, 40)],
    );
    assert_eq!(
        dues(&released),
        [
            seconds + 4_641_428,
            seconds + 4_641_428,
            seconds + 9_282_857
        ]
    );
}

#[test]
// promise: P88
fn a_line_sends_packet_after_packet_at_its_rate() {
    // 10 Mbit/s: 1500 bytes take 1.2 ms; the third packet finds the line free.
    let carrier = Carrier::line(10_000_000);
    let (released, link) = run(&config(carrier), &[(0, 1500), (1, 1500), (9_000_000, 100)]);
    assert_eq!(dues(&released), [1_200_000, 2_400_000, 9_080_000]);
    assert_eq!(link.counters().packets_out, 3);
    let none = config(Carrier::line(0));
    assert_eq!(link::Link::new(none).err(), Some(LinkError::LineRate(0)));
}

#[test]
fn p386_a_line_counts_the_header_of_each_packet() {
    // 10 Mbit/s: 14 bytes take 11.2 us, of a packet of 1500 bytes and of one of 100.
    let ethernet = Carrier::Line {
        rate_bps: 10_000_000,
        header_bytes: 14,
    };
    let packets = [(0, 1500), (0, 100)];
    let (released, _) = run(&config(ethernet), &packets);
    assert_eq!(dues(&released), [1_211_200, 1_302_400]);
    let mut link = link::Link::new(config(Carrier::line(10_000_000))).unwrap();
    link.set(0, &Change::Carrier(ethernet)).unwrap();
    for (number, (at, size)) in packets.into_iter().enumerate() {
        let _: Accepted = link.push(at, &packet(number as u64, size));
    }
    let dues: Vec<_> = drain(&mut link, u64::MAX).iter().map(|it| it.due).collect();
    assert_eq!(dues, [GEO + 1_211_200, GEO + 1_302_400]);
}

#[test]
fn a_line_has_a_queue_a_rate_and_a_delay_that_change() {
    let at_rate = Carrier::line;
    let mut link = link::Link::new(LinkConfig {
        queue: Queue::drop_tail(3000),
        ..config(at_rate(10_000_000))
    })
    .unwrap();
    // One on the line, two in the queue, and one too many.
    for number in 0..4 {
        let _: Accepted = link.push(0, &packet(number, 1500));
    }
    assert_eq!(link.counters().packets_dropped, 1);
    link.set(1_000_000, &Change::Carrier(at_rate(1_000_000)))
        .unwrap();
    link.set(1_000_000, &Change::Delay(2 * GEO)).unwrap();
    let released = drain(&mut link, u64::MAX);
    let expected = [GEO + 1_200_000, 2 * GEO + 13_200_000, 2 * GEO + 25_200_000];
    let dues: Vec<_> = released.iter().map(|it| it.due).collect();
    assert_eq!(dues, expected);
}

#[test]
fn waiting_packets_stay_or_go_when_a_line_is_handed_over() {
    for (waiting, left) in [(Waiting::Keep, 3), (Waiting::Drop, 1)] {
        let carrier = Carrier::line(10_000_000);
        let mut link = link(carrier);
        for number in 0..3 {
            let _: Accepted = link.push(0, &packet(number, 1500));
        }
        let handover = Handover {
            carrier,
            delay: GEO,
            queue: Queue::drop_tail(10_000),
            waiting,
        };
        link.set(1, &Change::Handover(handover)).unwrap();
        assert_eq!(drain(&mut link, u64::MAX).len(), left);
    }
}

#[test]
fn return_slots_are_spread_evenly_and_release_at_the_end_of_the_burst() {
    // 3 slots in 26.5 ms: 0, 8.833333, 17.666666 ms; 536 symbols at 2 Mbaud: 268 us.
    let config = config(back(2_000_000, 3, 3));
    let arrivals = [
        (0, 30),
        (1, 30),
        (8_833_334, 30),
        (17_666_667, 30),
        (53_000_000, 30),
    ];
    let (released, _) = run(&config, &arrivals);
    assert_eq!(
        dues(&released),
        [268_000, 9_101_333, 17_934_666, 26_768_000, 53_268_000]
    );
}

#[test]
fn return_packet_that_needs_several_bursts() {
    // Waveform 3: 38 bytes. 60 bytes: start with 33, end with 27 and the sequence number.
    let config = config(back(2_000_000, 3, 4));
    let (released, link) = run(&config, &[(0, 60), (0, 1500)]);
    // Room after the first end: 38 - 30 - 5 = 3 bytes; then 36 per burst and 1497 = 41 * 36 + 21.
    assert_eq!(
        dues(&released),
        [6_625_000 + 268_000, 43 * 6_625_000 + 268_000]
    );
    assert_eq!(link.counters().frames_sent, 44);
    assert_eq!(link.counters().frame_bytes_available, 44 * 38);
}

#[test]
fn wire_delays_and_nothing_else() {
    let mut link = link(Carrier::Wire);
    assert_eq!(link.push(7, &packet(1, 9000)), Accepted::Queued);
    assert_eq!(link.next_event(), Some(GEO + 7));
    assert_eq!(drain(&mut link, GEO + 6), []);
    assert_eq!(
        drain(&mut link, GEO + 7),
        [Release {
            due: GEO + 7,
            packet: packet(1, 9000)
        }]
    );
    assert_eq!(link.next_event(), None);
}

#[test]
fn idle_link_has_no_event_and_costs_no_frame() {
    for carrier in [forward(1_000_000, 4), back(1_000_000, 13, 8), Carrier::Wire] {
        let mut link = link(carrier);
        assert_eq!(link.next_event(), None);
        link.advance(u64::MAX / 2);
        assert_eq!((link.next_event(), link.counters().frames_sent), (None, 0));
    }
}

#[test]
fn next_event_leads_to_every_release() {
    for carrier in [
        forward(10_000_000, 4),
        back(2_000_000, 3, 50),
        Carrier::Wire,
    ] {
        let mut link = link(carrier);
        for number in 0..40 {
            link.push(number * 1000, &packet(number, 700));
        }
        let mut now = 0;
        while let Some(event) = link.next_event() {
            assert!(event > now);
            now = event;
            assert!(
                drain(&mut link, now)
                    .iter()
                    .all(|release| release.due == now)
            );
        }
        assert_eq!(link.counters().packets_out, 40);
    }
}

#[test]
fn clock_that_runs_backwards_is_harmless() {
    let mut link = link(forward(40_000_000, 1));
    link.push(1_000_000, &packet(1, 100));
    link.push(5, &packet(2, 100));
    assert_eq!(drain(&mut link, 0), []);
    let released = drain(&mut link, 1_000_000_000);
    assert_eq!(dues(&released), [2_436_750, 2_436_750]);
    assert_eq!(drain(&mut link, 3), []);
}

#[test]
fn echo_rtt_is_the_frame_arithmetic() {
    let (there, here) = (
        config(forward(40_000_000, 1)),
        config(back(2_000_000, 3, 4)),
    );
    // 30 bytes: one frame of 812.25 us and one burst of 268 us; waits up to a frame and up to 6.625
    // ms.
    let rtt = echo_rtt(&there, &here, 20_000_000, 30).unwrap();
    let least = 2 * GEO + 20_000_000 + 812_250 + 268_000;
    let wait = 812_250 + 6_625_000;
    assert_eq!(
        (rtt.min, rtt.mean, rtt.max),
        (least, least + wait / 2, least + wait)
    );
    // 84 bytes take three bursts.
    let rtt = echo_rtt(&there, &here, 0, 84).unwrap();
    assert_eq!(rtt.min, 2 * GEO + 812_250 + 2 * 6_625_000 + 268_000);
    let wire = config(Carrier::Wire);
    assert_eq!(echo_rtt(&wire, &wire, 0, 84).unwrap().max, 2 * GEO);
    assert_eq!(
        echo_rtt(&there, &here, 0, 5000),
        Err(LinkError::PacketLength(5000))
    );
}

const ECHOES: u64 = 5000;

#[test]
fn echo_rtt_bounds_what_a_pair_of_links_does() {
    let (there, here) = (
        config(forward(7_000_000, 4)),
        config(back(1_000_000, 13, 11)),
    );
    let rtt = echo_rtt(&there, &here, 0, 300).unwrap();
    let (mut least, mut most, mut sum) = (u64::MAX, 0, 0);
    for number in 0..ECHOES {
        // Far apart, so that the links are idle; the odd distance visits all phases.
        let start = number * 1_000_003_331;
        let request = run(&here, &[(start, 300)]).0[0].due;
        let round = run(&there, &[(request, 300)]).0[0].due - start;
        least = least.min(round);
        most = most.max(round);
        sum += round;
    }
    // A ns for each of the two grids, which round down.
    assert!(
        rtt.min <= least + 2 && most <= rtt.max + 2,
        "{least} to {most} outside {rtt:?}"
    );
    assert!(
        (rtt.mean as f64 - (sum / ECHOES) as f64).abs() < 100_000.0,
        "{} is not {rtt:?}",
        sum / ECHOES
    );
    assert!(
        least < rtt.min + 500_000 && most + 500_000 > rtt.max,
        "{least} to {most} far from {rtt:?}"
    );
}

fn refusal(config: LinkConfig) -> LinkError {
    link::Link::new(config).unwrap_err()
}

#[test]
fn impossible_carriers_are_refused() {
    let bad = |carrier| refusal(config(carrier));
    let Carrier::Forward {
        symbol_rate,
        modcod,
        pilots,
        label,
        ..
    } = forward(1_000_000, 11)
    else {
        unreachable!()
    };
    let frame_size = dvb::modcod::FrameSize::Short;
    let short = Carrier::Forward {
        symbol_rate,
        modcod,
        pilots,
        label,
        frame_size,
    };
    assert_eq!(bad(short), LinkError::NoShortFrame(modcod));
    assert_eq!(bad(forward(0, 1)), LinkError::SymbolRate(0));
    assert_eq!(
        bad(back(1_000_000, 3, 0)),
        LinkError::NoSlots {
            superframe_ns: 26_500_000,
            slots: 0
        }
    );
    // 49 bursts of 536 us last 26.264 ms, 50 do not fit.
    assert!(link::Link::new(config(back(1_000_000, 3, 49))).is_ok());
    let overlap = LinkError::SlotsOverlap {
        slots: 50,
        burst_ns: 536_000,
        superframe_ns: 26_500_000,
    };
    assert_eq!(bad(back(1_000_000, 3, 50)), overlap);
}

#[test]
fn impossible_queues_and_losses_are_refused() {
    let carrier = forward(40_000_000, 11);
    let queue = Queue::drop_tail(0);
    assert_eq!(
        refusal(LinkConfig {
            queue,
            ..config(carrier)
        }),
        LinkError::NoQueue
    );
    let loss = |ratio| refusal(lossy(carrier, ratio, LossUnit::Frame));
    assert_eq!(loss(1.5), LinkError::LossRatio(1.5));
    assert!(matches!(loss(f64::NAN), LinkError::LossRatio(_)));
}
