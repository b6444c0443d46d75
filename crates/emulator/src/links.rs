// SPDX-License-Identifier: GPL-3.0-or-later
//! From configuration and profile to the four links.

use dvb::modcod::FrameSize;
use link::{Carrier, Classes, LinkConfig, RandomAccess, Reception};
use profile::{Profile, Qos};

use crate::adapt::{acm, first_modcod, first_of_scpc, forward_acm, scpc_acm, waveforms};
use crate::config::Config;
use crate::demand;
use crate::direction::{Direction, Limit, Queue, bdp_bytes};
use crate::set_request::Target;
use crate::timing::Timing;

/// Configurations of the four directions, in the order of [`crate::directions::DIRECTIONS`].
pub type Links = [LinkConfig; 4];

/// The four links of a configuration.
#[must_use]
pub fn links(config: &Config, profile: &Profile) -> Links {
    let [forward, back] = carriers(config, profile);
    let rtt_ns = rtt_ns(config, profile);
    let [forward_queue, return_queue] = queues(config, profile);
    let radio = |carrier: Carrier, direction: &Direction, queue: Queue, seed: u64| LinkConfig {
        losses: direction.losses.clone(),
        jitter: direction.jitter,
        ..LinkConfig::new(
            carrier,
            profile.one_way_delay_ns,
            queue.of_link(bdp_bytes(&carrier, rtt_ns)),
            seed,
        )
    };
    let wire = |seed: u64| {
        // A wire has no queue.
        let queue = link::Queue::drop_tail(0);
        LinkConfig::new(Carrier::Wire, config.terrestrial_delay_ns, queue, seed)
    };
    let seed = |direction: u64| direction_seed(config.seed, direction);
    let reception = |es_n0_db: f64, minimal_es_n0_db: Option<f64>| {
        Some(Reception {
            minimal_es_n0_db,
            ..Reception::gate(es_n0_db)
        })
    };
    let (st, settings) = (&profile.st_profile.physical, &profile.settings);
    let forward = LinkConfig {
        reception: reception(profile.forward_es_n0_db(1), st.minimal_es_n0_db),
        acm: forward_acm(profile, config.timing, config.opensand_defects),
        signalling: demand::signalling(config.timing, profile),
        classes: classes(config, &profile.gw_qos),
        ..radio(forward, &config.forward, forward_queue, seed(0))
    };
    let demand = demand::demand(&config.others, profile, &forward);
    let is_scpc = profile.return_link.scpc.is_some();
    let random_access = random_access(profile).filter(|_| config.timing == Timing::Standard);
    let return_acm = if is_scpc {
        scpc_acm(profile, &forward.carrier)
    } else if profile.random_access().is_some() || config.satellite.is_none() {
        // A burst keeps the waveform of the start; OpenSAND's return link is planned with it.
        None
    } else {
        let waveforms = waveforms(config.timing, profile);
        acm(profile, waveforms, settings.return_margin_db)
    };
    [
        forward,
        LinkConfig {
            reception: reception(
                profile.return_es_n0_db(1),
                profile.gw_physical.minimal_es_n0_db,
            ),
            demand,
            acm: return_acm,
            classes: classes(config, &profile.st_profile.qos)
                .filter(|_| is_scpc || random_access.is_some()),
            random_access,
            ..radio(back, &config.return_link, return_queue, seed(1))
        },
        wire(seed(2)),
        wire(seed(3)),
    ]
}

/// Classes and FIFOs of an entity where its frames have tags: each FIFO holds its capacity and no
/// more than the queue. With the defects of `OpenSAND` all packets are without a tag.
pub(crate) fn classes(config: &Config, qos: &Qos) -> Option<Classes> {
    let packets = qos.fifos.iter().map(|fifo| fifo.capacity_packets.into());
    (qos.is_tagged && !config.opensand_defects).then(|| Classes {
        packets: packets.collect(),
        of_dscp: qos.fifo_of_dscp(),
    })
}

/// Random access in the terms of the link.
fn random_access(profile: &Profile) -> Option<RandomAccess> {
    profile.random_access().map(|it| RandomAccess {
        superframes: it.superframes.into(),
        replicas: it.replicas.into(),
        max_packets: it.max_packets.into(),
        max_retries: it.max_retries.into(),
        timeout: it.timeout.into(),
        algorithm: it.algorithm,
        most_window: it.most_window,
        multiple: it.multiple,
        receiver: it.receiver,
    })
}

