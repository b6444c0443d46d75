// SPDX-License-Identifier: GPL-3.0-or-later
//! Units of files and the nanoseconds of the link.

use link::Nanos;

pub(crate) fn ns_of_ms(ms: f64) -> Nanos {
    (ms * 1e6).round() as Nanos
}

pub(crate) fn ns_of_s(s: f64) -> Nanos {
    (s * 1e9).round() as Nanos
}

pub(crate) fn ms(ns: Nanos) -> f64 {
    ns as f64 / 1e6
}
