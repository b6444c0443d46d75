// SPDX-License-Identifier: GPL-3.0-or-later
//! qlog files (draft-ietf-quic-qlog-main-schema) that keep write errors, which stacks only log.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::Serialize;

/// A qlog file to hand to a stack; clones write to the same file. Stacks only warn when a write
/// fails; the first failure is kept for [`QlogHealth`].
#[derive(Debug, Clone)]
pub struct QlogFile {
    file: Arc<Mutex<BufWriter<File>>>,
    health: QlogHealth,
}

/// Begins a record of JSON-SEQ.
const RECORD_SEPARATOR: u8 = 0x1e;

#[derive(Serialize)]
struct Event<'a, D> {
    time: f64,
    name: &'a str,
    data: &'a D,
}

/// Whether the file is complete.
#[derive(Debug, Clone, Default)]
pub struct QlogHealth(Arc<OnceLock<String>>);

impl QlogHealth {
    /// Keeps a failure, unless there was one before.
    pub fn note(&self, what: &str) {
        // Later failures follow from the first.
        let _ = self.0.set(what.to_owned());
    }

    /// The first failure.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

impl QlogFile {
    /// Makes `dir/name.sqlog`, and `dir` if it is missing; an older file is replaced.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(dir: &Path, name: &str) -> io::Result<(Self, QlogHealth)> {
        std::fs::create_dir_all(dir)?;
        let file = File::create(dir.join(name).with_extension("sqlog"))?;
        Ok(Self::new(file))
    }

    fn new(file: File) -> (Self, QlogHealth) {
        let health = QlogHealth::default();
        (
            Self {
                file: Arc::new(Mutex::new(BufWriter::new(file))),
                health: health.clone(),
            },
            health,
        )
    }

    /// Writes an event that the stack does not know, `time_ms` after the start: one record of
    /// JSON-SEQ (RFC 7464). The stack writes whole records, too.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_event(
        &mut self,
        name: &str,
        time_ms: f64,
        data: &impl Serialize,
    ) -> io::Result<()> {
        let event = Event {
            time: time_ms,
            name,
            data,
        };
        let mut record = vec![RECORD_SEPARATOR];
        serde_json::to_writer(&mut record, &event)?;
        record.push(b'\n');
        self.write_all(&record)
    }

    fn kept<T>(
        &self,
        with_file: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
    ) -> io::Result<T> {
        let result = with_file(&mut self.file.lock().unwrap_or_else(PoisonError::into_inner));
        result.inspect_err(|error| self.health.note(&error.to_string()))
    }
}

impl Write for QlogFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.kept(|file| file.write(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.kept(BufWriter::flush)
    }
}

impl Drop for QlogFile {
    fn drop(&mut self) {
        // The stack drops the file without flushing it.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_kept_until_asked_for() {
        let (mut file, health) =
            QlogFile::new(File::options().write(true).open("/dev/full").unwrap());
        assert_eq!(health.fault(), None);
        file.write_all(b"x").unwrap();
        drop(file);
        assert!(health.fault().unwrap().contains("No space left"));
    }

    #[test]
    fn own_events_are_records_between_those_of_the_stack() {
        let path = std::env::temp_dir().join(format!("satlab-qlog-{}", std::process::id()));
        let (mut file, health) = QlogFile::new(File::create(&path).unwrap());
        let mut of_stack = file.clone();
        of_stack.write_all(b"\x1e{}\n").unwrap();
        file.write_event("recovery:x", 1.5, &[2]).unwrap();
        drop((file, of_stack));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            text,
            "\x1e{}\n\x1e{\"time\":1.5,\"name\":\"recovery:x\",\"data\":[2]}\n"
        );
        assert_eq!(health.fault(), None);
    }
}
