// SPDX-License-Identifier: GPL-3.0-or-later
//! Changes of gateway in the shipped profile with two spots: where packets go, their order, and
//! that each is accounted for.

use super::GatewayChanges;
use super::check;
use crate::bearer::Bearer;
use crate::config::{Config, parse_alone as parse};
use crate::network::served;
use crate::request::{self, Request};
use crate::scheduled::Origin;
use crate::testing::{self, example};
use link::{Change, LinkError, Nanos};
use profile::Profile;
use serde_json::{Value, json};

const MS: Nanos = 1_000_000;
/// LANs of the terminals, in the third byte of their addresses.
const LANS: [u8; 2] = [1, 66];
/// One-way delay by GW 0 and by GW 6.
const DELAYS: [Nanos; 2] = [250 * MS, 255 * MS];
/// Longest wait and time on air of a packet on an idle carrier: the uplink of GW 6 is weaker, its
/// frames are longer.
const FRAMES: [Nanos; 2] = [3 * MS, 8 * MS];

fn lab_with(edit: impl FnOnce(&mut Value)) -> Result<(Config, Profile), String> {
    let mut value = example("geo-spots");
    value["terminals"] =
        json!([{"netns": "/run/netns/st-2", "tun": "sat0", "subnet": "198.18.66.0/24", "id": 4}]);
    value["gateways"] = json!([{"netns": "/run/netns/gw-2", "tun": "sat0", "id": 6}]);
    edit(&mut value);
    let config = parse(&value.to_string()).map_err(|it| it.to_string())?;
    let profile = profile::load(&config.profile).unwrap();
    Ok((config, profile))
}

fn lab() -> (Config, Profile) {
    lab_with(|_| {}).unwrap()
}

/// Changes of terminals, by direction.
type Both = [Vec<(Option<usize>, Change)>; 2];

/// The changes that a request for `set` makes, in the order of the directions.
fn made(config: &Config, profile: &Profile, set: &Value) -> Result<Both, String> {
    let text = json!({"set": set}).to_string();
    let none = |_: &str| Err(String::new());
    let count = config.terminal_count();
    let Request::SetRequest(set) =
        request::parse(text.as_bytes(), true, count, &none).map_err(|it| it.join("\n"))?
    else {
        unreachable!("a set was asked for");
    };
    let found = GatewayChanges::new(config, profile).of(&set, 0, Origin::Control);
    let found = found.map_err(|it| it.join("\n"))?;
    let mut both = [const { Vec::new() }; 2];
    for (direction, scheduled) in found {
        both[direction].push((scheduled.terminal, scheduled.change));
    }
    Ok(both)
}

fn to_gateway(id: u8, waiting: &str, terminal: Option<usize>) -> Value {
    let mut set = json!({"direction": "both", "gateway": {"id": id, "waiting": waiting}});
    if let Some(terminal) = terminal {
        set["terminal"] = json!(terminal);
    }
    set
}

/// One direction of the lab, with numbered packets.
struct Run {
    served: Bearer,
    direction: usize,
    /// Packets offered by terminal.
    sent: [u32; 2],
    /// Due time, device and number of each packet that came out, by terminal.
    came: [Vec<(Nanos, usize, u32)>; 2],
}

impl Run {
    fn new(direction: usize, (config, profile): &(Config, Profile)) -> Self {
        let mut both = served(config, profile).unwrap().into_iter();
        Self {
            served: both.nth(direction).unwrap(),
            direction,
            sent: [0; 2],
            came: [const { Vec::new() }; 2],
        }
    }

    /// A packet of a terminal; to it, it enters at its first gateway, where the routes lead.
    fn offer(&mut self, now: Nanos, terminal: usize, length: usize) {
        let mut packet = vec![0; length];
        packet[0] = 0x45;
        packet[9] = terminal as u8;
        packet[16..20].copy_from_slice(&[198, 18, LANS[terminal], 2]);
        packet[20..24].copy_from_slice(&self.sent[terminal].to_be_bytes());
        self.sent[terminal] += 1;
        self.served.offer(now, terminal, &packet);
    }

