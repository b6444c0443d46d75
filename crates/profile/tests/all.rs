// SPDX-License-Identifier: GPL-3.0-or-later
//! All tests of the crate's interface as one program: linking one for each file takes more time
//! than they run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod hostile;
mod layouts;
mod profile;
mod terminals;
mod whole;
