// SPDX-License-Identifier: GPL-3.0-or-later
//! A link in three parts, joined by datagrams, does what it does in one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dvb::dama::{Access, Agreement};
use dvb::modcod::{FrameSize, ModCod};
use dvb::rcs2::Waveform;
use link::datagram::Datagram;
use link::{
    Accepted, Carrier, Change, Counters, Demand, Fifo, Handover, Link, LinkConfig, Load, Nanos,
    Other, Plans, Queue, Receiver, Relay, Sender, Stage, Waiting,
};
use proptest::prelude::*;

const MS: Nanos = 1_000_000;

fn config(is_forward: bool) -> LinkConfig {
    let carrier = if is_forward {
        Carrier::Forward {
            symbol_rate: 40_000_000,
            modcod: ModCod::by_id(1).unwrap(),
            frame_size: FrameSize::Normal,
            pilots: false,
            label: [2; 6],
        }
    } else {
        Carrier::Return {
            symbol_rate: 16_000_000,
            waveform: Waveform::by_id(12).unwrap(),
            superframe: 26_500_000,
            slots: 171,
        }
    };
    LinkConfig::new(carrier, 250 * MS, Queue::drop_tail(1 << 30), 1)
}

/// A direction as three processes.
struct Split {
    sender: Sender,
    relay: Relay,
    receiver: Receiver,
}

impl Split {
    fn new(config: &LinkConfig) -> Self {
        Self {
            sender: Sender::new(config.clone(), 7).unwrap(),
            relay: Relay::new(config.clone()).unwrap(),
            receiver: Receiver::new(config.clone()).unwrap(),
        }
    }

    fn set(&mut self, now: Nanos, change: &Change) {
        for stage in [
            &mut self.sender as &mut dyn Stage,
            &mut self.relay,
            &mut self.receiver,
        ] {
            stage.set(now, change).unwrap();
        }
    }

    fn counters(&self) -> [Counters; 3] {
        let (relay, receiver) = (self.relay.counters(), self.receiver.counters());
        [self.sender.counters(), relay, receiver]
    }
}

fn parts(is_forward: bool) -> Split {
    Split::new(&config(is_forward))
}

fn packet(length: usize, mark: u8) -> Vec<u8> {
    let mut packet = vec![mark; length];
    packet[0] = 0x45;
    packet
}

/// Forwards everything that is due up to `until` and returns the packets that left, with their due
/// times. Datagrams for which `drops` returns true are lost between sender and satellite.
fn run(split: &mut Split, until: Nanos, mut drops: impl FnMut() -> bool) -> Vec<(Nanos, Vec<u8>)> {
    let (mut out, mut datagram) = (Vec::new(), Vec::new());
    let Split {
        sender,
        relay,
        receiver,
    } = split;
    while let Some(due) = sender.pop(until, &mut datagram) {
        if drops() {
            continue;
        }
        assert_eq!(relay.push(due, &datagram), Accepted::Queued);
        assert_eq!(relay.pop(due, &mut datagram), Some(due));
        assert_eq!(receiver.push(due, &datagram), Accepted::Queued);
    }
    let mut packet = Vec::new();
    while let Some(due) = receiver.pop(until, &mut packet) {
        out.push((due, packet.clone()));
    }
    out
}

#[test]
// promise: P13
fn three_parts_release_when_one_link_does() {
    for is_forward in [true, false] {
        let mut whole = Link::new(config(is_forward)).unwrap();
        let mut split = parts(is_forward);
        for index in 0..500 {
            let packet = packet(40 + (index * 37) % 1461, index as u8);
            let now = index as u64 * 613_000;
            whole.push(now, &packet);
            split.sender.push(now, &packet);
        }
        let end = 5000 * MS;
        let (mut expected, mut out) = (Vec::new(), Vec::new());
        while let Some(due) = whole.pop(end, &mut out) {
            expected.push((due, out.clone()));
        }
        assert_eq!(expected.len(), 500);
        assert_eq!(run(&mut split, end, || false), expected);
        let [sender, relay, receiver] = split.counters();
        assert_eq!(sender.packets_in, 500);
        assert_eq!(receiver.packets_out, 500);
        assert_eq!(sender.frames_sent, relay.frames_sent);
        assert_eq!(sender.frames_sent, receiver.frames_sent);
        assert_eq!(receiver.frames_lost, 0);
    }
}

