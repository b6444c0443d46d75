// SPDX-License-Identifier: GPL-3.0-or-later
//! What stands behind the frames of a sender.

use crate::core::Core;
use crate::{Carrier, Nanos};
use dvb::dama::Request;
use dvb::sdu::Filled;

/// Where frames go. A trait, so that the exit of the loop over frames is known at compile time.
pub trait Exit: Send {
    /// Packets come out, not datagrams.
    const IS_LOCAL: bool;

    /// A frame has come through at its end.
    fn deliver(&mut self, end: Nanos, frame: &[u8], filled: Filled, core: &mut Core);

    /// A frame is lost.
    fn miss(&mut self);

    /// A request leaves in a burst that ends at `end`.
    fn request(&mut self, request: Request, end: Nanos, core: &mut Core);

    /// A packet leaves at `end` without a frame: on a wire or a line, or at a handover.
    fn send_unframed(&mut self, end: Nanos, packet: &[u8], core: &mut Core);

    /// Another link takes over.
    fn renew(&mut self, carrier: &Carrier);
}
