// SPDX-License-Identifier: GPL-3.0-or-later
//! The carriers of one direction where the groups of terminals have one each. A terminal is named
//! by its index over all.

use std::collections::VecDeque;

use link::{LinkError, Nanos, SharedCarrier, Transfer};

/// The carriers of one direction, at least one.
#[derive(Debug)]
pub struct Carriers<C: ?Sized> {
    all: Vec<Box<C>>,
    /// Carrier of each terminal, and the terminal's index there.
    places: Vec<(usize, usize)>,
    /// The terminals of each carrier, by their index there; also those that have left it.
    terminals: Vec<Vec<usize>>,
    /// Carriers that a terminal was on before, and the due time of the last packet that it sent or
    /// got there.
    earlier: Vec<VecDeque<(Nanos, usize)>>,
}

impl<C: SharedCarrier + ?Sized> Carriers<C> {
    /// Carriers with the indexes of their terminals; each terminal from 0 on has one of them.
    #[must_use]
    pub fn new(carriers: Vec<(Box<C>, Vec<usize>)>) -> Self {
        let (all, terminals): (Vec<_>, Vec<_>) = carriers.into_iter().unzip();
        let mut places = vec![(0, 0); terminals.iter().map(Vec::len).sum()];
        for (carrier, own) in terminals.iter().enumerate() {
            for (index, &terminal) in own.iter().enumerate() {
                places[terminal] = (carrier, index);
            }
        }
        Self {
            all,
            earlier: vec![VecDeque::new(); places.len()],
            places,
            terminals,
        }
    }

    /// Number of terminals.
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &C> {
        self.all.iter().map(Box::as_ref)
    }

    /// Returns it for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut C> {
        self.all.iter_mut().map(Box::as_mut)
    }

    /// The carrier of a terminal, and its index there.
    #[must_use]
    pub fn of(&self, terminal: usize) -> (&C, usize) {
        let (carrier, index) = self.places[terminal];
        (&self.all[carrier], index)
    }

    /// Returns it for changes.
    pub fn of_mut(&mut self, terminal: usize) -> (&mut C, usize) {
        let (carrier, index) = self.places[terminal];
        (&mut self.all[carrier], index)
    }

    /// Carriers that a terminal was on, the present one among them, with its index there.
    pub fn stays_mut(&mut self, terminal: usize) -> impl Iterator<Item = (&mut C, usize)> {
        let carriers = self.all.iter_mut().zip(&self.terminals);
        carriers.filter_map(move |(it, own)| Some((it.as_mut(), place_of(own, terminal)?)))
    }

    /// A terminal belongs to another carrier from `now` on; one that does so already stays as it
    /// is.
    ///
    /// # Errors
    /// It cannot share that carrier, and stays where it is.
    pub fn transfer(
        &mut self,
        now: Nanos,
        terminal: usize,
        transfer: &Transfer,
    ) -> Result<(), LinkError> {
        let (Some(&(from, own)), to) = (self.places.get(terminal), transfer.carrier) else {
            return Err(LinkError::Shared);
        };
        if from == to {
            return Ok(());
        }
        let there = self.all.get(to).ok_or(LinkError::Shared)?;
        let place = place_of(&self.terminals[to], terminal);
        there.check(place, &transfer.config)?;
        let leaving = self.all[from].leave(now, own, transfer.waiting)?;
        self.earlier[terminal].push_back((leaving.last_due(), from));
        let index = self.all[to].join(now, place, &transfer.config, leaving)?;
        if place.is_none() {
            self.terminals[to].push(terminal);
        }
        self.places[terminal] = (to, index);
        Ok(())
    }

    /// Moves the oldest packet due at or before `now` to `out`; its due time, terminal and carrier.
    /// Packets of different carriers come in the order of their times as far as these are known.
    pub fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<(Nanos, usize, usize)> {
        if let ([only], [terminals]) = (&mut self.all[..], &self.terminals[..]) {
            let (due, own) = only.pop(now, out)?;
            return Some((due, terminals[own], 0));
        }
        self.all.iter_mut().for_each(|it| it.advance(now));
        // A bit for each; terminals, and so carriers, are 64 at most.
        let mut had_none = 0_u64;
        loop {
            let next = |(index, it): (usize, &C)| Some((it.next_event()?, index));
            let asked = self.iter().enumerate();
            let asked = asked.filter(|&(index, _)| had_none >> index & 1 == 0);
            let (_, index) = asked.filter_map(next).min().filter(|&(at, _)| at <= now)?;
            if let Some((due, own)) = self.all[index].pop(now, out) {
                let terminal = self.terminals[index][own];
                return Some((due, terminal, self.carrier_at(due, terminal)));
            }
            had_none |= 1 << index;
        }
    }

    /// The carrier of a packet of a terminal that is due at `due`, after those that were due
    /// before.
    fn carrier_at(&mut self, due: Nanos, terminal: usize) -> usize {
        let earlier = &mut self.earlier[terminal];
        while earlier.front().is_some_and(|&(last, _)| last < due) {
            earlier.pop_front();
        }
        earlier.front().map_or(self.places[terminal].0, |it| it.1)
    }

    /// Next moment at which `pop` may have something.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        self.iter().filter_map(SharedCarrier::next_event).min()
    }
}

