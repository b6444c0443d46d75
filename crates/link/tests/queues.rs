// SPDX-License-Identifier: GPL-3.0-or-later
//! Queues on a link: limits, order, marks, and standing queues brought down.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use common::{config, drain, forward};
use link::{
    Accepted, Aqm, Carrier, CoDel, DualPi2, FqCoDel, Link, LinkConfig, Nanos, Pie, Queue, Stage,
    Volume,
};
use proptest::prelude::*;
use std::collections::VecDeque;

const MS: Nanos = 1_000_000;

/// IPv4 and UDP with a valid header checksum: flow by its port, number in the payload.
fn udp(flow: u16, number: u32, len: usize, ecn: u8) -> Vec<u8> {
    let mut packet = vec![0; len.max(32)];
    packet[..10].copy_from_slice(&[0x45, ecn, 0, 0, 0, 0, 0x40, 0, 64, 17]);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let checksum = !header_sum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet[20..22].copy_from_slice(&flow.to_be_bytes());
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet
}

/// One's complement sum of the IPv4 header: 0xffff if its checksum is right.
fn header_sum(packet: &[u8]) -> u16 {
    let words = packet[..20].chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded + (folded >> 16)) as u16
}

fn flow_and_number(packet: &[u8]) -> (u16, u32) {
    let number = packet[28..32].try_into().unwrap();
    (
        u16::from_be_bytes([packet[20], packet[21]]),
        u32::from_be_bytes(number),
    )
}

fn aqms() -> impl Strategy<Value = Aqm> {
    let codel =
        || (0..20 * MS, MS..200 * MS).prop_map(|(target, interval)| CoDel { target, interval });
    let fq = (codel(), 1..64_u32, 1..3000_u32).prop_map(|(codel, flows, quantum)| FqCoDel {
        codel,
        flows,
        quantum,
    });
    let pie = (0..30 * MS, MS..30 * MS, 0..200 * MS).prop_map(|(target, update, burst)| Pie {
        target,
        update,
        burst,
    });
    let dual = (0..30 * MS, MS..30 * MS, 0..10 * MS).prop_map(|(target, update, step)| DualPi2 {
        target,
        update,
        step,
    });
    prop_oneof![
        Just(Aqm::DropTail),
        codel().prop_map(Aqm::CoDel),
        fq.prop_map(Aqm::FqCoDel),
        pie.prop_map(Aqm::Pie),
        dual.prop_map(Aqm::DualPi2),
    ]
}

fn queues() -> impl Strategy<Value = Queue> {
    (2000..60_000_u64, 1..60_u64, aqms(), any::<bool>()).prop_map(|(bytes, packets, aqm, ecn)| {
        Queue {
            bytes,
            packets,
            aqm,
            ecn,
        }
    })
}

proptest! {
    #[test]
    fn limits_order_marks_and_books_hold_for_any_traffic(
        queue in queues(),
        steps in proptest::collection::vec((0..3 * MS, 0..5_u16, 60..1500_usize, 0..4_u8), 1..300),
        seed in any::<u64>(),
    ) {
        let mut link = Link::new(LinkConfig { queue, seed, ..config(forward(1_000_000, 4)) }).unwrap();
        let (mut now, mut released) = (0, vec![]);
        for (number, (gap, flow, len, ecn)) in (0..).zip(steps.iter().copied()) {
            now += gap;
            let dropped = link.counters().packets_dropped;
            link.advance(now);
            let accepted = link.push(now, &udp(flow, number, len, ecn));
            prop_assert!(accepted == Accepted::Queued || link.counters().packets_dropped > dropped);
            let Volume { packets, bytes } = link.queue();
            prop_assert!(bytes <= queue.bytes && packets <= queue.packets, "{bytes} {packets}");
            released.extend(drain(&mut link, now));
        }
        released.extend(drain(&mut link, Nanos::MAX));
        // DualPI2 has two queues, and marks in any case.
        let is_dual = matches!(queue.aqm, Aqm::DualPi2(_));
        let mut last = [None; 10];
        let mut marked = 0;
        for release in &released {
            let (flow, number) = flow_and_number(&release.packet);
            let sent = steps[number as usize].3;
            let of_queue = usize::from(flow) + if is_dual && sent % 2 == 1 { 5 } else { 0 };
            prop_assert!(last[of_queue] < Some(number), "flow {} out of order", flow);
            last[of_queue] = Some(number);
            prop_assert_eq!(header_sum(&release.packet), 0xffff);
            let got = release.packet[1];
            prop_assert!(got == sent || (got == 3 && sent != 0 && (queue.ecn || is_dual)));
            marked += u64::from(got != sent);
        }
        let counters = link.counters();
        prop_assert!(counters.packets_marked >= marked);
        prop_assert_eq!(counters.packets_in, counters.packets_dropped + counters.packets_out);
        prop_assert_eq!(counters.bytes_in, counters.bytes_dropped + counters.bytes_out);
        prop_assert_eq!(link.next_event(), None);
    }
}

