// SPDX-License-Identifier: GPL-3.0-or-later
//! A link under a random mix of packets, with what went in, what was on air and what came out. Same
//! seed, same bytes.
#![allow(clippy::expect_used)] // Helpers outside of #[test] functions.

use dvb::dama::{Access, Agreement, put_tbtp2};
use dvb::gse::{Label, LabelField, Packet};
use dvb::modcod::{FrameSize, ModCod};
use dvb::rcs2::Waveform;
use dvb::sdu::SIGNALLING;
use link::{
    Accepted, Assignments, Carrier, Demand, Fifo, Frame, Link, LinkConfig, Loss, LossUnit, Nanos,
    Plans, Queue, SharedCarrier as _, SharedForward, SharedReturn, Signalling, Stage,
};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

/// One run of a link.
pub struct OnAir {
    pub carrier: Carrier,
    /// Packets that the link took.
    pub sent: Vec<Vec<u8>>,
    pub frames: Vec<Frame>,
    /// Packets that came out at the far end.
    pub received: Vec<Vec<u8>>,
}

/// A forward link without losses: any MODCOD, either frame length, with and without pilots; with
/// plans for 791 slots, or without.
pub fn forward(seed: u64, has_plans: bool) -> OnAir {
    let mut random = Pcg64::seed_from_u64(seed);
    let frame_size = *pick(&mut random, &[FrameSize::Normal, FrameSize::Short]);
    // MODCODs of rate 9/10 have no short FECFRAMEs.
    let modcods: Vec<_> = (1..=28)
        .filter_map(ModCod::by_id)
        .filter(|modcod| modcod.dfl_max_bits(frame_size).is_some())
        .collect();
    let carrier = Carrier::Forward {
        symbol_rate: 10_000_000,
        modcod: *pick(&mut random, &modcods),
        frame_size,
        pilots: random.next_u32() % 2 == 0,
        label: [2, 0, 0, 0, 0, 1],
    };
    let signalling = has_plans.then_some(Signalling {
        period: 26_500_000,
        slots: 791,
        first: 0,
    });
    run(carrier, (vec![], signalling), 9000, &mut random)
}

/// Superframe, first slot and the terminal of each slot of a TBTP2.
pub type Said = (u64, u16, Vec<u8>);

/// TBTP2s of any content, of one terminal or of several, one in each frame of a carrier; none is
/// longer than the frame.
#[allow(dead_code)] // Not every test that includes this file needs it.
pub fn tables(seed: u64) -> (Carrier, Vec<Frame>, Vec<Said>) {
    let mut random = Pcg64::seed_from_u64(seed);
    let modcod = ModCod::by_id(28).expect("a MODCOD");
    let carrier = Carrier::Forward {
        symbol_rate: 10_000_000,
        modcod,
        frame_size: FrameSize::Normal,
        pilots: false,
        label: [2, 0, 0, 0, 0, 1],
    };
    let said: Vec<Said> = (0..60)
        .map(|_| {
            let slots = *pick(&mut random, &[1, 2, 255, 256, 257, 791, 4000]);
            let word = random.next_u64();
            let several = 1 + (word >> 32) as u8 % 8;
            let of_slot = |_| (word as u8).wrapping_add(random.next_u32() as u8 % several);
            let terminals = (0..slots).map(of_slot).collect();
            (word >> 8, random.next_u32() as u16, terminals)
        })
        .collect();
    let mut table = vec![];
    let frame = |(number, (superframe, first, terminals)): (usize, &Said)| {
        put_tbtp2(
            *superframe,
            *first,
            terminals.len() as u16,
            terminals,
            &mut table,
        );
        let mut payload = vec![0; carrier.frame_payload()];
        let packet = Packet::Complete {
            protocol_type: SIGNALLING,
            label: LabelField::Label(Label::Broadcast),
            data: &table,
        };
        packet.emit(&mut payload).expect("it fits");
        Frame {
            at: number as Nanos * 1_000_000,
            payload,
            is_lost: false,
        }
    };
    let frames = said.iter().enumerate().map(frame).collect();
    (carrier, frames, said)
}

/// What a carrier of several terminals has on air: the carrier, its frames, and the packets for
/// each terminal.
pub type Shared = (Carrier, Vec<Frame>, Vec<Vec<Vec<u8>>>);

