// SPDX-License-Identifier: GPL-3.0-or-later
//! Random access of a return carrier: its settings, and what one terminal sends ([`dvb::aloha`]).

use std::collections::VecDeque;

use crate::carrier::Carrier;
use crate::config::LinkError;
use crate::{Nanos, Volume};
use dvb::aloha::{Algorithm, Backoff, Receiver};
use dvb::dama;

/// Slotted random access of a [`Carrier::Return`], whose `slots` are then those of its superframe.
///
/// A burst holds pieces of one packet. The gateway acknowledges what it decoded, and
/// acknowledgements are not lost; what is not acknowledged in time is retransmitted, before
/// anything else, after a backoff.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomAccess {
    /// Superframes of an SA frame, above 0.
    pub superframes: u32,
    /// Replicas of each burst, above 0.
    pub replicas: u32,
    /// Bursts that a terminal sends in an SA frame at most, replicas not counted; above 0.
    pub max_packets: u32,
    /// Retransmissions of a burst, after which its packet is lost.
    pub max_retries: u32,
    /// SA frames after which a burst without acknowledgement counts as lost. A time that is shorter
    /// than the acknowledgement takes is extended to that time.
    pub timeout: u32,
    /// Change of the window.
    pub algorithm: Algorithm,
    /// Largest window, SA frames.
    pub most_window: u16,
    /// Factor by which a window grows.
    pub multiple: u16,
    /// What the gateway makes of an SA frame.
    pub receiver: Receiver,
}

/// Header of a PPDU that is whole, or goes on.
const PPDU: usize = 2;
/// Header of a PPDU that starts a packet.
const START: usize = 4;
/// Compressed protocol type, and sequence number behind a packet that is cut.
const TYPE: usize = 1;
const TRAILER: usize = 1;

/// The frame of random access on a carrier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SaFrame {
    /// Duration.
    pub(crate) length: Nanos,
    /// Slots of the SA frame.
    pub(crate) slots: u32,
    /// Time on air of a burst.
    pub(crate) burst: Nanos,
    /// Payload of a burst, bytes.
    pub(crate) payload: usize,
    superframe: Nanos,
    of_superframe: u32,
}

impl SaFrame {
    /// Makes the random access of a carrier; `None` if the carrier has no bursts of the standard.
    pub(crate) fn new(carrier: &Carrier, access: &RandomAccess) -> Option<Self> {
        let dama: dama::Carrier = carrier.dama()?;
        let is_standard = matches!(carrier, Carrier::Return { .. });
        let of_superframe = dama.capacity();
        is_standard.then(|| Self {
            length: dama.superframe.saturating_mul(access.superframes.into()),
            slots: of_superframe.saturating_mul(access.superframes),
            burst: dama.waveform.symbols * 1_000_000_000 / dama.symbol_rate,
            payload: dama.waveform.payload_bytes,
            superframe: dama.superframe,
            of_superframe,
        })
    }

    /// Start of a slot from the start of the frame on: each superframe begins with one.
    pub(crate) fn start(&self, slot: u32) -> Nanos {
        let (superframe, own) = (slot / self.of_superframe, slot % self.of_superframe);
        u64::from(superframe) * self.superframe + u64::from(own) * self.burst
    }

    /// Bursts that carry a packet by RLE, at least one.
    pub(crate) fn bursts(&self, packet: usize) -> u32 {
        if PPDU + TYPE + packet <= self.payload {
            return 1;
        }
        let rest = (TYPE + packet + TRAILER).saturating_sub(self.payload - START);
        1 + rest.div_ceil(self.payload - PPDU) as u32
    }
}

impl RandomAccess {
    /// Checks that a carrier can have it.
    pub(crate) fn check(&self, carrier: &Carrier) -> Result<(), LinkError> {
        let frame = SaFrame::new(carrier, self).ok_or(LinkError::RandomAccess)?;
        let is_possible = [self.superframes, self.replicas, self.max_packets]
            .iter()
            .all(|it| (1..=65_535).contains(it))
            && frame.of_superframe > 0
            && frame.slots <= MOST_SLOTS
            && self.replicas <= frame.slots
            && frame.payload > START;
        if is_possible {
            Ok(())
        } else {
            Err(LinkError::RandomAccess)
        }
    }
}

/// Slots of an SA frame at most: those of 10 s of a carrier of 50 Mbaud.
const MOST_SLOTS: u32 = 1_000_000;

/// A part of a packet in a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Number of the packet.
    pub(crate) packet: u64,
    /// Retransmissions so far.
    retries: u32,
}

/// A packet of which not all pieces have come.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) bytes: Vec<u8>,
    /// Pieces that have not come.
    missing: u32,
}