/// Runs a sender that slows down by a twentieth per drop or mark, at most once in 200 ms, for 60 s
/// at QPSK 1/2, 10 Mbaud. Returns mean waiting time in ms, drops, marks, and the share of the
/// carrier that was used.
fn standing(queue: Queue, ecn: u8) -> (f64, u64, u64, f64) {
    let mut link = Link::new(LinkConfig {
        queue,
        delay: 0,
        ..config(forward(10_000_000, 4))
    })
    .unwrap();
    let (mut gap, mut next, mut blamed, mut number) = (1e6_f64, 0.0, 0, 0);
    let (mut waited, mut samples) = (0.0, 0.0);
    for now in (0..60_000 * MS).step_by(MS as usize) {
        let before = link.counters();
        while next <= now as f64 {
            let _: Accepted = link.push(next as Nanos, &udp(1, number, 1500, ecn));
            number += 1;
            gap = (gap * 0.9999).max(3e5);
            next += gap;
        }
        drain(&mut link, now);
        let after = link.counters();
        let signals = after.packets_dropped + after.packets_marked
            - before.packets_dropped
            - before.packets_marked;
        if signals > 0 && now >= blamed {
            gap *= 1.05;
            blamed = now + 200 * MS;
        }
        if now > 20_000 * MS {
            // At 9.8 Mbit/s.
            waited += link.queue().bytes as f64 * 8.0 / 9.8e3;
            samples += 1.0;
        }
    }
    let counters = link.counters();
    let used = counters.bytes_out as f64 * 8.0 / 60.0 / 9.8e6;
    (
        waited / samples,
        counters.packets_dropped,
        counters.packets_marked,
        used,
    )
}

#[test]
fn active_management_keeps_a_standing_queue_near_its_target() {
    let queue = |aqm, ecn| Queue {
        bytes: 500_000,
        packets: u64::MAX,
        aqm,
        ecn,
    };
    let (tail, ..) = standing(queue(Aqm::DropTail, false), 0);
    assert!(tail > 200.0, "drop-tail {tail} ms");
    for (aqm, most) in [
        (Aqm::CoDel(CoDel::default()), 40.0),
        (Aqm::FqCoDel(FqCoDel::default()), 40.0),
        (Aqm::Pie(Pie::default()), 40.0),
    ] {
        let (waited, dropped, marked, used) = standing(queue(aqm, false), 2);
        assert!(
            waited < most && dropped > 0 && marked == 0,
            "{aqm:?}: {waited} ms, {dropped}"
        );
        assert!(used > 0.85, "{aqm:?}: {used}");
        // ECN-capable packets are marked, and none is dropped; PIE drops them too where it would
        // hit more than a tenth.
        let (waited, dropped, marked, _) = standing(queue(aqm, true), 2);
        assert!(
            waited < most && marked > 0,
            "{aqm:?}: {waited} ms, {marked} marked"
        );
        assert!(
            dropped == 0 || matches!(aqm, Aqm::Pie(_)),
            "{aqm:?}: {dropped} dropped"
        );
        // Packets without ECN are dropped, whatever the setting of the queue.
        let (_, dropped, marked, _) = standing(queue(aqm, true), 0);
        assert!(dropped > 0 && marked == 0, "{aqm:?}");
    }
}

#[test]
fn dual_queue_keeps_classic_traffic_near_its_target_and_drops_without_ecn() {
    let queue = Queue {
        aqm: Aqm::DualPi2(DualPi2::default()),
        ..Queue::drop_tail(500_000)
    };
    for ecn in [0, 2] {
        let (waited, dropped, marked, used) = standing(queue, ecn);
        assert!(waited < 40.0 && used > 0.85, "{waited} ms, {used} used");
        // The first seconds are an overload, which drops in any case.
        assert!(
            if ecn == 0 {
                marked == 0
            } else {
                dropped < marked / 4
            },
            "{dropped} {marked}"
        );
    }
}

/// A sender with a window: Reno with ECN (a mark halves it, once in a round trip), or, with
/// `alpha`, one that is scalable as DCTCP and Prague (RFC 8257 section 3.3).
struct Sender {
    alpha: Option<f64>,
    window: f64,
    in_flight: u32,
    /// Round trip: its end, and the packets and marks in it.
    round_end: u32,
    acked: u32,
    marked: u32,
    sent: u32,
}

