// SPDX-License-Identifier: GPL-3.0-or-later
//! Linux calls that satlink, satfec, satpep and satperf share.

mod sys;

pub use sys::{Signals, check, cpu_seconds, terminate};
