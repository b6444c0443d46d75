// SPDX-License-Identifier: GPL-3.0-or-later
//! What single packets meet behind the carrier besides losses: reordering, duplication, corruption.

use crate::ledger::Counters;
use crate::random::{Process, fraction, generator, hits};
use crate::ring::Ring;
use crate::{LinkError, Nanos};
use rand_pcg::Pcg64;
use std::collections::VecDeque;
use std::ops::Range;

/// Longest time that a packet is held back, ns: with it, no arithmetic of times overflows.
const LONGEST: Nanos = 3_600_000_000_000;
/// Protocol number of UDP.
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
/// Offset of the checksum in the UDP header.
const UDP_CHECKSUM: usize = 6;

/// Packets that later ones overtake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Share of the packets that are held back.
    pub ratio: f64,
    /// At most so many later packets overtake a held one: it goes on when the last of them has
    /// come, whether that one is held back as well or not. `None`: any number.
    pub packets: Option<u64>,
    /// Longest time that a packet is held back, above 0.
    pub hold: Nanos,
}

/// What happens to packets that came through; a share of 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairments {
    /// `None`: packets keep their order.
    pub reorder: Option<Reorder>,
    /// Share of the packets that come twice, the copy directly behind the packet.
    pub duplicate: f64,
    /// Share of the UDP datagrams with a flipped bit: one, anywhere in the payload of UDP. A UDP
    /// checksum is made to fit, so that the receiver's IP stack does not drop the datagram. Other
    /// packets, fragments among them, are left alone.
    pub corrupt: f64,
}

impl Impairments {
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        let ratio = self.reorder.map_or(0.0, |it| it.ratio);
        for share in [ratio, self.duplicate, self.corrupt] {
            if !(0.0..=1.0).contains(&share) {
                return Err(LinkError::Share(share));
            }
        }
        match self.reorder {
            Some(Reorder { packets, hold, .. })
                if packets == Some(0) || !(1..=LONGEST).contains(&hold) =>
            {
                Err(LinkError::Reorder)
            }
            _ => Ok(()),
        }
    }
}

/// Impairments at work. Each kind has its own generator.
#[derive(Debug)]
pub(crate) struct Impairing {
    settings: Impairments,
    reordering: Pcg64,
    duplication: Pcg64,
    corruption: Pcg64,
    /// Packets held back, in the order in which they came, which is that of their release, too.
    held: VecDeque<Held>,
    /// How many of the first ones have been overtaken.
    overtaken: usize,
    /// Packets so far.
    count: u64,
    /// The packet in hand, kept to save the allocation.
    packet: Vec<u8>,
}

#[derive(Debug)]
struct Held {
    /// It goes on behind the packet of this number.
    behind: u64,
    /// It goes on then at the latest.
    latest: Nanos,
    is_twice: bool,
    packet: Vec<u8>,
}

impl Impairing {
    pub(crate) fn new(settings: Impairments, seed: u64, generation: u64) -> Self {
        let generator = |process| generator(seed, process, generation);
        Self {
            settings,
            reordering: generator(Process::Reordering),
            duplication: generator(Process::Duplication),
            corruption: generator(Process::Corruption),
            held: VecDeque::new(),
            overtaken: 0,
            count: 0,
            packet: Vec::new(),
        }
    }

    /// Whether packets go on as they came.
    pub(crate) fn is_off(&self) -> bool {
        self.settings == Impairments::default() && self.held.is_empty()
    }

