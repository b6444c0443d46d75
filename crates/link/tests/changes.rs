// SPDX-License-Identifier: GPL-3.0-or-later
//! Impairments on a link, changes while it runs, and the log of events.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use common::{GEO, Release, config, drain, forward, link, lossy, opensand_forward, packet, run};
use dvb::acm::ErrorModel;
use link::{
    Accepted, Aqm, Carrier, Change, CoDel, GilbertElliott, Handover, Jitter, Link, LinkConfig,
    LinkError, Loss, LossModel, LossUnit, Nanos, Queue, Reception, Stage, Volume, Waiting,
};

const MS: Nanos = 1_000_000;

fn dues(released: &[Release]) -> Vec<Nanos> {
    released.iter().map(|release| release.due).collect()
}

#[test]
fn wire_with_one_percent_of_loss_is_a_lossy_lan() {
    let wifi = LinkConfig {
        delay: 2 * MS,
        ..lossy(Carrier::Wire, 0.01, LossUnit::Packet)
    };
    let arrivals: Vec<_> = (0..50_000).map(|number| (number * 100_000, 200)).collect();
    let (released, link) = run(&wifi, &arrivals);
    let lost = link.counters().packets_lost as f64;
    assert!((lost - 500.0).abs() < 3.0 * 22.3, "{lost} lost");
    assert!(released.iter().all(|release| release.due % 100_000 == 0));
    assert_eq!(released[0].due, 2 * MS);
}

#[test]
fn a_chain_in_steps_of_10_ms_loses_whole_steps() {
    // p = 0.01, q = 0.167 with a step of 10 ms, ten minutes: bursts of whole steps.
    let model = LossModel::GilbertElliott(GilbertElliott {
        p: 0.01,
        r: 0.167,
        good: 0.0,
        bad: 1.0,
        step: Some(10 * MS),
        shortest: 0,
    });
    let losses = vec![Loss {
        model,
        unit: LossUnit::Frame,
    }];
    let mut link = Link::new(LinkConfig {
        losses,
        ..config(forward(40_000_000, 4))
    })
    .unwrap();
    for now in (0..600_000 * MS).step_by(2_400_000) {
        let _: Accepted = link.push(now, &packet(now, 60));
    }
    link.advance(Nanos::MAX);
    let counters = link.counters();
    let ratio = counters.packets_lost as f64 / counters.packets_in as f64;
    assert!((ratio - 0.01 / 0.177).abs() < 0.01, "{ratio}");
}

#[test]
fn delay_change_spares_what_is_in_flight_and_keeps_the_order() {
    let mut link = link(Carrier::Wire);
    link.push(0, &packet(0, 100));
    link.set(10 * MS, &Change::Delay(50 * MS)).unwrap();
    link.push(20 * MS, &packet(1, 100));
    link.push(240 * MS, &packet(2, 100));
    assert_eq!(link.next_event(), Some(GEO));
    assert_eq!(dues(&drain(&mut link, Nanos::MAX)), [GEO, GEO, 290 * MS]);
    assert_eq!(link.config().delay, 50 * MS);
}

#[test]
fn outage_takes_all_that_is_sent_in_it() {
    let mut link = link(forward(40_000_000, 1));
    for (at, change) in [(5, Some(true)), (15, Some(false)), (25, None)] {
        link.push((at - 5) * MS, &packet(at, 100));
        if let Some(is_down) = change {
            link.set(at * MS, &Change::Outage(is_down)).unwrap();
        }
    }
    drain(&mut link, Nanos::MAX);
    let counters = link.counters();
    assert_eq!(
        (
            counters.packets_lost,
            counters.frames_lost,
            counters.packets_out
        ),
        (1, 1, 2)
    );
}

#[test]
fn carrier_changes_at_the_next_frame_and_the_grid_starts_anew_there() {
    let mut link = link(forward(40_000_000, 1));
    // 1991 bytes a frame of 812.25 us: the packet of 4000 bytes is cut.
    link.push(0, &packet(0, 4000));
    link.set(100_000, &Change::Carrier(forward(40_000_000, 28)))
        .unwrap();
    link.push(2 * MS, &packet(1, 1500));
    // 32APSK 9/10: 13 050 symbols, 326.25 us; frames at 812.25, 1138.5, 1464.75, 1791 and 2117.25
    // us.
    assert_eq!(
        dues(&drain(&mut link, Nanos::MAX)),
        [GEO + 1_138_500, GEO + 2_443_500]
    );
    let wire = Change::Carrier(Carrier::Wire);
    assert_eq!(link.set(3 * MS, &wire), Err(LinkError::OtherKind));
    assert_eq!(
        link.set(3 * MS, &Change::Carrier(forward(0, 1))),
        Err(LinkError::SymbolRate(0))
    );
    assert_eq!(link.config().carrier, forward(40_000_000, 28));
}

