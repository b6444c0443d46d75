// SPDX-License-Identifier: GPL-3.0-or-later
//! Careful Resume of an endpoint's connections: what is known of paths goes into each and comes back from it.

use std::net::IpAddr;
use std::time::Instant;

use ::quic::{CarefulResume, LegOptions, QlogFile};
use resume::{Jump, Mode, PathKey, PhaseUpdate, Resumption, Saved, Started, Store};

use super::{Setup, StackError};

/// What an endpoint knows of its paths.
pub(super) struct Paths {
    store: Store,
    mode: Mode,
    epoch: (Instant, f64),
    initial_window: u64,
}

/// Careful Resume of one connection.
pub(super) struct Resumed {
    /// Makes the congestion controller.
    pub resumption: Resumption,
    key: PathKey,
    saved: Option<Saved>,
    qlog: Option<(QlogFile, Instant)>,
    /// Changes of the phase so far.
    pub phases: Vec<PhaseUpdate>,
}

impl Paths {
    /// `None`: Careful Resume is off.
    pub fn new(setup: &Setup) -> Result<Option<Self>, StackError> {
        let LegOptions { careful_resume, .. } = setup.options;
        let mode = match careful_resume {
            CarefulResume::Off => return Ok(None),
            CarefulResume::On => Mode::Careful,
            CarefulResume::Unvalidated => Mode::Unvalidated,
        };
        let store = Store::parse(&setup.resume_state).map_err(StackError::ResumeState)?;
        Ok(setup.epoch.map(|epoch| Self {
            store,
            mode,
            epoch,
            initial_window: setup.options.initial_window_bytes(),
        }))
    }

    fn unix_s(&self, now: Instant) -> f64 {
        let (instant, unix_s) = self.epoch;
        unix_s + now.saturating_duration_since(instant).as_secs_f64()
    }

    /// A connection starts: it takes what is known of its path.
    pub fn start(
        &mut self,
        now: Instant,
        local: IpAddr,
        remote: IpAddr,
        qlog: Option<QlogFile>,
    ) -> Resumed {
        let key = PathKey { local, remote };
        let saved = self.store.take(key, self.unix_s(now));
        let resumption = Resumption::new(Started {
            initial_window: self.initial_window,
            saved: saved.as_ref().map(|it| it.parameters),
            mode: self.mode,
        });
        Resumed {
            resumption,
            key,
            saved,
            qlog: qlog.map(|file| (file, now)),
            phases: Vec::new(),
        }
    }

    /// A connection ended: what it learned replaces what was known; nothing of a path that disappointed it is kept.
    pub fn end(&mut self, now: Instant, mut resumed: Resumed) {
        resumed.note();
        let Resumed {
            resumption,
            key,
            saved,
            ..
        } = resumed;
        match (resumption.learned(), saved) {
            (Some(learned), _) => self.store.learn(key, learned, self.unix_s(now)),
            (None, Some(saved)) if resumption.is_saved_valid() => self.store.put_back(key, saved),
            _ => {}
        }
    }

    /// The text of the state file.
    pub fn to_text(&self) -> String {
        self.store.to_text()
    }
}

impl Resumed {
    /// Takes changes of the phase over, into the qlog file as well. A failed write is kept by the file.
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
    pub fn jump(&self) -> Option<Jump> {
        self.resumption.jump()
    }
}
