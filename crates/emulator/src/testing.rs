// SPDX-License-Identifier: GPL-3.0-or-later
//! For tests of this crate, and by path of those that use it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each crate uses some; a test fails by panicking"
)]

use serde_json::{Value, json};

/// A complete configuration on the shipped profile `name`.
pub(crate) fn example(name: &str) -> Value {
    let profile = format!(
        "{}/../../opensand-profiles/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    let port = |node: &str| json!({"netns": format!("/run/netns/{node}"), "tun": "sat0"});
    let direction = json!({"queue": {"bdp": 1.0}, "loss": {"ratio": 0.0, "unit": "packet"}});
    json!({
        "schema": "satlab/link-config/1", "run_id": "r1", "profile": profile, "timing": "standard", "seed": 7,
        "forward": direction, "return": direction, "terrestrial_one_way_delay_ms": 40.0,
        "st": port("st"), "gw": port("gw"), "near": port("near"), "far": port("far"),
        "metrics": "link.jsonl", "metrics_interval_ms": 100,
    })
}

/// A stream of pseudo-random numbers (Knuth's MMIX generator): upper bits.
pub(crate) fn random(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

pub(crate) type Edit = fn(&mut Value);

/// Edits that ask for what only carriers with demand assignment have here, each with the field that
/// its fault names.
pub(crate) const DEMAND_ALONE: [(&str, Edit); 3] = [
    ("timing:", |it| it["timing"] = json!("opensand")),
    ("probes:", |it| {
        it["probes"] = json!({"address": "127.0.0.1:5361"});
    }),
    ("emulation:", |it| {
        it["emulation"] =
            json!({"st": "10.77.0.3", "sat": "10.77.0.1", "gw": "10.77.0.2", "port": 6000});
    }),
];
