// SPDX-License-Identifier: GPL-3.0-or-later
//! A shipped profile with edits, in a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};

use profile::FILES;
use tempfile::TempDir;

/// Folder of a shipped profile.
pub fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../opensand-profiles")
        .join(name)
}

/// One edit: in `file`, every `from` becomes `to`.
pub type Edit = (&'static str, &'static str, &'static str);

/// A copy of the GEO profile with edits.
pub fn edited(edits: &[Edit]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for name in FILES {
        let mut text = fs::read_to_string(shipped("geo").join(name)).unwrap();
        for (_, from, to) in edits.iter().filter(|edit| edit.0 == name) {
            assert!(text.contains(from), "{name} does not contain {from}");
            text = text.replace(from, to);
        }
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}
