// SPDX-License-Identifier: GPL-3.0-or-later
//! Any bytes as profile_st.xml of the GEO profile, loaded leniently.
#![no_main]

mod xml;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| xml::load("profile_st.xml", bytes));
