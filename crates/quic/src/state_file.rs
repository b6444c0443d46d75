// SPDX-License-Identifier: GPL-3.0-or-later
//! The state file of Careful Resume: private, and of one process at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// Largest file that is read, bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Bits of a mode that let others read or change a file.
const OTHERS: u32 = 0o077;

/// A file that is locked until it is dropped.
#[derive(Debug)]
pub struct StateFile(File);

impl StateFile {
    /// Opens `path`, or makes it (mode 0600), and returns its text.
    ///
    /// # Errors
    /// A file of somebody else, one that others may read or change, one in use by another process,
    /// or too large.
    pub fn open(path: &Path) -> io::Result<(Self, String)> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let metadata = file.metadata()?;
        let rules = [
            (metadata.is_file(), "is not a file"),
            (
                metadata.uid() == rustix::process::geteuid().as_raw(),
                "belongs to somebody else",
            ),
            (
                metadata.mode() & OTHERS == 0,
                "can be read or changed by others; its mode must be 0600",
            ),
            (metadata.len() <= MAX_BYTES, "is larger than 1 MiB"),
            (
                flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
                "is in use by another process",
            ),
        ];
        if let Some((_, fault)) = rules.into_iter().find(|(holds, _)| !holds) {
            return Err(io::Error::other(fault));
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok((Self(file), text))
    }

    /// Replaces the text.
    ///
    /// # Errors
    /// The disk is full.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.rewind()?;
        self.0.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_state_file_is_private_and_of_one_process_at_a_time() {
        let path = std::env::temp_dir().join(format!("satlab-state-{}", std::process::id()));
        let (mut first, text) = StateFile::open(&path).unwrap();
        assert_eq!(text, "");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let fault = StateFile::open(&path).unwrap_err().to_string();
        assert!(fault.contains("another process"), "{fault}");
        first.write("a longer text").unwrap();
        first.write("short").unwrap();
        drop(first);
        assert_eq!(StateFile::open(&path).unwrap().1, "short");
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let fault = StateFile::open(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(fault.contains("0600"), "{fault}");
    }
}
