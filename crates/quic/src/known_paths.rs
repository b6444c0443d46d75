// SPDX-License-Identifier: GPL-3.0-or-later
//! Careful Resume of an endpoint's connections: what is known of paths goes into each and comes
//! back from it.

use std::time::Instant;

use resume::{Jump, Mode, PathKey, PhaseUpdate, Resumption, Saved, Started, Store};

use crate::options::{CarefulResume, LegOptions};
use crate::qlog::QlogFile;

/// What an endpoint knows of its paths.
#[derive(Debug)]
pub struct KnownPaths {
    store: Store,
    epoch: (Instant, f64),
}

/// Careful Resume of one connection.
#[derive(Debug)]
pub struct Resumed {
    /// Makes the congestion controller.
    pub resumption: Resumption,
    key: PathKey,
    saved: Option<Saved>,
    qlog: Option<(QlogFile, Instant)>,
    /// Changes of the phase so far.
    pub phases: Vec<PhaseUpdate>,
}

impl KnownPaths {
    /// Reads the text of a state file; an empty one knows nothing. `epoch` is one moment on both
    /// clocks: monotonic, and Unix time in s.
    ///
    /// # Errors
    /// All faults of the text, one per line: nothing of a wrong file is used.
    pub fn parse(text: &str, epoch: (Instant, f64)) -> Result<Self, String> {
        let store = Store::parse(text)?;
        Ok(Self { store, epoch })
    }

    fn unix_s(&self, now: Instant) -> f64 {
        let (instant, unix_s) = self.epoch;
        unix_s + now.saturating_duration_since(instant).as_secs_f64()
    }

    /// A connection starts: it takes what is known of its path. `None`: the leg does not resume.
    pub fn start(
        &mut self,
        now: Instant,
        key: PathKey,
        leg: &LegOptions,
        qlog: Option<QlogFile>,
    ) -> Option<Resumed> {
        let mode = match leg.careful_resume {
            CarefulResume::Off => return None,
            CarefulResume::On => Mode::Careful,
            CarefulResume::Unvalidated => Mode::Unvalidated,
        };
        let saved = self.store.take(key, self.unix_s(now));
        let resumption = Resumption::new(Started {
            initial_window: leg.initial_window_bytes(),
            saved: saved.as_ref().map(|it| it.parameters),
            mode,
        });
        Some(Resumed {
            resumption,
            key,
            saved,
            qlog: qlog.map(|file| (file, now)),
            phases: Vec::new(),
        })
    }

    /// A connection ended, and returns what it has.
    pub fn end(&mut self, now: Instant, mut resumed: Resumed) {
        self.release(now, &mut resumed);
    }

    /// What a connection learned replaces what was known; nothing of a path that disappointed it is
    /// kept. The connection may go on: what it had is for others from now on.
    pub fn release(&mut self, now: Instant, resumed: &mut Resumed) {
        resumed.note();
        let (key, saved) = (resumed.key, resumed.saved.take());
        match (resumed.resumption.learned(), saved) {
            (Some(learned), _) => self.store.learn(key, learned, self.unix_s(now)),
            (None, Some(saved)) if resumed.resumption.is_saved_valid() => {
                self.store.put_back(key, saved);
            }
            _ => {}
        }
    }

    /// The text of the state file.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.store.to_text()
    }
}

impl Resumed {
    /// Takes changes of the phase over, into the qlog file as well. A failed write is kept by the
    /// file.
    pub fn note(&mut self) {
        for update in self.resumption.take_updates() {
            if let Some((file, start)) = &mut self.qlog {
                let time = update.at.saturating_duration_since(*start).as_secs_f64() * 1e3;
                let _ = file.write_event(PhaseUpdate::EVENT, time, &update.qlog());
            }
            self.phases.push(update);
        }
    }

    /// The jump, if there was one.
    #[must_use]
    pub fn jump(&self) -> Option<Jump> {
        self.resumption.jump()
    }
}