impl Sender {
    fn new(alpha: Option<f64>) -> Self {
        Self {
            alpha,
            window: 10.0,
            in_flight: 0,
            round_end: 10,
            acked: 0,
            marked: 0,
            sent: 0,
        }
    }

    fn on_ack(&mut self, number: u32, is_marked: bool) {
        self.in_flight -= 1;
        self.acked += 1;
        self.marked += u32::from(is_marked);
        if !is_marked {
            self.window += 1.0 / self.window;
        }
        let reduction = match &mut self.alpha {
            None if self.marked == 1 && is_marked => 0.5,
            Some(alpha) if number >= self.round_end => {
                let share = f64::from(self.marked) / f64::from(self.acked);
                *alpha += (share - *alpha) / 16.0;
                if self.marked > 0 { *alpha / 2.0 } else { 0.0 }
            }
            _ => 0.0,
        };
        self.window = (self.window * (1.0 - reduction)).max(2.0);
        if number >= self.round_end {
            (self.acked, self.marked, self.round_end) = (0, 0, self.sent);
        }
    }
}

/// Five Reno and five scalable flows for a minute, the native threshold of L4S out of the way: the
/// factor k that their marks give, and the ratio of their windows.
fn coupling_and_balance(rate_mbps: u64) -> (f64, f64) {
    let mut link = Link::new(LinkConfig {
        queue: Queue {
            aqm: Aqm::DualPi2(DualPi2 {
                step: 100 * MS,
                ..DualPi2::default()
            }),
            ..Queue::drop_tail(10_000_000)
        },
        delay: 10 * MS,
        ..config(Carrier::line(rate_mbps * 1_000_000))
    })
    .unwrap();
    let alphas = [None, Some(1.0)].into_iter().cycle();
    let mut senders: Vec<_> = alphas.take(10).map(Sender::new).collect();
    let mut acks: VecDeque<(Nanos, u16, u32, bool)> = VecDeque::new();
    // Of each kind: packets, marks, and the sum of the windows every millisecond.
    let mut seen = [[0.0_f64; 3]; 2];
    for now in (0..60_000 * MS).step_by(100_000) {
        while acks.front().is_some_and(|&(at, ..)| at <= now) {
            let (_, flow, number, is_marked) = acks.pop_front().unwrap();
            senders[usize::from(flow)].on_ack(number, is_marked);
        }
        for (flow, sender) in (0..).zip(&mut senders) {
            while f64::from(sender.in_flight) < sender.window.floor() {
                let ecn = if sender.alpha.is_some() { 1 } else { 2 };
                let _: Accepted = link.push(now, &udp(flow, sender.sent, 1500, ecn));
                sender.sent += 1;
                sender.in_flight += 1;
            }
        }
        for release in drain(&mut link, now) {
            let (flow, number) = flow_and_number(&release.packet);
            let is_marked = release.packet[1] == 3;
            acks.push_back((release.due + 10 * MS, flow, number, is_marked));
            if now > 20_000 * MS {
                let seen = &mut seen[usize::from(flow) % 2];
                seen[0] += 1.0;
                seen[1] += f64::from(u8::from(is_marked));
            }
        }
        if now > 20_000 * MS && now % MS == 0 {
            for (flow, sender) in senders.iter().enumerate() {
                seen[flow % 2][2] += sender.window;
            }
        }
    }
    assert_eq!(link.counters().packets_dropped, 0);
    let share = seen.map(|[packets, marks, _]| marks / packets);
    let coupling = share[1] / share[0].sqrt();
    let balance = seen[0][2] / seen[1][2];
    (coupling, balance)
}

// promise: P5
/// RFC 9332 section 2.1, equation 1: `p_C = (p_CL / k)^2` with k = 2, which balances the windows
/// of Reno flows, 1.22 / sqrt(`p_C`), and of scalable ones, 2 / `p_CL`: 1.22 to 1, whatever the
/// rate.
#[test]
fn dual_queue_couples_marks_by_the_square_and_balances_reno_with_a_scalable_sender() {
    let found = [40, 100, 200].map(coupling_and_balance);
    // The mean of a square is above the square of the mean, as p' moves with Reno's windows.
    let is_coupled = |&(k, _): &(f64, f64)| (1.8..2.02).contains(&k);
    assert!(found.iter().all(is_coupled), "{found:?}");
    // Windows of a dozen packets are farther from the law of large ones.
    let balance: Vec<_> = found.iter().map(|it| it.1 / 1.22).collect();
    assert!(balance.is_sorted_by(|a, b| a > b), "{balance:?}");
    assert!(
        balance[0] < 1.4 && (0.95..1.1).contains(&balance[2]),
        "{balance:?}"
    );
}

