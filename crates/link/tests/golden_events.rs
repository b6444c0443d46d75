// SPDX-License-Identifier: GPL-3.0-or-later
//! Every event of fixed runs of one terminal, as a digest: a change of the model that moves one of
//! them shows here.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;
use crate::on_demand as demand;

use common::{back, config, forward, lossy, opensand_forward, opensand_return, packet};
use demand::{MS, RBDC, SUPERFRAME, VBDC};
use dvb::dama::Access;
use dvb::modcod::ModCod;
use link::{
    Acm, Aqm, Carrier, Change, CoDel, Coding, DualPi2, FqCoDel, Link, LinkConfig, LossUnit, Nanos,
    Pie, Queue, Reception, Signalling, Stage,
};
use std::fmt::Write as _;

/// FNV-1a over the lines of the log.
fn digest(events: &[link::Event]) -> u64 {
    let bytes = events
        .iter()
        .flat_map(|event| format!("{event}\n").into_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn adaptive() -> LinkConfig {
    LinkConfig {
        reception: Some(Reception::gate(9.0)),
        acm: Some(Acm {
            allowed: (1..=28)
                .filter_map(ModCod::by_id)
                .map(Coding::ModCod)
                .collect(),
            margin_db: 0.0,
            hysteresis_db: 0.3,
            period: 300 * MS,
            superframe: SUPERFRAME,
            phase: 0,
            reports_thresholds: false,
        }),
        signalling: Some(Signalling {
            period: SUPERFRAME,
            slots: 791,
            first: 0,
        }),
        ..config(forward(5_000_000, 28))
    }
}

fn managed(aqm: Aqm) -> LinkConfig {
    let queue = Queue {
        aqm,
        ..Queue::drop_tail(60_000)
    };
    LinkConfig {
        queue,
        ..lossy(forward(5_000_000, 4), 0.05, LossUnit::Frame)
    }
}

fn runs() -> Vec<(&'static str, LinkConfig)> {
    vec![
        (
            "forward",
            lossy(forward(40_000_000, 1), 0.01, LossUnit::Frame),
        ),
        ("adaptive", adaptive()),
        ("codel", managed(Aqm::CoDel(CoDel::default()))),
        ("fq-codel", managed(Aqm::FqCoDel(FqCoDel::default()))),
        ("pie", managed(Aqm::Pie(Pie::default()))),
        ("dualpi2", managed(Aqm::DualPi2(DualPi2::default()))),
        (
            "slots",
            lossy(back(2_000_000, 12, 50), 0.01, LossUnit::Packet),
        ),
        (
            "rbdc",
            demand::config(&[Access::Cra, Access::Rbdc], RBDC, 250),
        ),
        ("vbdc", demand::config(&[Access::Vbdc], VBDC, 16)),
        ("opensand forward", config(opensand_forward())),
        ("opensand return", config(opensand_return())),
        ("line", config(Carrier::line(8_000_000))),
        ("wire", config(Carrier::Wire)),
    ]
}

/// 8 s: bursts that fill the queue, silence, a fade and its end.
fn run(config: LinkConfig) -> Link {
    let mut link = Link::new(config).unwrap();
    link.record_events();
    let mut out = Vec::new();
    let step = 7 * MS / 4;
    for index in 0..8000 * MS / step {
        let now: Nanos = index * step;
        let count = if (now / (900 * MS)) % 3 == 0 {
            0
        } else {
            index % 5
        };
        for number in 0..count {
            let length = 60 + (index * 37 + number * 811) % 1441;
            let mut bytes = packet(number, length as usize);
            bytes[1] = if index % 11 == 0 { 46 << 2 } else { 1 };
            link.push(now, &bytes);
        }
        if link.es_n0_db().is_some() && [1500, 4000].contains(&(index * step / MS / 4 * 4)) {
            let db = if now < 3000 * MS { 8.0 } else { 0.0 };
            link.set(now, &Change::Attenuation(db)).unwrap();
        }
        while link.pop(now, &mut out).is_some() {}
    }
    while link.pop(20_000 * MS, &mut out).is_some() {}
    link
}

#[test]
fn events_of_one_terminal_are_golden() {
    let mut table = String::from("run                events  packets out  digest\n");
    for (name, config) in runs() {
        let mut link = run(config);
        let seen = link.counters();
        assert!(seen.packets_out > 500, "{name}");
        let events = link.take_events();
        let _ = writeln!(
            table,
            "{name:16} {:8} {:12}  {:016x}",
            events.len(),
            seen.packets_out,
            digest(&events)
        );
    }
    let golden = include_str!("golden/events.txt");
    assert_eq!(table, golden, "\n{table}");
}
