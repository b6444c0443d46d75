// SPDX-License-Identifier: GPL-3.0-or-later
//! Adaptive coding and modulation: the loop, its delay, and a saturated link in a fade.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use std::fmt::Write as _;

use common::{GEO, config, drain, forward, opensand_forward, packet};
use dvb::dama;
use dvb::modcod::{FrameSize, MODCODS, ModCod};
use dvb::rcs2::WAVEFORMS;
use link::{
    Accepted, Acm, Carrier, Change, Coding, Demand, Fifo, Handover, Link, LinkConfig, LinkError,
    Nanos, Plans, Queue, Reception, Stage, Waiting,
};

const MS: Nanos = 1_000_000;
const S: Nanos = 1000 * MS;
const SUPERFRAME: Nanos = 26_500_000;

fn acm(margin_db: f64) -> Acm {
    Acm {
        allowed: MODCODS.map(Coding::ModCod).to_vec(),
        margin_db,
        hysteresis_db: 0.3,
        period: S,
        superframe: SUPERFRAME,
        phase: 0,
        reports_thresholds: false,
    }
}

fn adaptive(carrier: Carrier, es_n0_db: f64, acm: Acm) -> LinkConfig {
    LinkConfig {
        reception: Some(Reception::gate(es_n0_db)),
        acm: Some(acm),
        queue: Queue::drop_tail(100_000),
        ..config(carrier)
    }
}

fn modcod(link: &Link) -> u8 {
    link.config().carrier.waveform_id()
}

#[test]
// promise: P8
fn a_report_acts_one_round_trip_and_a_superframe_after_the_measurement() {
    // 16.0 dB: 32APSK 8/9 (15.69 dB), and 10 dB less: QPSK 5/6 (5.18 dB) or rather 8PSK 3/5 (5.50
    // dB).
    let mut link = Link::new(adaptive(forward(10_000_000, 27), 16.0, acm(0.0))).unwrap();
    link.set(S + 1, &Change::Attenuation(10.0)).unwrap();
    // Measured at 2 s, seen at 2.25 s, sent with the 85th superframe at 2.2525 s, known 0.25 s
    // later.
    let acts = 85 * 26_500_000 + GEO;
    link.advance(acts);
    assert_eq!(modcod(&link), 27);
    link.advance(acts + 1);
    assert_eq!(modcod(&link), 12);
    // In between, frames are lost.
    let mut link = Link::new(adaptive(forward(10_000_000, 27), 16.0, acm(0.0))).unwrap();
    link.set(S + 1, &Change::Attenuation(10.0)).unwrap();
    for at in (S + 2..3 * S).step_by((50 * MS) as usize) {
        link.push(at, &packet(at, 100));
    }
    link.advance(3 * S);
    assert_eq!(link.counters().frames_lost, (acts - S) / (50 * MS) + 1);
    assert_eq!(link.counters().frames_sent, 40);
}

#[test]
fn a_held_modcod_stays_until_it_is_let_go() {
    let mut link = Link::new(adaptive(forward(10_000_000, 1), 10.0, acm(0.0))).unwrap();
    link.advance(S);
    assert_eq!(modcod(&link), 18);
    link.set(S, &Change::Modcod(ModCod::by_id(4))).unwrap();
    link.set(S, &Change::Attenuation(6.0)).unwrap();
    link.advance(10 * S);
    assert_eq!(modcod(&link), 4);
    link.set(10 * S, &Change::Modcod(None)).unwrap();
    assert_eq!(modcod(&link), 6);
}

#[test]
fn a_handover_leaves_the_choice_to_the_loop() {
    let mut link = Link::new(adaptive(forward(10_000_000, 1), 10.0, acm(0.0))).unwrap();
    link.set(2 * S, &Change::Modcod(ModCod::by_id(4))).unwrap();
    let handover = Handover {
        carrier: forward(5_000_000, 28),
        delay: 16 * MS,
        queue: Queue::drop_tail(100_000),
        waiting: Waiting::Keep,
    };
    link.set(2 * S, &Change::Handover(handover)).unwrap();
    assert_eq!(link.config().carrier, forward(5_000_000, 18));
}

