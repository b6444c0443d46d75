// SPDX-License-Identifier: GPL-3.0-or-later
//! Congestion control of the outer connection.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::congestion::{Controller, ControllerFactory, CubicConfig, NewRenoConfig};

/// More than is ever in flight; quinn does not pace windows above 4 GiB.
const NO_LIMIT: u64 = 1 << 40;

/// What limits the datagrams in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Control {
    /// Nothing: datagrams leave as with UDP
    Off,
    /// quinn's CUBIC (RFC 9438)
    Cubic,
    /// quinn's `NewReno` (RFC 9002)
    Reno,
}

impl Control {
    /// Makes controllers.
    #[must_use]
    pub fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::Off => Arc::new(NoLimit),
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::Reno => Arc::new(NewRenoConfig::default()),
        }
    }
}

/// A constant window.
#[derive(Debug, Clone, Copy)]
struct NoLimit;

impl ControllerFactory for NoLimit {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(*self)
    }
}

impl Controller for NoLimit {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        NO_LIMIT
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(*self)
    }

    fn initial_window(&self) -> u64 {
        NO_LIMIT
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
