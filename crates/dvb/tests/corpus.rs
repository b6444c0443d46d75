// SPDX-License-Identifier: GPL-3.0-or-later
//! Replays the inputs in `corpus/`: none may panic. A crash found later becomes a file
//! there.

#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use dvb::bbframe::BbFrame;
use std::path::Path;

fn replay(folder: &str, mut parse: impl FnMut(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(folder);
    let files: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(files.len() >= 3, "{} is empty", folder.display());
    for file in files {
        parse(&std::fs::read(file).unwrap());
    }
}

#[test]
fn bbheader() {
    let mut good = 0;
    replay("bbheader", |bytes| {
        good += usize::from(BbFrame::new(bytes).is_ok_and(|frame| frame.header().is_ok()));
    });
    assert!(good >= 1);
}

/// One receiver per file and one for all of them, so that open fragments meet strange successors.
#[test]
fn gse() {
    let (mut all, mut pdus) = (dvb::gse::Decapsulator::new(), 0);
    replay("gse", |bytes| {
        dvb::gse::Decapsulator::new().frame(bytes, |_| pdus += 1);
        all.frame(bytes, |_| ());
    });
    assert!(pdus >= 1);
}

#[test]
fn rle() {
    let (mut all, mut sdus) = (dvb::rle::Decapsulator::new(), 0);
    replay("rle", |bytes| {
        dvb::rle::Decapsulator::new().frame(bytes, |_| sdus += 1);
        all.frame(bytes, |_| ());
    });
    assert!(sdus >= 1);
}