#[test]
fn queue_change_moves_what_waits() {
    let mut link = link(forward(1_000_000, 1));
    for number in 0..5 {
        link.push(0, &packet(number, 1000));
    }
    link.set(0, &Change::Queue(Queue::drop_tail(3000))).unwrap();
    assert_eq!(link.queue(), Volume::new(3, 3000));
    assert_eq!(link.counters().packets_dropped, 2);
    assert_eq!(
        link.set(0, &Change::Queue(Queue::drop_tail(0))),
        Err(LinkError::NoQueue)
    );
    let kept: Vec<_> = drain(&mut link, Nanos::MAX)
        .into_iter()
        .map(|release| release.packet)
        .collect();
    assert_eq!(kept, [0, 1, 2].map(|number| packet(number, 1000)));
}

#[test]
fn handover_keeps_flushes_or_drops_what_waits() {
    let hand_over = |waiting, carrier| {
        let mut link = link(forward(1_000_000, 1));
        for number in 0..3 {
            link.push(0, &packet(number, 1500));
        }
        // The first frame of 32.49 ms holds packet 0 and a piece of packet 1.
        let handover = Handover {
            carrier,
            delay: 16 * MS,
            queue: Queue::drop_tail(100_000),
            waiting,
        };
        link.set(10 * MS, &Change::Handover(handover)).unwrap();
        let released = drain(&mut link, Nanos::MAX);
        let numbers: Vec<_> = released
            .iter()
            .map(|release| {
                (0..3)
                    .find(|&number| packet(number, 1500) == release.packet)
                    .unwrap()
            })
            .collect();
        (numbers, dues(&released), link.counters().packets_dropped)
    };
    let fast = forward(40_000_000, 1);
    let first = GEO + 32_490_000;
    // The new link is faster, but nothing overtakes what the old one has in flight.
    assert_eq!(
        hand_over(Waiting::Keep, fast),
        (vec![0, 1, 2], vec![first; 3], 0)
    );
    assert_eq!(
        hand_over(Waiting::Flush, fast),
        (vec![0, 1, 2], vec![first; 3], 0)
    );
    assert_eq!(hand_over(Waiting::Drop, fast), (vec![0], vec![first], 2));
    assert_eq!(hand_over(Waiting::Keep, Carrier::Wire).0, [0, 1, 2]);
    assert_eq!(hand_over(Waiting::Keep, opensand_forward()).0, [0, 1, 2]);
}

#[test]
fn handover_to_a_longer_link_takes_its_delay() {
    // From a terrestrial link to LEO, as in the emergency scenario: 30 ms to 60 ms one way.
    let mut link = Link::new(LinkConfig {
        delay: 30 * MS,
        ..config(Carrier::Wire)
    })
    .unwrap();
    link.push(0, &packet(0, 100));
    let (carrier, queue) = (forward(40_000_000, 1), Queue::drop_tail(100_000));
    let handover = Handover {
        carrier,
        delay: 60 * MS,
        queue,
        waiting: Waiting::Keep,
    };
    link.set(90 * MS, &Change::Handover(handover)).unwrap();
    link.push(90 * MS, &packet(1, 100));
    assert_eq!(
        dues(&drain(&mut link, Nanos::MAX)),
        [30 * MS, 150 * MS + 812_250]
    );
}

/// Everything at once.
fn everything(seed: u64) -> LinkConfig {
    let chain = GilbertElliott {
        p: 0.02,
        r: 0.2,
        good: 0.01,
        bad: 0.9,
        step: Some(10 * MS),
        shortest: 0,
    };
    LinkConfig {
        queue: Queue {
            aqm: Aqm::CoDel(CoDel::default()),
            ecn: true,
            ..Queue::drop_tail(100_000)
        },
        losses: vec![
            Loss {
                model: LossModel::GilbertElliott(chain),
                unit: LossUnit::Frame,
            },
            Loss::random(0.02, LossUnit::Packet),
        ],
        jitter: Jitter::Normal {
            mean: 5 * MS,
            sigma: MS,
        },
        reception: Some(Reception {
            errors: ErrorModel::Logistic { width_db: 0.5 },
            ..Reception::gate(0.8)
        }),
        seed,
        ..config(forward(10_000_000, 4))
    }
}

