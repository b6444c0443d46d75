// SPDX-License-Identifier: GPL-3.0-or-later
//! What requests and plans take on air (ETSI EN 301 545-2).
//!
//! A request is a control message of a burst of its own, in a slot that the terminal has once every
//! request period whether it asks or not; the message has a type, the status of the terminal, its
//! `Es/N0` report and its transmission mode, a byte each, and two bytes per capacity request. A
//! plan is a TBTP2 (clause 6.4.9) that names the terminal of each slot of the superframe by a byte
//! (assignment format 1), in the lower-layer signalling of GSE (protocol type 0x0082).
//!
//! tshark reads every field of the table. Of the control message no public reader was found, and
//! none is written here: its slot goes whole, so that its size alone matters, and this only as far
//! as the shortest burst has room for it.

/// Bytes of a control message with an RBDC and a VBDC request; every reference waveform has room
/// for it.
pub const SAC_BYTES: usize = 4 + 2 * 2;
/// Bytes of a TBTP2 before its assignments: table header 4, body 6, one frame 5.
pub const TBTP2_HEADER: usize = 4 + 6 + 5;

/// Table id of the TBTP2.
const TABLE: u8 = 0xAD;
/// Assignment format: ids of 8 bits.
const IDS_OF_8_BITS: u8 = 1;

/// Bytes of a TBTP2 for so many slots.
#[must_use]
pub const fn tbtp2_bytes(slots: u32) -> usize {
    TBTP2_HEADER + slots as usize
}

/// Writes a TBTP2 for `slots` slots (at least one) from `first` on, into a vector that is cleared
/// first. `terminals` has the terminals of the first slots; the other slots get 0.
///
/// Interactive network, group and superframe sequence are 0: a platform has one of each.
pub fn put_tbtp2(superframe: u64, first: u16, slots: u16, terminals: &[u8], out: &mut Vec<u8>) {
    out.clear();
    // Table id, interactive network id, and a byte with version and the flag of what is in force.
    out.extend_from_slice(&[TABLE, 0, 0, 1]);
    // Group, superframe sequence, assignment context, superframe count, format, frames less one.
    out.extend_from_slice(&[0, 0, 0, superframe as u8, IDS_OF_8_BITS, 0]);
    out.push(0);
    out.extend_from_slice(&first.to_be_bytes());
    out.extend_from_slice(&slots.saturating_sub(1).to_be_bytes());
    let all = out.len() + usize::from(slots);
    out.extend_from_slice(terminals);
    out.resize(all, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rcs2::WAVEFORMS;

    #[test]
    // promise: P2
    fn plans_and_requests_have_the_sizes_of_their_fields() {
        assert_eq!((SAC_BYTES, tbtp2_bytes(0), tbtp2_bytes(791)), (8, 15, 806));
        assert!(WAVEFORMS.iter().all(|it| it.payload_bytes >= SAC_BYTES));
        let mut table = vec![7];
        put_tbtp2(0x1234, 300, 5, &[9, 8, 9, 7], &mut table);
        let expected = [
            0xAD, 0, 0, 1, 0, 0, 0, 0x34, 1, 0, 0, 1, 44, 0, 4, 9, 8, 9, 7, 0,
        ];
        assert_eq!((&table[..], table.len()), (&expected[..], tbtp2_bytes(5)));
    }
}