#[test]
fn missed_frames_are_counted_and_harm_their_packets_alone() {
    let mut split = parts(true);
    for index in 0..400 {
        split
            .sender
            .push(index * 400_000, &packet(1500, index as u8));
    }
    let mut count = 0;
    let came = run(&mut split, 5000 * MS, || {
        count += 1;
        count % 10 == 5
    });
    let seen = split.receiver.counters();
    assert!(seen.frames_lost >= 15 && seen.frames_lost <= count / 10 + 1);
    assert!(came.len() < 390 && came.len() > 250, "{}", came.len());
    assert!(came.iter().all(
        |(_, packet)| packet.len() == 1500 && packet[1..].iter().all(|byte| *byte == packet[1])
    ));
}

#[test]
fn a_sender_that_starts_anew_is_heard_at_once() {
    let Split {
        mut sender,
        mut receiver,
        ..
    } = parts(true);
    let mut again = Sender::new(config(true), 8).unwrap();
    let mut datagram = Vec::new();
    for (index, sender) in [&mut sender, &mut again].into_iter().enumerate() {
        sender.push(0, &packet(100, index as u8));
        sender.pop(10 * MS, &mut datagram).unwrap();
        let now = 10 * MS * (index as u64 + 1);
        assert_eq!(receiver.push(now, &datagram), Accepted::Queued);
        // The same once more is from before.
        assert_eq!(receiver.push(now, &datagram), Accepted::Dropped);
    }
    assert_eq!(receiver.counters().frames_lost, 0);
    assert!(receiver.pop(260 * MS, &mut datagram).is_some());
    assert!(receiver.pop(270 * MS, &mut datagram).is_some());
}

#[test]
fn outages_are_the_sender_s_and_delay_the_receiver_s() {
    let mut split = parts(true);
    split.sender.push(0, &packet(100, 0));
    assert_eq!(run(&mut split, 300 * MS, || false).len(), 1);
    split.set(300 * MS, &Change::Delay(5 * MS));
    split.set(300 * MS, &Change::Outage(true));
    split.sender.push(301 * MS, &packet(100, 1));
    assert!(run(&mut split, 400 * MS, || false).is_empty());
    split.set(400 * MS, &Change::Outage(false));
    split.sender.push(401 * MS, &packet(100, 2));
    let came = run(&mut split, 500 * MS, || false);
    assert_eq!(came.len(), 1);
    assert!((406 * MS..408 * MS).contains(&came[0].0), "{}", came[0].0);
    assert_eq!(split.receiver.counters().frames_lost, 1);
}

#[test]
fn a_handover_between_processes_loses_no_packet_of_the_new_link() {
    for waiting in [Waiting::Keep, Waiting::Drop] {
        let mut split = parts(true);
        split.sender.push(0, &packet(100, 0));
        assert_eq!(run(&mut split, 300 * MS, || false).len(), 1);
        let handover = Change::Handover(Handover {
            carrier: config(true).carrier.with_symbol_rate(20_000_000),
            delay: 5 * MS,
            queue: config(true).queue,
            waiting,
        });
        split.set(300 * MS, &handover);
        split.sender.push(301 * MS, &packet(100, 1));
        assert_eq!(run(&mut split, 400 * MS, || false).len(), 1);
        assert_eq!(split.counters()[2].frames_lost, 0);
    }
}

#[test]
fn a_wire_is_not_split() {
    let wire = LinkConfig::new(Carrier::Wire, 0, Queue::drop_tail(0), 1);
    assert!(Sender::new(wire.clone(), 1).is_err());
    assert!(Receiver::new(wire).is_err());
}

/// A return link on demand with another terminal that asks, too.
fn on_demand() -> LinkConfig {
    let agreement = Agreement {
        cra_kbps: 50,
        rbdc_max_kbps: Some(4000),
        vbdc_max_kbit: Some(10_000),
        duration: 23,
    };
    let (access, packets) = (Access::Vbdc, 1000);
    let load = Load {
        from: 0,
        until: 10_000 * MS,
        kbps: 20_000,
    };
    let demand = Demand {
        fifos: vec![Fifo { access, packets }],
        fifo_of_dscp: [0; 64],
        agreement,
        fca_kbps: 0,
        synchro: 1000 * MS,
        others: vec![Other {
            agreement,
            access,
            load: vec![load],
        }],
        plans: Plans::default(),
    };
    LinkConfig {
        demand: Some(demand),
        ..config(false)
    }
}

