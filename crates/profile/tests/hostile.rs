// SPDX-License-Identifier: GPL-3.0-or-later
//! Hostile XML (threat T5): refused fast and without memory, never expanded, never fetched.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use profile::{FILES, MAX_DEPTH, Mode, load, load_as};
use tempfile::TempDir;

/// Loads a profile whose topology `write` makes; asserts that it was quick, and returns the faults.
fn refused(write: impl FnOnce(&Path)) -> String {
    let geo = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles/geo");
    let dir = TempDir::new().unwrap();
    for name in FILES {
        fs::copy(geo.join(name), dir.path().join(name)).unwrap();
    }
    let topology = dir.path().join("topology.xml");
    fs::remove_file(&topology).unwrap();
    write(&topology);
    let start = Instant::now();
    let faults = load(dir.path()).expect_err("must be refused").to_string();
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "took {:?}",
        start.elapsed()
    );
    faults
}

fn refused_text(text: &str) -> String {
    refused(|path| fs::write(path, text).unwrap())
}

#[test]
fn test_t05_entity_expansion_is_refused() {
    let mut text = String::from("<?xml version=\"1.0\"?><!DOCTYPE model [<!ENTITY a0 \"ha\">");
    for level in 1..30 {
        let previous = format!("&a{};", level - 1).repeat(10);
        write!(text, "<!ENTITY a{level} \"{previous}\">").unwrap();
    }
    text += "]><model version=\"1.0.0\"><root>&a29;</root></model>";
    assert!(refused_text(&text).contains("no DTD and no entities"));
}

#[test]
fn test_t05_external_entities_are_refused() {
    for target in ["file:///etc/hostname", "http://127.0.0.1:9/x"] {
        let text = format!(
            "<!DOCTYPE model [<!ENTITY x SYSTEM \"{target}\">]><model version=\"1.0.0\"><root>&x;</root></model>"
        );
        assert!(refused_text(&text).contains("no DTD and no entities"));
    }
    let text = "<model version=\"1.0.0\"><root>&x;</root></model>";
    assert!(refused_text(text).contains("well-formed"));
}

#[test]
fn test_t05_huge_file_is_refused_unread() {
    // Sparse: the size alone refuses it.
    let faults = refused(|path| File::create(path).unwrap().set_len(100 << 20).unwrap());
    assert!(faults.contains("larger than 4194304 bytes"), "{faults}");
}

#[test]
fn test_t05_deep_nesting_is_refused() {
    let text = format!(
        "<model version=\"1.0.0\">{}{}</model>",
        "<a>".repeat(10_000),
        "</a>".repeat(10_000)
    );
    assert!(refused_text(&text).contains(&format!("nested deeper than {MAX_DEPTH} levels")));
    // Quoted '>' and comments must not hide a level.
    let text = format!("<model>{}", "<a b='/>'><!-- </a> -->".repeat(10_000));
    assert!(refused_text(&text).contains("nested deeper"));
}

#[test]
fn test_t30_many_attributes_are_refused_in_time() {
    let before = std::time::Instant::now();
    let attributes: String = (0..200_000).fold(String::new(), |all, n| all + &format!(" a{n}='x'"));
    let text = format!("<model version=\"1.0.0\"><a{attributes}/></model>");
    assert!(refused_text(&text).contains("has a tag of more than"));
    assert!(before.elapsed() < std::time::Duration::from_secs(10));
}

#[test]
fn test_t05_many_nodes_are_refused() {
    let text = format!(
        "<model version=\"1.0.0\"><root>{}</root></model>",
        "<a/>".repeat(1_000_000)
    );
    assert!(refused_text(&text).contains("100000 XML nodes"));
}

#[test]
fn test_t05_special_files_are_refused() {
    let faults = refused(|path| std::os::unix::fs::symlink("/dev/zero", path).unwrap());
    assert!(faults.contains("is not a regular file"), "{faults}");
}

#[test]
fn test_t05_cut_files_never_panic() {
    let geo =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles/geo/topology.xml");
    let text = fs::read_to_string(geo).unwrap();
    for end in (0..1200).step_by(7) {
        refused_text(&text[..end]);
    }
    refused(|path| fs::write(path, [0xff, 0xfe, b'<']).unwrap());
}

/// Replays the kept inputs of a fuzz target as the file `name` of the GEO profile; returns how many
/// were refused and accepted.
fn replay(target: &str, name: &str) -> [usize; 2] {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let dir = TempDir::new().unwrap();
    for name in FILES {
        let geo = root.join("../../opensand-profiles/geo");
        fs::copy(geo.join(name), dir.path().join(name)).unwrap();
    }
    let mut taken = [0, 0];
    for entry in fs::read_dir(root.join("corpus").join(target)).unwrap() {
        fs::copy(entry.unwrap().path(), dir.path().join(name)).unwrap();
        taken[usize::from(load_as(dir.path(), Mode::Lenient).is_ok())] += 1;
    }
    taken
}

#[test]
fn test_t05_kept_files_never_panic() {
    for (target, name) in [
        ("topology", "topology.xml"),
        ("infrastructure", "infrastructure_st.xml"),
        ("profile", "profile_st.xml"),
    ] {
        let taken = replay(target, name);
        assert!(taken[0] >= 3 && taken[1] >= 1, "{target}: {taken:?}");
    }
}
