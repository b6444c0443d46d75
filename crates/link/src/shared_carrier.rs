// SPDX-License-Identifier: GPL-3.0-or-later
//! What all carriers can do that several terminals share. A terminal is named by its index on the
//! carrier.

use std::fmt::Debug;

use crate::change::{Change, Waiting};
use crate::config::{LinkConfig, LinkError};
use crate::departing_terminal::Leaving;
use crate::ledger::Counters;
use crate::queue::FifoState;
use crate::stage::Accepted;
use crate::{Nanos, Volume};

/// A carrier that several terminals share: [`crate::SharedForward`], or a [`ReturnCarrier`].
pub trait SharedCarrier: Debug + Send {
    /// Advances to `now` and offers a packet of a terminal, or for one; see [`crate::Link::push`].
    fn push(&mut self, now: Nanos, terminal: usize, packet: &[u8]) -> Accepted;

    /// Processes all events before `now`.
    fn advance(&mut self, now: Nanos);

    /// Advances to `now`, moves the oldest packet due at or before `now` to `out` (cleared first),
    /// and returns its due time and terminal. Packets of one terminal come in their order.
    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<(Nanos, usize)>;

    /// Next moment at which `pop` may have something, see [`crate::Stage::next_event`].
    fn next_event(&self) -> Option<Nanos>;

    /// Advances to `now` and changes the link of a terminal.
    ///
    /// # Errors
    /// The carrier has no such change, or it is not possible; the link stays as it was.
    fn set(&mut self, now: Nanos, terminal: usize, change: &Change) -> Result<(), LinkError>;

    /// Whether a terminal with this configuration can come, at `place` if it was here before.
    ///
    /// # Errors
    /// It cannot share the carrier.
    fn check(&self, place: Option<usize>, config: &LinkConfig) -> Result<(), LinkError>;

    /// Advances to `now` and takes a terminal off the carrier, with its packets in flight.
    ///
    /// # Errors
    /// Terminals cannot leave this carrier.
    fn leave(
        &mut self,
        now: Nanos,
        terminal: usize,
        waiting: Waiting,
    ) -> Result<Leaving, LinkError>;

    /// Advances to `now` and takes a terminal on, at `place` if it was here before; its index, see
    /// [`SharedCarrier::check`].
    ///
    /// # Errors
    /// It cannot share the carrier; what it took along is lost.
    fn join(
        &mut self,
        now: Nanos,
        place: Option<usize>,
        config: &LinkConfig,
        leaving: Leaving,
    ) -> Result<usize, LinkError>;

    /// What waits for a terminal, or at one.
    fn queue(&self, terminal: usize) -> Volume;

    /// State of the FIFOs of a terminal, see [`crate::Stage::fifos`].
    fn fifos(&mut self, terminal: usize) -> Vec<FifoState>;

    /// The configuration of a terminal's link, changes included.
    fn config(&self, terminal: usize) -> &LinkConfig;
}

/// A return carrier: with assigned slots ([`crate::SharedReturn`]), or with random access
/// ([`crate::RandomReturn`]).
pub trait ReturnCarrier: SharedCarrier {
    /// Counters of a terminal up to `now`, see [`crate::Stage::counters`].
    fn counters(&mut self, now: Nanos, terminal: usize) -> Counters;

    /// Returns the counters of the carrier's superframes up to `now`, with their free slots.
    fn superframes(&mut self, now: Nanos) -> Counters;

    /// Time at which the next plan is made. The terminals' sending after it is not known before.
    /// `None`: the carrier has no plans.
    fn next_plan(&self) -> Option<Nanos>;
}
