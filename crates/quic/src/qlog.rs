// SPDX-License-Identifier: GPL-3.0-or-later
//! qlog files (draft-ietf-quic-qlog-main-schema) that keep write errors, which stacks only log.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A qlog file to hand to a stack. Stacks only warn when a write fails; the first failure is kept for [`QlogHealth`].
#[derive(Debug)]
pub struct QlogFile {
    file: BufWriter<File>,
    health: QlogHealth,
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
                file: BufWriter::new(file),
                health: health.clone(),
            },
            health,
        )
    }

    fn kept<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.health.note(&error.to_string()))
    }
}

impl Write for QlogFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let result = self.file.write(data);
        self.kept(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.file.flush();
        self.kept(result)
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
}
