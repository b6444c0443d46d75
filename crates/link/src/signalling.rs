// SPDX-License-Identifier: GPL-3.0-or-later
//! Plans in the frames of a forward carrier ([`dvb::dama::put_tbtp2`]).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Nanos;
use dvb::dama::{self, Slot};
use dvb::dama::{TBTP2_HEADER, put_tbtp2};
use dvb::gse::{Label, LabelField, MIN_DATA_FIELD, Packet};
use dvb::sdu::SIGNALLING;

/// Bytes of a GSE packet in front of its broadcast PDU.
const GSE_HEADER: usize = 4;
/// Largest number of slots in one table. A PDU is not fragmented.
const MOST_SLOTS: usize = 4000;
/// The number in a slot that no terminal has. Terminal N has the number N; those above 255 are not
/// named.
const NOBODY: u8 = 0;
/// Plans that wait for a frame at most: a newer one replaces those before it.
const MOST_WAITING: usize = 8;

/// Time from a plan to the first frame that can have it. An emulator's thread has worked the plan
/// off by then.
const PLANNING: Nanos = 1_000_000;

/// A plan for every superframe, of all slots of the return carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signalling {
    /// Superframe of the return link, above 0.
    pub period: Nanos,
    /// Slots of a superframe.
    pub slots: u32,
    /// Time of the first plan since the start. The next plans follow with the period.
    pub first: Nanos,
}

impl Signalling {
    /// Of a return link with demand assignment: `period` is its superframe, above 0, `delay` the
    /// propagation delay, from which the gateway's superframes count.
    #[must_use]
    pub const fn of_return(period: Nanos, slots: u32, delay: Nanos) -> Self {
        Self {
            period,
            slots,
            first: delay % period + PLANNING,
        }
    }
}

/// What the plans of a return link say, on the way to the frames of a forward link: the planner
/// writes, the frames read.
///
/// Each link works for itself, also without the other one; frames then name nobody. A frame has the
/// newest plan that was made before it opened.
#[derive(Clone, Debug, Default)]
pub struct Assignments(Arc<Mutex<VecDeque<Assigned>>>);

/// The slots of a superframe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assigned {
    /// Time at which the plan was made.
    pub(crate) made: Nanos,
    /// Number of the superframe by the clock of the terminals.
    pub(crate) superframe: u64,
    /// Number of the terminal of each slot.
    pub(crate) terminals: Vec<u8>,
}

impl Assignments {
    /// The queue; whoever panicked with it left it whole.
    fn queue(&self) -> MutexGuard<'_, VecDeque<Assigned>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A plan was made.
    pub(crate) fn post(&self, assigned: Assigned) {
        let mut queue = self.queue();
        if queue.len() == MOST_WAITING {
            queue.pop_front();
        }
        queue.push_back(assigned);
    }

    /// The newest plan that was made at `now` or before; those before it are forgotten.
    fn until(&self, now: Nanos) -> Option<Assigned> {
        let mut queue = self.queue();
        let count = queue.partition_point(|it| it.made <= now);
        queue.drain(..count).next_back()
    }
}

/// Numbers of the terminals in the slots of a superframe of a carrier: a burst has the slot in
/// which it starts, for no two start within the duration of a burst. `bursts`, in order of their
/// starts, name their terminals by index; those without a start of their own, by index and number,
/// are in the slots that are left.
pub(crate) fn numbers(
    carrier: &dama::Carrier,
    bursts: impl Iterator<Item = Slot>,
    rest: impl Iterator<Item = (usize, u32)>,
) -> Vec<u8> {
    let number = |index: usize| u8::try_from(index + 1).unwrap_or(NOBODY);
    let mut named = vec![NOBODY; carrier.capacity() as usize];
    let mut next = 0;
    for burst in bursts {
        let slot = u128::from(burst.start) * u128::from(carrier.symbol_rate)
            / (u128::from(carrier.waveform.symbols) * 1_000_000_000);
        // Starts in whole ns: one right behind another burst may be in the slot of that one by less
        // than a microsecond.
        let slot = (slot as usize).max(next).min(named.len().saturating_sub(1));
        if let Some(named) = named.get_mut(slot) {
            *named = number(burst.terminal);
        }
        next = slot + 1;
    }
    let mut free = named.iter_mut().filter(|it| **it == NOBODY);
    for (index, count) in rest {
        let own = free.by_ref().take(count as usize);
        own.for_each(|it| *it = number(index));
    }
    named
}

