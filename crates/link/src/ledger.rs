// SPDX-License-Identifier: GPL-3.0-or-later
//! What happened on a link: counters, and on demand every event.

use crate::{Nanos, Volume};
use dvb::sdu::Filled;
use std::fmt;
use std::ops::AddAssign;

/// What a link did since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub packets_in: u64,
    /// Bytes offered.
    pub bytes_in: u64,
    /// Packets handed out by `pop`.
    pub packets_out: u64,
    /// Bytes handed out by `pop`.
    pub bytes_out: u64,
    /// Packets dropped at the queue, by its limit or its active management.
    pub packets_dropped: u64,
    /// Bytes dropped at the queue.
    pub bytes_dropped: u64,
    /// Packets that the queue marked with congestion experienced in place of a drop.
    pub packets_marked: u64,
    /// Packets lost on air, by either loss unit.
    pub packets_lost: u64,
    /// Bytes of these packets.
    pub bytes_lost: u64,
    /// Packets that at least one later packet overtook.
    pub packets_reordered: u64,
    /// Copies of packets, contained in `packets_out` once they are handed out.
    pub packets_duplicated: u64,
    /// Bytes of these copies.
    pub bytes_duplicated: u64,
    /// UDP datagrams with a flipped bit.
    pub packets_corrupted: u64,
    /// BBFRAMEs or bursts sent; at a receiver apart from its sender, those that came or were
    /// missed.
    pub frames_sent: u64,
    /// Frames lost, contained in `frames_sent`.
    pub frames_lost: u64,
    /// Payload bytes offered by the frames sent.
    pub frame_bytes_available: u64,
    /// Bytes of these that are not padding.
    pub frame_bytes_used: u64,
    /// Frames sent by [`crate::Carrier::waveform_id`].
    pub frames_by_id: [u64; 32],
    /// Superframes begun on a carrier with demand assignment.
    pub superframes: u64,
    /// Bursts that the terminal was granted in these; `frames_sent` of them were used.
    pub slots_assigned: u64,
    /// Bursts that no terminal was granted in these.
    pub slots_free: u64,
    /// Bursts of these that were kept for requests.
    pub slots_signalling: u64,
    /// Capacity requests of the terminal that asked for something.
    pub requests: u64,
    /// Rates that these asked for, kbit/s, summed.
    pub rbdc_kbps: u64,
    /// Bursts that these asked for.
    pub vbdc_bursts: u64,
    /// Requests of these that were lost.
    pub requests_lost: u64,
    /// Plans that the terminal did not get.
    pub plans_lost: u64,
    /// Payload bytes of frames that carried plans, contained in `frame_bytes_used`.
    pub signalling_bytes: u64,
}

impl Counters {
    /// What the queue dropped.
    #[must_use]
    pub const fn dropped(&self) -> Volume {
        Volume {
            packets: self.packets_dropped,
            bytes: self.bytes_dropped,
        }
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.packets_in += other.packets_in;
        self.bytes_in += other.bytes_in;
        self.packets_out += other.packets_out;
        self.bytes_out += other.bytes_out;
        self.packets_dropped += other.packets_dropped;
        self.bytes_dropped += other.bytes_dropped;
        self.packets_marked += other.packets_marked;
        self.packets_lost += other.packets_lost;
        self.bytes_lost += other.bytes_lost;
        self.packets_reordered += other.packets_reordered;
        self.packets_duplicated += other.packets_duplicated;
        self.bytes_duplicated += other.bytes_duplicated;
        self.packets_corrupted += other.packets_corrupted;
        self.frames_sent += other.frames_sent;
        self.frames_lost += other.frames_lost;
        self.frame_bytes_available += other.frame_bytes_available;
        self.frame_bytes_used += other.frame_bytes_used;
        self.superframes += other.superframes;
        self.slots_assigned += other.slots_assigned;
        self.slots_free += other.slots_free;
        self.slots_signalling += other.slots_signalling;
        self.requests += other.requests;
        self.rbdc_kbps += other.rbdc_kbps;
        self.vbdc_bursts += other.vbdc_bursts;
        self.requests_lost += other.requests_lost;
        self.plans_lost += other.plans_lost;
        self.signalling_bytes += other.signalling_bytes;
        for (sum, more) in self.frames_by_id.iter_mut().zip(other.frames_by_id) {
            *sum += more;
        }
    }
}

