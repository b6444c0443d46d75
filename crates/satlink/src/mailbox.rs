// SPDX-License-Identifier: GPL-3.0-or-later
//! Changes on their way to the real-time thread of a direction.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};

use emulator::scheduled::Scheduled;

use crate::sys::Event;

/// Changes that wait in a mailbox at most.
const CAPACITY: usize = 1 << 17;

/// Changes for one direction. Posting wakes the thread that takes them; taking never waits.
#[derive(Debug)]
pub struct Mailbox {
    changes: Mutex<VecDeque<Scheduled>>,
    /// Set after every posting.
    pub posted: Event,
}

impl Mailbox {
    /// An empty mailbox.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            changes: Mutex::default(),
            posted: Event::new()?,
        })
    }

    /// Posts all changes, or none where there is no room.
    #[must_use]
    pub fn post(&self, new: impl ExactSizeIterator<Item = Scheduled>) -> bool {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = changes.len() + new.len() <= CAPACITY;
        if has_room {
            changes.extend(new);
        }
        drop(changes);
        self.posted.set();
        has_room
    }

    /// Takes the oldest change. Where the poster holds the mailbox, there is none yet: its signal
    /// comes after.
    pub fn take(&self) -> Option<Scheduled> {
        self.changes.try_lock().ok()?.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use emulator::scheduled::Origin;
    use link::{Change, Nanos};

    use super::*;

    fn change(at: Nanos) -> Scheduled {
        Scheduled::new(at, Change::Delay(at), Origin::Control)
    }

    #[test]
    fn changes_come_out_as_they_went_in() {
        let mailbox = Mailbox::new().unwrap();
        assert!(mailbox.take().is_none());
        assert!(mailbox.post([change(2), change(1)].into_iter()));
        let taken: Vec<_> = std::iter::from_fn(|| mailbox.take())
            .map(|it| it.at)
            .collect();
        assert_eq!(taken, [2, 1]);
    }

    #[test]
    fn full_mailbox_takes_nothing() {
        let mailbox = Mailbox::new().unwrap();
        assert!(mailbox.post(vec![change(1); CAPACITY].into_iter()));
        assert!(!mailbox.post([change(2)].into_iter()));
        assert!(mailbox.take().is_some());
        assert!(mailbox.post([change(2)].into_iter()));
    }

    #[test]
    fn taking_does_not_wait_for_the_poster() {
        let mailbox = Mailbox::new().unwrap();
        let held = mailbox.changes.lock().unwrap();
        assert!(mailbox.take().is_none());
        drop(held);
    }
}
