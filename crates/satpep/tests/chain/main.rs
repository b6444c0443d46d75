// SPDX-License-Identifier: GPL-3.0-or-later
//! What a chain of proxies carries from end to end, and what it does when something is wrong.

mod faults;
mod lab;
mod streams;
mod warm;
