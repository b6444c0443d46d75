// SPDX-License-Identifier: GPL-3.0-or-later
//! Plans in the frames of a forward carrier ([`dvb::dama::put_tbtp2`]).

use crate::Nanos;
use dvb::dama::{TBTP2_HEADER, put_tbtp2};
use dvb::gse::{Label, LabelField, MIN_DATA_FIELD, Packet};
use dvb::sdu::SIGNALLING;

/// Bytes of a GSE packet in front of its broadcast PDU.
const GSE_HEADER: usize = 4;
/// Most slots of one table: a PDU is not cut.
const MOST_SLOTS: usize = 4000;
/// The terminal that a slot is assigned to here: what is assigned to whom travels inside the return link's model.
const NOBODY: u8 = 0;

/// A plan for every superframe, of all slots of the return carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signalling {
    /// Superframe of the return link, above 0.
    pub period: Nanos,
    /// Slots of a superframe.
    pub slots: u32,
}

/// The plans of a forward carrier at work.
#[derive(Debug)]
pub(crate) struct Plans {
    signalling: Signalling,
    /// Number of the next plan, which is there at its multiple of the period.
    next: u64,
    /// Slots that the last plan still has to name. One that has not gone is replaced by the next.
    owed: u32,
    table: Vec<u8>,
}

impl Plans {
    pub(crate) fn new(signalling: Signalling, now: Nanos) -> Self {
        Self {
            signalling,
            next: now.div_ceil(signalling.period),
            owed: 0,
            table: Vec::new(),
        }
    }

    /// When there is something to send; a moment that has passed means now.
    pub(crate) fn due(&self) -> Nanos {
        if self.owed > 0 {
            return 0;
        }
        self.next.saturating_mul(self.signalling.period)
    }

    /// Fills the front of a frame that opens at `start` and returns the bytes used. The rest has room for packets, or is zero.
    pub(crate) fn put(&mut self, start: Nanos, frame: &mut [u8]) -> usize {
        let begun = start / self.signalling.period + 1;
        if begun > self.next {
            (self.next, self.owed) = (begun, self.signalling.slots);
        }
        let room = frame.len().saturating_sub(GSE_HEADER + TBTP2_HEADER);
        let slots = (self.owed as usize).min(room).min(MOST_SLOTS);
        if slots == 0 {
            return 0;
        }
        let first = self.signalling.slots - self.owed;
        put_tbtp2(
            self.next - 1,
            first as u16,
            std::iter::repeat_n(NOBODY, slots),
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
        let signalling = Signalling { period: 100, slots };
        Plans::new(signalling, 0)
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
