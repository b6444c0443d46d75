// SPDX-License-Identifier: GPL-3.0-or-later
//! What the frame arithmetic promises: saturated goodput and idle round-trip time.

use crate::grid::Grid;
use crate::{Accepted, Link, LinkConfig, LinkError, Loss, LossUnit, Nanos};

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

/// Frames and packets over which the steady state is observed: one more or less of either is below 0.03 %.
const OBSERVED: u64 = 4096;

/// Payload rate in bit/s of a saturated link that carries packets of `ip_packet_bytes`, each holding `payload_bytes`.
///
/// Found by running the model in virtual time, losses included, with the queue as full as its limit and two frames allow.
/// Infinite for a wire, 0 for a configuration [`Link::new`] refuses or a packet that fits neither queue nor carrier.
#[must_use]
pub fn steady_goodput_bps(
    config: &LinkConfig,
    ip_packet_bytes: usize,
    payload_bytes: usize,
) -> f64 {
    let Ok(mut link) = Link::new(LinkConfig {
        delay: 0,
        ..config.clone()
    }) else {
        return 0.0;
    };
    let Some(grid) = Grid::new(&config.carrier) else {
        return f64::INFINITY;
    };
    let packet = ipv4_of(ip_packet_bytes);
    let plenty = (2 * config.carrier.frame_payload() + ip_packet_bytes) as u64;
    let mut out = Vec::new();
    for frame in 0.. {
        let now = grid.start(frame);
        while link.queue().0 < plenty && link.push(now, &packet) == Accepted::Queued {}
        while link.pop(now, &mut out).is_some() {}
        let seen = link.counters();
        if link.queue().0 == 0 {
            break;
        }
        if frame >= OBSERVED && seen.packets_out + seen.packets_lost >= OBSERVED {
            return (seen.packets_out * payload_bytes as u64 * 8) as f64 * 1e9 / now as f64;
        }
    }
    0.0
}

/// Round-trip time of an echo of `ip_packet_bytes` over an idle pair of links and `wires`, the sum of the wire delays of
/// both ways.
///
/// The phases of the two frame grids are taken as independent and uniform. Values are rounded to the nearest ns.
///
/// # Errors
/// One of the configurations cannot be a link, or cannot carry a packet of this length.
pub fn echo_rtt(
    forward: &LinkConfig,
    back: &LinkConfig,
    wires: Nanos,
    ip_packet_bytes: usize,
) -> Result<Rtt, LinkError> {
    let (there, back) = (
        one_way(forward, ip_packet_bytes)?,
        one_way(back, ip_packet_bytes)?,
    );
    let fixed = wires as f64 + there.least + back.least;
    let wait = there.wait + back.wait;
    let round = |ns: f64| ns.round() as Nanos;
    Ok(Rtt {
        min: round(fixed),
        mean: round(fixed + wait / 2.0),
        max: round(fixed + wait),
    })
}

/// One way in ns: shortest time, and longest wait for a frame to open.
struct OneWay {
    least: f64,
    wait: f64,
}

fn one_way(config: &LinkConfig, ip_packet_bytes: usize) -> Result<OneWay, LinkError> {
    let loss = Loss {
        ratio: 0.0,
        unit: LossUnit::Packet,
    };
    let mut link = Link::new(LinkConfig {
        loss,
        queue_bytes: u64::MAX,
        ..config.clone()
    })?;
    let delay = config.delay as f64;
    let Some(grid) = Grid::new(&config.carrier) else {
        return Ok(OneWay {
            least: delay,
            wait: 0.0,
        });
    };
    if link.push(0, &ipv4_of(ip_packet_bytes)) == Accepted::Dropped {
        return Err(LinkError::PacketLength(ip_packet_bytes));
    }
    link.advance(Nanos::MAX);
    let frames_before_last = link.counters().frames_sent.saturating_sub(1) as f64;
    let wait = grid.spacing();
    Ok(OneWay {
        least: delay + frames_before_last * wait + config.carrier.frame_ns(),
        wait,
    })
}

fn ipv4_of(bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; bytes];
    if let Some(first) = packet.first_mut() {
        *first = 0x45;
    }
    packet
}
