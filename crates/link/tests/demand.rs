// SPDX-License-Identifier: GPL-3.0-or-later
//! Demand assignment of the return link: first packets, loops, sharing, priorities.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::on_demand as demand;

use demand::{
    BURST, CRA, MS, NOTHING, RBDC, SUPERFRAME, VBDC, config, first_packet, model, packet,
};
use dvb::dama::{Access, Agreement};
use dvb::rcs2::Waveform;
use link::{
    Accepted, Carrier, Change, Counters, Demand, Link, LinkConfig, LinkError, Load, Nanos, Other,
    Queue, Signalling, Stage, Volume, echo_rtt, steady_goodput_bps,
};

#[test]
// promise: P10
fn first_packet_on_demand_takes_what_the_model_says() {
    for (access, agreement) in [(Access::Rbdc, RBDC), (Access::Vbdc, VBDC)] {
        for one_way in [250, 16] {
            let config = config(&[access], agreement, one_way);
            for index in 0..40 {
                let at = 3000 * MS + index * 26_234_567;
                let took = first_packet(&config, at);
                assert_eq!(took, model(at, one_way * MS), "{access:?} {one_way} {at}");
            }
        }
    }
}

#[test]
fn a_link_without_delay_does_not_stand_still() {
    let mut link = Link::new(config(&[Access::Rbdc], RBDC, 0)).unwrap();
    let (mut now, mut out) = (3000 * MS, Vec::new());
    link.push(now, &packet(84, 0));
    let left = (0..1000).any(|_| {
        now = now.max(link.next_event().unwrap());
        link.pop(now, &mut out).is_some()
    });
    assert!(left, "{now}");
}

#[test]
fn first_packet_on_a_constant_rate_waits_for_a_slot_alone() {
    // 50 kbit/s are one burst per superframe.
    for one_way in [250, 16] {
        let config = config(&[Access::Cra], CRA, one_way);
        for index in 0..40 {
            let at = 3000 * MS + index * 1_234_567;
            let slot = at.div_ceil(SUPERFRAME) * SUPERFRAME;
            assert_eq!(
                first_packet(&config, at),
                slot - at + BURST + one_way * MS,
                "{at}"
            );
        }
    }
}

#[test]
fn constant_rate_is_there_from_the_start() {
    let config = config(&[Access::Cra], CRA, 250);
    for at in [1, SUPERFRAME + 1, 200 * MS, 260 * MS, 520 * MS] {
        let slot = at.div_ceil(SUPERFRAME) * SUPERFRAME;
        assert_eq!(first_packet(&config, at), slot - at + BURST + 250 * MS);
    }
}

#[test]
fn echo_on_demand_is_predicted() {
    let back = config(&[Access::Rbdc], RBDC, 250);
    let forward = LinkConfig::new(Carrier::Wire, 0, Queue::drop_tail(1), 1);
    let rtt = echo_rtt(&forward, &back, 0, 84).unwrap();
    // 3d, then 0 to a request period, then the planner's and the terminal's superframe.
    let flight = 750 * MS;
    assert!(
        rtt.min >= flight && rtt.min < flight + 60 * MS,
        "{}",
        rtt.min
    );
    assert!(rtt.max > flight + 990 * MS && rtt.max <= flight + 1053 * MS + BURST);
    // Requests and superframes meet again after 53 s.
    let mean = (0..53_000u64).map(|index| model(3000 * MS + index * MS, 250 * MS));
    let mean = mean.sum::<Nanos>() / 53_000;
    assert!(
        rtt.mean.abs_diff(mean) < 5 * MS,
        "{} is not {mean}",
        rtt.mean
    );
}

