// SPDX-License-Identifier: GPL-3.0-or-later
//! What a chain of proxies carries from end to end, and what it does when something is wrong.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

/// Tests of a PKI: with proxies on quinn, and with bbr3 on noq.
macro_rules! on_each_library {
    ($($name:ident),* $(,)?) => {
        mod on_quinn {
            $(#[tokio::test] async fn $name() { super::$name(crate::lab::Pki::new()).await; })*
        }

        #[cfg(feature = "noq")]
        mod on_noq {
            $(#[tokio::test] async fn $name() { super::$name(crate::lab::Pki::bbr3()).await; })*
        }
    };
}

#[cfg(feature = "noq")]
mod bbr3;
mod faults;
mod gaps;
mod lab;
mod resume;
mod streams;
mod validation;
mod warm;