/// Number of terminals that share carriers with the ST, this one included.
fn sharing(config: &Config, profile: &Profile) -> usize {
    if config.has_own_profiles() {
        return 1 + profile.sharing().count();
    }
    config.terminal_count()
}

/// Queues of the satellite link: as configured; with the defects of `OpenSAND` its FIFOs, which are
/// those of packets without a tag.
fn queues(config: &Config, profile: &Profile) -> [Queue; 2] {
    let count = sharing(config, profile);
    let given = [config.forward.queue, config.return_link.queue].map(|it| it.of_part(count));
    if !config.opensand_defects {
        return given;
    }
    let of = |qos: &Qos| {
        let fifo = qos
            .fifo_of_pcp(qos.default_pcp)
            .and_then(|at| qos.fifos.get(at));
        Some(Limit::Packets(fifo?.capacity_packets.into()))
    };
    let mut limits = [of(&profile.gw_qos), of(&profile.st_profile.qos)].into_iter();
    given.map(|queue| Queue {
        limit: limits.next().flatten().unwrap_or(queue.limit),
        ..queue
    })
}

/// What changes of the four directions start from.
#[must_use]
pub fn targets(config: &Config, profile: &Profile) -> [Target; 4] {
    let rtt_ns = rtt_ns(config, profile);
    let directions = [&config.forward, &config.return_link];
    let mut directions = directions.into_iter().zip(queues(config, profile));
    let mut indexes = 0..;
    links(config, profile).map(|link| {
        let is_return = indexes.next() == Some(1);
        let (direction, queue) = directions.next().unzip();
        Target {
            carrier: link.carrier,
            rtt_ns,
            delay_ns: link.delay,
            queue,
            outages: direction.and_then(|it| it.outages.clone()),
            has_plans: link.demand.is_some() || (is_return && !config.terminals.is_empty()),
        }
    })
}

/// Forward and return carrier.
fn carriers(config: &Config, profile: &Profile) -> [Carrier; 2] {
    let timing = config.timing;
    let (down, up, label) = (&profile.forward, &profile.return_link, profile.st.mac);
    let modcod = first_modcod(profile, config.opensand_defects);
    let [forward, back] = match timing {
        Timing::Standard => [
            Carrier::Forward {
                symbol_rate: down.symbol_rate,
                modcod,
                frame_size: FrameSize::Normal,
                pilots: false,
                label,
            },
            Carrier::Return {
                symbol_rate: up.symbol_rate,
                waveform: up.waveform,
                superframe: up.superframe_ns,
                slots: match profile.random_access() {
                    Some(_) => demand::slots(timing, profile).carrier,
                    None => demand::slots(timing, profile).most,
                },
            },
        ],
        Timing::OpenSand => [
            Carrier::OpenSandForward {
                symbol_rate: down.symbol_rate,
                modcod,
                tick: down.tick_ns,
                label,
                defects: config.opensand_defects,
                drift: config.opensand_drift_ns,
            },
            opensand_return(config, profile),
        ],
    };
    let scpc = up.scpc.as_ref().map(|scpc| Carrier::Forward {
        symbol_rate: scpc.symbol_rate,
        modcod: first_of_scpc(profile, scpc),
        frame_size: FrameSize::Normal,
        pilots: false,
        label: profile.gw.mac,
    });
    [forward, scpc.unwrap_or(back)]
}

/// The return link on `OpenSAND`'s ticks. Only plans have one with random access: an idle terminal
/// sends at the start of each SA frame. Where `OpenSAND` carries the segment, its return link need
/// not be one of satlink's: without slots it is planned with one.
fn opensand_return(config: &Config, profile: &Profile) -> Carrier {
    let up = &profile.return_link;
    let planned = demand::slots(Timing::OpenSand, profile);
    let (superframes, slots) = match profile.random_access() {
        Some(it) => (u64::from(it.superframes), planned.carrier),
        None => (1, planned.most),
    };
    Carrier::OpenSandReturn {
        symbol_rate: up.symbol_rate,
        waveform: up.waveform,
        superframe: up.superframe_ns * superframes,
        slots: match config.satellite {
            Some(_) => slots,
            None => slots.max(1),
        },
    }
}

/// What of a configuration a return carrier without assigned slots does not have, one line each.
#[must_use]
pub fn check(config: &Config, profile: &Profile) -> Vec<String> {
    let of_scpc = check_scpc(config, profile).into_iter();
    let of_random = check_random(config, profile);
    of_scpc
        .chain(of_random)
        .chain(check_probes(config))
        .collect()
}

