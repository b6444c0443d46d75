// SPDX-License-Identifier: GPL-3.0-or-later
//! A volume of traffic: packets and their bytes.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Number of packets.
    pub packets: u64,
    /// Total bytes of these packets.
    pub bytes: u64,
}

impl Volume {
    /// So many packets that have so many bytes together.
    #[must_use]
    pub const fn new(packets: u64, bytes: u64) -> Self {
        Self { packets, bytes }
    }

    /// One packet of this length.
    #[must_use]
    pub const fn of_packet(bytes: usize) -> Self {
        Self::new(1, bytes as u64)
    }

    /// The difference to an earlier count; 0 where `earlier` is larger.
    #[must_use]
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

impl Add for Volume {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl AddAssign for Volume {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Volume {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            packets: self.packets - other.packets,
            bytes: self.bytes - other.bytes,
        }
    }
}

impl Sum for Volume {
    fn sum<I: Iterator<Item = Self>>(volumes: I) -> Self {
        volumes.fold(Self::default(), Self::add)
    }
}
