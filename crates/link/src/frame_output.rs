// SPDX-License-Identifier: GPL-3.0-or-later
//! What stands behind the frames of a sender.

use crate::direction_state::DirectionState;
use crate::terminal_queues::{Part, TerminalQueues};
use crate::{Carrier, Nanos};
use dvb::dama::Request;

/// A frame on air.
pub struct Sent<'a> {
    /// Time at which the frame ends.
    pub(crate) end: Nanos,
    /// Id of its MODCOD or waveform.
    pub(crate) id: u8,
    /// Data field of a BBFRAME, or payload of a burst.
    pub(crate) frame: &'a [u8],
    /// Terminals whose packets are in it.
    pub(crate) parts: &'a [Part],
}

/// Receives frames. It is a trait so that the compiler knows where the loop over frames ends.
pub trait FrameOutput: Send {
    /// Packets come out, not datagrams.
    const IS_LOCAL: bool;

    /// A frame has come through at its end.
    fn deliver(&mut self, sent: &Sent<'_>, core: &mut DirectionState);

    /// A frame is lost.
    fn miss(&mut self);

    /// A request leaves in a burst that ends at `end`.
    fn request(&mut self, request: Request, end: Nanos, core: &mut DirectionState);

    /// A packet leaves at `end` without a frame: on a wire or a line, or at a handover.
    fn send_unframed(&mut self, end: Nanos, packet: &[u8], core: &mut DirectionState);

    /// Works off the next report of a terminal of a shared carrier that comes before `now` and not
    /// after `opening`, and returns its time; `None`: there is none.
    fn adapt(
        &mut self,
        _now: Nanos,
        _opening: Option<Nanos>,
        _lanes: &mut TerminalQueues,
    ) -> Option<Nanos> {
        None
    }

    /// Adapts to another link, which has taken over.
    fn renew(&mut self, carrier: &Carrier);
}