    fn pop(&mut self, now: Nanos) {
        let mut out = Vec::new();
        while let Some((due, device)) = self.served.pop(now, &mut out) {
            let number = u32::from_be_bytes(out[20..24].try_into().unwrap());
            self.came[usize::from(out[9])].push((due, device, number));
        }
    }

    fn set(&mut self, now: Nanos, changes: &Both) {
        for (terminal, change) in &changes[self.direction] {
            self.served.set(now, *terminal, change).unwrap();
        }
    }

    /// Every packet of a terminal came once and in order, or is counted.
    fn check(&mut self, now: Nanos) {
        let state = self.served.state(now);
        for (terminal, one) in state.terminals.iter().enumerate() {
            let it = &one.counters;
            let came = &self.came[terminal];
            assert!(
                came.windows(2)
                    .all(|pair| pair[0].0 <= pair[1].0 && pair[0].2 < pair[1].2)
            );
            assert_eq!(it.packets_in, u64::from(self.sent[terminal]));
            assert_eq!(it.packets_out, came.len() as u64);
            let left = it.packets_out + it.packets_dropped + it.packets_lost + one.queue.packets;
            assert_eq!(it.packets_in, left, "terminal {terminal}: {it:?}");
        }
    }
}

#[test]
// promise: P22
fn p363_packets_have_the_delay_of_the_gateway_from_the_change_on() {
    let lab = lab();
    let changes = made(&lab.0, &lab.1, &to_gateway(6, "keep", Some(1))).unwrap();
    let mut run = Run::new(0, &lab);
    for now in (0..6_000 * MS).step_by(MS as usize) {
        if now % (10 * MS) == 0 && now < 5_000 * MS {
            run.offer(now, 0, 200);
            run.offer(now, 1, 200);
        }
        if now == 2_000 * MS {
            run.set(now, &changes);
        }
        run.pop(now);
    }
    run.check(6_000 * MS);
    assert_eq!([0, 1].map(|it: usize| run.came[it].len()), [500, 500]);
    for (terminal, came) in run.came.iter().enumerate() {
        for &(due, to, number) in came {
            let sent = Nanos::from(number) * 10 * MS;
            // What came less than a frame before the change may wait for it.
            let gateway = usize::from(terminal == 1 || sent + 2 * MS > 2_000 * MS);
            let delay = due - sent;
            assert_eq!(to, terminal);
            assert!(
                (DELAYS[gateway]..DELAYS[gateway] + FRAMES[gateway]).contains(&delay),
                "{number} {delay}"
            );
        }
    }
    // Back again.
    run.set(
        6_000 * MS,
        &made(&lab.0, &lab.1, &to_gateway(0, "keep", None)).unwrap(),
    );
    run.offer(6_000 * MS, 0, 200);
    run.pop(6_300 * MS);
    let &(due, ..) = run.came[0].last().unwrap();
    assert!(
        (DELAYS[0]..DELAYS[0] + FRAMES[0]).contains(&(due - 6_000 * MS)),
        "{due}"
    );
}

#[test]
fn p363_waiting_packets_are_kept_leave_or_are_dropped() {
    let lab = lab();
    for waiting in ["keep", "flush", "drop"] {
        let changes = made(&lab.0, &lab.1, &to_gateway(6, waiting, Some(1))).unwrap();
        let mut run = Run::new(0, &lab);
        // Far above the rate of the carrier.
        for now in (0..100 * MS).step_by(MS as usize) {
            (0..5).for_each(|_| run.offer(now, 0, 1500));
            run.pop(now);
        }
        run.pop(100 * MS);
        let before = run.served.state(100 * MS).terminals[0].clone();
        assert!(before.queue.packets > 100, "{:?}", before.queue);
        run.set(100 * MS, &changes);
        let after = run.served.state(100 * MS).terminals[0].clone();
        let dropped = after.counters.packets_dropped - before.counters.packets_dropped;
        let moved = (after.queue.packets, dropped);
        match waiting {
            "keep" => assert_eq!(moved, (before.queue.packets, 0)),
            "flush" => assert_eq!(moved, (0, 0)),
            _ => assert_eq!(moved, (0, before.queue.packets)),
        }
        run.pop(5_000 * MS);
        let last = run.came[0].last().unwrap();
        match waiting {
            // At the rate of the other carrier.
            "keep" => assert!(last.0 > 100 * MS + DELAYS[1] + 50 * MS, "{last:?}"),
            // At once, but for the frame on air.
            "flush" => assert!(last.0 < 101 * MS + DELAYS[0], "{last:?}"),
            _ => assert!(last.0 < 102 * MS + DELAYS[0]),
        }
        run.check(5_000 * MS);
    }
}

