// SPDX-License-Identifier: GPL-3.0-or-later
//! How long packets waited in a FIFO: a histogram of fixed size, so that memory does not grow with
//! packets or time.
//!
//! A bin is 1.024 us wide up to 32 of these, then a sixteenth of an octave: the middle of a bin is
//! right within 3.2 %, or within 1 us. Times of 68.7 s and more count as the longest.

use crate::Nanos;

/// Width of the first bins: 2^10 ns.
const RESOLUTION: u32 = 10;
/// Bins of an octave: 2^4.
const OCTAVE: u32 = 4;
/// Times are counted below 2^26 widths.
const LONGEST: u32 = 26;
const BINS: usize = ((LONGEST - OCTAVE + 1) << OCTAVE) as usize;

/// Packets that waited about as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// Waiting time, µs: the middle of the bin.
    pub us: u32,
    /// Number of packets.
    pub packets: u32,
}

/// The bins of a FIFO.
#[derive(Debug)]
pub(super) struct Waits {
    bins: Box<[u32; BINS]>,
    /// The used bins: the first, and the one after the last. `BINS` and 0 if no bin is used.
    used: (usize, usize),
}

impl Waits {
    pub(super) fn new() -> Self {
        Self {
            bins: Box::new([0; BINS]),
            used: (BINS, 0),
        }
    }

    /// Counts a packet.
    #[inline]
    pub(super) fn record(&mut self, wait: Nanos) {
        let bin = bin(wait);
        self.bins[bin] = self.bins[bin].saturating_add(1);
        self.used = (self.used.0.min(bin), self.used.1.max(bin + 1));
    }

    /// What was counted since the last call, shortest first.
    pub(super) fn take(&mut self) -> Vec<Waited> {
        let (first, end) = std::mem::replace(&mut self.used, (BINS, 0));
        let bins = self.bins.iter_mut().enumerate();
        let bins = bins.take(end).skip(first);
        bins.map(|(bin, count)| Waited {
            us: middle_us(bin),
            packets: std::mem::take(count),
        })
        .filter(|it| it.packets > 0)
        .collect()
    }
}

/// The bin of a time: its five highest bits, and how far they were moved.
#[inline]
fn bin(wait: Nanos) -> usize {
    let widths = (wait >> RESOLUTION).min((1 << LONGEST) - 1);
    let octave = (Nanos::BITS - widths.leading_zeros()).saturating_sub(OCTAVE + 1);
    ((u64::from(octave) << OCTAVE) + (widths >> octave)) as usize
}

/// The middle of a bin, µs, rounded.
const fn middle_us(bin: usize) -> u32 {
    let octave = (bin >> OCTAVE).saturating_sub(1);
    let first = (bin - (octave << OCTAVE)) << octave;
    let twice_ns = ((2 * first + (1 << octave)) << RESOLUTION) as u64;
    ((twice_ns + 1000) / 2000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waited(times: &[Nanos]) -> Vec<(u32, u32)> {
        let mut waits = Waits::new();
        for &time in times {
            waits.record(time);
        }
        let taken = waits.take();
        assert_eq!(waits.take(), [], "taken once");
        taken.iter().map(|it| (it.us, it.packets)).collect()
    }

    #[test]
    fn ends_of_the_scale() {
        assert_eq!(waited(&[]), []);
        assert_eq!(waited(&[0, 1023, 1024]), [(1, 2), (2, 1)]);
        let longest = waited(&[Nanos::MAX, 3600 * 1_000_000_000]);
        assert_eq!(longest.len(), 1);
        assert!((66_000_000..69_000_000).contains(&longest[0].0));
    }

    #[test]
    fn bins_follow_one_another() {
        let middles: Vec<_> = (0..BINS).map(middle_us).collect();
        assert!(middles.windows(2).all(|pair| pair[0] < pair[1]));
        let of_their_middle = (0..BINS).filter(|&it| bin(u64::from(middle_us(it)) * 1000) == it);
        assert_eq!(of_their_middle.count(), BINS);
    }

    proptest! {
        #[test]
        fn p296_a_time_is_right_within_its_stated_error(ns in 0..68_000_000_000_u64) {
            let exact_us = ns as f64 / 1e3;
            let found = waited(&[ns]);
            let error_us = (f64::from(found[0].0) - exact_us).abs();
            prop_assert!(error_us <= (0.032 * exact_us).max(1.1), "{ns} ns became {} us", found[0].0);
        }

        #[test]
        fn p296_every_packet_is_counted(times in prop::collection::vec(any::<u64>(), 0..200)) {
            let counted: u32 = waited(&times).iter().map(|it| it.1).sum();
            prop_assert_eq!(counted as usize, times.len());
        }
    }
}