/// Terminals may change their gateway, and each gateway would have probes.
fn check_probes(config: &Config) -> Option<String> {
    (sends_probes(config) && !config.gateways.is_empty()).then(|| {
        "probes: are those of one gateway, and there are several (leave them out, or use --terminals 1)"
            .to_owned()
    })
}

fn sends_probes(config: &Config) -> bool {
    (config.probes.as_ref()).is_some_and(|it| it.from.is_empty())
}

fn check_random(config: &Config, profile: &Profile) -> Vec<String> {
    let faults = [
        (
            config.timing == Timing::OpenSand,
            "timing: random access has the slots of the standard alone (\"timing\": \"standard\")",
        ),
        (
            sends_probes(config),
            "probes: there are none of a return carrier with random access (leave them out)",
        ),
        (
            config.emulation.is_some(),
            "emulation: a return carrier with random access is not split into processes (leave it out)",
        ),
    ];
    // Where OpenSAND carries the satellite segment, it judges the profile.
    let is_here = profile.random_access().is_some() && config.satellite.is_some();
    let faults = faults.iter().filter(|(is_fault, _)| *is_fault && is_here);
    faults.map(|(_, text)| (*text).to_owned()).collect()
}

fn check_scpc(config: &Config, profile: &Profile) -> Vec<String> {
    let has_scpc = |it: &profile::Terminal| {
        let back = it.carriers.as_ref().map(|(_, back)| back);
        back.is_some_and(|it| it.scpc.is_some())
    };
    let is_scpc = profile.return_link.scpc.is_some();
    let is_there =
        |it: &&profile::Terminal| config.has_own_profiles() || it.gateway_id == profile.gw.id;
    let is_shared = is_scpc || profile.others().filter(is_there).any(has_scpc);
    let faults = [
        (
            is_scpc && config.timing == Timing::OpenSand,
            "timing: an SCPC return carrier has frames of the standard alone (\"timing\": \"standard\")",
        ),
        (
            is_scpc && sends_probes(config),
            "probes: there are none of an SCPC return carrier (leave them out)",
        ),
        (
            is_scpc && config.emulation.is_some(),
            "emulation: an SCPC return carrier is not split into processes (leave it out)",
        ),
        (
            is_shared && !config.terminals.is_empty(),
            "terminals: an SCPC return carrier has one terminal, and others cannot be next to it (leave them out: --terminals 1)",
        ),
    ];
    // Where OpenSAND carries the satellite segment, it judges the profile.
    let faults = faults
        .iter()
        .filter(|(is_fault, _)| *is_fault && config.satellite.is_some());
    faults.map(|(_, text)| (*text).to_owned()).collect()
}

/// Round trip of the propagation alone.
pub(crate) fn rtt_ns(config: &Config, profile: &Profile) -> u64 {
    2 * (profile.one_way_delay_ns + config.terrestrial_delay_ns)
}

/// `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014) over seed and direction: streams of neighbouring
/// seeds are unrelated.
pub(crate) fn direction_seed(seed: u64, direction: u64) -> u64 {
    let step = |state: u64| {
        let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    step(step(seed) ^ direction)
}

#[cfg(test)]
#[path = "scpc_tests.rs"]
mod scpc_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // promise: P16
    fn p199_the_forward_link_has_the_gateway_s_classes_where_its_frames_have_tags() {
        let value = crate::testing::example("geo");
        let mut config = crate::config::parse_alone(&value.to_string()).unwrap();
        let mut profile = profile::load(&config.profile).unwrap();
        assert!(
            links(&config, &profile)
                .iter()
                .all(|it| it.classes.is_none())
        );
        profile.gw_qos.is_tagged = true;
        let [forward, others @ ..] = links(&config, &profile);
        assert!(others.iter().all(|it| it.classes.is_none()));
        let classes = forward.classes.unwrap();
        // NM, EF, SIG, AF, BE; EF, AF41, CS1 and best effort by their class selectors.
        assert_eq!(classes.packets, [1000, 3000, 1000, 2000, 6000]);
        assert_eq!(
            [46, 34, 8, 0].map(|dscp: usize| classes.of_dscp[dscp]),
            [1, 3, 4, 4]
        );
        config.opensand_defects = true;
        assert_eq!(links(&config, &profile)[0].classes, None);
    }

    #[test]
    fn directions_have_seeds_of_their_own() {
        let seeds: Vec<_> = (0..4)
            .map(|direction| direction_seed(7, direction))
            .collect();
        for (index, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..index].contains(seed));
        }
        assert_ne!(seeds[1], direction_seed(8, 1));
        assert_eq!(seeds[1], direction_seed(7, 1));
    }
}
