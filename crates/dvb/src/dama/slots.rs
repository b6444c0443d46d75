// SPDX-License-Identifier: GPL-3.0-or-later
//! When the bursts of a superframe start that several terminals send.

use super::Carrier;

/// A burst in a superframe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// Start from the start of the superframe, ns.
    pub start: u64,
    /// Index of the terminal.
    pub terminal: usize,
}

/// The slots of a superframe in their order, `bursts` of each terminal by index.
///
/// The bursts of each terminal are spread evenly over the superframe, burst `i` of `n` at `i / n`
/// of it, so that packets wait little; where two meet, the later one waits for the end of the
/// other. As many bursts as the carrier holds end within the superframe: up to any moment at least
/// as many want to start as an even spread of all would start.
#[must_use]
pub fn slots(carrier: &Carrier, bursts: &[u32]) -> Vec<Slot> {
    let burst_ns = carrier.waveform.symbols * 1_000_000_000 / carrier.symbol_rate;
    let mut slots = Vec::with_capacity(bursts.iter().map(|&it| it as usize).sum());
    for (terminal, &count) in bursts.iter().enumerate() {
        slots.extend((0..u64::from(count)).map(|index| Slot {
            start: index * carrier.superframe / u64::from(count),
            terminal,
        }));
    }
    let mut slots = by_start(slots, carrier.superframe);
    let mut free = 0;
    for slot in &mut slots {
        slot.start = slot.start.max(free);
        free = slot.start + burst_ns;
    }
    slots
}

/// The same in order of start and terminal, by a counting sort: slots are hundreds, and spread over
/// the superframe.
fn by_start(slots: Vec<Slot>, superframe: u64) -> Vec<Slot> {
    // A power of two of ns to a place, so that there are about as many places as slots.
    let width = (superframe / (slots.len() as u64).max(1)).max(1).ilog2();
    let place = |slot: &Slot| (slot.start >> width) as usize;
    let mut ends = vec![0_usize; (superframe >> width) as usize + 1];
    for slot in &slots {
        ends[place(slot)] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        sum += *end;
        *end = sum;
    }
    let mut sorted = slots.clone();
    // From behind, so that slots of one place keep their order.
    for slot in slots.into_iter().rev() {
        let end = &mut ends[place(&slot)];
        *end -= 1;
        sorted[*end] = slot;
    }
    // Almost in order: what is left is within a place, and short.
    for index in 1..sorted.len() {
        let mut at = index;
        while at > 0 && sorted[at] < sorted[at - 1] {
            sorted.swap(at, at - 1);
            at -= 1;
        }
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dama::Arithmetic;
    use crate::rcs2::Waveform;

    const BURST: u64 = 33_500;
    const SUPERFRAME: u64 = 26_500_000;

    fn carrier() -> Carrier {
        Carrier {
            symbol_rate: 16_000_000,
            superframe: SUPERFRAME,
            waveform: Waveform::by_id(12).unwrap(),
            arithmetic: Arithmetic::Standard,
        }
    }

    #[test]
    fn slots_are_sorted_by_start_and_terminal() {
        for bursts in [
            &[][..],
            &[0],
            &[1],
            &[3, 3, 3],
            &[0, 7, 0, 790, 1],
            &[12; 65],
            &[1; 791],
        ] {
            let slot = |(terminal, &count): (usize, &u32)| {
                (0..u64::from(count)).map(move |index| Slot {
                    start: index * SUPERFRAME / u64::from(count),
                    terminal,
                })
            };
            let mut expected: Vec<_> = bursts.iter().enumerate().flat_map(slot).collect();
            let found = by_start(expected.clone(), SUPERFRAME);
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_terminal_alone_sends_evenly() {
        for count in [1, 7, 171, 791] {
            let starts: Vec<_> = slots(&carrier(), &[0, count])
                .iter()
                .map(|slot| (slot.start, slot.terminal))
                .collect();
            let expected: Vec<_> = (0..u64::from(count))
                .map(|index| (index * SUPERFRAME / u64::from(count), 1))
                .collect();
            assert_eq!(starts, expected);
        }
    }

    #[test]
    fn bursts_of_a_full_superframe_never_meet_and_end_in_it() {
        let mut seed = 1_u64;
        for _ in 0..500 {
            let mut left = 791_u32;
            let mut bursts = Vec::new();
            while left > 0 && bursts.len() < 60 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let count = (seed >> 33) as u32 % (left + 1);
                bursts.push(count);
                left -= count;
            }
            bursts.push(left);
            let slots = slots(&carrier(), &bursts);
            assert_eq!(slots.len(), 791);
            assert!(
                slots
                    .windows(2)
                    .all(|pair| pair[0].start + BURST <= pair[1].start)
            );
            assert!(slots[790].start + BURST <= SUPERFRAME, "{bursts:?}");
            for (terminal, &count) in bursts.iter().enumerate() {
                let own = slots.iter().filter(|slot| slot.terminal == terminal);
                assert_eq!(own.count(), count as usize);
            }
        }
    }
}
