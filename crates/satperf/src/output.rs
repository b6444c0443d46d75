// SPDX-License-Identifier: GPL-3.0-or-later
//! The output file or stdout, and the file of the session.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Lines of JSON to a file or stdout.
pub struct Output(Box<dyn Write>);

impl Output {
    /// Opens `path`; `None` or `-`: stdout. An older file is replaced.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        Ok(match path {
            Some(path) if path != Path::new("-") => Self(Box::new(File::create(path)?)),
            _ => Self(Box::new(io::stdout())),
        })
    }

    /// Writes whole lines at once, so that a reader never sees half of one.
    ///
    /// # Errors
    /// Disk full, reader gone.
    pub fn write(&mut self, lines: &[String]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut text = lines.join("\n");
        text.push('\n');
        self.0.write_all(text.as_bytes())?;
        self.0.flush()
    }
}

/// Replaces `path` by a file that only its owner may read (a session holds keys).
///
/// # Errors
/// The file cannot be made.
pub fn write_private(path: &Path, data: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // An old file might have another mode.
    if let Err(error) = std::fs::remove_file(&new) {
        if error.kind() != io::ErrorKind::NotFound {
            return Err(error);
        }
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(data)?;
    std::fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn sessions_are_private_whatever_was_there() {
        let path = std::env::temp_dir().join(format!("satperf-session-{}", std::process::id()));
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        write_private(&path, b"new").unwrap();
        let (data, mode) = (
            std::fs::read(&path).unwrap(),
            std::fs::metadata(&path).unwrap().permissions().mode(),
        );
        std::fs::remove_file(&path).unwrap();
        assert_eq!((data.as_slice(), mode & 0o777), (&b"new"[..], 0o600));
    }

    #[test]
    fn a_full_disk_is_reported() {
        let mut output = Output::open(Some(Path::new("/dev/full"))).unwrap();
        assert!(
            output
                .write(&["{}".into()])
                .unwrap_err()
                .to_string()
                .contains("No space left")
        );
    }
}
