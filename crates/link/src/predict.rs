// SPDX-License-Identifier: GPL-3.0-or-later
//! What the frame arithmetic promises: saturated goodput and idle round-trip time.

use crate::grid::{Grid, Quota};
use crate::{Accepted, Aqm, Jitter, Link, LinkConfig, LinkError, LossModel, Nanos, Queue};

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
/// Found by running the model in virtual time, with the queue as full as its limit and one opening more than the next
/// allow, and without active queue management, which leaves a saturated link saturated. Independent losses are run; of
/// the others, too slow to be observed here, the long-run ratio is taken off. Windows of loss do not count. Infinite for a wire, 0 for a configuration [`Link::new`] refuses or a packet that fits neither queue nor carrier.
#[must_use]
pub fn steady_goodput_bps(
    config: &LinkConfig,
    ip_packet_bytes: usize,
    payload_bytes: usize,
) -> f64 {
    let is_random = |model: &LossModel| matches!(model, LossModel::Bernoulli { .. });
    let (random, slow): (Vec<_>, Vec<_>) = config
        .losses
        .iter()
        .cloned()
        .partition(|loss| is_random(&loss.model));
    let kept: f64 = slow
        .iter()
        .map(|loss| 1.0 - loss.model.mean_ratio())
        .product();
    let Ok(mut link) = Link::new(LinkConfig {
        delay: 0,
        losses: random,
        jitter: Jitter::None,
        queue: Queue {
            aqm: Aqm::DropTail,
            ..config.queue
        },
        ..config.clone()
    }) else {
        return 0.0;
    };
    let Some(grid) = Grid::new(&config.carrier, 0) else {
        return f64::INFINITY;
    };
    let packet = ipv4_of(ip_packet_bytes);
    let frames = Quota::new(&config.carrier).most();
    let plenty = frames * config.carrier.frame_payload() as u64 + ip_packet_bytes as u64;
    let mut out = Vec::new();
    for frame in 0.. {
        let now = grid.start(frame);
        link.advance(now);
        while link.queue().0 < plenty && link.push(now, &packet) == Accepted::Queued {}
        while link.pop(now, &mut out).is_some() {}
        let seen = link.counters();
        if link.queue().0 == 0 {
            break;
        }
        if frame >= OBSERVED && seen.packets_out + seen.packets_lost >= OBSERVED {
            let bits = (seen.packets_out * payload_bytes as u64 * 8) as f64;
            return bits * kept * 1e9 / now as f64;
        }
    }
    0.0
}

/// Round-trip time of an echo of `ip_packet_bytes` over an idle pair of links and `wires`, the sum of the wire delays of
/// both ways. Losses are left out, jitter is in it.
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
    let round = |ns: f64| ns.round() as Nanos;
    Ok(Rtt {
        min: round(fixed),
        mean: round(fixed + there.mean + back.mean),
        max: round(fixed + there.most + back.most),
    })
}

/// One way in ns: shortest time, and what the wait for a frame to open and jitter add to it.
struct OneWay {
    least: f64,
    mean: f64,
    most: f64,
}

fn one_way(config: &LinkConfig, ip_packet_bytes: usize) -> Result<OneWay, LinkError> {
    config.check()?;
    let mut link = Link::new(LinkConfig::new(
        config.carrier,
        config.delay,
        Queue::drop_tail(u64::MAX),
        0,
    ))?;
    let packet = ipv4_of(ip_packet_bytes);
    if link.push(0, &packet) == Accepted::Dropped {
        return Err(LinkError::PacketLength(ip_packet_bytes));
    }
    let least = link.pop(Nanos::MAX, &mut Vec::new()).unwrap_or(Nanos::MAX);
    let wait = Grid::new(&config.carrier, 0).map_or(0.0, |grid| grid.spacing());
    Ok(OneWay {
        least: least as f64,
        mean: wait / 2.0 + config.jitter.mean_ns(),
        most: wait + config.jitter.most_ns(),
    })
}

fn ipv4_of(bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; bytes];
    if let Some(first) = packet.first_mut() {
        *first = 0x45;
    }
    packet
}