/// Counters of the last 20 s of 40 s of a steady stream of one packet per `every`.
fn stream(config: LinkConfig, bytes: usize, every: Nanos) -> Counters {
    let mut link = Link::new(config).unwrap();
    let (mut out, mut before) = (Vec::new(), Counters::default());
    for index in 0..40_000 * MS / every {
        let now = index * every;
        link.push(now, &packet(bytes, 0));
        while link.pop(now, &mut out).is_some() {}
        if now < 20_000 * MS {
            before = link.counters();
        }
    }
    let mut after = link.counters();
    for (new, old) in [
        (&mut after.superframes, before.superframes),
        (&mut after.slots_assigned, before.slots_assigned),
        (&mut after.slots_free, before.slots_free),
        (&mut after.frames_sent, before.frames_sent),
        (&mut after.packets_out, before.packets_out),
        (&mut after.requests, before.requests),
        (&mut after.slots_signalling, before.slots_signalling),
        (&mut after.requests_lost, before.requests_lost),
        (&mut after.plans_lost, before.plans_lost),
    ] {
        *new -= old;
    }
    after
}

/// The golden table of issue 3: acknowledgements of 52 bytes for 20 Mbit/s of 1500-byte packets, of
/// every second, fourth, tenth and hundredth packet; free bursts per superframe of 791.
#[test]
// promise: P11
fn fewer_acknowledgements_leave_more_slots_free() {
    let golden = [
        (Access::Rbdc, RBDC, [784.6, 787.8, 789.7, 790.7]),
        (Access::Vbdc, VBDC, [784.6, 787.8, 789.7, 790.85]),
    ];
    for (access, agreement, expected) in golden {
        let free = [1200, 2400, 6000, 60_000].map(|every_us| {
            let seen = stream(config(&[access], agreement, 250), 52, every_us * 1000);
            assert!(seen.frames_sent <= seen.slots_assigned);
            seen.slots_free as f64 / seen.superframes as f64
        });
        let is_golden = |(free, expected): (&f64, f64)| (free - expected).abs() < 0.05;
        assert!(
            free.iter().zip(expected).all(is_golden),
            "{access:?}: {free:.2?}"
        );
        assert!(free.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

#[test]
fn every_slot_is_assigned_free_or_anothers() {
    let seen = stream(config(&[Access::Rbdc], RBDC, 250), 1250, MS);
    assert_eq!(
        seen.slots_assigned + seen.slots_free + seen.slots_signalling,
        seen.superframes * 791
    );
    assert_eq!(seen.slots_signalling, 20);
    // 10 Mbit/s are 170.7 bursts and what RLE adds.
    let assigned = seen.slots_assigned as f64 / seen.superframes as f64;
    assert!((171.0..190.0).contains(&assigned), "{assigned}");
    assert_eq!(seen.requests, 20);
    assert!(seen.packets_out.abs_diff(20_000) < 100);
}

#[test]
fn others_take_their_slots() {
    let mut shared = config(&[Access::Rbdc], RBDC, 250);
    let other = Other {
        agreement: Agreement {
            cra_kbps: 3000,
            ..RBDC
        },
        access: Access::Rbdc,
        load: vec![Load {
            from: 0,
            until: 60_000 * MS,
            kbps: 40_000,
        }],
    };
    shared.demand.as_mut().unwrap().others = vec![other];
    // Alone 40 Mbit/s are 683 bursts while a request lives, 23 of 37.7 superframes; requests of two
    // overlap in part.
    let alone = stream(config(&[Access::Rbdc], RBDC, 250), 1250, MS / 4);
    let seen = stream(shared, 1250, MS / 4);
    let per = |seen: &Counters| seen.slots_assigned as f64 / seen.superframes as f64;
    assert!(
        per(&seen) < 0.9 * per(&alone),
        "{} of {}",
        per(&seen),
        per(&alone)
    );
    assert!(seen.slots_free < alone.slots_free);
    assert!(seen.packets_out > 0);
}

#[test]
fn classes_are_served_in_strict_priority() {
    let accesses = [Access::Cra, Access::Rbdc];
    let mut link = Link::new(config(&accesses, CRA, 250)).unwrap();
    let start = 3000 * MS;
    for _ in 0..20 {
        link.push(start, &packet(100, 0));
    }
    link.push(start + MS, &packet(100, 46));
    let mut out = Vec::new();
    link.pop(start + 2000 * MS, &mut out).unwrap();
    let mut order = vec![out[1] >> 2];
    while link.pop(start + 2000 * MS, &mut out).is_some() {
        order.push(out[1] >> 2);
    }
    assert_eq!(order.len(), 21);
    // What was cut in the first burst goes on; nothing else is in front of it.
    let place = order.iter().position(|&dscp| dscp == 46).unwrap();
    assert!(place <= 2, "{order:?}");
}

#[test]
fn fifos_hold_what_the_profile_says() {
    let mut config = config(&[Access::Cra, Access::Rbdc], RBDC, 250);
    config.demand.as_mut().unwrap().fifos[0].packets = 2;
    let mut link = Link::new(config).unwrap();
    let mut taken = |dscp| {
        (0..5)
            .filter(|_| link.push(0, &packet(100, dscp)) == Accepted::Queued)
            .count()
    };
    assert_eq!((taken(46), taken(0)), (2, 5));
    assert_eq!(link.queue(), Volume::new(7, 700));
}

#[test]
fn saturated_goodput_is_what_requests_bring() {
    // A request of at most 10 Mbit/s lives 609.5 ms of every second.
    let limited = Agreement {
        rbdc_max_kbps: Some(10_000),
        ..NOTHING
    };
    let rate = steady_goodput_bps(&config(&[Access::Rbdc], limited, 250), 1500, 1472);
    assert!((5.4e6..6.1e6).contains(&rate), "{rate}");
    let lasting = Agreement {
        duration: 60,
        ..limited
    };
    let rate = steady_goodput_bps(&config(&[Access::Rbdc], lasting, 250), 1500, 1472);
    assert!((9.2e6..9.9e6).contains(&rate), "{rate}");
    // 10 Mbit per request period.
    let rate = steady_goodput_bps(&config(&[Access::Vbdc], VBDC, 250), 1500, 1472);
    assert!((9.2e6..9.9e6).contains(&rate), "{rate}");
    let idle = steady_goodput_bps(&config(&[Access::Cra], CRA, 250), 1500, 1472);
    assert!((50e3..58e3).contains(&idle), "{idle}");
}

#[test]
fn delays_change_and_carriers_do_not() {
    let mut link = Link::new(config(&[Access::Rbdc], RBDC, 250)).unwrap();
    link.set(5000 * MS, &Change::Delay(16 * MS)).unwrap();
    link.push(5001 * MS, &packet(84, 0));
    let due = link.pop(8000 * MS, &mut Vec::new()).unwrap();
    assert!(due < 6001 * MS + 3 * 16 * MS + 3 * SUPERFRAME, "{due}");
    let carrier = Carrier::Return {
        symbol_rate: 1,
        waveform: Waveform::by_id(3).unwrap(),
        superframe: SUPERFRAME,
        slots: 1,
    };
    let refused = link.set(9000 * MS, &Change::Carrier(carrier));
    assert!(refused.is_err());
}

#[test]
fn impossible_demands_are_refused() {
    let good = config(&[Access::Rbdc], RBDC, 250);
    let refused = |edit: fn(&mut LinkConfig, &mut Demand)| {
        let mut config = good.clone();
        let mut demand = config.demand.clone().unwrap();
        edit(&mut config, &mut demand);
        config.demand = Some(demand);
        assert_eq!(Link::new(config).err(), Some(LinkError::Demand));
    };
    refused(|_, demand| demand.fifos.clear());
    refused(|_, demand| demand.fifos[0].packets = 0);
    refused(|_, demand| demand.fifo_of_dscp[63] = 1);
    refused(|_, demand| demand.synchro = 0);
    refused(|config, _| config.carrier = Carrier::Wire);
}

#[test]
fn ticks_of_opensand_carry_grants_too() {
    let mut config = config(&[Access::Rbdc], RBDC, 250);
    config.carrier = Carrier::OpenSandReturn {
        symbol_rate: 16_000_000,
        waveform: Waveform::by_id(12).unwrap(),
        superframe: SUPERFRAME,
        slots: 792,
    };
    let seen = stream(config.clone(), 1250, MS);
    assert_eq!(
        seen.slots_assigned + seen.slots_free,
        seen.superframes * 792
    );
    assert!(seen.packets_out.abs_diff(20_000) < 100);
    let took = first_packet(&config, 3_000_100 * MS / 1000);
    assert!(took > 1700 * MS && took < 1810 * MS, "{took}");
}

#[test]
fn plans_take_bytes_of_the_forward_link() {
    let carrier = common::forward(40_000_000, 1);
    let plain = LinkConfig::new(carrier, 0, Queue::drop_tail(1 << 20), 1);
    let signalling = Some(Signalling {
        period: SUPERFRAME,
        slots: 791,
        first: 0,
    });
    let with = LinkConfig {
        signalling,
        ..plain.clone()
    };
    let [free, less] = [&plain, &with].map(|config| steady_goodput_bps(config, 1500, 1472));
    // 810 bytes, each 26.5 ms, are 244.5 kbit/s at layer 2, of which UDP would have had its share.
    let share = free / carrier.rate_bps().unwrap();
    let taken = (free - less) / share;
    assert!((taken - 244_528.0).abs() < 3000.0, "{taken}");
    // An idle link sends them, too, and a packet that comes later waits for no more than its frame.
    let mut link = Link::new(with).unwrap();
    assert_eq!(link.next_event(), None);
    let at = 10_000 * MS;
    link.push(at, &packet(84, 0));
    let seen = link.counters();
    assert_eq!((seen.frames_sent, seen.signalling_bytes), (378, 378 * 810));
    let due = link.pop(11_000 * MS, &mut Vec::new()).unwrap();
    assert!(due - at <= 2 * 812_250, "{}", due - at);
}

#[test]
fn as_many_terminals_share_a_carrier_as_a_plan_can_name() {
    let mut crowded = config(&[Access::Rbdc], RBDC, 16);
    let silent = Other {
        agreement: CRA,
        access: Access::Cra,
        load: Vec::new(),
    };
    crowded.demand.as_mut().unwrap().others = vec![silent; 255];
    let mut link = Link::new(crowded).unwrap();
    link.advance(2000 * MS);
    let seen = link.counters();
    assert!(seen.superframes > 0);
    assert_eq!(
        seen.slots_free + seen.slots_signalling,
        seen.superframes * (791 - 255)
    );
}

/// A packet that leaves over several request periods, three bursts each.
fn slow_packet() -> Link {
    let slow = Agreement {
        rbdc_max_kbps: Some(50),
        duration: 3,
        ..NOTHING
    };
    let mut link = Link::new(config(&[Access::Cra, Access::Rbdc], slow, 16)).unwrap();
    assert_eq!(link.push(900 * MS, &packet(1500, 0)), Accepted::Queued);
    link.advance(1500 * MS);
    assert_eq!((link.counters().frames_sent, link.queue().packets), (3, 1));
    link
}

#[test]
fn the_rest_of_a_packet_is_asked_for_also_behind_another_queue() {
    let arrival = |mut link: Link| link.pop(20_000 * MS, &mut Vec::new());
    let mut changed = slow_packet();
    changed
        .set(1500 * MS, &Change::Queue(Queue::drop_tail(1 << 20)))
        .unwrap();
    assert_eq!(arrival(changed), arrival(slow_packet()));
}

#[test]
fn the_carrier_of_slots_on_demand_stays_as_it_is() {
    let mut link = slow_packet();
    let carrier = link.config().carrier;
    for change in [Change::SymbolRate(20_000_000), Change::Carrier(carrier)] {
        assert_eq!(link.set(1500 * MS, &change), Err(LinkError::OnDemand));
    }
    assert_eq!(link.config().carrier, carrier);
}

#[test]
fn a_volume_is_asked_for_once_also_when_the_link_became_longer() {
    let asked = |first_ms: u64| {
        let mut config = config(&[Access::Vbdc], VBDC, first_ms);
        config.demand.as_mut().unwrap().synchro = 400 * MS;
        let mut link = Link::new(config).unwrap();
        link.set(1000 * MS, &Change::Delay(250 * MS)).unwrap();
        for _ in 0..100 {
            link.push(5000 * MS, &packet(1500, 0));
        }
        link.advance(9000 * MS);
        let seen = link.counters();
        (seen.slots_assigned, seen.frames_sent)
    };
    assert_eq!(asked(16), asked(250));
}
