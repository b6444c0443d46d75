// SPDX-License-Identifier: GPL-3.0-or-later
//! Any bytes as a request on the control socket: always an answer that says yes or no.
#![no_main]

use std::sync::LazyLock;

use emulator::config::{self, Config};
use libfuzzer_sys::fuzz_target;
use profile::Profile;

static LINK: LazyLock<(Config, Profile)> = LazyLock::new(|| {
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../opensand-profiles/geo");
    let end = r#"{"netns": "/run/netns/x", "tun": "TUN"}"#;
    let [st, gw, near, far] = ["st", "gw", "near", "far"].map(|name| end.replace("TUN", name));
    let way = r#"{"queue": {"bdp": 1}, "loss": {"ratio": 0, "unit": "packet"}}"#;
    let text = format!(
        r#"{{"schema": "satlab/link-config/1", "run_id": "fuzz", "profile": "{profile}", "timing": "standard",
        "seed": 1, "forward": {way}, "return": {way}, "terrestrial_one_way_delay_ms": 0, "st": {st}, "gw": {gw},
        "near": {near}, "far": {far}, "metrics": "/dev/null", "metrics_interval_ms": 100}}"#
    );
    let config =
        config::parse(&text, &|_| Err("no file".into())).expect("the configuration is right");
    let profile = profile::load(&config.profile).expect("the profile is ours");
    (config, profile)
});

fuzz_target!(|bytes: &[u8]| {
    let (config, profile) = &*LINK;
    let _ = satlink::answer(config, profile, bytes);
});
