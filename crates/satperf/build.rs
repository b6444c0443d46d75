// SPDX-License-Identifier: GPL-3.0-or-later
//! The example `quiche-lockstep` replaces calls of `BoringSSL`: ld's `--wrap NAME` turns them into
//! calls of `__wrap_NAME`. Nothing else of this crate is linked so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_QUICHE").is_some() {
        for name in ["RAND_bytes", "SSL_CTX_new"] {
            println!("cargo:rustc-link-arg-examples=-Wl,--wrap={name}");
        }
    }
}