/// What a terminal sends and waits for.
#[derive(Debug)]
pub(crate) struct Sending {
    access: RandomAccess,
    backoff: Backoff,
    /// First SA frame in which it may send.
    ready: u64,
    /// Pieces to be sent, in their order.
    pieces: VecDeque<Piece>,
    /// Packets on their way, the first one has number `first`; `None`: it came or is lost.
    packets: VecDeque<Option<Cut>>,
    first: u64,
    /// Times at which acknowledgements arrive, in the order in which the bursts were sent.
    acknowledged: VecDeque<Nanos>,
    /// Times at which lost bursts are detected.
    lost: VecDeque<(Nanos, Piece)>,
}

impl Sending {
    pub(crate) fn new(access: RandomAccess) -> Self {
        let backoff = Backoff::new(access.algorithm, access.most_window, access.multiple);
        Self {
            access,
            backoff,
            ready: 0,
            pieces: VecDeque::new(),
            packets: VecDeque::new(),
            first: 0,
            acknowledged: VecDeque::new(),
            lost: VecDeque::new(),
        }
    }

    /// Nothing is to be sent or waited for.
    pub(crate) fn is_idle(&self) -> bool {
        self.pieces.is_empty() && self.acknowledged.is_empty() && self.lost.is_empty()
    }

    /// What is on its way.
    pub(crate) fn size(&self) -> Volume {
        let packets = self.packets.iter().flatten();
        packets.map(|it| Volume::of_packet(it.bytes.len())).sum()
    }

    /// Room for new packets in the next SA frame.
    pub(crate) fn has_room(&self) -> bool {
        self.pieces.len() < self.access.max_packets as usize
    }

    /// Whether the terminal may send in SA frame `number`.
    pub(crate) const fn is_ready(&self, number: u64) -> bool {
        number >= self.ready
    }

    /// A packet comes behind all others, in so many pieces.
    pub(crate) fn add(&mut self, bytes: Vec<u8>, pieces: u32) {
        let packet = self.first + self.packets.len() as u64;
        self.packets.push_back(Some(Cut {
            bytes,
            missing: pieces,
        }));
        let piece = Piece { packet, retries: 0 };
        self.pieces.extend((0..pieces).map(|_| piece));
    }

    /// Learns at the start of SA frame `number`, at `now`, what became of earlier bursts. What is
    /// lost for good goes to `lose`. `fraction` is a random number as for [`Backoff::fail`].
    pub(crate) fn learn(
        &mut self,
        (number, now): (u64, Nanos),
        fraction: impl FnOnce() -> f64,
        mut lose: impl FnMut(&[u8]),
    ) {
        let came = self.acknowledged.partition_point(|&at| at <= now);
        self.acknowledged.drain(..came);
        let failed = self.lost.partition_point(|it| it.0 <= now);
        let mut again = VecDeque::new();
        for (_, piece) in self.lost.drain(..failed) {
            let index = (piece.packet - self.first) as usize;
            if piece.retries < self.access.max_retries {
                let retries = piece.retries + 1;
                again.push_back(Piece { retries, ..piece });
            } else if let Some(cut) = self.packets.get_mut(index).and_then(Option::take) {
                lose(&cut.bytes);
            }
        }
        if failed > 0 {
            self.ready = number + self.backoff.fail(fraction());
        } else if came > 0 {
            self.backoff.succeed();
        }
        again.append(&mut self.pieces);
        self.pieces = again;
        // The rest of a packet that is lost is of no use.
        let (first, packets) = (self.first, &self.packets);
        self.pieces
            .retain(|piece| packets[(piece.packet - first) as usize].is_some());
        self.forget();
    }

    /// Packets in front that came or are lost, and of which no burst is on its way, need no number
    /// any more.
    fn forget(&mut self) {
        let waited = self.lost.iter().map(|it| it.1.packet).min();
        let until = waited.unwrap_or(u64::MAX);
        while self.first < until && matches!(self.packets.front(), Some(None)) {
            self.packets.pop_front();
            self.first += 1;
        }
    }

    /// The pieces of the next SA frame.
    pub(crate) fn take(&mut self, most: usize) -> Vec<Piece> {
        let most = most.min(self.access.max_packets as usize);
        let count = self.pieces.len().min(most);
        self.pieces.drain(..count).collect()
    }

    /// A piece was decoded, and its acknowledgement comes at `at`; the packet, if it is the last
    /// one.
    pub(crate) fn decoded(&mut self, piece: Piece, at: Nanos) -> Option<Cut> {
        let place = self.acknowledged.partition_point(|&other| other <= at);
        self.acknowledged.insert(place, at);
        let cut = self.packets.get_mut((piece.packet - self.first) as usize)?;
        let missing = &mut cut.as_mut()?.missing;
        *missing -= 1;
        if *missing > 0 {
            return None;
        }
        cut.take()
    }

