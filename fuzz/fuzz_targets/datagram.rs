// SPDX-License-Identifier: GPL-3.0-or-later
//! Any bytes as datagrams of another entity: at the satellite, at a receiver of the forward link, and at one of a return link
//! that plans; the first byte says how they are cut.
#![no_main]

use dvb::dama::{Access, Agreement};
use dvb::modcod::{FrameSize, ModCod};
use dvb::rcs2::Waveform;
use libfuzzer_sys::fuzz_target;
use link::{Carrier, Demand, Fifo, Link, LinkConfig, Part, Plans, Queue};

fn planner() -> Option<Link> {
    let carrier = Carrier::Return {
        symbol_rate: 16_000_000,
        waveform: Waveform::by_id(12)?,
        superframe: 26_500_000,
        slots: 791,
    };
    let (access, packets) = (Access::Vbdc, 1);
    let demand = Demand {
        fifos: vec![Fifo { access, packets }],
        fifo_of_dscp: [0; 64],
        agreement: Agreement {
            cra_kbps: 0,
            rbdc_max_kbps: Some(1000),
            vbdc_max_kbit: Some(1000),
            duration: 23,
        },
        fca_kbps: 0,
        synchro: 1_000_000_000,
        others: Vec::new(),
        plans: Plans::default(),
    };
    let config = LinkConfig::new(carrier, 1, Queue::drop_tail(1 << 20), 1);
    let (part, demand) = (Part::Receiver, Some(demand));
    Link::new(LinkConfig {
        part,
        demand,
        ..config
    })
    .ok()
}

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
    let mut links = [link(Part::Relay), link(Part::Receiver), planner()];
    let mut out = Vec::new();
    for (number, datagram) in bytes.chunks(usize::from(size).max(1) * 4).enumerate() {
        let now = number as u64 * 30_000_000;
        for link in links.iter_mut().flatten() {
            link.push(now, datagram);
            while link.pop(now + 2, &mut out).is_some() || link.tell(&mut out) {}
        }
    }
});
