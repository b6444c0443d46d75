// SPDX-License-Identifier: GPL-3.0-or-later
//! The next moments of many sources, the earliest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Nanos;

/// Holds at most one moment for each source. A replaced moment stays in the heap until its time
/// comes.
#[derive(Debug)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<(Nanos, usize)>>,
    at: Vec<Option<Nanos>>,
}

impl EventQueue {
    /// So many sources without a moment.
    pub(crate) fn new(sources: usize) -> Self {
        Self {
            heap: BinaryHeap::with_capacity(4 * sources),
            at: vec![None; sources],
        }
    }

    /// Sets the moment of a source in place of its last one.
    pub(crate) fn set(&mut self, source: usize, at: Option<Nanos>) {
        if self.at[source] == at {
            return;
        }
        self.at[source] = at;
        if self.heap.len() >= 4 * self.at.len() {
            let moments = self.at.iter().enumerate();
            self.heap = moments
                .filter_map(|(source, at)| at.map(|at| Reverse((at, source))))
                .collect();
        } else if let Some(at) = at {
            self.heap.push(Reverse((at, source)));
        }
        while let Some(&Reverse((at, source))) = self.heap.peek() {
            if self.at[source] == Some(at) {
                break;
            }
            self.heap.pop();
        }
    }

    /// Returns the earliest moment and its source; at equal moments the first source.
    pub(crate) fn next(&self) -> Option<(Nanos, usize)> {
        self.heap.peek().map(|&Reverse(next)| next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_moment_in_force_comes_first() {
        let mut agenda = EventQueue::new(3);
        assert_eq!(agenda.next(), None);
        agenda.set(2, Some(5));
        agenda.set(1, Some(5));
        agenda.set(0, Some(7));
        assert_eq!(agenda.next(), Some((5, 1)));
        agenda.set(1, Some(9));
        agenda.set(2, None);
        assert_eq!(agenda.next(), Some((7, 0)));
        for at in (0..100).rev() {
            agenda.set(0, Some(at));
        }
        assert_eq!(agenda.next(), Some((0, 0)));
        agenda.set(0, None);
        assert_eq!(agenda.next(), Some((9, 1)));
        assert!(agenda.heap.len() <= 12);
    }
}