/// The index on a carrier with these terminals of one of them.
fn place_of(terminals: &[usize], terminal: usize) -> Option<usize> {
    terminals.iter().position(|&it| it == terminal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::{Accepted, Change, FifoState, Leaving, LinkConfig, Volume, Waiting};

    /// Packets of terminals at their times; an event without a packet is one that brings none.
    #[derive(Debug)]
    struct Fixed(Vec<(Nanos, Option<usize>)>);

    impl SharedCarrier for Fixed {
        fn push(&mut self, _: Nanos, _: usize, _: &[u8]) -> Accepted {
            Accepted::Dropped
        }

        fn set(&mut self, _: Nanos, _: usize, _: &Change) -> Result<(), LinkError> {
            Err(LinkError::Shared)
        }

        fn queue(&self, _: usize) -> Volume {
            Volume::default()
        }

        fn fifos(&mut self, _: usize) -> Vec<FifoState> {
            Vec::new()
        }

        fn config(&self, _: usize) -> &LinkConfig {
            unreachable!()
        }

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

        fn check(&self, _: Option<usize>, _: &LinkConfig) -> Result<(), LinkError> {
            Err(LinkError::Shared)
        }

        fn leave(&mut self, _: Nanos, _: usize, _: Waiting) -> Result<Leaving, LinkError> {
            Err(LinkError::Shared)
        }

        fn join(
            &mut self,
            _: Nanos,
            _: Option<usize>,
            _: &LinkConfig,
            _: Leaving,
        ) -> Result<usize, LinkError> {
            Err(LinkError::Shared)
        }
    }

    fn popped(carriers: Vec<(Fixed, Vec<usize>)>, now: Nanos) -> Vec<(Nanos, usize)> {
        let boxed = carriers.into_iter().map(|(it, own)| (Box::new(it), own));
        let mut carriers = Carriers::new(boxed.collect());
        let mut pop = || carriers.pop(now, &mut Vec::new());
        std::iter::from_fn(|| pop().map(|(due, terminal, _)| (due, terminal))).collect()
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
        let none = || Box::new(Fixed(Vec::new()));
        let mut carriers = Carriers::new(vec![(none(), vec![0, 2]), (none(), vec![1])]);
        assert_eq!(carriers.count(), 3);
        assert_eq!([0, 1, 2].map(|it| carriers.of_mut(it).1), [0, 0, 1]);
        assert_eq!(
            [0, 1, 2].map(|it| carriers.stays_mut(it).count()),
            [1, 1, 1]
        );
        assert_eq!(carriers.next_event(), None);
    }
}
