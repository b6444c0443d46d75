// SPDX-License-Identifier: GPL-3.0-or-later
//! Seeded generators, one for each process of a link.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

/// Random processes. Each has its own generator, so that one does not change the draws of another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Process {
    /// Loss process of this index.
    Loss(usize),
    /// Frames below their threshold.
    Quality,
    Jitter,
    /// Early drops of the queue, and the hash of its flows.
    Queue,
    /// Slots of random access, and backoff.
    Access,
    Reordering,
    Duplication,
    Corruption,
}

/// Returns the generator of a process. Each change at run time that restarts a process has the next
/// `generation`.
pub(crate) fn generator(seed: u64, process: Process, generation: u64) -> Pcg64 {
    let number = match process {
        Process::Loss(index) => index as u64,
        Process::Quality => 1 << 32,
        Process::Jitter => 2 << 32,
        Process::Queue => 3 << 32,
        Process::Access => 4 << 32,
        Process::Reordering => 5 << 32,
        Process::Duplication => 6 << 32,
        Process::Corruption => 7 << 32,
    };
    // Odd constants keep the streams apart; the first loss process of a new link has the seed
    // itself.
    Pcg64::seed_from_u64(
        seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .wrapping_add(generation.wrapping_mul(0xbf58_476d_1ce4_e5b9)),
    )
}

/// True with this probability: never at 0, always at 1.
pub(crate) fn hits(random: &mut Pcg64, probability: f64) -> bool {
    u128::from(random.next_u64()) < (probability * 2f64.powi(64)) as u128
}

/// Uniform in 0 to 1, 1 left out.
pub(crate) fn fraction(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