#[test]
fn p363_packets_of_a_terminal_arrive_at_the_gateway_that_they_were_sent_to() {
    let lab = lab();
    let changes = made(&lab.0, &lab.1, &to_gateway(6, "keep", Some(1))).unwrap();
    let at = 5_000 * MS;
    let mut run = Run::new(1, &lab);
    let mut free = 0;
    for now in (0..15_000 * MS).step_by(MS as usize) {
        if now % (20 * MS) == 0 && now < 10_000 * MS {
            run.offer(now, 0, 100);
            run.offer(now, 1, 100);
        }
        if now == at {
            run.set(now, &changes);
        }
        run.pop(now);
        if now % (100 * MS) == 0 {
            let state = run.served.state(now);
            assert!(state.all.counters.slots_free >= free);
            free = state.all.counters.slots_free;
        }
    }
    run.check(15_000 * MS);
    assert!(run.came.iter().all(|it| it.len() == 500));
    // What was in flight comes to the first gateway; then a plan comes down, and bursts go up.
    let split = run.came[0].partition_point(|it| it.1 == 0);
    assert!(run.came[0][split..].iter().all(|it| it.1 == 1));
    assert!(run.came[1].iter().all(|it| it.1 == 1));
    assert!(run.came[0][split - 1].0 < at + DELAYS[0] + 30 * MS);
    let first = run.came[0][split].0;
    assert!(
        (at + 2 * DELAYS[1]..at + 2 * DELAYS[1] + 110 * MS).contains(&first),
        "{first}"
    );
    // It is served again as before: its constant rate carries what it sends.
    let late = run.came[0].iter().filter(|it| it.2 > 400);
    let delays: Vec<_> = late.map(|it| it.0 - Nanos::from(it.2) * 20 * MS).collect();
    assert!(
        delays
            .iter()
            .all(|it| (DELAYS[1]..DELAYS[1] + 60 * MS).contains(it)),
        "{delays:?}"
    );
}

#[test]
fn p363_each_packet_is_accounted_for_however_terminals_move() {
    let lab = lab();
    let moves: Vec<_> = [(0, 1), (0, 2), (6, 1), (6, 2)]
        .into_iter()
        .flat_map(|(id, terminal)| {
            ["keep", "flush", "drop"].map(|it| to_gateway(id, it, Some(terminal)))
        })
        .map(|set| made(&lab.0, &lab.1, &set).unwrap())
        .collect();
    for seed in 1..6_u64 {
        let mut state = seed;
        let mut random = |below: u64| testing::random(&mut state) % below;
        for direction in 0..2 {
            let mut run = Run::new(direction, &lab);
            for now in (0..10_000 * MS).step_by(MS as usize) {
                // Then silence, so that all queues run empty.
                if now < 3_000 * MS {
                    for _ in 0..random(6) {
                        run.offer(now, random(2) as usize, 60 + random(1441) as usize);
                    }
                    // Also twice within the propagation delay.
                    if random(200) == 0 {
                        run.set(now, &moves[random(moves.len() as u64) as usize]);
                    }
                    if random(300) == 0 {
                        let (terminal, is_down) = (random(2) as usize, random(2) == 0);
                        let change = Change::Outage(is_down);
                        run.served.set(now, Some(terminal), &change).unwrap();
                    }
                }
                if now == 3_000 * MS {
                    run.served.set(now, None, &Change::Outage(false)).unwrap();
                }
                run.pop(now);
            }
            run.check(10_000 * MS);
            let state = run.served.state(10_000 * MS);
            assert!(
                state
                    .terminals
                    .iter()
                    .all(|it| it.queue == link::Volume::default())
            );
            assert!(run.came.iter().all(|it| it.len() > 100));
        }
    }
}