    /// A piece was not decoded, which is known at `at`.
    pub(crate) fn missed(&mut self, piece: Piece, at: Nanos) {
        self.lost.push_back((at, piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dvb::rcs2::Waveform;
    use dvb::rle::{Encapsulator, Protection};

    fn carrier(id: u8) -> Carrier {
        Carrier::Return {
            symbol_rate: 1_000_000,
            waveform: Waveform::by_id(id).unwrap(),
            superframe: 26_500_000,
            slots: 49,
        }
    }

    const ACCESS: RandomAccess = RandomAccess {
        superframes: 3,
        replicas: 2,
        max_packets: 4,
        max_retries: 1,
        timeout: 7,
        algorithm: Algorithm::Beb,
        most_window: 10,
        multiple: 2,
        receiver: Receiver::Cancelling,
    };

    #[test]
    // promise: P12
    fn p326_slots_lie_in_their_superframe_and_do_not_overlap() {
        let frame = SaFrame::new(&carrier(12), &ACCESS).unwrap();
        assert_eq!((frame.length, frame.slots), (79_500_000, 3 * 49));
        let starts: Vec<_> = (0..frame.slots).map(|slot| frame.start(slot)).collect();
        assert!(
            starts
                .windows(2)
                .all(|pair| pair[0] + frame.burst <= pair[1])
        );
        assert_eq!((starts[0], starts[49]), (0, 26_500_000));
        assert!(starts[146] + frame.burst <= frame.length);
    }

    #[test]
    fn p326_a_packet_takes_the_bursts_that_rle_needs() {
        for id in [3, 12, 22] {
            let frame = SaFrame::new(&carrier(id), &ACCESS).unwrap();
            for length in (20..1600).chain([4000]) {
                let mut packet = vec![0; length];
                packet[0] = 0x45;
                let mut sender = Encapsulator::new(Protection::SequenceNumber);
                let mut left = Some(packet);
                let mut payload = vec![0; frame.payload];
                let mut bursts = 0;
                while left.is_some() || sender.pending() > 0 || bursts == 0 {
                    let next = |out: &mut Vec<u8>| left.take().map(|it| *out = it).is_some();
                    let used = sender.fill(&mut payload, next).used;
                    if used == 0 {
                        break;
                    }
                    bursts += 1;
                }
                // What is left of a packet may be its trailer alone.
                let counted = frame.bursts(length);
                assert!(
                    (bursts..=bursts + 1).contains(&counted),
                    "{id} {length}: {bursts}"
                );
            }
        }
    }

    #[test]
    fn p326_what_is_lost_goes_again_first_and_then_for_good() {
        let mut sending = Sending::new(ACCESS);
        sending.add(vec![7; 10], 2);
        sending.add(vec![8; 20], 1);
        let sent = sending.take(9);
        assert_eq!((sent.len(), sending.size()), (3, Volume::new(2, 30)));
        assert!(sending.decoded(sent[0], 600).is_none());
        assert_eq!(sending.decoded(sent[2], 500).unwrap().bytes, [8; 20]);
        sending.missed(sent[1], 900);
        let mut gone = Vec::new();
        sending.learn((1, 700), || 0.9, |bytes| gone.push(bytes.to_vec()));
        assert!(sending.take(9).is_empty() && sending.is_ready(1) && !sending.is_idle());
        sending.add(vec![9; 30], 1);
        // A window of two SA frames: one is left out.
        sending.learn((4, 900), || 0.9, |bytes| gone.push(bytes.to_vec()));
        assert_eq!((sending.is_ready(4), sending.is_ready(5)), (false, true));
        let again = sending.take(1);
        assert_eq!((again[0].packet, again[0].retries), (0, 1));
        sending.missed(again[0], 2000);
        sending.learn((9, 2000), || 0.0, |bytes| gone.push(bytes.to_vec()));
        let expected = (&[vec![7; 10]][..], Volume::of_packet(30));
        assert_eq!((&gone[..], sending.size()), expected);
        let last = sending.take(9);
        assert_eq!((last.len(), sending.first), (1, 2));
        assert_eq!(sending.decoded(last[0], 3000).unwrap().bytes, [9; 30]);
        sending.learn((12, 3000), || 0.0, |_| {});
        assert!(sending.is_idle());
    }

    #[test]
    fn p326_settings_that_no_carrier_can_have_are_refused() {
        let faulty = |edit: fn(&mut RandomAccess)| {
            let mut access = ACCESS;
            edit(&mut access);
            access.check(&carrier(3))
        };
        assert_eq!(faulty(|_| {}), Ok(()));
        for edit in [
            |it: &mut RandomAccess| it.replicas = 0,
            |it: &mut RandomAccess| it.replicas = 148,
            |it: &mut RandomAccess| it.max_packets = 0,
            |it: &mut RandomAccess| it.superframes = 0,
            |it: &mut RandomAccess| it.superframes = 60_000,
        ] {
            assert_eq!(faulty(edit), Err(LinkError::RandomAccess));
        }
        assert_eq!(ACCESS.check(&Carrier::Wire), Err(LinkError::RandomAccess));
    }
}
