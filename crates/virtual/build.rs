// SPDX-License-Identifier: GPL-3.0-or-later
//! Exports src/sys.rs, which is looked up by name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_NOQ").is_some() {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=getrandom");
    }
}