#[test]
fn an_idle_link_adapts_and_a_far_future_takes_no_time() {
    let mut link = Link::new(adaptive(forward(10_000_000, 28), 17.0, acm(0.0))).unwrap();
    link.set(5 * S, &Change::Attenuation(10.0)).unwrap();
    link.advance(Nanos::MAX);
    assert_eq!(modcod(&link), 13);
}

#[test]
fn the_next_event_is_never_after_a_release() {
    // Frames get shorter while packets wait: QPSK 1/4 at 1 Mbaud lasts 32 ms, what comes after it
    // less.
    let mut link = Link::new(adaptive(forward(1_000_000, 1), -3.0, acm(0.0))).unwrap();
    link.set(100 * MS, &Change::Attenuation(-20.0)).unwrap();
    let (mut now, mut out) = (0, Vec::new());
    for turn in 0..2000_u64 {
        if turn % 2 == 0 {
            link.push(now, &packet(turn, 1500));
        }
        let Some(event) = link.next_event() else {
            now += 7 * MS;
            continue;
        };
        assert_eq!(link.pop(event.saturating_sub(1), &mut out), None);
        now = now.max(event);
        while let Some(due) = link.pop(now, &mut out) {
            assert_eq!(due, event, "turn {turn}");
        }
    }
    assert_eq!(modcod(&link), 28);
    assert!(link.counters().packets_out > 500);
}

#[test]
fn the_loop_chooses_what_the_carrier_can_send() {
    // 9/10 has no short FECFRAME, and a tick of 2.5 ms holds no BBFRAME of QPSK.
    let Carrier::Forward { label, .. } = forward(1, 1) else {
        panic!("a forward carrier")
    };
    let short = Carrier::Forward {
        symbol_rate: 10_000_000,
        modcod: MODCODS[0],
        frame_size: FrameSize::Short,
        pilots: true,
        label,
    };
    let mut link = Link::new(adaptive(short, 30.0, acm(0.0))).unwrap();
    link.advance(2 * S);
    assert_eq!(modcod(&link), 27);
    let tick = Carrier::OpenSandForward {
        symbol_rate: 10_000_000,
        modcod: MODCODS[27],
        tick: 2_500_000,
        label,
        defects: false,
        drift: 0,
    };
    let mut link = Link::new(adaptive(tick, 16.5, acm(0.0))).unwrap();
    link.set(S, &Change::Attenuation(30.0)).unwrap();
    link.advance(4 * S);
    assert_eq!(modcod(&link), 12);
    let mut batches = Link::new(adaptive(opensand_forward(), 16.5, acm(0.0))).unwrap();
    batches.advance(S);
    assert_eq!(modcod(&batches), 28);
}

/// The terminal reports the threshold of what it could receive, and the margin counts from there.
#[test]
fn a_margin_counts_from_the_threshold_where_reports_are_thresholds() {
    let at_end = |reports_thresholds| {
        let acm = Acm {
            reports_thresholds,
            hysteresis_db: 0.0,
            ..acm(1.0)
        };
        let mut link = Link::new(adaptive(opensand_forward(), 17.99, acm)).unwrap();
        link.advance(2 * S);
        modcod(&link)
    };
    assert_eq!((at_end(false), at_end(true)), (28, 26));
}

#[test]
fn what_cannot_adapt_is_refused() {
    let wrong = |config: LinkConfig| Link::new(config).unwrap_err();
    let good = || adaptive(forward(10_000_000, 1), 10.0, acm(0.0));
    let perfect = LinkConfig {
        reception: None,
        ..good()
    };
    assert_eq!(wrong(perfect), LinkError::NoReception);
    let wire = LinkConfig {
        carrier: Carrier::Wire,
        ..good()
    };
    assert_eq!(wrong(wire), LinkError::NoModcod);
    for bad in [
        Acm {
            allowed: Vec::new(),
            ..acm(0.0)
        },
        Acm {
            period: 0,
            ..acm(0.0)
        },
        Acm {
            hysteresis_db: -1.0,
            ..acm(0.0)
        },
    ] {
        let config = LinkConfig {
            acm: Some(bad),
            ..good()
        };
        assert_eq!(wrong(config), LinkError::Acm);
    }
}

