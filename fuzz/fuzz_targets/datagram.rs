// SPDX-License-Identifier: GPL-3.0-or-later
//! Any bytes as datagrams of another entity, at a receiver and at the satellite; the first byte says how they are cut.
#![no_main]

use dvb::modcod::{FrameSize, ModCod};
use libfuzzer_sys::fuzz_target;
use link::{Carrier, Link, LinkConfig, Part, Queue};

fn link(part: Part) -> Option<Link> {
    let carrier = Carrier::Forward {
        symbol_rate: 40_000_000,
        modcod: ModCod::by_id(1)?,
        frame_size: FrameSize::Normal,
        pilots: false,
        label: [2; 6],
    };
    let config = LinkConfig::new(carrier, 1, Queue::drop_tail(1 << 20), 1);
    Link::new(LinkConfig { part, ..config }).ok()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&size, bytes)) = bytes.split_first() else {
        return;
    };
    let (mut relay, mut receiver) = (link(Part::Relay), link(Part::Receiver));
    let mut out = Vec::new();
    for (now, datagram) in bytes.chunks(usize::from(size).max(1) * 16).enumerate() {
        for link in [&mut relay, &mut receiver].into_iter().flatten() {
            link.push(now as u64, datagram);
            while link.pop(now as u64 + 2, &mut out).is_some() {}
        }
    }
});
