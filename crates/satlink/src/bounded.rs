// SPDX-License-Identifier: GPL-3.0-or-later
//! A file of lines that keeps within a size: the newer half is in FILE, the older one in FILE.1.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Appends lines; each write is one line. Every file starts with the first line of this process.
pub struct Bounded {
    path: PathBuf,
    file: File,
    first_line: Vec<u8>,
    bytes: u64,
    half: Option<u64>,
}

impl Bounded {
    /// Opens a file for appending. `most`: largest size of FILE and FILE.1 together, bytes; `None`:
    /// it grows.
    ///
    /// # Errors
    /// The file cannot be created or opened.
    pub fn open(path: &Path, most: Option<u64>) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self {
            path: path.to_path_buf(),
            file,
            first_line: Vec::new(),
            bytes,
            half: most.map(|most| most / 2),
        })
    }

    /// Begins a new file with `line`; a reader of the path finds the old one or the new one, and a
    /// sample in it.
    fn rotate(&mut self, line: &[u8]) -> io::Result<()> {
        let (older, newer) = (self.sibling(".1"), self.sibling(".new"));
        let mut file = File::create(&newer)?;
        file.write_all(&[&self.first_line, line].concat())?;
        match fs::remove_file(&older) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => fs::hard_link(&self.path, &older)?,
        }
        fs::rename(&newer, &self.path)?;
        self.file = file;
        self.bytes = (self.first_line.len() + line.len()) as u64;
        Ok(())
    }

    fn sibling(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(suffix);
        name.into()
    }
}

impl Write for Bounded {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.first_line.is_empty() {
            self.first_line = line.to_vec();
        }
        let after = self.bytes + line.len() as u64;
        if self.half.is_some_and(|half| after > half) && self.bytes > 0 {
            self.rotate(line)?;
        } else {
            self.file.write_all(line)?;
            self.bytes = after;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("satlink-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_day_of_samples_stays_within_the_size() {
        let (folder, most) = (folder("day"), 1 << 20);
        let path = folder.join("link.jsonl");
        let mut file = Bounded::open(&path, Some(most)).unwrap();
        file.write_all(b"header\n").unwrap();
        let padding = "x".repeat(2000);
        for sample in 0..86_400_u32 {
            // one per second, of the size that a sample has
            file.write_all(format!("{sample} {padding}\n").as_bytes())
                .unwrap();
            if sample % 1000 == 0 {
                let sizes = fs::read_dir(&folder).unwrap().map(|entry| {
                    let entry = entry.unwrap();
                    entry.metadata().unwrap().len()
                });
                assert!(sizes.sum::<u64>() <= most);
            }
        }
        let text = fs::read_to_string(&path).unwrap();
        let older = fs::read_to_string(folder.join("link.jsonl.1")).unwrap();
        assert!(text.starts_with("header\n") && older.starts_with("header\n"));
        let number = |line: &str| line.split(' ').next().unwrap().parse::<u32>().unwrap();
        assert_eq!(text.lines().last().map(number), Some(86_399));
        let all: Vec<u32> = older
            .lines()
            .skip(1)
            .chain(text.lines().skip(1))
            .map(number)
            .collect();
        assert!(
            all.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "none is lost in between"
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn without_a_size_the_file_grows_and_is_appended_to() {
        let folder = folder("grows");
        let path = folder.join("link.jsonl");
        for _ in 0..2 {
            let mut file = Bounded::open(&path, None).unwrap();
            file.write_all(b"header\n").unwrap();
            file.write_all(&vec![b'x'; 100_000]).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 200_014);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
