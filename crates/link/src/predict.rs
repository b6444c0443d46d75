// SPDX-License-Identifier: GPL-3.0-or-later
//! What the frame arithmetic promises: saturated goodput and idle round-trip time.

use crate::frame_grid::{Grid, Quota};
use crate::random_access::SaFrame;
use crate::{
    Accepted, Aqm, Demand, Jitter, Link, LinkConfig, LinkError, LossModel, Nanos, Queue,
    RandomAccess, RandomReturn, SharedCarrier as _, Stage,
};
use dvb::aloha::Receiver;

/// Delays over all phases of the frame grids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// Best phase.
    pub min: Nanos,
    /// Mean over all phases.
    pub mean: Nanos,
    /// Worst phase.
    pub max: Nanos,
}

/// Frames and packets over which the steady state is observed: one more or less of either is below
/// 0.03 %.
const OBSERVED: u64 = 4096;
/// Request periods over which a carrier with demand assignment is observed, after those that it
/// needs to settle.
const PERIODS: u64 = 16;
/// SA frames over which random access is observed.
const SA_FRAMES: u64 = 256;
/// Steps of an integral over an SA frame.
const STEPS: u32 = 4096;
/// First packets whose waiting is averaged where slots are asked for.
const FIRST_PACKETS: u64 = 256;

/// Payload rate in bit/s of a saturated link that carries packets of `ip_packet_bytes`, each
/// holding `payload_bytes`.
///
/// Found by running the model in virtual time, with the queue as full as its limit and one opening
/// more than the next allow, and without active queue management, which leaves a saturated link
/// saturated. Independent losses are run; of the others, too slow to be observed here, the long-run
/// ratio is taken off. Windows of loss do not count. With demand assignment or random access the
/// packets have DSCP 0 and the carrier is this terminal's alone. Infinite for a wire, 0 for a
/// configuration [`Link::new`] refuses or a packet that fits neither queue nor carrier.
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
    if config.random_access.is_some() {
        let random = LinkConfig {
            losses: random,
            ..config.clone()
        };
        return alone(random, ip_packet_bytes) * (payload_bytes * 8) as f64 * kept;
    }
    let on_demand = config.demand.as_ref().map(|demand| Demand {
        others: Vec::new(),
        ..demand.clone()
    });
    let Ok(mut link) = Link::new(LinkConfig {
        // Only requests need the delay: they wait for plans.
        delay: if on_demand.is_some() { config.delay } else { 0 },
        demand: on_demand,
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
    if let Some(memory) = memory(config) {
        return saturated(&mut link, memory, &packet) * (payload_bytes * 8) as f64 * kept;
    }
    let frames = Quota::new(&config.carrier).most();
    let plenty = frames * config.carrier.frame_payload() as u64 + ip_packet_bytes as u64;
    let mut out = Vec::new();
    for frame in 0.. {
        let now = grid.start(frame);
        link.advance(now);
        while link.queue().bytes < plenty && link.push(now, &packet) == Accepted::Queued {}
        while link.pop(now, &mut out).is_some() {}
        let seen = link.counters();
        if link.queue().bytes == 0 {
            break;
        }
        if frame >= OBSERVED && seen.packets_out + seen.packets_lost >= OBSERVED {
            let bits = (seen.packets_out * payload_bytes as u64 * 8) as f64;
            return bits * kept * 1e9 / now as f64;
        }
    }
    0.0
}

/// Longest time from a request to the end of its effect; `None` without demand assignment.
fn memory(config: &LinkConfig) -> Option<Nanos> {
    let demand = config.demand.as_ref()?;
    Some(demand.memory(&config.carrier, config.delay))
}

/// Packets per second of a link whose slots are assigned on demand, the queue as full as a loop can
/// empty it.
fn saturated(link: &mut Link, memory: Nanos, packet: &[u8]) -> f64 {
    let superframe = link.config().carrier.dama().map_or(1, |it| it.superframe);
    let plenty = link.config().carrier.rate_bps().unwrap_or(0.0) / 8e9 * memory as f64;
    let (settled, end) = (2 * memory, (2 + PERIODS) * memory);
    let mut first = None;
    let mut now = 0;
    while now < end {
        link.advance(now);
        if now >= settled {
            first.get_or_insert((now, link.counters()));
        }
        while (link.queue().bytes as f64) < plenty && link.push(now, packet) == Accepted::Queued {}
        while link.pop(now, &mut Vec::new()).is_some() {}
        now += superframe;
    }
    link.advance(now);
    let Some((start, before)) = first else {
        return 0.0;
    };
    let came = link.counters().packets_out - before.packets_out;
    came as f64 * 1e9 / (now - start) as f64
}

/// Packets per second of a terminal that has a carrier with random access for itself.
fn alone(config: LinkConfig, ip_packet_bytes: usize) -> f64 {
    let access = config.random_access;
    let frame = access.and_then(|it| SaFrame::new(&config.carrier, &it));
    let (Some(access), Some(frame)) = (access, frame) else {
        return 0.0;
    };
    // What is lost waits for its timeout.
    let plenty = u64::from(access.max_packets) * (u64::from(access.timeout) + 3);
    let link = RandomReturn::new(&[LinkConfig {
        delay: 0,
        queue: Queue::drop_tail(u64::MAX),
        jitter: Jitter::None,
        ..config
    }]);
    let Ok(mut link) = link else { return 0.0 };
    let (packet, mut came) = (ipv4_of(ip_packet_bytes), 0);
    for number in 0..SA_FRAMES {
        let now = number * frame.length;
        while link.queue(0).packets < plenty && link.push(now, 0, &packet) == Accepted::Queued {}
        let end = now + frame.length;
        came += std::iter::from_fn(|| link.pop(end, &mut Vec::new())).count();
    }
    came as f64 * 1e9 / (SA_FRAMES * frame.length) as f64
}

/// Round-trip time of an echo of `ip_packet_bytes` over an idle pair of links and `wires`, the sum
/// of the wire delays of both ways. Losses are left out, jitter is in it.
///
/// The phases of the two frame grids are taken as independent and uniform. With demand assignment
/// the echo comes to an idle terminal, whose requests have run out, at any time between two of
/// them. Values are rounded to the nearest ns.
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
    Ok(OneWay {
        least: wires as f64 + there.least + back.least,
        mean: there.mean + back.mean,
        most: there.most + back.most,
    }
    .rounded())
}