/// One thing that happened, in model time. Displays as one line without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event.
    pub at: Nanos,
    /// Kind of the event.
    pub what: What,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A packet of this many bytes was offered.
    Offered(u64),
    /// The queue dropped a packet of this many bytes.
    Dropped(u64),
    /// The queue marked a packet of this many bytes.
    Marked(u64),
    /// A frame opened.
    Frame {
        /// Bytes that are not padding.
        used: usize,
        /// Payload bytes.
        available: usize,
    },
    /// The frame that ends now is lost.
    FrameLost,
    /// Packets that were to leave the carrier now are lost.
    Lost {
        /// Packets.
        packets: u64,
        /// Bytes of them.
        bytes: u64,
    },
    /// A packet of this many bytes came out, due now.
    Released(u64),
}

/// One frame as it went on air.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Time at which it opened.
    pub at: Nanos,
    /// Data field of a BBFRAME, or payload of a burst, padding included.
    pub payload: Vec<u8>,
    /// The receiver missed it.
    pub is_lost: bool,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at)?;
        match self.what {
            What::Offered(bytes) => write!(f, "offered {bytes}"),
            What::Dropped(bytes) => write!(f, "dropped {bytes}"),
            What::Marked(bytes) => write!(f, "marked {bytes}"),
            What::Frame { used, available } => write!(f, "frame {used}/{available}"),
            What::FrameLost => f.write_str("frame lost"),
            What::Lost { packets, bytes } => write!(f, "lost {packets} packets {bytes}"),
            What::Released(bytes) => write!(f, "released {bytes}"),
        }
    }
}

/// Counters and, if asked for, the log of events and the frames themselves.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) counters: Counters,
    pub(crate) log: Option<Vec<Event>>,
    pub(crate) frames: Option<Vec<Frame>>,
}

impl Ledger {
    fn note(&mut self, at: Nanos, what: What) {
        if let Some(log) = &mut self.log {
            log.push(Event { at, what });
        }
    }

    pub(crate) fn offer(&mut self, at: Nanos, bytes: usize) {
        self.counters.packets_in += 1;
        self.counters.bytes_in += bytes as u64;
        self.note(at, What::Offered(bytes as u64));
    }

    pub(crate) fn drop(&mut self, at: Nanos, bytes: usize) {
        self.counters.packets_dropped += 1;
        self.counters.bytes_dropped += bytes as u64;
        self.note(at, What::Dropped(bytes as u64));
    }

    pub(crate) fn mark(&mut self, at: Nanos, bytes: usize) {
        self.counters.packets_marked += 1;
        self.note(at, What::Marked(bytes as u64));
    }

    pub(crate) fn frame(&mut self, at: Nanos, id: u8, used: usize, payload: &[u8]) {
        let available = payload.len();
        if let Some(frames) = self.counters.frames_by_id.get_mut(usize::from(id)) {
            *frames += 1;
        }
        self.counters.frames_sent += 1;
        self.counters.frame_bytes_available += available as u64;
        self.counters.frame_bytes_used += used as u64;
        self.note(at, What::Frame { used, available });
        if let Some(frames) = &mut self.frames {
            frames.push(Frame {
                at,
                payload: payload.to_vec(),
                is_lost: false,
            });
        }
    }

    /// A frame came in, and so many before it did not.
    pub(crate) fn receive(&mut self, bytes: usize, missed: u32) {
        self.counters.frames_sent += 1 + u64::from(missed);
        self.counters.frames_lost += u64::from(missed);
        self.counters.frame_bytes_available += bytes as u64;
    }

    /// The frame last sent is lost with the packets that end in it.
    pub(crate) fn lose_frame(&mut self, at: Nanos, filled: Filled) {
        if let Some(frame) = self.frames.as_mut().and_then(|frames| frames.last_mut()) {
            frame.is_lost = true;
        }
        self.counters.frames_lost += 1;
        self.note(at, What::FrameLost);
        self.lose(at, filled.packets, filled.bytes);
    }

    pub(crate) fn lose(&mut self, at: Nanos, packets: u64, bytes: u64) {
        if packets > 0 {
            self.counters.packets_lost += packets;
            self.counters.bytes_lost += bytes;
            self.note(at, What::Lost { packets, bytes });
        }
    }

    pub(crate) fn release(&mut self, at: Nanos, bytes: usize) {
        self.counters.packets_out += 1;
        self.counters.bytes_out += bytes as u64;
        self.note(at, What::Released(bytes as u64));
    }
}
