// SPDX-License-Identifier: GPL-3.0-or-later
//! A return carrier of terminals: with assigned slots, or with random access.

use link::{
    Accepted, Change, Counters, FifoState, Leaving, LinkConfig, LinkError, Nanos, RandomReturn,
    SharedReturn, Stage, Volume, Waiting,
};

use crate::carriers::Shared;

/// A return carrier; terminals by their index on it.
#[derive(Debug)]
pub enum SharedReturnCarrier {
    /// One planner assigns the slots.
    Assigned(Box<SharedReturn>),
    /// Terminals draw their slots.
    Random(RandomReturn),
}

impl SharedReturnCarrier {
    /// The carrier of these terminals, with random access if the first one has it.
    ///
    /// # Errors
    /// A configuration cannot be a link, or they cannot share a carrier.
    pub fn new(terminals: &[LinkConfig]) -> Result<Self, LinkError> {
        Self::with_room(terminals, terminals.len())
    }

    /// The same with room for `most` terminals, of which some may come later where slots are
    /// assigned.
    ///
    /// # Errors
    /// As [`SharedReturnCarrier::new`].
    pub fn with_room(terminals: &[LinkConfig], most: usize) -> Result<Self, LinkError> {
        match terminals.first() {
            Some(first) if first.random_access.is_some() => {
                RandomReturn::new(terminals).map(Self::Random)
            }
            _ => {
                let assigned = SharedReturn::with_room(terminals, most)?;
                Ok(Self::Assigned(Box::new(assigned)))
            }
        }
    }

    /// Superframes of the carrier up to `now`, with what was free in them.
    pub fn superframes(&mut self, now: Nanos) -> Counters {
        match self {
            Self::Assigned(link) => link.superframes(now),
            Self::Random(link) => link.counters(now, 0),
        }
    }

    /// Offers a packet of a terminal, see [`SharedReturn::push`].
    pub fn push(&mut self, now: Nanos, terminal: usize, packet: &[u8]) -> Accepted {
        match self {
            Self::Assigned(link) => link.push(now, terminal, packet),
            Self::Random(link) => link.push(now, terminal, packet),
        }
    }

    /// Changes the link of a terminal.
    ///
    /// # Errors
    /// The change is not possible; the link stays as it was.
    pub fn set(&mut self, now: Nanos, terminal: usize, change: &Change) -> Result<(), LinkError> {
        match self {
            Self::Assigned(link) => link.set(now, terminal, change),
            Self::Random(link) => link.set(now, terminal, change),
        }
    }

    /// When the next plan is made; `None` where there are none.
    #[must_use]
    pub fn next_plan(&self) -> Option<Nanos> {
        match self {
            Self::Assigned(link) => Some(link.next_plan()),
            Self::Random(_) => None,
        }
    }

    /// Counters of a terminal up to `now`.
    pub fn counters(&mut self, now: Nanos, terminal: usize) -> Counters {
        match self {
            Self::Assigned(link) => link.counters(now, terminal),
            Self::Random(link) => link.counters(now, terminal),
        }
    }

    /// What waits at a terminal.
    #[must_use]
    pub fn queue(&self, terminal: usize) -> Volume {
        match self {
            Self::Assigned(link) => link.queue(terminal),
            Self::Random(link) => link.queue(terminal),
        }
    }

    /// State of the FIFOs of a terminal.
    pub fn fifos(&mut self, terminal: usize) -> Vec<FifoState> {
        match self {
            Self::Assigned(link) => link.fifos(terminal),
            Self::Random(link) => link.fifos(terminal),
        }
    }

    /// Configuration of a terminal, changes included.
    pub fn config(&mut self, terminal: usize) -> &LinkConfig {
        match self {
            Self::Assigned(link) => link.terminal(terminal).config(),
            Self::Random(link) => link.config(terminal),
        }
    }
}

impl Shared for SharedReturnCarrier {
    fn advance(&mut self, now: Nanos) {
        match self {
            Self::Assigned(link) => link.advance(now),
            Self::Random(link) => link.advance(now),
        }
    }

    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<(Nanos, usize)> {
        match self {
            Self::Assigned(link) => link.pop(now, out),
            Self::Random(link) => link.pop(now, out),
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        match self {
            Self::Assigned(link) => link.next_event(),
            Self::Random(link) => link.next_event(),
        }
    }

    fn check(&self, place: Option<usize>, config: &LinkConfig) -> Result<(), LinkError> {
        match self {
            Self::Assigned(link) => link.check(place, config),
            Self::Random(_) => Err(LinkError::RandomAccess),
        }
    }

    fn leave(&mut self, now: Nanos, terminal: usize, waiting: Waiting) -> Option<Leaving> {
        match self {
            Self::Assigned(link) => Some(link.leave(now, terminal, waiting)),
            Self::Random(_) => None,
        }
    }

    fn join(
        &mut self,
        now: Nanos,
        place: Option<usize>,
        config: &LinkConfig,
        leaving: Leaving,
    ) -> Result<usize, LinkError> {
        match self {
            Self::Assigned(link) => link.join(now, place, config, leaving),
            Self::Random(_) => Err(LinkError::RandomAccess),
        }
    }
}