/// Delay of a packet of `ip_packet_bytes` on an idle link, as in [`echo_rtt`].
///
/// # Errors
/// The configuration cannot be a link, or cannot carry a packet of this length.
pub fn idle_delay(config: &LinkConfig, ip_packet_bytes: usize) -> Result<Rtt, LinkError> {
    one_way(config, ip_packet_bytes).map(|it| it.rounded())
}

/// One way in ns: shortest time, and what the wait for a frame to open and jitter add to it.
struct OneWay {
    least: f64,
    mean: f64,
    most: f64,
}

impl OneWay {
    fn rounded(&self) -> Rtt {
        let round = |ns: f64| ns.round() as Nanos;
        Rtt {
            min: round(self.least),
            mean: round(self.least + self.mean),
            max: round(self.least + self.most),
        }
    }
}

fn one_way(config: &LinkConfig, ip_packet_bytes: usize) -> Result<OneWay, LinkError> {
    config.check()?;
    if let Some(memory) = memory(config) {
        return first_packets(config, memory, ip_packet_bytes);
    }
    if let Some(access) = &config.random_access {
        return Ok(of_random_access(config, access, ip_packet_bytes));
    }
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

/// A packet on an idle carrier with random access: it waits for an SA frame, whose slots are
/// uniform in it, and as many more as its bursts take. Losses are left out.
fn of_random_access(config: &LinkConfig, access: &RandomAccess, ip_packet_bytes: usize) -> OneWay {
    let Some(frame) = SaFrame::new(&config.carrier, access) else {
        return OneWay {
            least: 0.0,
            mean: 0.0,
            most: 0.0,
        };
    };
    let (length, burst) = (frame.length as f64, frame.burst as f64);
    let (bursts, most) = (frame.bursts(ip_packet_bytes), access.max_packets);
    let whole = f64::from(bursts.div_ceil(most) - 1) * length;
    let rest = (bursts - 1) % most + 1;
    let (shortest, mean) = match access.receiver {
        Receiver::Cancelling => (length, length),
        Receiver::Diversity => (
            f64::from(rest) * burst,
            length * latest(rest, access.replicas),
        ),
    };
    let least = config.delay as f64 + whole + shortest;
    OneWay {
        least,
        mean: config.delay as f64 + whole + length / 2.0 + mean - least + config.jitter.mean_ns(),
        most: config.delay as f64 + whole + 2.0 * length - least + config.jitter.most_ns(),
    }
}

/// Mean of the latest of `bursts`, each the earliest of `replicas` that are uniform in 0 to 1.
fn latest(bursts: u32, replicas: u32) -> f64 {
    // The mean of what is not negative is the integral of the probability to exceed x.
    let exceeds = |step: u32| {
        let x = (f64::from(step) + 0.5) / f64::from(STEPS);
        1.0 - (1.0 - (1.0 - x).powf(replicas.into())).powf(bursts.into())
    };
    (0..STEPS).map(exceeds).sum::<f64>() / f64::from(STEPS)
}

/// First packets on an idle link with demand assignment, spread evenly over the request period.
fn first_packets(
    config: &LinkConfig,
    memory: Nanos,
    ip_packet_bytes: usize,
) -> Result<OneWay, LinkError> {
    let synchro = config.demand.as_ref().map_or(0, |demand| demand.synchro);
    let mut link = Link::new(LinkConfig {
        losses: Vec::new(),
        jitter: Jitter::None,
        reception: None,
        acm: None,
        ..config.clone()
    })?;
    let packet = ipv4_of(ip_packet_bytes);
    let periods = (2 * memory).div_ceil(synchro);
    let (mut least, mut sum, mut most) = (Nanos::MAX, 0, 0);
    for index in 0..FIRST_PACKETS {
        let asked = synchro * periods * (index + 1) + synchro * index / FIRST_PACKETS;
        if link.push(asked, &packet) == Accepted::Dropped {
            return Err(LinkError::PacketLength(ip_packet_bytes));
        }
        // By then it has come, or never will.
        let due = link.pop(asked + 2 * memory, &mut Vec::new());
        let took = due.map_or(2 * memory, |due| due - asked);
        (least, sum, most) = (least.min(took), sum + took, most.max(took));
    }
    let least = least as f64;
    Ok(OneWay {
        least,
        mean: sum as f64 / FIRST_PACKETS as f64 - least + config.jitter.mean_ns(),
        most: most as f64 - least + config.jitter.most_ns(),
    })
}

fn ipv4_of(bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; bytes];
    if let Some(first) = packet.first_mut() {
        *first = 0x45;
    }
    packet
}
