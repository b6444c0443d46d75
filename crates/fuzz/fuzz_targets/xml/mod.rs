// SPDX-License-Identifier: GPL-3.0-or-later
//! The GEO profile with one of its files replaced.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use profile::{FILES, Mode};

/// A copy of the GEO profile in memory, one for each fuzzing process.
static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let geo = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../opensand-profiles/geo");
    let dir = PathBuf::from(format!("/dev/shm/satlab-fuzz-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("/dev/shm can be written");
    for name in FILES {
        fs::copy(geo.join(name), dir.join(name)).expect("profile can be copied");
    }
    dir
});

/// Loads the profile leniently with `bytes` as the file `name`: what passes has sane figures.
pub fn load(name: &str, bytes: &[u8]) {
    fs::write(DIR.join(name), bytes).expect("/dev/shm can be written");
    if let Ok(profile) = profile::load_as(&DIR, Mode::Lenient) {
        assert!(profile.forward.symbol_rate > 0 && profile.return_link.superframe_ns > 0);
    }
}