/// The log of a link with all impairments, and changes on the way.
fn story(seed: u64) -> String {
    let mut link = Link::new(everything(seed)).unwrap();
    link.record_events();
    let changes = [
        Change::Delay(100 * MS),
        Change::Losses(vec![Loss::random(0.2, LossUnit::Packet)]),
        Change::Queue(Queue {
            aqm: Aqm::Pie(link::Pie::default()),
            ..Queue::drop_tail(50_000)
        }),
        Change::Outage(true),
        Change::Outage(false),
        Change::Carrier(forward(5_000_000, 14)),
        Change::Attenuation(20.0),
    ];
    let mut changes = changes.into_iter();
    for step in 0..3000 {
        let now = step * MS;
        for len in [1500, 200 + (step as usize * 37) % 1300] {
            let _: Accepted = link.push(now, &packet(step, len));
        }
        if step % 400 == 399 {
            link.set(now, &changes.next().unwrap()).unwrap();
        }
        drain(&mut link, now);
    }
    drain(&mut link, Nanos::MAX);
    let lines = link
        .take_events()
        .into_iter()
        .map(|event| format!("{event}\n"));
    lines.collect()
}

#[test]
fn log_is_byte_identical_with_the_same_seed_and_differs_with_another() {
    let log = story(7);
    assert_eq!(log, story(7));
    assert_ne!(log, story(8));
    for word in [
        "offered",
        "dropped",
        "frame ",
        "frame lost",
        "lost ",
        "released",
    ] {
        assert!(log.contains(word), "{word} is missing");
    }
}

#[test]
fn frames_below_their_threshold_are_lost_whole() {
    let at = |es_n0_db, errors| {
        let reception = Some(Reception {
            errors,
            ..Reception::gate(es_n0_db)
        });
        let mut link = Link::new(LinkConfig {
            reception,
            ..config(forward(10_000_000, 4))
        })
        .unwrap();
        for number in 0..2000 {
            let _: Accepted = link.push(number * 4 * MS, &packet(number, 500));
        }
        link.advance(Nanos::MAX);
        link.counters().frames_lost
    };
    assert_eq!(
        (at(0.99, ErrorModel::Gate), at(1.0, ErrorModel::Gate)),
        (2000, 0)
    );
    let slope = ErrorModel::Logistic { width_db: 0.4 };
    assert!((at(0.8, slope) as f64 - 1000.0).abs() < 3.0 * 22.4);
    let wrong = |reception| {
        Link::new(LinkConfig {
            reception: Some(reception),
            ..config(forward(1, 4))
        })
        .is_err()
    };
    assert!(wrong(Reception::gate(f64::NAN)));
    assert!(wrong(Reception {
        errors: ErrorModel::Logistic { width_db: 0.0 },
        ..Reception::gate(1.0)
    }));
    assert!(wrong(Reception {
        minimal_es_n0_db: Some(f64::INFINITY),
        ..Reception::gate(1.0)
    }));
}

#[test]
fn attenuation_is_taken_off_and_a_receiver_may_have_a_threshold_of_its_own() {
    let reception = Reception {
        minimal_es_n0_db: Some(6.0),
        ..Reception::gate(9.0)
    };
    // MODCOD 1 needs -2.35 dB, the receiver 6 dB.
    let mut link = Link::new(LinkConfig {
        reception: Some(reception),
        ..config(forward(40_000_000, 1))
    })
    .unwrap();
    for (at, change) in [
        (5, None),
        (15, Some(Change::Attenuation(3.1))),
        (25, Some(Change::EsN0(9.1))),
        (35, Some(Change::Attenuation(0.0))),
    ] {
        if let Some(change) = change {
            link.set(at * MS, &change).unwrap();
        }
        link.push(at * MS, &packet(at, 100));
    }
    drain(&mut link, Nanos::MAX);
    assert_eq!(link.counters().frames_lost, 1);
    assert!((link.es_n0_db().unwrap() - 9.1).abs() < 1e-12);
    let mut perfect = common::link(Carrier::Wire);
    let refused = perfect.set(0, &Change::Attenuation(1.0));
    assert_eq!(refused, Err(LinkError::NoReception));
    let refused = perfect.set(0, &Change::Modcod(None));
    assert_eq!(refused, Err(LinkError::NoModcod));
}

#[test]
fn symbol_rate_and_modcod_change_alone() {
    let mut link = link(forward(40_000_000, 1));
    link.set(0, &Change::SymbolRate(10_000_000)).unwrap();
    let modcod = forward(1, 28).modcod();
    link.set(0, &Change::Modcod(modcod)).unwrap();
    assert_eq!(link.config().carrier, forward(10_000_000, 28));
    link.push(0, &packet(0, 100));
    // 13 050 symbols.
    assert_eq!(dues(&drain(&mut link, Nanos::MAX)), [GEO + 1_305_000]);
    let counters = link.counters();
    assert_eq!((counters.frames_by_id[28], counters.frames_sent), (1, 1));
    let refused = link.set(MS, &Change::Modcod(None));
    assert_eq!(refused, Err(LinkError::NoAdaptiveCoding));
    assert_eq!(link.config().carrier, forward(10_000_000, 28));
    assert_eq!(
        link.set(2 * MS, &Change::SymbolRate(0)),
        Err(LinkError::SymbolRate(0))
    );
}
