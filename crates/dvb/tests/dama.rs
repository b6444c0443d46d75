// SPDX-License-Identifier: GPL-3.0-or-later
//! Terminals and planner joined with the delay of the link: when does data arrive, and what does it
//! cost?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, VecDeque};

use dvb::dama::{
    Access, Agreement, Arithmetic, Carrier, Level, Plan, Planner, Request, Share, Terminal, Timers,
};
use dvb::rcs2::Waveform;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SUPERFRAME: u64 = 26_500_000;
const SYNCHRO: u64 = 1000 * MS;

enum Event {
    Arrive(usize, u64),
    Ask(usize),
    AtGateway(usize, Request),
    Plan,
    AtTerminals(Plan),
    Superframe(usize),
}

struct Station {
    terminal: Terminal,
    access: Access,
    /// Arrival time and bytes still to send.
    fifo: VecDeque<(u64, u64)>,
    /// One-way delays of what was delivered, ns.
    delays: Vec<u64>,
}

/// One carrier, one FIFO per terminal, constant delay.
struct Network {
    carrier: Carrier,
    one_way: u64,
    planner: Planner,
    stations: Vec<Station>,
    events: BTreeMap<(u64, u64), Event>,
    serial: u64,
    plans: Vec<Plan>,
}

/// Phases of the clocks, each 0 to 1: requests, superframes of terminal and gateway.
type Phases = [f64; 3];