/// A forward carrier of two to eight terminals with one MODCOD: a frame holds packets for several
/// of them. The label of terminal N ends with N.
#[allow(dead_code)] // Not every test that includes this file needs it.
pub fn shared(seed: u64) -> Shared {
    let mut random = Pcg64::seed_from_u64(seed);
    let count = 2 + random.next_u32() as usize % 7;
    let modcod = ModCod::by_id(1 + random.next_u32() as u8 % 28).expect("a MODCOD");
    let carrier = |terminal: usize| Carrier::Forward {
        symbol_rate: 10_000_000,
        modcod,
        frame_size: FrameSize::Normal,
        pilots: false,
        label: [2, 0, 0, 0, 0, terminal as u8],
    };
    let own = |terminal| LinkConfig::new(carrier(terminal), 0, Queue::drop_tail(1_000_000), seed);
    let terminals: Vec<_> = (0..count).map(|terminal| (own(terminal), 1)).collect();
    let mut link = SharedForward::new(&terminals).expect("terminals of one carrier");
    link.record_frames();
    let (mut sent, mut out, mut now) = (vec![vec![]; count], vec![], 0);
    for _ in 0..200 {
        if random.next_u32() % 8 == 0 {
            now += Nanos::from(random.next_u32() % 20_000_000);
        }
        let (terminal, packet) = (
            random.next_u32() as usize % count,
            packet(&mut random, 9000),
        );
        if link.push(now, terminal, &packet) == Accepted::Queued {
            sent[terminal].push(packet);
        }
    }
    while link.pop(Nanos::MAX, &mut out).is_some() {}
    (carrier(0), link.take_frames(), sent)
}

/// A burst of a terminal: its number, the superframe and the slot in which it starts.
pub type Burst = (usize, u64, u64);

const SUPERFRAME: Nanos = 26_500_000;
const DELAY: Nanos = 16_000_000;

/// Forward carriers of terminals of a network, and their return carrier with slots on demand; of
/// each its own access.
#[allow(dead_code)] // Not every test that includes this file needs it.
fn of_network(terminal: usize, seed: u64) -> [LinkConfig; 2] {
    let down = Carrier::Forward {
        symbol_rate: 10_000_000,
        modcod: ModCod::by_id(14).expect("a MODCOD"),
        frame_size: FrameSize::Normal,
        pilots: false,
        label: [2, 0, 0, 0, 0, terminal as u8],
    };
    let up = Carrier::Return {
        symbol_rate: 16_000_000,
        waveform: Waveform::by_id(12).expect("a waveform"),
        superframe: SUPERFRAME,
        slots: 791,
    };
    let demand = Demand {
        fifos: vec![Fifo {
            access: [Access::Rbdc, Access::Vbdc, Access::Rbdc][terminal],
            packets: 1000,
        }],
        fifo_of_dscp: [0; 64],
        agreement: Agreement {
            cra_kbps: 100 * terminal as u32,
            rbdc_max_kbps: Some(30_000),
            vbdc_max_kbit: Some(2000),
            duration: 23,
        },
        fca_kbps: 0,
        synchro: 200_000_000,
        others: Vec::new(),
        plans: Plans::default(),
    };
    let queue = Queue::drop_tail(1_000_000);
    [
        LinkConfig {
            signalling: Some(Signalling::of_return(SUPERFRAME, 791, DELAY)),
            ..LinkConfig::new(down, DELAY, queue, seed)
        },
        LinkConfig {
            demand: Some(demand),
            ..LinkConfig::new(up, DELAY, queue, seed)
        },
    ]
}