/// The plans of a forward carrier at work.
#[derive(Debug)]
pub(crate) struct Plans {
    signalling: Signalling,
    /// Number of the next plan, which is there at its multiple of the period.
    next: u64,
    /// Slots that the last plan still has to name. One that has not gone is replaced by the next.
    owed: u32,
    /// Assignments from which plans are read; `None`: this process does not know their content.
    heard: Option<Assignments>,
    /// The last one heard of.
    plan: Option<Assigned>,
    table: Vec<u8>,
}

impl Plans {
    pub(crate) fn new(signalling: Signalling, now: Nanos) -> Self {
        Self {
            signalling,
            next: now
                .saturating_sub(signalling.first)
                .div_ceil(signalling.period),
            owed: 0,
            heard: None,
            plan: None,
            table: Vec::new(),
        }
    }

    /// Time at which the next plan has to be sent. A time in the past means now.
    pub(crate) fn due(&self) -> Nanos {
        if self.owed > 0 {
            return 0;
        }
        let since = self.next.saturating_mul(self.signalling.period);
        self.signalling.first.saturating_add(since)
    }

    /// Sets the assignments from which plans are read.
    pub(crate) fn hear(&mut self, assignments: Assignments) {
        self.heard = Some(assignments);
    }

    /// Returns the assignments from which plans are read.
    pub(crate) fn heard(&self) -> Option<Assignments> {
        self.heard.clone()
    }