    /// When the first held packet goes on at the latest. What is in flight is due before that.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.held.front().map(|held| held.latest)
    }

    /// Takes the first held packet if it has waited long enough.
    pub(crate) fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<Nanos> {
        let latest = self.next_due().filter(|&latest| latest <= now)?;
        let first = self.held.front_mut()?;
        out.clear();
        out.extend_from_slice(&first.packet);
        if std::mem::take(&mut first.is_twice) {
            return Some(latest);
        }
        self.forget_first();
        Some(latest)
    }

    /// A packet comes through and is due at `due`, not before those in flight.
    pub(crate) fn deliver(
        &mut self,
        due: Nanos,
        packet: &[u8],
        in_flight: &mut Ring,
        counters: &mut Counters,
    ) {
        while self.next_due().is_some_and(|latest| latest <= due) {
            self.release_first(None, in_flight);
        }
        self.count += 1;
        let mut packet_now = std::mem::take(&mut self.packet);
        packet_now.clear();
        packet_now.extend_from_slice(packet);
        counters.packets_corrupted += u64::from(self.corrupts(&mut packet_now));
        let is_twice = is_hit(&mut self.duplication, self.settings.duplicate);
        counters.packets_duplicated += u64::from(is_twice);
        counters.bytes_duplicated += u64::from(is_twice) * packet.len() as u64;
        let reorder = self.settings.reorder;
        let chosen = reorder.filter(|it| is_hit(&mut self.reordering, it.ratio));
        if let Some(Reorder { packets, hold, .. }) = chosen {
            self.held.push_back(Held {
                behind: packets.map_or(u64::MAX, |packets| self.count.saturating_add(packets)),
                latest: due.saturating_add(hold),
                is_twice,
                packet: packet_now.clone(),
            });
        } else {
            counters.packets_reordered += (self.held.len() - self.overtaken) as u64;
            self.overtaken = self.held.len();
            push(in_flight, due, &packet_now, is_twice);
        }
        while self.held.front().is_some_and(|it| it.behind <= self.count) {
            self.release_first(Some(due), in_flight);
        }
        self.packet = packet_now;
    }

    /// Goes over to other settings; what is held goes on, due at `due`.
    pub(crate) fn change(&mut self, new: Self, due: Nanos, in_flight: &mut Ring) {
        while !self.held.is_empty() {
            self.release_first(Some(due), in_flight);
        }
        *self = new;
    }

    /// The first held packet goes on, due at this time or, without one, at its latest.
    fn release_first(&mut self, due: Option<Nanos>, in_flight: &mut Ring) {
        if let Some(first) = self.forget_first() {
            push(
                in_flight,
                due.unwrap_or(first.latest),
                &first.packet,
                first.is_twice,
            );
        }
    }

    fn forget_first(&mut self) -> Option<Held> {
        self.overtaken = self.overtaken.saturating_sub(1);
        self.held.pop_front()
    }

    fn corrupts(&mut self, packet: &mut [u8]) -> bool {
        if self.settings.corrupt == 0.0 {
            return false;
        }
        let Some(payload) = udp_payload(packet) else {
            return false;
        };
        let is_chosen = hits(&mut self.corruption, self.settings.corrupt);
        if is_chosen {
            let bits = (payload.len() * 8) as f64;
            let bit = (fraction(&mut self.corruption) * bits) as usize;
            flip(packet, &payload, bit);
        }
        is_chosen
    }
}

/// As [`hits`], without a draw where it cannot be.
fn is_hit(random: &mut Pcg64, share: f64) -> bool {
    share > 0.0 && hits(random, share)
}

fn push(in_flight: &mut Ring, due: Nanos, packet: &[u8], is_twice: bool) {
    in_flight.push(due, packet);
    if is_twice {
        in_flight.push(due, packet);
    }
}

/// Where the payload of a whole UDP datagram is; `None` for other packets, and without a payload.
fn udp_payload(packet: &[u8]) -> Option<Range<usize>> {
    let word = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
    let transport = match packet.first()? >> 4 {
        4 => {
            // More fragments, or an offset.
            let is_whole = word(6)? << 2 == 0;
            (packet.get(9) == Some(&UDP) && is_whole).then(|| usize::from(packet[0] & 15) * 4)?
        }
        6 => (packet.get(6) == Some(&UDP)).then_some(40)?,
        _ => return None,
    };
    let end = transport + usize::from(word(transport + 4)?);
    let start = transport + UDP_HEADER;
    (start < end && end <= packet.len()).then_some(start..end)
}

/// Flips a bit of the payload and updates the checksum of UDP (RFC 1624); a checksum of 0 is none,
/// and stays.
fn flip(packet: &mut [u8], payload: &Range<usize>, bit: usize) {
    let at = payload.start + bit / 8;
    let place = payload.start - UDP_HEADER + UDP_CHECKSUM;
    // The payload starts at an even distance from the header.
    let is_high = (at - payload.start) % 2 == 0;
    let in_word = |byte: u8| u32::from(byte) << if is_high { 8 } else { 0 };
    let old = in_word(packet[at]);
    packet[at] ^= 1 << (bit % 8);
    let new = in_word(packet[at]);
    let checksum = u16::from_be_bytes([packet[place], packet[place + 1]]);
    if checksum == 0 {
        return;
    }
    let mut sum = u32::from(!checksum) + (0xffff - old) + new;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    let updated = match !(sum as u16) {
        0 => 0xffff,
        updated => updated,
    };
    packet[place..place + 2].copy_from_slice(&updated.to_be_bytes());
}