/// One second of a saturated link.
struct Second {
    /// Least and most `Es/N0` of the time in which its MODCODs were chosen, dB.
    chosen_on: (f64, f64),
    es_n0_db: f64,
    /// Frames by MODCOD.
    frames: [u64; 32],
    lost: u64,
    out_bps: f64,
}

/// A link kept full, with an attenuation in dB over time that changes each 100 ms.
fn saturated(acm: Acm, seconds: u64, attenuation_db: impl Fn(f64) -> f64) -> Vec<Second> {
    const CLEAR_DB: f64 = 18.0;
    let es_n0_db = |now: Nanos| CLEAR_DB - attenuation_db(now as f64 / 1e9);
    let oldest = acm.period + acm.superframe + 2 * GEO;
    let mut link = Link::new(adaptive(forward(2_000_000, 1), CLEAR_DB, acm)).unwrap();
    // The first adjustments of the loop are not part of the test.
    let warm_up = 5 * S;
    let mut last = link.counters();
    let mut found = Vec::new();
    for now in (0..=warm_up + seconds * S).step_by((20 * MS) as usize) {
        let story = now.saturating_sub(warm_up);
        if now % (100 * MS) == 0 {
            let change = Change::Attenuation(attenuation_db(story as f64 / 1e9));
            link.set(now, &change).unwrap();
        }
        if now % S == 0 && now >= warm_up {
            let all = link.counters();
            if story > 0 {
                let at = [story.saturating_sub(oldest + S), story].map(es_n0_db);
                found.push(Second {
                    chosen_on: (at[0].min(at[1]), at[0].max(at[1])),
                    es_n0_db: es_n0_db(story),
                    frames: std::array::from_fn(|id| all.frames_by_id[id] - last.frames_by_id[id]),
                    lost: all.frames_lost - last.frames_lost,
                    out_bps: (all.bytes_out - last.bytes_out) as f64 * 8.0,
                });
            }
            last = all;
        }
        while link.push(now, &packet(0, 1000)) == Accepted::Queued {}
        drain(&mut link, now);
    }
    found
}

#[test]
// promise: P8
fn the_rate_follows_the_threshold_table_down_a_ramp_and_up_again_without_loss() {
    // 0.5 dB/s from 18 dB to -2 dB and back, seen up to 1.53 s late: 0.77 dB, below the margin.
    let margin_db = 1.0;
    let ramp = |t_s: f64| 0.5 * t_s.min(40.0).min((85.0 - t_s).max(0.0));
    let seconds = saturated(acm(margin_db), 90, ramp);
    let efficiency = |modcod: ModCod| modcod.efficiency(FrameSize::Normal, false);
    let best = |es_n0_db: f64| {
        let fits = MODCODS.iter().filter(|it| it.es_n0_db() <= es_n0_db);
        fits.map(|it| efficiency(*it))
            .fold(efficiency(MODCODS[0]), f64::max)
    };
    let mut table = String::from("  s Es/N0 dB  kbit/s  frames by MODCOD\n");
    for (second, seen) in (1..).zip(&seconds) {
        assert_eq!(seen.lost, 0, "second {second}");
        let (least, most) = seen.chosen_on;
        // Between what the least Es/N0 allows with margin and hysteresis, and the most with margin.
        let (low, high) = (best(least - margin_db - 0.3), best(most - margin_db));
        let used = MODCODS
            .iter()
            .filter(|it| seen.frames[usize::from(it.id)] > 0);
        for modcod in used {
            let efficiency = efficiency(*modcod);
            assert!(efficiency >= low - 1e-9, "second {second}: {modcod}");
            assert!(efficiency <= high + 1e-9, "second {second}: {modcod}");
        }
        let frames = seen
            .frames
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        let frames: Vec<_> = frames.map(|(id, count)| format!("{id}:{count}")).collect();
        let (kbit_s, frames) = (seen.out_bps / 1e3, frames.join(" "));
        writeln!(
            table,
            "{second:3}  {:6.2}  {kbit_s:6.0}  {frames}",
            seen.es_n0_db
        )
        .unwrap();
    }
    golden("acm_ramp.txt", &table);
}

