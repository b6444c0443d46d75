// SPDX-License-Identifier: GPL-3.0-or-later
//! The carriers of one direction where the groups of terminals have one each. A terminal is named by its index over all.

use link::{Nanos, SharedForward};

/// A carrier that terminals share.
pub trait Shared {
    /// Works off what happens before `now`.
    fn advance(&mut self, now: Nanos);
    /// Moves the oldest packet due at or before `now` to `out`; its due time and terminal.
    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<(Nanos, usize)>;
    /// Next moment at which `pop` may have something.
    fn next_event(&self) -> Option<Nanos>;
}

impl Shared for SharedForward {
    fn advance(&mut self, now: Nanos) {
        Self::advance(self, now);
    }

    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<(Nanos, usize)> {
        Self::pop(self, now, out)
    }

    fn next_event(&self) -> Option<Nanos> {
        Self::next_event(self)
    }
}

/// The carriers of one direction, at least one.
#[derive(Debug)]
pub struct Carriers<C> {
    all: Vec<C>,
    /// Carrier of each terminal, and the terminal's index there.
    places: Vec<(usize, usize)>,
    /// The terminals of each carrier.
    terminals: Vec<Vec<usize>>,
}

impl<C: Shared> Carriers<C> {
    /// Carriers with the indexes of their terminals; each terminal from 0 on has one of them.
    #[must_use]
    pub fn new(carriers: Vec<(C, Vec<usize>)>) -> Self {
        let (all, terminals): (Vec<_>, Vec<_>) = carriers.into_iter().unzip();
        let mut places = vec![(0, 0); terminals.iter().map(Vec::len).sum()];
        for (carrier, own) in terminals.iter().enumerate() {
            for (index, &terminal) in own.iter().enumerate() {
                places[terminal] = (carrier, index);
            }
        }
        Self {
            all,
            places,
            terminals,
        }
    }

    /// Number of terminals.
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Number of carriers.
    #[must_use]
    pub fn carriers(&self) -> usize {
        self.all.len()
    }

    /// A carrier by its index, to be changed.
    pub fn carrier_mut(&mut self, index: usize) -> &mut C {
        &mut self.all[index]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &C> {
        self.all.iter()
    }

    /// The first terminal of each carrier.
    pub fn firsts(&self) -> impl Iterator<Item = usize> {
        self.terminals.iter().filter_map(|own| own.first().copied())
    }

    /// The carrier of a terminal, and its index there.
    #[must_use]
    pub fn of(&self, terminal: usize) -> (&C, usize) {
        let (carrier, index) = self.places[terminal];
        (&self.all[carrier], index)
    }

    /// The same, to be changed.
    pub fn of_mut(&mut self, terminal: usize) -> (&mut C, usize) {
        let (carrier, index) = self.places[terminal];
        (&mut self.all[carrier], index)
    }

    /// Moves the oldest packet due at or before `now` to `out`; its due time and terminal. Packets of different carriers
    /// come in the order of their times as far as these are known.
    pub fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<(Nanos, usize)> {
        if let ([only], [terminals]) = (&mut self.all[..], &self.terminals[..]) {
            let (due, own) = only.pop(now, out)?;
            return Some((due, terminals[own]));
        }
        self.all.iter_mut().for_each(|it| it.advance(now));
        // A bit for each; terminals, and so carriers, are 64 at most.
        let mut had_none = 0_u64;
        loop {
            let next = |(index, it): (usize, &C)| Some((it.next_event()?, index));
            let asked = self.all.iter().enumerate();
            let asked = asked.filter(|&(index, _)| had_none >> index & 1 == 0);
            let (_, index) = asked.filter_map(next).min().filter(|&(at, _)| at <= now)?;
            if let Some((due, own)) = self.all[index].pop(now, out) {
                return Some((due, self.terminals[index][own]));
            }
            had_none |= 1 << index;
        }
    }

    /// Next moment at which `pop` may have something.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        self.all.iter().filter_map(Shared::next_event).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of terminals at their times; an event without a packet is one that brings none.
    struct Fixed(Vec<(Nanos, Option<usize>)>);

    impl Shared for Fixed {
        fn advance(&mut self, _: Nanos) {}

        fn pop(&mut self, now: Nanos, _: &mut Vec<u8>) -> Option<(Nanos, usize)> {
            let (at, terminal) = *self.0.first().filter(|it| it.0 <= now)?;
            let terminal = terminal?;
            self.0.remove(0);
            Some((at, terminal))
        }

        fn next_event(&self) -> Option<Nanos> {
            self.0.first().map(|it| it.0)
        }
    }

    fn popped(carriers: Vec<(Fixed, Vec<usize>)>, now: Nanos) -> Vec<(Nanos, usize)> {
        let mut carriers = Carriers::new(carriers);
        std::iter::from_fn(|| carriers.pop(now, &mut Vec::new())).collect()
    }

    #[test]
    fn packets_of_two_carriers_come_by_time_with_the_index_over_all() {
        let first = Fixed(vec![(1, Some(0)), (5, Some(1)), (9, Some(0))]);
        let second = Fixed(vec![(3, Some(0)), (4, Some(0))]);
        let found = popped(vec![(first, vec![0, 2]), (second, vec![1])], 8);
        assert_eq!(found, [(1, 0), (3, 1), (4, 1), (5, 2)]);
    }

    #[test]
    fn a_carrier_that_has_nothing_yet_does_not_hold_the_other_up() {
        let first = Fixed(vec![(1, None)]);
        let second = Fixed(vec![(3, Some(0))]);
        let found = popped(vec![(first, vec![0]), (second, vec![1])], 8);
        assert_eq!(found, [(3, 1)]);
    }

    #[test]
    fn each_terminal_has_its_place() {
        let none = || Fixed(Vec::new());
        let mut carriers = Carriers::new(vec![(none(), vec![0, 2]), (none(), vec![1])]);
        assert_eq!(carriers.count(), 3);
        assert_eq!([0, 1, 2].map(|it| carriers.of_mut(it).1), [0, 0, 1]);
        assert_eq!(carriers.firsts().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(carriers.next_event(), None);
    }
}
