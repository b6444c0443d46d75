// SPDX-License-Identifier: GPL-3.0-or-later
//! Slotted random access of the return link (ETSI EN 301 545-2): terminals send in slots of their
//! own choice.
//!
//! Bursts in the same slot destroy each other; there is no capture. A terminal repeats a burst as
//! replicas in other slots of the same SA frame:
//!
//! | receiver | what it decodes | source |
//! |---|---|---|
//! | [`Receiver::Diversity`] | bursts with a replica that is alone in its slot; with one replica this is slotted Aloha | Roberts, ACM SIGCOMM CCR 5(2), 1975; Choudhury and Rappaport, IEEE Transactions on Communications 31(3), 1983 |
//! | [`Receiver::Cancelling`] | the same, and what is alone once the replicas of decoded bursts are taken out (CRDSA) | Casini, De Gaudenzi and del Rio Herrero, IEEE Transactions on Wireless Communications 6(4), 2007 |
//!
//! Nothing here draws random numbers: the caller does.

/// What the gateway makes of an SA frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receiver {
    /// It reads each slot by itself (DSA in `OpenSAND`).
    Diversity,
    /// Successive interference cancellation (CRDSA).
    #[default]
    Cancelling,
}

/// Bursts in a slot: their number and the sum of their indexes, which is the index of the last one
/// left.
#[derive(Clone, Copy, Default)]
struct Slot {
    count: usize,
    sum: usize,
}

/// The slot in which each burst of an SA frame was decoded, by index; `None`: it was not.
///
/// `bursts` are the slots of the replicas of each, different ones below `slots`; a burst without
/// replicas is not decoded.
#[must_use]
pub fn decode(slots: u32, bursts: &[Vec<u32>], receiver: Receiver) -> Vec<Option<u32>> {
    let mut frame = vec![Slot::default(); slots as usize];
    for (index, replicas) in bursts.iter().enumerate() {
        for &slot in replicas {
            let slot = &mut frame[slot as usize];
            (slot.count, slot.sum) = (slot.count + 1, slot.sum + index);
        }
    }
    let alone = |frame: &[Slot], slot: u32| frame[slot as usize].count == 1;
    let mut decoded = vec![None; bursts.len()];
    let mut clear: Vec<u32> = (0..slots).filter(|&slot| alone(&frame, slot)).collect();
    let mut next = 0;
    while let Some(&slot) = clear.get(next) {
        next += 1;
        if !alone(&frame, slot) {
            continue;
        }
        let index = frame[slot as usize].sum;
        if decoded[index].is_some() {
            continue;
        }
        decoded[index] = Some(slot);
        if receiver == Receiver::Diversity {
            continue;
        }
        for &replica in &bursts[index] {
            let slot = &mut frame[replica as usize];
            (slot.count, slot.sum) = (slot.count - 1, slot.sum - index);
            if alone(&frame, replica) {
                clear.push(replica);
            }
        }
    }
    decoded
}

/// How the window of a terminal grows after a loss and shrinks after a success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Binary exponential: times the multiple; back to one SA frame.
    #[default]
    Beb,
    /// Exponential increase, exponential decrease (Song, Kwak, Song and Miller, IEEE VTC Spring
    /// 2003): times the multiple; divided by its root.
    Eied,
    /// Multiplicative increase, multiplicative decrease: times the multiple; divided by it.
    Mimd,
}

/// The window of a terminal: SA frames among which it chooses the one in which it sends after a
/// loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    algorithm: Algorithm,
    most: f64,
    multiple: f64,
    window: f64,
}

impl Backoff {
    /// A window of one SA frame that grows by `multiple` up to `most`; 0 counts as 1.
    #[must_use]
    pub fn new(algorithm: Algorithm, most: u16, multiple: u16) -> Self {
        Self {
            algorithm,
            most: f64::from(most.max(1)),
            multiple: f64::from(multiple.max(1)),
            window: 1.0,
        }
    }

    /// What was sent has come.
    pub fn succeed(&mut self) {
        let window = match self.algorithm {
            Algorithm::Beb => 1.0,
            Algorithm::Eied => self.window / self.multiple.sqrt(),
            Algorithm::Mimd => self.window / self.multiple,
        };
        self.window = window.max(1.0);
    }

    /// It was lost: SA frames to leave out, below the window. `fraction` is uniform in 0 to 1, 1
    /// left out.
    pub fn fail(&mut self, fraction: f64) -> u64 {
        self.window = (self.window * self.multiple).min(self.most);
        (fraction * self.window) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // promise: P12
    fn p323_what_is_alone_in_a_slot_is_decoded() {
        let frame = [vec![0], vec![1], vec![1], vec![2], vec![]];
        let expected = [Some(0), None, None, Some(2), None];
        for receiver in [Receiver::Diversity, Receiver::Cancelling] {
            assert_eq!(decode(4, &frame, receiver), expected);
        }
        assert_eq!(decode(0, &[], Receiver::Cancelling), []);
    }

    #[test]
    // promise: P12
    fn p323_a_replica_is_enough_and_the_first_one_counts() {
        let frame = [vec![3, 1], vec![1, 2], vec![2, 1]];
        let expected = [Some(3), None, None];
        assert_eq!(decode(4, &frame, Receiver::Diversity), expected);
        let frame = [vec![3, 0]];
        assert_eq!(decode(4, &frame, Receiver::Diversity), [Some(0)]);
    }

    #[test]
    // promise: P12
    fn p324_decoded_bursts_are_taken_out_of_their_slots() {
        // 0 is alone in slot 0; without it 1 is alone in slot 1, and then 2 in slot 2.
        let frame = [vec![0, 1], vec![1, 2], vec![2, 3], vec![3, 4], vec![3, 4]];
        let expected = [Some(0), Some(1), Some(2), None, None];
        assert_eq!(decode(5, &frame, Receiver::Cancelling), expected);
        let alone = [Some(0), None, None, None, None];
        assert_eq!(decode(5, &frame, Receiver::Diversity), alone);
        // Two in the same two slots are lost (a loop).
        let frame = [vec![0, 1], vec![1, 0]];
        assert_eq!(decode(2, &frame, Receiver::Cancelling), [None, None]);
    }

    #[test]
    fn p325_windows_grow_by_the_multiple_up_to_their_most_and_shrink_by_their_algorithm() {
        let windows = |algorithm| {
            let mut backoff = Backoff::new(algorithm, 16, 4);
            let grown = [0.99, 0.99, 0.99].map(|fraction| backoff.fail(fraction));
            backoff.succeed();
            (grown, backoff.window)
        };
        assert_eq!(windows(Algorithm::Beb), ([3, 15, 15], 1.0));
        assert_eq!(windows(Algorithm::Eied), ([3, 15, 15], 8.0));
        assert_eq!(windows(Algorithm::Mimd), ([3, 15, 15], 4.0));
        let mut still = Backoff::new(Algorithm::Mimd, 0, 0);
        still.succeed();
        assert_eq!((still.fail(0.99), still.window), (0, 1.0));
    }
}