#[test]
fn a_fade_faster_than_the_margin_loses_frames_until_the_loop_has_followed() {
    let fade = |t_s: f64| {
        if (5.0..15.0).contains(&t_s) {
            10.0
        } else {
            0.0
        }
    };
    let seconds = saturated(acm(1.0), 25, fade);
    let lost: Vec<_> = (1..)
        .zip(&seconds)
        .filter(|(_, seen)| seen.lost > 0)
        .map(|(second, _)| second)
        .collect();
    assert_eq!(lost, [6], "only until the report of the 5th second acts");
    // 8 dB less the margin, and 18 dB again.
    assert!(
        seconds[12].frames[13] > 0 && seconds[12].frames.iter().filter(|it| **it > 0).count() == 1
    );
    assert!(seconds[20].frames[28] > 0);
}

/// A terminal of `OpenSAND` reports with its next capacity request: frames are lost until then, and
/// until the report has travelled.
#[test]
fn a_later_report_loses_more_of_a_fade() {
    let lost = |phase| {
        let fade = |t_s: f64| if t_s < 5.0 { 0.0 } else { 10.0 };
        let loop_ = Acm { phase, ..acm(1.0) };
        saturated(loop_, 8, fade)
            .iter()
            .map(|it| it.lost)
            .sum::<u64>() as f64
    };
    let (at_once, later) = (lost(0), lost(S / 2));
    let ratio = later / at_once;
    // 0.52 s of travel, and half a period more.
    assert!((1.8..2.1).contains(&ratio), "{at_once} {later}");
}

