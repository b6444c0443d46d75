// SPDX-License-Identifier: GPL-3.0-or-later
//! Parts of a link, each in a process of its own: the sender's, the satellite's, the receiver's.

use crate::air::Air;
use crate::datagram::Datagram;
use crate::{Carrier, Nanos};

/// Which part of a link this is. Frames between the parts are [`Datagram`]s.
///
/// The sender has queue, frames and losses of frames, outages and reception among them; what it sends leaves at the end of
/// the frame. The receiver has losses of packets, delay and jitter. What a part does not have it ignores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// Packets in, datagrams out.
    Sender {
        /// Differs from start to start.
        session: u32,
    },
    /// Datagrams in, the same datagrams out at once: the transparent satellite.
    Relay,
    /// Datagrams in, packets out.
    Receiver,
}

/// The receiver at work.
#[derive(Debug)]
pub(crate) struct Inlet {
    air: Air,
    /// Session and the number that comes next.
    expected: Option<(u32, u32)>,
}

/// What came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// A frame, so many frames after the one that was expected.
    Frame { missed: u32 },
    /// A frame from before, or no frame.
    Nothing,
}

impl Inlet {
    /// The receiver of a carrier; `None` for a wire.
    pub(crate) fn new(carrier: &Carrier) -> Option<Self> {
        Some(Self {
            air: Air::new(carrier)?,
            expected: None,
        })
    }

    /// Takes a datagram; whole packets go to `sink`.
    pub(crate) fn take(&mut self, datagram: &[u8], sink: impl FnMut(&[u8])) -> Came {
        let Ok(Datagram::Frame {
            session,
            sequence,
            payload,
        }) = Datagram::parse(datagram)
        else {
            return Came::Nothing;
        };
        let missed = match self.expected {
            Some((known, next)) if known == session => sequence.wrapping_sub(next),
            // The sender is new: what was open will never be complete, and what went before is unknown.
            Some(_) => {
                self.air.miss();
                0
            }
            None => 0,
        };
        if missed > u32::MAX / 2 {
            return Came::Nothing;
        }
        if missed > 0 {
            self.air.miss();
        }
        self.expected = Some((session, sequence.wrapping_add(1)));
        self.air.receive(payload, sink);
        Came::Frame { missed }
    }
}

/// Numbers the frames of a sender.
#[derive(Debug)]
pub(crate) struct Outlet {
    session: u32,
    sequence: u32,
    datagram: Vec<u8>,
}

impl Outlet {
    /// The sender's; `None` in other parts.
    pub(crate) fn new(part: Part) -> Option<Self> {
        let Part::Sender { session } = part else {
            return None;
        };
        Some(Self {
            session,
            sequence: 0,
            datagram: Vec::new(),
        })
    }

    /// The next frame as a datagram; a lost one takes its number and is not sent.
    pub(crate) fn frame(&mut self, payload: &[u8]) -> &[u8] {
        let frame = Datagram::Frame {
            session: self.session,
            sequence: self.sequence,
            payload,
        };
        frame.write(&mut self.datagram);
        self.skip();
        &self.datagram
    }

    /// A frame is lost.
    pub(crate) fn skip(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
    }
}

impl Part {
    /// Delay between the end of a frame and what this part hands out.
    pub(crate) const fn delay(self, propagation: Nanos) -> Nanos {
        match self {
            Self::Whole | Self::Receiver => propagation,
            Self::Sender { .. } | Self::Relay => 0,
        }
    }

    /// Whether datagrams come in, not packets.
    #[must_use]
    pub const fn takes_datagrams(self) -> bool {
        matches!(self, Self::Relay | Self::Receiver)
    }
}
