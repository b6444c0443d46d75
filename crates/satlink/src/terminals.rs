// SPDX-License-Identifier: GPL-3.0-or-later
//! The devices of terminals, or gateways, that share a direction.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use crate::sys::Poll;
use crate::tun::Tun;

/// Packets after which every device is looked at again, however busy one of them is.
const LOOK: usize = 64;

/// A device for each terminal or gateway, read in turn: a flood at one leaves the others their
/// turns.
#[derive(Debug)]
pub struct Terminals {
    tuns: Vec<Tun>,
    /// Readable while one of them is.
    poll: Poll,
    turns: Turns,
}

impl Terminals {
    /// Reads and writes these devices.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(tuns: Vec<Tun>) -> io::Result<Self> {
        Ok(Self {
            poll: Poll::new(tuns.iter().map(|tun| tun as &dyn AsRawFd))?,
            turns: Turns::new(tuns.len()),
            tuns,
        })
    }

    /// Second handles to the same devices, for the opposite direction.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Self::new(
            self.tuns
                .iter()
                .map(Tun::try_clone)
                .collect::<io::Result<_>>()?,
        )
    }

    /// Reads one packet of the terminal whose turn it is, see [`Tun::read`]; with its index.
    ///
    /// # Errors
    /// A device is gone.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<(Option<u64>, usize, usize)>> {
        if self.turns.is_new {
            self.look()?;
        }
        while let Some(index) = self.turns.next() {
            if let Some((came, length)) = self.tuns[index].read(buffer)? {
                self.turns.found(index);
                return Ok(Some((came, length, index)));
            }
            self.turns.empty(index);
        }
        self.turns.restart();
        Ok(None)
    }

    /// Passes over those that have nothing: one system call in place of one for each.
    fn look(&mut self) -> io::Result<()> {
        self.poll.wait(Duration::ZERO)?;
        self.turns.is_new = false;
        let broken = self.poll.broken();
        for (index, tun) in self.tuns.iter().enumerate() {
            // One that is gone is read, too: that shows why.
            let has_more = self.poll.is_readable(index) || tun.holds_more();
            if !has_more && broken != Some(index) {
                self.turns.empty(index);
            }
        }
        Ok(())
    }

    /// The device of a terminal.
    pub fn tun(&mut self, index: usize) -> Option<&mut Tun> {
        self.tuns.get_mut(index)
    }

    /// All devices.
    pub fn iter(&self) -> impl Iterator<Item = &Tun> {
        self.tuns.iter()
    }
}

impl AsRawFd for Terminals {
    fn as_raw_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }
}

/// Whose turn it is. One that had nothing is passed over until all are looked at again.
#[derive(Debug)]
struct Turns {
    is_empty: Vec<bool>,
    turn: usize,
    found: usize,
    /// All are to be looked at.
    is_new: bool,
}

impl Turns {
    fn new(count: usize) -> Self {
        Self {
            is_empty: vec![false; count],
            turn: 0,
            found: 0,
            is_new: true,
        }
    }

    /// The next one that may have something; `None`: all were empty.
    fn next(&self) -> Option<usize> {
        let count = self.is_empty.len();
        let mut order = (0..count).map(|step| (self.turn + step) % count);
        order.find(|&index| !self.is_empty[index])
    }

    /// This one had something: the next is another's turn.
    fn found(&mut self, index: usize) {
        self.turn = (index + 1) % self.is_empty.len();
        self.found += 1;
        if self.found >= LOOK {
            self.restart();
        }
    }

    fn empty(&mut self, index: usize) {
        self.is_empty[index] = true;
    }

    /// All are looked at again.
    fn restart(&mut self) {
        self.is_empty.fill(false);
        self.found = 0;
        self.is_new = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these, with so many packets each, are read in `reads` reads.
    fn read(mut waiting: Vec<usize>, reads: usize) -> Vec<Option<usize>> {
        let mut turns = Turns::new(waiting.len());
        let one = |_| {
            while let Some(index) = turns.next() {
                if waiting[index] > 0 {
                    waiting[index] -= 1;
                    turns.found(index);
                    return Some(index);
                }
                turns.empty(index);
            }
            turns.restart();
            None
        };
        (0..reads).map(one).collect()
    }

    #[test]
    fn terminals_are_read_in_turn() {
        assert_eq!(
            read(vec![2, 0, 3], 6),
            [Some(0), Some(2), Some(0), Some(2), Some(2), None]
        );
        assert_eq!(read(vec![], 1), [None]);
    }

    #[test]
    fn test_t45_a_flooded_device_leaves_the_others_their_turns() {
        let mut turns = Turns::new(3);
        let mut looked = 0;
        for _ in 0..10 * LOOK {
            // The first always has a packet; the others have none yet.
            while let Some(index) = turns.next() {
                if index == 0 {
                    turns.found(0);
                    break;
                }
                looked += 1;
                turns.empty(index);
            }
        }
        assert!((18..=22).contains(&looked), "{looked}");
    }
}