/// Compares with a file of this folder. Made by the tests: `GOLDEN=1 cargo test -p satlab-link`
/// rewrites it.
fn golden(name: &str, got: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("GOLDEN").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    for (line, expected) in got.lines().zip(golden.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(got.lines().count(), golden.lines().count());
}

/// A return link of all waveforms of a burst length; 10 Mbit/s as a constant rate.
fn returning(es_n0_db: f64) -> LinkConfig {
    let dama = |waveform| dama::Carrier {
        symbol_rate: 16_000_000,
        superframe: SUPERFRAME,
        waveform,
        arithmetic: dama::Arithmetic::Standard,
    };
    let coding = |waveform| {
        let slots = dama(waveform).bursts_of_rate(10_000);
        Coding::Waveform(waveform, slots.min(dama(waveform).capacity()))
    };
    let allowed = WAVEFORMS.map(coding)[..10].to_vec();
    let slots = dama(WAVEFORMS[9]).bursts_of_rate(10_000);
    let carrier = Carrier::Return {
        symbol_rate: 16_000_000,
        waveform: WAVEFORMS[9],
        superframe: SUPERFRAME,
        slots,
    };
    let acm = Acm {
        allowed,
        ..acm(0.0)
    };
    adaptive(carrier, es_n0_db, acm)
}

#[test]
// promise: P8
fn the_waveform_follows_the_gateway_s_c_n_with_a_plan() {
    let mut link = Link::new(returning(17.0)).unwrap();
    link.set(S + 1, &Change::Attenuation(10.0)).unwrap();
    // Measured at 2 s, received at 2.25 s, sent with the plan of the gateway's next superframe, and
    // in force after the propagation and the wait for the terminal's superframe.
    let seen = 2 * S + GEO;
    let phase = GEO % SUPERFRAME;
    let sent = (seen - phase).div_ceil(SUPERFRAME) * SUPERFRAME + phase;
    let acts = (sent + GEO).div_ceil(SUPERFRAME) * SUPERFRAME;
    link.advance(acts);
    assert_eq!(link.config().carrier.waveform_id(), 12);
    link.advance(acts + 1);
    // 7 dB: QPSK 5/6 needs 6.68 dB, 8PSK 2/3 8.08 dB. 10 Mbit/s are 33125 bytes a superframe, of
    // 108 bytes a burst.
    let Carrier::Return {
        waveform, slots, ..
    } = link.config().carrier
    else {
        panic!()
    };
    assert_eq!((waveform.id, slots), (7, 307));
    // Up again: at least the threshold and the hysteresis.
    link.set(4 * S, &Change::Attenuation(17.0 - 12.7)).unwrap();
    link.advance(6 * S);
    assert_eq!(link.config().carrier.waveform_id(), 11);
    link.set(6 * S, &Change::Attenuation(17.0 - 12.9)).unwrap();
    link.advance(8 * S);
    assert_eq!(link.config().carrier.waveform_id(), 12);
}

#[test]
fn the_return_rate_follows_its_thresholds_down_a_ramp_and_up_again_without_loss() {
    let mut config = returning(17.0);
    if let Some(acm) = &mut config.acm {
        // 0.5 dB/s, reports and loop 1.6 s old at the most.
        acm.margin_db = 0.9;
    }
    let mut link = Link::new(config).unwrap();
    let mut out = Vec::new();
    let mut rates = std::collections::BTreeMap::new();
    for ms in 0..60_000 {
        let now = ms * MS;
        if ms % 100 == 0 {
            let second = ms as f64 / 1000.0;
            let fade = (second - 5.0)
                .clamp(0.0, 25.0)
                .min((55.0 - second).clamp(0.0, 25.0));
            link.set(now, &Change::Attenuation(fade * 0.5)).unwrap();
        }
        link.push(now, &packet(ms, 1250));
        while link.pop(now, &mut out).is_some() {}
        let carrier = &link.config().carrier;
        rates.insert(carrier.waveform_id(), carrier.rate_bps().unwrap());
    }
    assert_eq!(link.counters().frames_lost, 0);
    assert_eq!(link.counters().packets_lost, 0);
    // 17 to 4.5 dB less a margin: 3 (0.22 dB) is not needed, 4 (2.34 dB) is.
    assert_eq!(
        rates.keys().copied().collect::<Vec<_>>(),
        [4, 5, 6, 7, 8, 9, 10, 11, 12]
    );
    // 791 bursts of 59 bytes are more than was agreed; every waveform carries it.
    assert!(
        rates.values().all(|rate| (10.0e6..10.1e6).contains(rate)),
        "{rates:?}"
    );
}

#[test]
fn a_faded_terminal_is_granted_more_bursts_for_its_rate() {
    let mut config = returning(17.0);
    let Carrier::Return { slots, .. } = &mut config.carrier else {
        panic!()
    };
    *slots = 791;
    for coding in &mut config.acm.as_mut().unwrap().allowed {
        if let Coding::Waveform(_, slots) = coding {
            *slots = 791;
        }
    }
    let (access, packets) = (dama::Access::Cra, 1000);
    config.demand = Some(Demand {
        fifos: vec![Fifo { access, packets }],
        fifo_of_dscp: [0; 64],
        agreement: dama::Agreement {
            cra_kbps: 1000,
            rbdc_max_kbps: None,
            vbdc_max_kbit: None,
            duration: 23,
        },
        fca_kbps: 0,
        synchro: S,
        others: Vec::new(),
        plans: Plans::default(),
    });
    let mut link = Link::new(config).unwrap();
    let granted = |link: &mut Link, from: Nanos, until: Nanos| {
        link.advance(from);
        let before = link.counters();
        link.advance(until);
        let after = link.counters();
        (after.slots_assigned - before.slots_assigned) / (after.superframes - before.superframes)
    };
    assert_eq!(granted(&mut link, 2 * S, 5 * S), 18);
    link.set(5 * S, &Change::Attenuation(16.0)).unwrap();
    // 1 dB: QPSK 1/3, 38 bytes a burst.
    assert_eq!(granted(&mut link, 8 * S, 12 * S), 88);
    let due = link.push(12 * S, &packet(7, 1000));
    assert_eq!(due, Accepted::Queued);
    assert!(link.pop(13 * S, &mut Vec::new()).is_some());
    assert_eq!(link.counters().frames_lost, 0);
}
