// SPDX-License-Identifier: GPL-3.0-or-later
//! A program as a process: its file descriptor 0 is a stream socket, as with inetd(8); what it
//! prints goes to a log.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::message::{MAX_LINE, Pipe};
use crate::transfer::Program;

/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(20);
/// Longest wait for all answers of a program.
const WHOLE: Duration = Duration::from_secs(900);
/// Longest single wait: if one lasts longer, the host was suspended.
const STEP: Duration = Duration::from_secs(1);
/// For a program to end after its socket was closed, and after SIGTERM.
const END: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// A program that runs. It is terminated when this is dropped.
pub struct Process {
    child: Child,
    socket: Option<UnixStream>,
    /// Received and not taken.
    buffer: Vec<u8>,
    patience: Patience,
}

/// The time that is left for waits. A wait counts as STEP at most, so that no program fails because
/// a host, container or debugger stopped it for minutes.
#[derive(Clone, Copy)]
struct Patience(Duration);

impl Patience {
    fn spend(&mut self, waited: Duration) {
        self.0 = self.0.saturating_sub(waited.min(STEP));
    }
}

impl Process {
    /// Starts a program.
    ///
    /// # Errors
    /// The program or the log cannot be opened.
    pub fn start(program: &Program) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let log = File::create(&program.log)?;
        let name = program.argv.first().map_or("", String::as_str);
        let child = Command::new(name)
            .args(program.argv.get(1..).unwrap_or_default())
            .env_clear()
            .envs(&program.environment)
            .stdin(OwnedFd::from(theirs))
            .stdout(log.try_clone()?)
            .stderr(Stdio::from(log))
            .spawn()?;
        Ok(Self {
            child,
            socket: Some(ours),
            buffer: Vec::new(),
            patience: Patience(WHOLE),
        })
    }

    /// Makes one call of the socket, with what is left for this answer and for the program.
    fn call(
        &mut self,
        answer: &mut Patience,
        call: impl FnOnce(&mut UnixStream) -> io::Result<usize>,
    ) -> Result<io::Result<usize>, String> {
        let step = STEP.min(answer.0).min(self.patience.0);
        if answer.0.is_zero() {
            return Err(format!("no answer within {} s", ANSWER.as_secs()));
        }
        if step.is_zero() {
            return Err(format!("it did not end within {} s", WHOLE.as_secs()));
        }
        let socket = self.socket.as_mut().ok_or("its socket is closed")?;
        let limit = socket.set_read_timeout(Some(step));
        let limit = limit.and_then(|()| socket.set_write_timeout(Some(step)));
        limit.map_err(|error| error.to_string())?;
        let begun = now();
        let done = call(socket);
        let waited = now().saturating_duration_since(begun);
        answer.spend(waited);
        self.patience.spend(waited);
        Ok(done)
    }

    /// Receives more.
    fn fill(&mut self, answer: &mut Patience) -> Result<(), String> {
        let mut part = [0; 1 << 14];
        match self.call(answer, |socket| socket.read(&mut part))? {
            Ok(0) => Err(self.ended()),
            Ok(length) => {
                self.buffer.extend_from_slice(&part[..length]);
                Ok(())
            }
            Err(error) if is_again(&error) => Ok(()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(self.ended()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// How the program ended.
    fn ended(&mut self) -> String {
        match self.wait() {
            None => "it closed its socket".into(),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("it ended with status {code}"),
                (None, signal) => format!("it ended with signal {}", signal.unwrap_or(0)),
            },
        }
    }

    /// Waits for the program's end for some time.
    #[expect(clippy::disallowed_methods, reason = "std has no wait with a deadline")]
    fn wait(&mut self) -> Option<ExitStatus> {
        let end = now() + END;
        loop {
            let status = self.child.try_wait().ok().flatten();
            if status.is_some() || now() >= end {
                return status;
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Pipe for Process {
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        let mut left = Patience(ANSWER);
        let mut rest = message;
        while !rest.is_empty() {
            match self.call(&mut left, |socket| socket.write(rest))? {
                Ok(length) => rest = &rest[length..],
                Err(error) if is_again(&error) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(self.ended()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn line(&mut self) -> Result<Vec<u8>, String> {
        let mut left = Patience(ANSWER);
        let mut searched = 0;
        loop {
            let found = self.buffer[searched..].iter().position(|&it| it == b'\n');
            if let Some(end) = found.map(|it| searched + it).filter(|&end| end < MAX_LINE) {
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Ok(line);
            }
            searched = self.buffer.len();
            if searched >= MAX_LINE {
                return Err(format!(
                    "its message has a line of more than {MAX_LINE} bytes"
                ));
            }
            self.fill(&mut left)?;
        }
    }

    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, String> {
        let mut left = Patience(ANSWER);
        while self.buffer.len() < length {
            self.fill(&mut left)?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.socket = None;
        if self.wait().is_some() {
            return;
        }
        linux::terminate(self.child.id());
        if self.wait().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn is_again(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Real time, which limits a program's; nothing that is measured depends on it.
#[expect(clippy::disallowed_methods, reason = "the limit of a real process")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_suspended_takes_a_second_of_a_program_s_time() {
        let mut left = Patience(ANSWER);
        left.spend(Duration::from_secs(300));
        assert_eq!(left.0, Duration::from_secs(19));
        left.spend(Duration::from_millis(250));
        assert_eq!(left.0, Duration::from_millis(18_750));
    }
}
