// SPDX-License-Identifier: GPL-3.0-or-later
//! Careful Resume (RFC 9959) of both legs: what is known of paths, between connections and from one
//! process to the next.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quic::{CarefulResume, KnownPaths, LegOptions, QlogFile, Resumed, StateFile};
use resume::{PathKey, Resumption};
use serde::Serialize;

use crate::options::QuicOptions;

/// What the proxy knows of the paths of its legs.
#[derive(Debug)]
pub struct Memory {
    paths: Mutex<KnownPaths>,
    file: Option<Mutex<StateFile>>,
}

/// The state file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("state of Careful Resume, {file}: {why}", file = .path.display())]
pub struct MemoryError {
    /// The file.
    pub path: PathBuf,
    /// Reason of the failure.
    pub why: String,
}

impl Memory {
    /// Opens the state file, if the options name one. `None`: no leg uses Careful Resume.
    ///
    /// # Errors
    /// The file is not private, in use, or invalid; nothing of it is used.
    pub fn open(options: &QuicOptions) -> Result<Option<Arc<Self>>, MemoryError> {
        let legs = [&options.client_side.0, &options.server_side.0];
        if legs.map(|leg| leg.careful_resume) == [CarefulResume::Off; 2] {
            return Ok(None);
        }
        let fault = |why: String| MemoryError {
            path: options.resume_state.clone().unwrap_or_default(),
            why,
        };
        let opened = options.resume_state.as_deref().map(StateFile::open);
        let (file, text) = opened
            .transpose()
            .map_err(|error| fault(error.to_string()))?
            .map_or((None, String::new()), |(file, text)| (Some(file), text));
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let epoch = (Instant::now(), unix.map_or(0.0, |it| it.as_secs_f64()));
        let paths = KnownPaths::parse(&text, epoch).map_err(fault)?;
        Ok(Some(Arc::new(Self {
            paths: Mutex::new(paths),
            file: file.map(Mutex::new),
        })))
    }

    /// Gives a connection that starts the knowledge about its path. `None`: its leg does not use
    /// Careful Resume.
    pub fn start(
        self: &Arc<Self>,
        key: PathKey,
        leg: &LegOptions,
        qlog: Option<QlogFile>,
    ) -> Option<Held> {
        let resumed = locked(&self.paths).start(Instant::now(), key, leg, qlog)?;
        Some(Held {
            resumption: resumed.resumption.clone(),
            memory: Arc::clone(self),
            resumed: Mutex::new(Some(resumed)),
        })
    }

    /// Writes the knowledge about all paths that no connection uses to the state file.
    ///
    /// # Errors
    /// The disk is full.
    pub fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let text = locked(&self.paths).to_text();
        locked(file).write(&text)
    }
}

/// The knowledge that a connection has taken. When this is dropped, it goes back to the memory with
/// what the connection learned.
#[derive(Debug)]
pub struct Held {
    /// Makes the congestion controller.
    pub resumption: Resumption,
    memory: Arc<Memory>,
    resumed: Mutex<Option<Resumed>>,
}

/// After this time without data a connection has nothing in flight over a satellite, and other
/// connections may take its knowledge.
pub const QUIET: Duration = Duration::from_secs(2);

/// Notices when a connection becomes quiet.
#[derive(Debug, Default)]
pub struct Lull {
    bytes: u64,
    since: Option<Instant>,
}

impl Lull {
    /// Whether the connection has now been quiet for [`QUIET`], once for each lull; `bytes` is what
    /// it has carried so far.
    pub fn begins(&mut self, now: Instant, bytes: u64) -> bool {
        if bytes != self.bytes {
            self.bytes = bytes;
            self.since = Some(now);
        }
        let is_long = |since| now.saturating_duration_since(since) >= QUIET;
        let begins = self.since.is_some_and(is_long);
        if begins {
            self.since = None;
        }
        begins
    }
}

/// A jump, as records have it.
#[derive(Debug, Clone, Copy, Serialize, schemars::JsonSchema)]
pub struct JumpState {
    /// window of the jump
    bytes: u64,
    /// bytes of the jump declared lost
    lost_bytes: u64,
    /// whether the jump was taken back
    retreated: bool,
}

impl Held {
    /// Writes changes of the phase since the last call to the qlog file, if there is one.
    pub fn note(&self) {
        if let Some(resumed) = locked(&self.resumed).as_mut() {
            resumed.note();
        }
    }

    /// Gives the knowledge of this connection back to the memory while the connection continues.
    pub fn release(&self) {
        if let Some(resumed) = locked(&self.resumed).as_mut() {
            locked(&self.memory.paths).release(Instant::now(), resumed);
        }
    }

    /// The jump, if there was one.
    #[must_use]
    pub fn jump(&self) -> Option<JumpState> {
        self.resumption.jump().map(|it| JumpState {
            bytes: it.bytes,
            lost_bytes: it.lost_bytes,
            retreated: it.retreated,
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(resumed) = locked(&self.resumed).take() {
            locked(&self.memory.paths).end(Instant::now(), resumed);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is complete after each statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lull_is_noticed_once_and_again_after_more_was_carried() {
        let (start, mut lull) = (Instant::now(), Lull::default());
        let mut at = |ms, bytes| lull.begins(start + Duration::from_millis(ms), bytes);
        // A connection that has carried nothing yet is not in a lull: it may be about to begin.
        assert_eq!([at(0, 0), at(9_000, 0)], [false, false]);
        assert_eq!([at(9_100, 5), at(11_000, 5)], [false, false]);
        assert_eq!(
            [at(11_100, 5), at(11_200, 5), at(20_000, 5)],
            [true, false, false]
        );
        assert_eq!(
            [at(20_100, 6), at(22_000, 7), at(23_900, 7), at(24_000, 7)],
            [false, false, false, true]
        );
    }
}
