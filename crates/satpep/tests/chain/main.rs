// SPDX-License-Identifier: GPL-3.0-or-later
//! What a chain of proxies carries from end to end, and what it does when something is wrong.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod gaps;
mod lab;
mod resume;
mod streams;
mod warm;
