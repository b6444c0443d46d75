// SPDX-License-Identifier: GPL-3.0-or-later
//! Signals as a descriptor (signalfd(2)), CPU time (getrusage(2)), `errno`. The only module with
//! `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Turns the `-1` of a system call into `errno`'s error.
///
/// # Errors
/// The call failed.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Sends SIGTERM to a child that was not waited for: its number is still its own.
pub fn terminate(child: u32) {
    if let Ok(pid) = libc::pid_t::try_from(child) {
        // SAFETY: kill(2) takes numbers only.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// SIGTERM and SIGINT as a descriptor.
#[derive(Debug)]
pub struct Signals(File);

impl Signals {
    /// Blocks both signals, and those of `others`, in this thread and all that it starts later.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn block(others: &[libc::c_int]) -> io::Result<Self> {
        // SAFETY: sigset_t is plain data that sigemptyset() initialises; all pointers live through
        // the calls, and the descriptor is new.
        unsafe {
            let mut ending: libc::sigset_t = MaybeUninit::zeroed().assume_init();
            libc::sigemptyset(&raw mut ending);
            libc::sigaddset(&raw mut ending, libc::SIGTERM);
            libc::sigaddset(&raw mut ending, libc::SIGINT);
            let mut blocked = ending;
            for &other in others {
                libc::sigaddset(&raw mut blocked, other);
            }
            let none = std::ptr::null_mut();
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, none);
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let fd = check(libc::signalfd(-1, &raw const ending, flags))?;
            Ok(Self(OwnedFd::from_raw_fd(fd).into()))
        }
    }

    /// Takes the signal that is pending and names it.
    ///
    /// # Errors
    /// None is pending (`WouldBlock`), or the descriptor cannot be read.
    pub fn take(&self) -> io::Result<&'static str> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        (&self.0).read_exact(&mut info)?;
        // The first field is the number, 32 bits.
        let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
        Ok(if number == libc::SIGINT as u32 {
            "SIGINT"
        } else {
            "SIGTERM"
        })
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// User and system time of this process, s.
#[must_use]
pub fn cpu_seconds() -> f64 {
    // SAFETY: rusage is plain data, and getrusage() fills it; it cannot fail for RUSAGE_SELF.
    let usage = unsafe {
        let mut usage: libc::rusage = MaybeUninit::zeroed().assume_init();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_taken_once() {
        let signals = Signals::block(&[]).unwrap();
        let pending = |result: io::Result<_>| result.map_err(|error| error.kind());
        assert_eq!(pending(signals.take()), Err(io::ErrorKind::WouldBlock));
        // SAFETY: raise() takes a number; this thread has blocked it.
        assert_eq!(unsafe { libc::raise(libc::SIGINT) }, 0);
        assert_eq!(pending(signals.take()), Ok("SIGINT"));
        assert_eq!(pending(signals.take()), Err(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn work_takes_cpu_time() {
        let before = cpu_seconds();
        while cpu_seconds() < before + 0.01 {}
    }

    #[test]
    fn errno_is_an_error() {
        assert!(check(-1).is_err());
        assert_eq!(check(3).unwrap(), 3);
    }
}
