// SPDX-License-Identifier: GPL-3.0-or-later
//! Any bytes as datagrams of another entity: at the satellite, at a receiver of the forward link,
//! and at one of a return link that plans; the first byte says how they are cut.
#![no_main]

use dvb::dama::{Access, Agreement};
use dvb::modcod::{FrameSize, ModCod};
use dvb::rcs2::Waveform;
use libfuzzer_sys::fuzz_target;
use link::{Carrier, Demand, Fifo, LinkConfig, Plans, Queue, Receiver, Relay, Stage};

fn planner() -> Option<Receiver> {
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
    Receiver::new(LinkConfig {
        demand: Some(demand),
        ..config
    })
    .ok()
}

fn forward() -> Option<LinkConfig> {
    let carrier = Carrier::Forward {
        symbol_rate: 40_000_000,
        modcod: ModCod::by_id(1)?,
        frame_size: FrameSize::Normal,
        pilots: false,
        label: [2; 6],
    };
    Some(LinkConfig::new(carrier, 1, Queue::drop_tail(1 << 20), 1))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&size, bytes)) = bytes.split_first() else {
        return;
    };
    let (Some(config), Some(mut planner)) = (forward(), planner()) else {
        return;
    };
    let (Ok(mut relay), Ok(mut receiver)) = (Relay::new(config.clone()), Receiver::new(config))
    else {
        return;
    };
    let mut out = Vec::new();
    for (number, datagram) in bytes.chunks(usize::from(size).max(1) * 4).enumerate() {
        let now = number as u64 * 30_000_000;
        for stage in [&mut relay as &mut dyn Stage, &mut receiver, &mut planner] {
            stage.offer(now, datagram);
            while stage.pop(now + 2, &mut out).is_some() || stage.take_plan(&mut out) {}
        }
    }
});