/// The change that a gateway's plan is to a terminal.
fn plan(datagram: &[u8]) -> Change {
    match Datagram::parse(datagram) {
        Ok(Datagram::Plan {
            grant,
            free,
            signalling,
        }) => Change::Plan {
            grant,
            free,
            signalling,
        },
        _ => panic!("{datagram:?}"),
    }
}

#[test]
// promise: P13
fn slots_on_demand_come_to_a_terminal_in_another_process() {
    let mut whole = Link::new(on_demand()).unwrap();
    let mut split = Split::new(&on_demand());
    let (mut expected, mut came, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..60_000_u64 {
        let now = step * MS / 10;
        // The first superframes of a terminal that comes on its own have no plan.
        if step > 20_000 && step % 97 == 0 {
            let packet = packet(40 + (step as usize * 37) % 1461, step as u8);
            whole.push(now, &packet);
            split.sender.push(now, &packet);
        }
        while let Some(due) = whole.pop(now, &mut out) {
            expected.push((due, out.clone()));
        }
        came.extend(run(&mut split, now, || false));
        while split.receiver.take_plan(&mut out) {
            assert_eq!(split.relay.push(now, &out), Accepted::Queued);
            assert!(split.relay.pop(now, &mut out).is_some());
            split.sender.set(now, &plan(&out)).unwrap();
        }
    }
    assert!(expected.len() > 300, "{}", expected.len());
    assert_eq!(came, expected);
    let [terminal, _, gateway] = split.counters();
    let seen = whole.counters();
    assert_eq!(terminal.requests, seen.requests);
    // Until the first plan came there was nothing but its constant rate to miss.
    let missed = seen.slots_assigned - terminal.slots_assigned;
    assert!(missed <= 20, "{missed}");
    assert_eq!((gateway.superframes, gateway.plans_lost), (0, 0));
}

#[test]
fn plans_that_come_now_early_and_now_late_miss_no_superframe() {
    // Both ways are twenty superframes: plans arrive when those of the terminal start, a
    // millisecond before or after.
    let mut config = on_demand();
    config.delay = 265 * MS;
    let Split {
        sender: mut terminal,
        receiver: mut gateway,
        ..
    } = Split::new(&config);
    let mut out = Vec::new();
    let mut before = terminal.counters();
    for index in 1..400_u64 {
        let now = index * 26_500_000;
        gateway.advance(now + 1);
        while gateway.take_plan(&mut out) {
            let late = (index * 7919) % 2000 * 1000;
            terminal.set(now - MS + late, &plan(&out)).unwrap();
        }
        if index == 40 {
            before = terminal.counters();
        }
    }
    let after = terminal.counters();
    let superframes = after.superframes - before.superframes;
    assert!(superframes >= 358, "{superframes}");
    // A burst of constant rate in each.
    assert_eq!(after.slots_assigned - before.slots_assigned, superframes);
}

/// Replays the kept inputs of the fuzz target `datagram`.
#[test]
fn kept_datagrams_never_panic() {
    let mut taken = [0, 0];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/datagram");
    let Split {
        mut relay,
        mut receiver,
        ..
    } = parts(true);
    let mut planner = Receiver::new(on_demand()).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        taken[usize::from(Datagram::parse(&bytes).is_ok())] += 1;
        relay.push(0, &bytes);
        receiver.push(0, &bytes);
        planner.push(0, &bytes);
    }
    planner.advance(1000 * MS);
    assert!(taken[0] >= 3 && taken[1] >= 3, "{taken:?}");
}

proptest! {
    #[test]
    fn any_bytes_no_panic(datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..20), sequence: u32) {
        let Split { mut relay, mut receiver, .. } = parts(false);
        let mut written = Vec::new();
        for (index, bytes) in datagrams.iter().enumerate() {
            relay.push(0, bytes);
            receiver.push(0, bytes);
            if !bytes.is_empty() {
                let sequence = sequence.wrapping_add(index as u32);
                Datagram::Frame { session: 1, sequence, payload: bytes }.write(&mut written);
                prop_assert_eq!(receiver.push(0, &written), Accepted::Queued);
            }
        }
    }
}
