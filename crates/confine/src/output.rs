// SPDX-License-Identifier: GPL-3.0-or-later
//! The program's output on its way to the log: its beginning and its end, whatever lies between is
//! left out.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use crate::sys;

const HEAD: usize = 256 << 10;
const TAIL: usize = 16 << 10;

/// Reads a pipe and writes to the log.
pub struct Output {
    pipe: File,
    handle: OwnedFd,
    head: usize,
    tail: Vec<u8>,
    left_out: usize,
}

impl Output {
    /// Takes the read end of the program's output.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(pipe: OwnedFd) -> io::Result<Self> {
        sys::set_nonblocking(&pipe)?;
        Ok(Self {
            pipe: File::from(pipe.try_clone()?),
            handle: pipe,
            head: 0,
            tail: Vec::new(),
            left_out: 0,
        })
    }

    /// What becomes readable with new output, and at its end.
    pub fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// Passes on what there is; `false` after the end of the pipe.
    pub fn relay(&mut self, log: &mut dyn Write) -> bool {
        let mut buffer = [0; 1 << 13];
        for _ in 0..64 {
            match self.pipe.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => self.keep(&buffer[..length], log),
                Err(_) => return true,
            }
        }
        true
    }

    fn keep(&mut self, text: &[u8], log: &mut dyn Write) {
        let (now, later) = text.split_at(text.len().min(HEAD - self.head));
        let _ = log.write_all(now); // a full disk does not end the program
        self.head += now.len();
        self.left_out += later.len();
        self.tail.extend_from_slice(later);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
    }

    /// Writes the end of a long output.
    pub fn finish(self, log: &mut dyn Write) {
        if self.left_out > 0 {
            let _ = writeln!(
                log,
                "\n[{} bytes left out]",
                self.left_out.saturating_sub(self.tail.len())
            );
            let _ = log.write_all(&self.tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_keeps_its_beginning_and_its_end() {
        let (read, write) = sys::pipe().unwrap();
        let mut output = Output::new(read).unwrap();
        let mut log = Vec::new();
        output.keep(&vec![b'a'; HEAD], &mut log);
        output.keep(&vec![b'b'; 3 * TAIL], &mut log);
        output.keep(b"the end", &mut log);
        output.finish(&mut log);
        drop(write);
        assert!(log.starts_with(b"aaaa") && log.ends_with(b"bthe end"));
        assert!(
            String::from_utf8_lossy(&log).contains("bytes left out]")
                && log.len() < HEAD + TAIL + 100
        );
    }
}
