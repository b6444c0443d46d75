// SPDX-License-Identifier: GPL-3.0-or-later
//! JSON schemas made from Rust types, and values against them.
//!
//! A type that is read or written derives `JsonSchema`; its bounds are attributes, its help texts
//! doc comments. The files in `schemas/` are made from these types. The keyword `remedy` describes
//! a valid value in words and replaces all faults below it by one.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod check;
mod generate;
mod remedy;

pub use check::{Format, check};
pub use generate::{read, written};

/// Faults, one line each: `place: reason (remedy)`.
pub type Faults = Vec<String>;

/// Compares a schema with its file in `schemas/`, or writes the file where `SATLAB_GENERATE` is
/// set; for the tests of crates.
///
/// # Panics
/// The file differs, or cannot be read or written.
#[allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "for tests, which may read files and panic"
)]
pub fn compare_with_file(schema: &serde_json::Value) {
    let id = schema["$id"].as_str().unwrap_or_default();
    let name = id.trim_start_matches("satlab/");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas");
    let path = format!("{folder}/{name}.schema.json");
    if std::env::var_os("SATLAB_GENERATE").is_some() {
        let text = serde_json::to_string_pretty(schema).expect("a schema is JSON") + "\n";
        std::fs::write(&path, text).expect("schemas/ can be written");
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let file: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    assert!(
        file == *schema,
        "{path} is not that of its type: make generate"
    );
}
