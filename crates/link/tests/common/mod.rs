// SPDX-License-Identifier: GPL-3.0-or-later
//! Shared by the tests of the link.
#![allow(clippy::unwrap_used, dead_code)] // Helpers outside of #[test] functions; each test uses some.

use dvb::modcod::{FrameSize, ModCod};
use dvb::rcs2::Waveform;
use link::{
    Accepted, Carrier, Link, LinkConfig, Loss, LossUnit, Nanos, Queue, SharedCarrier, Stage,
};

pub const GEO: Nanos = 250_000_000;

pub fn forward(symbol_rate: u64, modcod: u8) -> Carrier {
    Carrier::Forward {
        symbol_rate,
        modcod: ModCod::by_id(modcod).unwrap(),
        frame_size: FrameSize::Normal,
        pilots: false,
        label: [2, 0, 0, 0, 0, 1],
    }
}

pub fn back(symbol_rate: u64, waveform: u8, slots: u32) -> Carrier {
    let waveform = Waveform::by_id(waveform).unwrap();
    Carrier::Return {
        symbol_rate,
        waveform,
        superframe: 26_500_000,
        slots,
    }
}

pub fn config(carrier: Carrier) -> LinkConfig {
    LinkConfig::new(carrier, GEO, Queue::drop_tail(1_000_000), 1)
}

/// As `config`, with independent losses.
pub fn lossy(carrier: Carrier, ratio: f64, unit: LossUnit) -> LinkConfig {
    LinkConfig {
        losses: vec![Loss::random(ratio, unit)],
        ..config(carrier)
    }
}

pub fn link(carrier: Carrier) -> Link {
    Link::new(config(carrier)).unwrap()
}

/// The forward link of the `OpenSAND` example: 40 Mbaud, QPSK 1/4, ticks of 10 ms.
pub fn opensand_forward() -> Carrier {
    Carrier::OpenSandForward {
        symbol_rate: 40_000_000,
        modcod: ModCod::by_id(1).unwrap(),
        tick: 10_000_000,
        label: [2, 0, 0, 0, 0, 1],
        defects: false,
        drift: 0,
    }
}

/// Its return link: 16 Mbaud, waveform 12, CRA of 10 Mbit/s.
pub fn opensand_return() -> Carrier {
    Carrier::OpenSandReturn {
        symbol_rate: 16_000_000,
        waveform: Waveform::by_id(12).unwrap(),
        superframe: 26_500_000,
        slots: 149,
    }
}

/// An IPv4-like packet that carries its number.
pub fn packet(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (number >> (8 * (at % 8))) as u8 ^ at as u8;
    }
    bytes[0] = 0x45;
    bytes
}

/// One thing that came out of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub due: Nanos,
    pub packet: Vec<u8>,
}

/// Everything due up to `now`.
pub fn drain(link: &mut Link, now: Nanos) -> Vec<Release> {
    let mut out = vec![];
    std::iter::from_fn(|| {
        link.pop(now, &mut out).map(|due| Release {
            due,
            packet: out.clone(),
        })
    })
    .collect()
}

/// A link and its arrivals, stepped only when something is pushed; then drained.
pub fn run(config: &LinkConfig, arrivals: &[(Nanos, usize)]) -> (Vec<Release>, Link) {
    let mut link = Link::new(config.clone()).unwrap();
    for (number, &(at, len)) in arrivals.iter().enumerate() {
        let _: Accepted = link.push(at, &packet(number as u64, len));
    }
    let released = drain(&mut link, Nanos::MAX);
    (released, link)
}

/// Bytes that come out for each terminal, which byte 9 names, from `from` to `until`, with `offer`
/// called every ms.
pub fn received<T: SharedCarrier>(
    shared: &mut T,
    count: usize,
    (from, until): (Nanos, Nanos),
    mut offer: impl FnMut(&mut T, Nanos),
) -> Vec<u64> {
    let mut bytes = vec![0; count];
    let mut out = Vec::new();
    for now in (from..until).step_by(1_000_000) {
        offer(shared, now);
        while let Some((due, terminal)) = shared.pop(now, &mut out) {
            assert!(due <= now);
            assert_eq!(usize::from(out[9]), terminal);
            bytes[terminal] += out.len() as u64;
        }
    }
    bytes
}

pub fn spread(bytes: &[u64]) -> f64 {
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    *most as f64 / *least as f64 - 1.0
}
