// SPDX-License-Identifier: GPL-3.0-or-later
//! The time that a host takes to wake a program up for a packet.

use link::Nanos;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

/// Draws wake-up times, uniform from 0 to a bound.
pub struct Latency {
    random: Pcg64,
    bound: Nanos,
}

impl Latency {
    /// Of a seed, ns.
    #[must_use]
    pub fn new(seed: u64, bound: Nanos) -> Self {
        Self {
            random: Pcg64::seed_from_u64(seed),
            bound,
        }
    }

    /// Programs take packets at once.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.bound == 0
    }

    fn draw(&mut self) -> Nanos {
        self.random.next_u64() % (self.bound + 1)
    }
}

/// Packets that a program has not taken; when it wakes up it takes all.
pub struct Inbox {
    packets: Vec<Vec<u8>>,
    /// When the program wakes up; not before a packet has arrived.
    pub wake: Nanos,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            packets: Vec::new(),
            wake: Nanos::MAX,
        }
    }
}

impl Inbox {
    /// A packet arrives; the first one wakes the program up.
    pub fn push(&mut self, now: Nanos, latency: &mut Latency, packet: &[u8]) {
        if self.packets.is_empty() {
            self.wake = now + latency.draw();
        }
        self.packets.push(packet.to_vec());
    }

    /// What the program takes now.
    pub fn take(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        if now < self.wake {
            return Vec::new();
        }
        self.wake = Nanos::MAX;
        std::mem::take(&mut self.packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_packet_wakes_the_program_which_takes_all() {
        let mut latency = Latency::new(1, 1000);
        let mut inbox = Inbox::default();
        for round in 0..1000 {
            let now = round * 10_000;
            inbox.push(now, &mut latency, &[1]);
            let wake = inbox.wake;
            assert!((now..=now + 1000).contains(&wake));
            inbox.push(now + 1, &mut latency, &[2]);
            assert_eq!(inbox.wake, wake, "a later one does not delay it");
            assert_eq!(inbox.take(wake - 1), Vec::<Vec<u8>>::new());
            assert_eq!(inbox.take(wake), [[1], [2]]);
            assert_eq!(inbox.wake, Nanos::MAX);
        }
    }
}
