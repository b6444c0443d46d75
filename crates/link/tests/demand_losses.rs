// SPDX-License-Identifier: GPL-3.0-or-later
//! Losses of capacity requests and plans.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::on_demand as demand;

use demand::{BURST, MS, RBDC, SUPERFRAME, VBDC, config, first_packet, model, packet};
use dvb::dama::{Access, Agreement};
use link::{Change, Link, LinkConfig, Loss, LossModel, LossUnit, Nanos, Plans, Reception, Stage};

/// A link whose plans, or whose bursts, are lost in a window of time.
fn losing(
    access: Access,
    agreement: Agreement,
    plans: bool,
    window: std::ops::Range<Nanos>,
) -> LinkConfig {
    let mut config = config(&[access], agreement, 250);
    let loss = Loss {
        model: LossModel::Windows([window].into()),
        unit: LossUnit::Frame,
    };
    if plans {
        config.demand.as_mut().unwrap().plans.losses = vec![loss];
    } else {
        config.losses = vec![loss];
    }
    config
}

#[test]
// promise: P10
fn a_lost_request_costs_a_request_period() {
    for (access, agreement) in [(Access::Rbdc, RBDC), (Access::Vbdc, VBDC)] {
        // The request of 4 s, a burst of 33.5 us, is lost; that of 5 s comes through.
        let window = 4000 * MS..4000 * MS + BURST + 1;
        let config = losing(access, agreement, false, window);
        let at = 3100 * MS;
        assert_eq!(
            first_packet(&config, at),
            1000 * MS + model(4100 * MS, 250 * MS),
            "{access:?}"
        );
        let mut link = Link::new(config).unwrap();
        link.push(at, &packet(84, 0));
        link.advance(9000 * MS);
        let seen = link.counters();
        assert_eq!(
            (seen.requests, seen.requests_lost, seen.plans_lost),
            (2, 1, 0)
        );
    }
}

#[test]
fn a_lost_plan_leaves_its_superframe_without_bursts() {
    // Bursts by rate come again with the next plan, those by volume with the next request.
    let plain =
        |access, agreement: Agreement| first_packet(&config(&[access], agreement, 250), 3100 * MS);
    // Request at 4 s, heard 250.0335 ms later; plans are made at 250 ms modulo 26.5 ms.
    let heard = 4250 * MS + BURST;
    let first = (heard - 11_500_000).div_ceil(SUPERFRAME) * SUPERFRAME + 11_500_000;
    let window = first..first + 1;
    let rbdc = losing(Access::Rbdc, RBDC, true, window.clone());
    assert_eq!(
        first_packet(&rbdc, 3100 * MS),
        plain(Access::Rbdc, RBDC) + SUPERFRAME
    );
    let vbdc = losing(Access::Vbdc, VBDC, true, window);
    assert_eq!(
        first_packet(&vbdc, 3100 * MS),
        1000 * MS + model(4100 * MS, 250 * MS)
    );
}

#[test]
fn losses_of_requests_and_plans_hold_their_ratio_and_starve_nobody() {
    for (access, agreement) in [(Access::Rbdc, RBDC), (Access::Vbdc, VBDC)] {
        let mut lossy = config(&[access], agreement, 16);
        lossy.losses = vec![Loss::random(0.1, LossUnit::Frame)];
        lossy.demand.as_mut().unwrap().plans.losses = vec![Loss::random(0.1, LossUnit::Frame)];
        let mut link = Link::new(lossy).unwrap();
        let mut out = Vec::new();
        for index in 0..400_000 {
            link.push(index * MS, &packet(100, 0));
            while link.pop(index * MS, &mut out).is_some() {}
        }
        let seen = link.counters();
        let ratio = |lost: u64, of: u64| lost as f64 / of as f64;
        // 400 requests and 15094 plans: three standard deviations.
        assert!(
            (ratio(seen.requests_lost, seen.requests) - 0.1).abs() < 0.046,
            "{seen:?}"
        );
        assert!(
            (ratio(seen.plans_lost, seen.superframes) - 0.1).abs() < 0.008,
            "{seen:?}"
        );
        let waiting = link.queue().packets;
        assert!(waiting < 6000, "{access:?}: {waiting} wait");
        assert!(
            seen.packets_out + seen.packets_lost > 394_000,
            "{access:?}: {seen:?}"
        );
    }
}

#[test]
fn plans_follow_the_forward_link() {
    let mut config = config(&[Access::Rbdc], RBDC, 250);
    config.demand.as_mut().unwrap().plans = Plans {
        losses: Vec::new(),
        reception: Some(Reception::gate(5.0)),
        threshold_db: 1.0,
    };
    let mut link = Link::new(config).unwrap();
    let lost_in = |link: &mut Link, from_ms: u64, change: Change| {
        link.advance(from_ms * MS);
        let before = link.counters().plans_lost;
        link.set(from_ms * MS, &Change::Plans(Box::new(change)))
            .unwrap();
        link.advance((from_ms + 1060) * MS);
        link.counters().plans_lost - before
    };
    assert_eq!(lost_in(&mut link, 2000, Change::Attenuation(3.9)), 0);
    assert_eq!(lost_in(&mut link, 4000, Change::Attenuation(4.1)), 40);
    assert_eq!(lost_in(&mut link, 6000, Change::EsN0(5.2)), 0);
    assert_eq!(lost_in(&mut link, 8000, Change::Outage(true)), 40);
    assert_eq!(lost_in(&mut link, 10_000, Change::Outage(false)), 0);
    let all = vec![Loss::random(1.0, LossUnit::Frame)];
    assert_eq!(lost_in(&mut link, 12_000, Change::Losses(all)), 40);
    let packets = vec![Loss::random(1.0, LossUnit::Packet)];
    assert_eq!(lost_in(&mut link, 14_000, Change::Losses(packets)), 0);
}