impl Network {
    fn new(one_way: u64) -> Self {
        let carrier = Carrier {
            symbol_rate: 16_000_000,
            superframe: SUPERFRAME,
            waveform: Waveform::by_id(12).unwrap(),
            arithmetic: Arithmetic::Standard,
        };
        Self {
            carrier,
            one_way,
            planner: Planner::new(carrier, 0),
            stations: Vec::new(),
            events: BTreeMap::new(),
            serial: 0,
            plans: Vec::new(),
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.serial += 1;
        self.events.insert((time, self.serial), event);
    }

    fn start(&mut self, gateway_phase: f64) {
        self.at((gateway_phase * SUPERFRAME as f64) as u64, Event::Plan);
    }

    fn add(&mut self, access: Access, agreement: Agreement, phases: Phases) -> usize {
        let id = self.stations.len();
        let timers = Timers {
            first: (phases[0] * SYNCHRO as f64) as u64,
            synchro: SYNCHRO,
            round_trip: 2 * self.one_way,
        };
        let share = Share {
            cra_kbps: agreement.cra_kbps,
            rbdc_max_kbps: agreement.rbdc_max_kbps.unwrap_or(0),
            duration: agreement.duration,
        };
        self.planner.logon(id as u8, share);
        self.stations.push(Station {
            terminal: Terminal::new(self.carrier, agreement, timers),
            access,
            fifo: VecDeque::new(),
            delays: Vec::new(),
        });
        self.at(timers.first, Event::Ask(id));
        self.at(
            (phases[1] * SUPERFRAME as f64) as u64,
            Event::Superframe(id),
        );
        id
    }

    fn run(&mut self, until: u64) {
        while let Some(((now, _), event)) = self.events.pop_first() {
            if now >= until {
                return;
            }
            self.step(now, event);
        }
    }

    fn step(&mut self, now: u64, event: Event) {
        match event {
            Event::Arrive(id, bytes) => self.stations[id].fifo.push_back((now, bytes)),
            Event::Ask(id) => {
                let station = &mut self.stations[id];
                let bytes = station.fifo.iter().map(|packet| packet.1).sum();
                let access = station.access;
                let request = station.terminal.request(now, &[Level { access, bytes }]);
                let next = station.terminal.next_event();
                self.at(now + self.one_way, Event::AtGateway(id, request.unwrap()));
                self.at(next, Event::Ask(id));
            }
            Event::AtGateway(id, request) => assert!(self.planner.request(id as u8, request)),
            Event::Plan => {
                let plan = self.planner.plan(0);
                let granted: u32 = plan.grants.values().map(dvb::dama::Grant::bursts).sum();
                assert_eq!(granted + plan.free, self.carrier.capacity());
                self.plans.push(plan.clone());
                self.at(now + self.one_way, Event::AtTerminals(plan));
                self.at(now + SUPERFRAME, Event::Plan);
            }
            Event::AtTerminals(plan) => {
                for (id, grant) in plan.grants {
                    self.stations[usize::from(id)].terminal.assign(now, grant);
                }
            }
            Event::Superframe(id) => {
                self.send(now, id);
                self.at(now + SUPERFRAME, Event::Superframe(id));
            }
        }
    }

    /// Bursts of a superframe, one after the other from its start.
    fn send(&mut self, now: u64, id: usize) {
        let burst = self.carrier.waveform.symbols * 1_000_000_000 / self.carrier.symbol_rate;
        let station = &mut self.stations[id];
        for index in 0..u64::from(station.terminal.superframe().bursts()) {
            let mut room = self.carrier.burst_bytes();
            while let Some((arrived, left)) = station.fifo.front_mut() {
                let sent = room.min(*left);
                *left -= sent;
                room -= sent;
                if *left > 0 {
                    break;
                }
                let delivered = now + (index + 1) * burst + self.one_way;
                station.delays.push(delivered - *arrived);
                station.fifo.pop_front();
            }
        }
    }
}

const NOTHING: Agreement = Agreement {
    cra_kbps: 0,
    rbdc_max_kbps: None,
    vbdc_max_kbit: None,
    duration: 23,
};
const CRA: Agreement = Agreement {
    cra_kbps: 3000,
    ..NOTHING
};
const RBDC: Agreement = Agreement {
    rbdc_max_kbps: Some(40_000),
    ..NOTHING
};
const VBDC: Agreement = Agreement {
    vbdc_max_kbit: Some(10_000),
    ..NOTHING
};

/// Evenly spread points of the unit cube: the additive sequence of the plastic number's cubic kin.
fn phases(index: u32) -> Phases {
    [
        0.819_172_513_396_164_4,
        0.671_043_606_703_789_2,
        0.549_700_477_901_970_4,
    ]
    .map(|step| (f64::from(index) * step).fract())
}

/// Delays of the first packet on an idle link over many phases of the clocks: least, mean and most,
/// ms.
fn first_packet(access: Access, agreement: Agreement, one_way_ms: u64) -> [f64; 3] {
    let delays: Vec<f64> = (0..600)
        .map(|index| {
            let phases = phases(index);
            let mut network = Network::new(one_way_ms * MS);
            network.start(phases[2]);
            let id = network.add(access, agreement, phases);
            network.at(3000 * MS, Event::Arrive(id, 100));
            network.run(6000 * MS);
            assert_eq!(network.stations[id].delays.len(), 1);
            network.stations[id].delays[0] as f64 / 1e6
        })
        .collect();
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    let least = delays.iter().copied().fold(f64::INFINITY, f64::min);
    [least, mean, delays.iter().copied().fold(0.0, f64::max)]
}

#[test]
fn first_packet_on_demand_waits_for_request_planner_and_superframe() {
    for (access, agreement) in [(Access::Rbdc, RBDC), (Access::Vbdc, VBDC)] {
        for one_way in [250, 16] {
            let [least, mean, most] = first_packet(access, agreement, one_way);
            // 3d + U(0, P) + 2 U(0, T) + a burst of 33.5 us
            let flight = 3.0 * one_way as f64;
            let expected = flight + 500.0 + 26.5 + 0.0335;
            assert!(least >= flight, "{access:?} {one_way}: {least}");
            assert!(
                (mean - expected).abs() < 5.0,
                "{access:?} {one_way}: {mean}, not {expected}"
            );
            assert!(
                most <= flight + 1000.0 + 53.0 + 0.0335,
                "{access:?} {one_way}: {most}"
            );
            // The whole range is used: neither the request period nor the superframes are missing.
            assert!(
                least < flight + 60.0 && most > flight + 990.0,
                "{least} {most}"
            );
        }
    }
}

#[test]
fn first_packet_on_a_constant_rate_waits_for_the_superframe_alone() {
    for one_way in [250, 16] {
        let [least, mean, most] = first_packet(Access::Cra, CRA, one_way);
        let flight = one_way as f64 + 0.0335;
        assert!(
            least >= flight - 1e-9 && most <= flight + 26.5,
            "{least} {most}"
        );
        assert!((mean - flight - 13.25).abs() < 0.5, "{mean}");
    }
}

/// Mean free bursts per superframe and the delays of the last 20 s of a steady stream of 60 s.
fn stream(access: Access, agreement: Agreement, bytes: u64, every_us: u64) -> (f64, Vec<u64>) {
    let mut network = Network::new(250 * MS);
    network.start(0.3);
    let id = network.add(access, agreement, [0.1, 0.2, 0.0]);
    let packets = 60_000_000 / every_us;
    for packet in 0..packets {
        network.at(packet * every_us * 1000, Event::Arrive(id, bytes));
    }
    network.run(60_000 * MS);
    let plans = &network.plans[network.plans.len() / 2..];
    let free: u64 = plans.iter().map(|plan| u64::from(plan.free)).sum();
    let delays = &network.stations[id].delays;
    let last = (20_000_000 / every_us) as usize;
    (
        free as f64 / plans.len() as f64,
        delays[delays.len() - last..].to_vec(),
    )
}

#[test]
fn fewer_acknowledgements_leave_more_slots_free() {
    for (access, agreement) in [(Access::Rbdc, RBDC), (Access::Vbdc, VBDC)] {
        // Acknowledgements of 52 bytes for 20 Mbit/s of 1500-byte packets: of every second, fourth,
        // tenth, hundredth.
        let free = [1200, 2400, 6000, 60_000].map(|every| stream(access, agreement, 52, every).0);
        assert!(
            free.windows(2).all(|pair| pair[0] + 0.5 < pair[1]),
            "{access:?}: {free:?}"
        );
        assert!(free[3] <= 790.9, "even a few cost something: {free:?}");
    }
}

#[test]
fn steady_load_is_carried_with_bounded_delay_and_little_waste() {
    for (access, agreement) in [(Access::Rbdc, RBDC), (Access::Vbdc, VBDC)] {
        // 10 Mbit/s: 1250 bytes each ms.
        let (free, delays) = stream(access, agreement, 1250, 1000);
        // Request, loop and life: 1000 + 3 * 250 + 53 + 609.5 ms.
        let longest = *delays.iter().max().unwrap() as f64 / 1e6;
        assert!(longest <= 2413.0, "{access:?}: {longest} ms");
        // 10 Mbit/s are 170.7 bursts per superframe.
        let used = 791.0 - free;
        assert!((170.0..180.0).contains(&used), "{access:?}: {used} bursts");
    }
}

#[test]
fn overload_is_shared_evenly_and_nothing_stays_idle() {
    // 40 superframes are longer than the request period: no request expires before the next one.
    let lasting = Agreement {
        duration: 40,
        ..RBDC
    };
    let mut network = Network::new(16 * MS);
    network.start(0.0);
    for id in 0..3 {
        network.add(Access::Rbdc, lasting, phases(id + 1));
        for ms in 0..20_000 {
            network.at(ms * MS, Event::Arrive(id as usize, 5000));
        }
    }
    network.run(20_000 * MS);
    let rates = [0, 1, 2].map(|id: usize| network.stations[id].delays.len() as f64);
    let mean = rates.iter().sum::<f64>() / 3.0;
    assert!(
        rates.iter().all(|rate| (rate / mean - 1.0).abs() < 0.05),
        "{rates:?}"
    );
    // All three ask for 40 Mbit/s of 46.3 Mbit/s from the second request on.
    assert!(network.plans[100..].iter().all(|plan| plan.free == 0));
}

proptest! {
    /// Over any requests: never beyond capacity, nothing free while a request is unserved, no
    /// volume lost or invented.
    #[test]
    fn plans_are_bounded_work_conserving_and_exact(
        requests in prop::collection::vec((0u8..5, 0u32..60_000, 0u32..2000), 1..60),
        fca_kbps in 0u32..5000,
    ) {
        let carrier = Network::new(0).carrier;
        let mut planner = Planner::new(carrier, fca_kbps);
        for id in 0..5 {
            planner.logon(id, Share { cra_kbps: 2000, rbdc_max_kbps: 30_000, duration: 3 });
        }
        let (mut rates, mut volumes) = ([(0u32, 0u64); 5], [0u32; 5]);
        for (id, rbdc_kbps, vbdc_bursts) in requests {
            let slot = usize::from(id);
            planner.request(id, Request { rbdc_kbps, vbdc_bursts, is_absolute: false });
            volumes[slot] += vbdc_bursts;
            let plan = planner.plan(0);
            rates[slot] = (rbdc_kbps.min(30_000), plan.superframe + 3);
            let granted: u32 = plan.grants.values().map(dvb::dama::Grant::bursts).sum();
            prop_assert_eq!(granted + plan.free, 791);
            for (id, grant) in &plan.grants {
                let slot = usize::from(*id);
                let alive = plan.superframe < rates[slot].1;
                let requested = if alive { carrier.bursts_of_rate(rates[slot].0) } else { 0 };
                prop_assert!(grant.cra == 35 && grant.rbdc <= requested && grant.vbdc <= volumes[slot]);
                volumes[slot] -= grant.vbdc;
                if plan.free > 0 {
                    prop_assert!(grant.rbdc == requested && volumes[slot] == 0);
                    prop_assert_eq!(grant.fca, carrier.bursts_of_rate(fca_kbps));
                }
            }
        }
    }
}
