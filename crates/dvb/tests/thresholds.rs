// SPDX-License-Identifier: GPL-3.0-or-later
//! Which step of the ladder a selector starts with.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dvb::acm::{Rung, Selector};

/// Steps that need 1, 2 and 3 dB; a step's name is its threshold in hundredths of a dB.
fn selector() -> Selector<i16> {
    let rung = |threshold_centi_db| Rung {
        coding: threshold_centi_db,
        threshold_centi_db,
        efficiency: f64::from(threshold_centi_db),
    };
    Selector::of([100, 200, 300].map(rung).to_vec(), 0.0, 0.0).unwrap()
}

#[test]
fn it_starts_with_the_step_that_needs_exactly_what_is_given() {
    for (given, first) in [
        (99, 100),
        (100, 100),
        (199, 100),
        (200, 200),
        (299, 200),
        (300, 300),
        (9999, 300),
    ] {
        assert_eq!(selector().starting_at(given).current(), first, "{given}");
    }
}