/// Both carriers of three terminals that ask for slots in turns, for 5 s: the forward carrier, its
/// frames, and the bursts of the terminals as they were sent.
#[allow(dead_code)] // Not every test that includes this file needs it.
pub fn network(seed: u64) -> (Carrier, Vec<Frame>, Vec<Burst>) {
    let mut random = Pcg64::seed_from_u64(seed);
    let links = [0, 1, 2].map(|terminal| of_network(terminal, seed));
    let carrier = links[0][0].carrier;
    let down = links.each_ref().map(|[down, _]| (down.clone(), 1));
    let mut forward = SharedForward::new(&down).expect("terminals of one carrier");
    let mut back = SharedReturn::new(&links.map(|[_, up]| up)).expect("terminals of one carrier");
    let plans = Assignments::default();
    back.say(&plans);
    forward.hear(&plans);
    forward.record_frames();
    (0..3).for_each(|it| back.terminal(it).record_frames());
    let mut out = vec![];
    // As a thread of the emulator works: the forward link before the return link.
    for now in (0..5_000_000_000).step_by(500_000) {
        let (terminal, word) = (random.next_u32() as usize % 3, random.next_u32());
        let is_on = (now / 700_000_000) as usize % 3 != terminal;
        if word % 8 == 0 {
            let _: Accepted = forward.push(now, terminal, &packet(&mut random, 1500));
        }
        while forward.pop(now, &mut out).is_some() {}
        if is_on && word % 3 == 0 {
            let _: Accepted = back.push(now, terminal, &packet(&mut random, 1500));
        }
        while back.pop(now, &mut out).is_some() {}
    }
    let mut bursts: Vec<Burst> = vec![];
    for index in 0..3 {
        // A burst of 536 symbols at 16 Mbaud.
        let slot = |at: Nanos| at % SUPERFRAME / 33_500;
        let of = |frame: Frame| (index + 1, frame.at / SUPERFRAME, slot(frame.at));
        bursts.extend(back.terminal(index).take_frames().into_iter().map(of));
    }
    (carrier, forward.take_frames(), bursts)
}

/// A return link whose bursts are lost at random (ratio 0 to 0.3) with any waveform.
pub fn back(seed: u64) -> OnAir {
    let mut random = Pcg64::seed_from_u64(seed);
    let waveforms: Vec<_> = (1..=49).filter_map(Waveform::by_id).collect();
    let carrier = Carrier::Return {
        symbol_rate: 10_000_000,
        waveform: *pick(&mut random, &waveforms),
        superframe: 26_500_000,
        slots: 40,
    };
    let ratio = f64::from(random.next_u32() % 4) / 10.0;
    let losses = vec![Loss::random(ratio, LossUnit::Frame)];
    run(carrier, (losses, None), 2000, &mut random)
}

/// Sends 120 packets in bursts with pauses, so that frames are full, half empty and left out.
fn run(
    carrier: Carrier,
    (losses, signalling): (Vec<Loss>, Option<Signalling>),
    longest: usize,
    random: &mut Pcg64,
) -> OnAir {
    let mut link = Link::new(LinkConfig {
        losses,
        signalling,
        ..LinkConfig::new(carrier, 0, Queue::drop_tail(1_000_000), random.next_u64())
    })
    .expect("a carrier of the standard");
    link.record_frames();
    let (mut sent, mut received, mut out, mut now) = (vec![], vec![], vec![], 0);
    for _ in 0..120 {
        if random.next_u32() % 8 == 0 {
            now += Nanos::from(random.next_u32() % 20_000_000);
        }
        let packet = packet(random, longest);
        if link.push(now, &packet) == Accepted::Queued {
            sent.push(packet);
        }
    }
    // Plans never end.
    let end = signalling.map_or(Nanos::MAX, |_| now + 5_000_000_000);
    while link.pop(end, &mut out).is_some() {
        received.push(out.clone());
    }
    OnAir {
        carrier,
        sent,
        frames: link.take_frames(),
        received,
    }
}

/// IPv4 or IPv6 with a true length and random content: small, full-size, or anything up to
/// `longest` bytes.
fn packet(random: &mut Pcg64, longest: usize) -> Vec<u8> {
    let len = match random.next_u32() % 4 {
        0 => 40 + random.next_u32() as usize % 80,
        1 => 1400 + random.next_u32() as usize % 101,
        _ => 40 + random.next_u32() as usize % (longest - 39),
    };
    let mut bytes = vec![0; len];
    random.fill_bytes(&mut bytes);
    if random.next_u32() % 3 == 0 {
        bytes[0] = 0x60;
        bytes[4..6].copy_from_slice(&(len as u16 - 40).to_be_bytes());
    } else {
        bytes[0] = 0x45;
        bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    }
    bytes
}

fn pick<'a, T>(random: &mut Pcg64, from: &'a [T]) -> &'a T {
    &from[random.next_u32() as usize % from.len()]
}
