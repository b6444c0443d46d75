// SPDX-License-Identifier: GPL-3.0-or-later
//! Any bytes as infrastructure_st.xml of the GEO profile, loaded leniently.
#![no_main]

mod xml;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| xml::load("infrastructure_st.xml", bytes));