#[test]
fn sojourn_is_taken_in_model_time_whoever_polls() {
    for aqm in [
        Aqm::CoDel(CoDel::default()),
        Aqm::DualPi2(DualPi2::default()),
    ] {
        sojourn_in_model_time(aqm);
    }
}

fn sojourn_in_model_time(aqm: Aqm) {
    let queue = Queue {
        aqm,
        ..Queue::drop_tail(1_000_000)
    };
    let run = |polls: Nanos| {
        let mut link = Link::new(LinkConfig {
            queue,
            ..config(forward(10_000_000, 4))
        })
        .unwrap();
        let mut released = vec![];
        for number in 0..3000 {
            let now = u64::from(number) * MS;
            let _: Accepted = link.push(now, &udp(1, number, 1500, 0));
            if now % polls == 0 {
                released.extend(drain(&mut link, now));
            }
        }
        released.extend(drain(&mut link, Nanos::MAX));
        (released, link.counters())
    };
    let (often, counters) = run(MS);
    assert_eq!((often, counters), run(1000 * MS));
    assert!(counters.packets_dropped > 10);
}

#[test]
fn flow_queues_let_a_thin_flow_pass_a_fat_one() {
    let waits = |aqm| {
        let queue = Queue {
            aqm,
            ..Queue::drop_tail(300_000)
        };
        let mut link = Link::new(LinkConfig {
            queue,
            delay: 0,
            ..config(forward(10_000_000, 4))
        })
        .unwrap();
        let mut waits = vec![];
        for step in 0..5000_u32 {
            let now = u64::from(step) * MS;
            let _: Accepted = link.push(now, &udp(1, step, 1500, 0));
            let _: Accepted = link.push(now, &udp(1, step, 1500, 0));
            if step % 50 == 0 {
                let _: Accepted = link.push(now, &udp(2, step, 100, 0));
            }
            for release in drain(&mut link, now) {
                let (flow, number) = flow_and_number(&release.packet);
                if flow == 2 {
                    waits.push((release.due - u64::from(number) * MS) / MS);
                }
            }
        }
        waits
    };
    let fair = waits(Aqm::FqCoDel(FqCoDel::default()));
    assert!(
        fair.len() > 95 && fair.iter().all(|&ms| ms <= 10),
        "{fair:?}"
    );
    assert!(waits(Aqm::DropTail).iter().max() > Some(&200));
}

#[test]
fn packets_limit_counts_the_packet_in_fragmentation() {
    let queue = Queue {
        packets: 2,
        ..Queue::drop_tail(1_000_000)
    };
    let mut link = Link::new(LinkConfig {
        queue,
        ..config(forward(1_000_000, 1))
    })
    .unwrap();
    let pushed: Vec<_> = (0..3)
        .map(|number| link.push(0, &udp(1, number, 1500, 0)))
        .collect();
    assert_eq!(
        pushed,
        [Accepted::Queued, Accepted::Queued, Accepted::Dropped]
    );
    // The first frame of 1991 bytes holds one packet and a piece of the second.
    link.advance(1);
    assert_eq!(link.queue().packets, 1);
    assert_eq!(link.push(1, &udp(1, 3, 1500, 0)), Accepted::Queued);
    assert_eq!(link.push(1, &udp(1, 4, 1500, 0)), Accepted::Dropped);
}

#[test]
fn impossible_queues_are_refused() {
    let refused = |queue| {
        Link::new(LinkConfig {
            queue,
            ..config(forward(1_000_000, 1))
        })
        .is_err()
    };
    let tail = Queue::drop_tail(1000);
    let interval = CoDel {
        interval: 0,
        ..CoDel::default()
    };
    for aqm in [
        Aqm::CoDel(interval),
        Aqm::FqCoDel(FqCoDel {
            flows: 0,
            ..FqCoDel::default()
        }),
        Aqm::FqCoDel(FqCoDel {
            quantum: 0,
            ..FqCoDel::default()
        }),
        Aqm::FqCoDel(FqCoDel {
            codel: interval,
            ..FqCoDel::default()
        }),
        Aqm::Pie(Pie {
            update: 0,
            ..Pie::default()
        }),
        Aqm::DualPi2(DualPi2 {
            update: 0,
            ..DualPi2::default()
        }),
    ] {
        assert!(refused(Queue { aqm, ..tail }), "{aqm:?}");
    }
    assert!(refused(Queue { packets: 0, ..tail }) && !refused(tail));
}
