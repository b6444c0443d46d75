// SPDX-License-Identifier: GPL-3.0-or-later
//! When a terminal takes its request for volume, or the answer, for lost.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dvb::dama::{Access, Agreement, Arithmetic, Carrier, Grant, Level, Terminal, Timers};
use dvb::rcs2::Waveform;

const MS: u64 = 1_000_000;
const SYNCHRO: u64 = 1000 * MS;
const SUPERFRAME: u64 = 26_500_000;
const LEVELS: [Level; 1] = [Level {
    access: Access::Vbdc,
    bytes: 100_000,
}];

/// A terminal requests volume at 0 and then receives plans, each with `vbdc` bursts. Returns
/// whether its next request, a period later, states the whole volume.
fn second_request_is_absolute(vbdc: u32) -> bool {
    let carrier = Carrier {
        symbol_rate: 16_000_000,
        superframe: SUPERFRAME,
        waveform: Waveform::by_id(12).unwrap(),
        arithmetic: Arithmetic::Standard,
    };
    let agreement = Agreement {
        cra_kbps: 0,
        rbdc_max_kbps: None,
        vbdc_max_kbit: Some(100_000),
        duration: 23,
    };
    let timers = Timers {
        first: 0,
        synchro: SYNCHRO,
        round_trip: 500 * MS,
    };
    let mut terminal = Terminal::new(carrier, agreement, timers);
    assert!(terminal.request(0, &LEVELS).unwrap().vbdc_bursts > 100);
    let grant = Grant {
        vbdc,
        ..Grant::default()
    };
    for superframe in 1..SYNCHRO / SUPERFRAME {
        terminal.assign(superframe * SUPERFRAME, grant);
        terminal.superframe();
    }
    terminal.request(SYNCHRO, &LEVELS).unwrap().is_absolute
}

#[test]
fn plans_without_volume_are_no_answer() {
    assert!(second_request_is_absolute(0));
}

#[test]
fn plans_with_volume_are_an_answer() {
    assert!(!second_request_is_absolute(1));
}