    /// Fills the front of a frame that opens at `start` and returns the bytes used. The rest has
    /// room for packets, or is zero.
    pub(crate) fn put(&mut self, start: Nanos, frame: &mut [u8]) -> usize {
        let since = start.checked_sub(self.signalling.first);
        let begun = since.map_or(0, |since| since / self.signalling.period + 1);
        if begun > self.next {
            (self.next, self.owed) = (begun, self.signalling.slots);
            let newer = self.heard.as_ref().and_then(|it| it.until(start));
            self.plan = newer.or_else(|| self.plan.take());
        }
        let room = frame.len().saturating_sub(GSE_HEADER + TBTP2_HEADER);
        let slots = (self.owed as usize).min(room).min(MOST_SLOTS);
        if slots == 0 {
            return 0;
        }
        let first = (self.signalling.slots - self.owed) as usize;
        let plan = self.plan.as_ref();
        let named = plan.and_then(|it| it.terminals.get(first..)).unwrap_or(&[]);
        put_tbtp2(
            plan.map_or(self.next - 1, |it| it.superframe),
            first as u16,
            slots as u16,
            &named[..slots.min(named.len())],
            &mut self.table,
        );
        let packet = Packet::Complete {
            protocol_type: SIGNALLING,
            label: LabelField::Label(Label::Broadcast),
            data: &self.table,
        };
        let Ok(used) = packet.emit(frame) else {
            return 0;
        };
        self.owed -= slots as u32;
        if frame.len() - used < MIN_DATA_FIELD {
            frame[used..].fill(0);
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dvb::gse::Decapsulator;

    fn plans(slots: u32) -> Plans {
        plans_from(0, slots)
    }

    fn plans_from(first: Nanos, slots: u32) -> Plans {
        let signalling = Signalling {
            period: 100,
            slots,
            first,
        };
        Plans::new(signalling, 0)
    }

    fn assigned(made: Nanos, superframe: u64, terminals: &[u8]) -> Assigned {
        Assigned {
            made,
            superframe,
            terminals: terminals.to_vec(),
        }
    }

    #[test]
    fn a_plan_of_all_slots_is_there_at_every_superframe() {
        let mut plans = plans(791);
        let mut frame = vec![9; 1991];
        assert_eq!((plans.due(), plans.put(0, &mut frame)), (0, 4 + 15 + 791));
        assert_eq!((plans.due(), plans.put(99, &mut frame)), (100, 0));
        // Two superframes have passed: the older plan is of no use any more.
        assert_eq!(
            (plans.put(299, &mut frame), plans.put(299, &mut frame)),
            (810, 0)
        );
        let mut seen = Vec::new();
        let mut receiver = Decapsulator::new();
        frame[810..].fill(0);
        receiver.frame(&frame, |pdu| {
            seen.push((pdu.protocol_type, pdu.label, pdu.data.len(), pdu.data[7]));
        });
        assert_eq!(seen, [(SIGNALLING, Label::Broadcast, 806, 2)]);
    }

    #[test]
    fn p322_a_frame_names_the_terminals_of_the_newest_plan_before_it() {
        let mut plans = plans_from(30, 4);
        let assignments = Assignments::default();
        plans.hear(assignments.clone());
        let mut frame = [9; 40];
        // Number of the superframe, and who is named.
        let mut said = |plans: &mut Plans, at: Nanos| {
            let used = plans.put(at, &mut frame);
            (used > 0).then(|| (frame[11], frame[19..23].to_vec()))
        };
        assert_eq!((plans.due(), said(&mut plans, 29)), (30, None));
        assignments.post(assigned(29, 7, &[1, 2]));
        assignments.post(assigned(31, 8, &[3, 3, 2, 1]));
        // What is made later is not in it, and what the plan does not say is free.
        assert_eq!(said(&mut plans, 30), Some((7, vec![1, 2, 0, 0])));
        assert_eq!((plans.due(), said(&mut plans, 31)), (130, None));
        assert_eq!(said(&mut plans, 130), Some((8, vec![3, 3, 2, 1])));
        // No newer one was made: the last one says for which superframe it is.
        assert_eq!(said(&mut plans, 231), Some((8, vec![3, 3, 2, 1])));
        (0..20).for_each(|at| assignments.post(assigned(300 + at, at, &[at as u8])));
        assert_eq!(assignments.queue().len(), MOST_WAITING);
        assert_eq!(said(&mut plans, 400), Some((19, vec![19, 0, 0, 0])));
    }

    #[test]
    fn p322_a_burst_has_the_slot_in_which_it_starts() {
        let waveform = dvb::rcs2::Waveform::by_id(12);
        let carrier = dama::Carrier {
            symbol_rate: 1_000_000,
            // 4 bursts of 536 us, and a rest.
            superframe: 2_500_000,
            waveform: waveform.unwrap(),
            arithmetic: dama::Arithmetic::Standard,
        };
        let bursts = |bursts: &[u32]| dama::slots(&carrier, bursts).into_iter();
        let named = |counts: &[u32], rest: &[(usize, u32)]| {
            numbers(&carrier, bursts(counts), rest.iter().copied())
        };
        assert_eq!(named(&[1, 2], &[]), [1, 2, 2, 0]);
        assert_eq!(named(&[0, 4], &[(2, 3)]), [2; 4]);
        assert_eq!(named(&[2], &[(1, 1), (2, 3)]), [1, 2, 1, 3]);
        let many = |index| dama::slots(&carrier, &vec![1; index])[index - 1];
        let last = |slot: Slot| numbers(&carrier, std::iter::once(slot), std::iter::empty());
        let of = |terminal| Slot { start: 0, terminal };
        assert_eq!(last(of(254))[0], 255);
        assert_eq!((last(of(255))[0], last(many(4))[3]), (NOBODY, 4));
    }

    #[test]
    fn no_two_bursts_have_one_slot_where_bursts_end_between_two_ns() {
        let waveform = dvb::rcs2::Waveform::by_id(12).unwrap();
        for symbol_rate in [700_001, 1_500_000, 3_000_000, 7_000_000] {
            let carrier = dama::Carrier {
                symbol_rate,
                superframe: 26_500_000,
                waveform,
                arithmetic: dama::Arithmetic::Standard,
            };
            let most = carrier.capacity();
            for bursts in [[most, 0, 0], [most / 2, most / 3, 1], [1, 1, most - 2]] {
                let slots = dama::slots(&carrier, &bursts).into_iter();
                let named = numbers(&carrier, slots, std::iter::empty());
                let is_of = |terminal| named.iter().map(move |&it| u32::from(it == terminal));
                let count = |terminal| is_of(terminal).sum::<u32>();
                assert_eq!([1, 2, 3].map(count), bursts, "{symbol_rate} baud");
            }
        }
    }

    #[test]
    fn what_a_frame_does_not_hold_comes_with_the_next() {
        let mut plans = plans(791);
        let mut frame = [9; 400];
        assert_eq!(plans.put(5, &mut frame), 400);
        assert_eq!(plans.due(), 0);
        assert_eq!(
            (plans.put(6, &mut frame), plans.put(7, &mut frame)),
            (400, 48)
        );
        // Slots 762 and on.
        assert_eq!(frame[15..19], [2, 250, 0, 28]);
        assert_eq!(plans.due(), 100);
        assert_eq!(plans.put(100, &mut [0; 19]), 0);
    }
}