#[test]
fn p363_outage_and_attenuation_go_along() {
    let lab = lab();
    let changes = made(&lab.0, &lab.1, &to_gateway(6, "keep", Some(1))).unwrap();
    for direction in 0..2 {
        let mut run = Run::new(direction, &lab);
        let es_n0 = |run: &mut Run, now| run.served.state(now).terminals[0].es_n0_db.unwrap();
        run.set(0, &changes);
        let clear = es_n0(&mut run, 1);
        run.set(
            MS,
            &made(&lab.0, &lab.1, &to_gateway(0, "keep", Some(1))).unwrap(),
        );
        run.served
            .set(MS, Some(0), &Change::Attenuation(3.0))
            .unwrap();
        run.served.set(MS, Some(0), &Change::Outage(true)).unwrap();
        run.set(MS, &changes);
        assert!((clear - es_n0(&mut run, 2 * MS) - 3.0).abs() < 1e-9);
        for now in (2..2_000).map(|it| it * MS) {
            if now % (20 * MS) == 0 && now < 1_000 * MS {
                run.offer(now, 0, 100);
            }
            run.pop(now);
        }
        assert_eq!(run.came[0].len(), 0);
        run.check(2_000 * MS);
    }
}

#[test]
fn p364_what_cannot_be_is_refused_by_name() {
    let lab = lab();
    let fault = |set: &Value| made(&lab.0, &lab.1, set).unwrap_err();
    assert!(
        fault(&to_gateway(7, "keep", None))
            .contains("gateway: GW 7 is not in this lab (it has [0, 6])")
    );
    let mut one_way = to_gateway(6, "keep", Some(1));
    one_way["direction"] = json!("forward");
    assert!(
        fault(&one_way).contains("set.gateway: a terminal has one gateway for both directions")
    );
    one_way["direction"] = json!("terrestrial_up");
    assert!(fault(&one_way).contains("set.gateway: a wire has none"));
    assert!(
        fault(&to_gateway(6, "wait", None))
            .contains("set.gateway.waiting: \"wait\" is not allowed")
    );
    assert!(fault(&to_gateway(6, "keep", Some(3))).contains("there is no terminal 3"));

    let with = |edit: fn(&mut Profile)| {
        let (config, mut profile) = self::lab();
        edit(&mut profile);
        made(&config, &profile, &to_gateway(6, "keep", Some(1))).unwrap_err()
    };
    let group = with(|it| it.terminals[1].group = "Premium".into());
    assert!(
        group.contains("GW 6 has no terminal of ST 1's group Standard"),
        "{group}"
    );
    let delay =
        with(|it| it.terminals[1].profile.physical.delay = profile::Delay::Constant { ms: 1 });
    assert!(
        delay.contains("ST 1 would have another delay than ST 4 at GW 6"),
        "{delay}"
    );
    let period = with(|it| it.terminals[1].profile.dama.synchro_ms += 1);
    assert!(period.contains("ST 1 at GW 6: "), "{period}");

    let (config, profile) = lab_with(|it| {
        let step = json!({"at_s": 2.5, "set": to_gateway(5, "keep", None)});
        it["timeline"] = json!({"starts": "at-once", "steps": [step]});
    })
    .unwrap();
    let faults = check(&config, &profile);
    assert_eq!(
        faults,
        ["timeline.steps: at 2.5 s: gateway: GW 5 is not in this lab (it has [0, 6])"]
    );
}

#[test]
fn p364_a_lab_with_one_gateway_has_no_other() {
    let mut value = example("geo-spots");
    let step = json!({"at_s": 1, "set": to_gateway(6, "keep", None)});
    value["timeline"] = json!({"starts": "at-once", "steps": [step]});
    let config = parse(&value.to_string()).unwrap();
    let profile = profile::load(&config.profile).unwrap();
    let faults = check(&config, &profile);
    assert_eq!(
        faults,
        ["timeline.steps: at 1 s: gateway: GW 6 is not in this lab (it has [0])"]
    );
    let lab = lab();
    let changes = made(&lab.0, &lab.1, &to_gateway(6, "keep", Some(1))).unwrap();
    let [forward, ..] = crate::links::links(&config, &profile);
    let mut alone = Bearer::of_one(forward, &link::Assignments::default()).unwrap();
    let refused = alone.set(0, Some(0), &changes[0][0].1);
    assert_eq!(refused, Err(LinkError::SharedChange));
}
