// SPDX-License-Identifier: GPL-3.0-or-later
//! Variations of profiles.

use super::*;
use profile::{Attenuation, Series};

fn profile(edit: impl FnOnce(&mut Profile)) -> Profile {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../opensand-profiles/geo");
    let mut profile = profile::load(dir.as_ref()).unwrap();
    edit(&mut profile);
    profile
}

fn series(text: &str, looped: bool) -> Series {
    Series::parse(text, (0.0, 1000.0), looped).unwrap()
}

/// The first changes of a variation that starts at 7 ns, as (time since then in ms, what was
/// requested).
fn first_changes(variation: &Variation, count: usize) -> Vec<(u64, Value)> {
    let mut change = variation.start(7);
    let mut seen = Vec::new();
    for _ in 0..count {
        seen.push(((change.at - 7) / 1_000_000, change.requested.clone().into()));
        change = change.next(change.at).unwrap();
    }
    seen
}

#[test]
fn constant_profiles_do_not_vary() {
    assert!(variations(&profile(|_| {})).iter().all(Vec::is_empty));
}

#[test]
// promise: P9
fn attenuation_changes_with_its_steps_and_holds_its_end() {
    let profile = profile(|it| {
        let fade = series("1 0\n3 0\n5 10", false);
        it.st_profile.physical.downlink.attenuation = Attenuation::File(fade);
    });
    let [forward, back, down, up] = variations(&profile);
    assert!(back.is_empty() && down.is_empty() && up.is_empty());
    let db = |db: f64| serde_json::json!({"es_n0_db": db});
    // Steps of 1 s; the third, fourth and fifth have 0, 5 and 10 dB; then a look ahead now and
    // then.
    assert_eq!(
        first_changes(&forward[0], 5),
        [
            (0, db(16.99)),
            (3000, db(13.807)),
            (4000, db(9.586)),
            (68_000, db(9.586)),
            (132_000, db(9.586))
        ]
    );
}

#[test]
// promise: P9
fn files_of_a_profile_folder_are_followed_with_and_without_loop() {
    let dir = std::env::temp_dir().join(format!("emulator-variation-{}", std::process::id()));
    let geo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles/geo");
    std::fs::create_dir_all(&dir).unwrap();
    for name in profile::FILES {
        std::fs::copy(geo.join(name), dir.join(name)).unwrap();
    }
    std::fs::write(dir.join("orbit.txt"), "# STEP ms\n1 125\n2 125\n3 75\n").unwrap();
    std::fs::write(dir.join("rain.txt"), "1 0\n2 1\n").unwrap();
    let xml = std::fs::read_to_string(dir.join("profile_st.xml")).unwrap();
    let (up, down) = xml.split_once("<downlink_attenuation>").unwrap();
    let constant = "<delay_type>ConstantDelay</delay_type>\n        <delay_value>125</delay_value>";
    let ideal = "<attenuation_type>Ideal</attenuation_type>\n        <ideal_attenuation_value>0.0</ideal_attenuation_value>";
    assert!(up.contains(constant) && down.contains(ideal));
    let orbit = "<delay_type>FileDelay</delay_type><file_path>orbit.txt</file_path>\
        <refresh_period>1000</refresh_period><loop>false</loop>";
    let rain = "<attenuation_type>File</attenuation_type>\
        <file_attenuation_file>rain.txt</file_attenuation_file>\
        <file_attenuation_loop>true</file_attenuation_loop>";
    let edited = [up.replace(constant, orbit), down.replace(ideal, rain)];
    std::fs::write(
        dir.join("profile_st.xml"),
        edited.join("<downlink_attenuation>"),
    )
    .unwrap();
    let profile = profile::load(&dir).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let [forward, back, ..] = variations(&profile);
    let ms = |ms: f64| serde_json::json!({"delay_ms": ms});
    let db = |db: f64| serde_json::json!({"es_n0_db": db});
    // Without loop the last value holds, and is looked at now and then.
    assert_eq!(
        first_changes(&back[0], 3),
        [(0, ms(250.0)), (2000, ms(200.0)), (66_000, ms(200.0))]
    );
    // Steps 0, 1 and 2 of the loop, which begins with step 1.
    assert_eq!(
        first_changes(&forward[0], 5),
        [
            (0, db(16.99)),
            (1000, db(16.461)),
            (2000, db(16.99)),
            (4000, db(16.461)),
            (5000, db(16.99))
        ]
    );
}

#[test]
fn delay_follows_the_files_of_both_entities() {
    let profile = profile(|it| {
        it.gw_physical.delay = Delay::File {
            series: series("1 125\n2 100", true),
            refresh_ms: 300,
        };
        it.st_profile.physical.delay = Delay::File {
            series: series("1 125\n2 120", false),
            refresh_ms: 500,
        };
    });
    let [forward, back, ..] = variations(&profile);
    assert_eq!(first_changes(&forward[0], 4), first_changes(&back[0], 4));
    let ms = |ms: f64| serde_json::json!({"delay_ms": ms});
    // The loop has steps 0, 1 and 2, and begins with step 1.
    assert_eq!(
        first_changes(&forward[0], 4),
        [
            (0, ms(250.0)),
            (300, ms(225.0)),
            (500, ms(220.0)),
            (600, ms(245.0))
        ]
    );
}
