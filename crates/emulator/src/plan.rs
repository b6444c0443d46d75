// SPDX-License-Identifier: GPL-3.0-or-later
//! The figures that the frame arithmetic predicts for a configuration
//! (schemas/link-plan.schema.json).

use dvb::dama;
use dvb::modcod::ModCod;
use link::{
    Aqm, Carrier, Demand, LinkConfig, LinkError, LossModel, LossUnit, echo_rtt, steady_goodput_bps,
};
use profile::Profile;
use schemars::JsonSchema;
use serde::Serialize;

use crate::adapt::first_modcod;
use crate::config::Config;
use crate::demand;
use crate::direction::{IP_PACKET_BYTES, Unit, bdp_bytes};
use crate::links::{links, rtt_ns};
use crate::network;
use crate::timing::Timing;
use crate::units::ms;

/// UDP payload of a packet of 1500 bytes: less 20 bytes IPv4 and 8 bytes UDP.
const UDP_PAYLOAD_BYTES: usize = 1472;
/// TCP payload of the same: less 20 bytes IPv4, 20 bytes TCP and 12 bytes timestamp option.
const TCP_PAYLOAD_BYTES: usize = 1448;
/// IPv4 packet of a default `ping`: 56 bytes, ICMP and IPv4 header.
const ECHO_BYTES: usize = 84;

/// The plan, as printed by `satlink plan`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Plan {
    #[schemars(extend("const" = "satlab/link-plan/1"))]
    schema: &'static str,
    version: &'static str,
    profile: String,
    profile_sha256: String,
    timing: Timing,
    seed: u64,
    forward: Segment<Bbframes>,
    #[serde(rename = "return")]
    return_link: Segment<ReturnFrames>,
    terrestrial_one_way_delay_ms: f64,
    rtt_ms: RttMs,
    /// state of each terminal at the start, if each has its own profile; empty with one terminal or
    /// with equal terminals
    terminals: Vec<OfTerminal>,
    advice: Vec<String>,
}

/// State of a terminal with its own profile, at the start.
#[derive(Debug, Serialize, JsonSchema)]
struct OfTerminal {
    /// number of the terminal in the lab, 1 is the ST
    terminal: usize,
    /// id of the terminal in the profile
    id: u8,
    /// id of the gateway in the profile, which is also the number of its spot
    gateway: u8,
    /// terminals of one group of a spot share carriers
    group: String,
    forward_modcod: String,
    forward_es_n0_db: f64,
    /// rate of the whole carrier in the MODCOD of the terminal
    forward_rate_bps: f64,
    return_waveform: String,
    return_es_n0_db: f64,
    cra_kbps: u64,
    /// slots for the terminal's constant rate in a superframe
    cra_slots: u32,
}

/// One direction of the satellite link.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Segment_of_{Frames}")]
struct Segment<Frames> {
    symbol_rate_baud: u64,
    modcod_id: u8,
    modcod: String,
    es_n0_db: f64,
    /// rate of the frames' payload on air, encapsulation headers included
    rate_bps: f64,
    one_way_delay_ms: f64,
    queue_bytes: u64,
    queue_discipline: Discipline,
    queue_ecn: bool,
    bdp_bytes: u64,
    /// share of units lost in the long run, without outages and lists
    loss_ratio: f64,
    loss_unit: Unit,
    /// loss models; outages count as trace
    loss_models: Vec<Model>,
    jitter_mean_ms: f64,
    #[serde(flatten)]
    frames: Frames,
    /// steady UDP payload rate, 1472-byte datagrams over IPv4
    udp_goodput_bps: f64,
    /// steady TCP payload rate, 1448-byte segments over IPv4
    tcp_goodput_bps: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Discipline {
    DropTail,
    Codel,
    FqCodel,
    Pie,
    #[serde(rename = "dualpi2")]
    DualPi2,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Model {
    Bernoulli,
    GilbertElliott,
    Bursts,
    Trace,
    List,
}

/// Frames of a DVB-S2 carrier.
#[derive(Debug, Serialize, JsonSchema)]
struct Bbframes {
    frame_ns: u64,
    frame_payload_bytes: usize,
    /// MODCODs from which ACM chooses; null: the MODCOD is fixed. modcod, rates and goodputs are
    /// those at the start
    acm: Option<Adaptive>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Adaptive {
    modcod_ids: Vec<u8>,
    margin_db: f64,
    hysteresis_db: f64,
    report_period_ms: f64,
}

/// Of DVB-RCS2, or of an SCPC carrier.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum ReturnFrames {
    Bursts(Bursts),
    Bbframes(Bbframes),
}

/// Bursts of a DVB-RCS2 carrier.
#[derive(Debug, Serialize, JsonSchema)]
struct Bursts {
    superframe_ns: u64,
    slots_per_superframe: u32,
    burst_payload_bytes: usize,
    /// demand assignment; null: a constant rate. With demand assignment `slots_per_superframe` is
    /// the largest number of slots that may be granted
    demand: Option<DemandPlan>,
}

/// Demand assignment in the plan.
#[derive(Debug, Serialize, JsonSchema)]
struct DemandPlan {
    /// slots of a superframe for all terminals
    carrier_slots: u32,
    /// slots of a superframe for the constant rate of the terminal
    cra_slots: u32,
    /// time between two requests
    synchro_ms: f64,
    /// size of a capacity request, which has its own burst
    request_bytes: usize,
    /// size of the slot plan (TBTP2) of a superframe without its GSE header; 0 if plans take no
    /// capacity
    plan_bytes: usize,
    /// one-way time of an 84-byte IPv4 packet on an idle return link
    first_packet_ms: FirstPacketMs,
    /// terminals that share the carrier
    other_terminals: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FirstPacketMs {
    min: f64,
    mean: f64,
    max: f64,
}

/// Round-trip time of an 84-byte IPv4 echo on an idle link. configured is the propagation alone;
/// min, mean and max include the frame model.
#[derive(Debug, Serialize, JsonSchema)]
struct RttMs {
    configured: f64,
    min: f64,
    mean: f64,
    max: f64,
}

/// Works out the plan.
///
/// # Errors
/// A direction cannot be a link; a checked profile and configuration leave no reason for that.
pub fn plan(config: &Config, profile: &Profile) -> Result<Plan, LinkError> {
    let [forward, back, ..] = links(config, profile);
    let rtt_ns = rtt_ns(config, profile);
    let rtt = echo_rtt(&forward, &back, 2 * config.terrestrial_delay_ns, ECHO_BYTES)?;
    let (down, up) = (&profile.forward, &profile.return_link);
    let down_modcod = first_modcod(profile, config.opensand_defects);
    let demand = match &back.demand {
        Some(assigned) => Some(demand_plan(config.timing, profile, &back, assigned)?),
        None => None,
    };
    let up_frames = match &up.scpc {
        Some(scpc) => ReturnFrames::Bbframes(bbframes(&back, &scpc.modcods)),
        None => ReturnFrames::Bursts(Bursts {
            superframe_ns: up.superframe_ns,
            slots_per_superframe: match back.carrier {
                Carrier::Return { slots, .. } | Carrier::OpenSandReturn { slots, .. } => slots,
                Carrier::Forward { .. }
                | Carrier::OpenSandForward { .. }
                | Carrier::Line { .. }
                | Carrier::Wire => 0,
            },
            burst_payload_bytes: back.carrier.frame_payload(),
            demand,
        }),
    };
    let (up_id, up_name) = match back.carrier.modcod() {
        Some(modcod) => (modcod.id, modcod.to_string()),
        None => (up.waveform.id, up.waveform.to_string()),
    };
    Ok(Plan {
        schema: "satlab/link-plan/1",
        version: env!("CARGO_PKG_VERSION"),
        profile: config.profile.display().to_string(),
        profile_sha256: profile.sha256.clone(),
        timing: config.timing,
        seed: config.seed,
        forward: Segment {
            symbol_rate_baud: down.symbol_rate,
            modcod_id: down_modcod.id,
            modcod: down_modcod.to_string(),
            es_n0_db: rounded_db(profile.forward_es_n0_db(1)),
            ..Segment::of(&forward, rtt_ns, bbframes(&forward, &down.modcods))
        },
        return_link: Segment {
            symbol_rate_baud: up.symbol_rate,
            modcod_id: up_id,
            modcod: up_name,
            es_n0_db: rounded_db(profile.return_es_n0_db(1)),
            ..Segment::of(&back, rtt_ns, up_frames)
        },
        terrestrial_one_way_delay_ms: ms(config.terrestrial_delay_ns),
        rtt_ms: RttMs {
            configured: ms(rtt_ns),
            min: ms(rtt.min),
            mean: ms(rtt.mean),
            max: ms(rtt.max),
        },
        terminals: terminals(config, profile),
        advice: advice(config, profile, &forward, &back),
    })
}

/// The frames of a DVB-S2 carrier.
fn bbframes(link: &LinkConfig, modcods: &[ModCod]) -> Bbframes {
    Bbframes {
        frame_ns: link.carrier.frame_duration(),
        frame_payload_bytes: link.carrier.frame_payload(),
        acm: link.acm.as_ref().map(|acm| Adaptive {
            modcod_ids: modcods.iter().map(|modcod| modcod.id).collect(),
            margin_db: acm.margin_db,
            hysteresis_db: acm.hysteresis_db,
            report_period_ms: ms(acm.period),
        }),
    }
}

/// The terminals where each has a profile of its own; none where there is one or they are equal.
/// The rate is that of the carrier in the terminal's MODCOD, as if it had all of it.
fn terminals(config: &Config, profile: &Profile) -> Vec<OfTerminal> {
    let own = network::own_profiles(config, profile);
    let of = |(number, (id, seen)): (usize, (u8, Profile))| {
        let [forward, ..] = links(config, &seen);
        OfTerminal {
            terminal: number,
            id,
            gateway: seen.gw.id,
            group: seen.group().to_owned(),
            forward_modcod: first_modcod(&seen, false).to_string(),
            forward_es_n0_db: rounded_db(seen.forward_es_n0_db(1)),
            forward_rate_bps: forward.carrier.rate_bps().unwrap_or(0.0),
            return_waveform: seen.return_link.waveform.to_string(),
            return_es_n0_db: rounded_db(seen.return_es_n0_db(1)),
            cra_kbps: seen.return_link.cra_kbps,
            cra_slots: demand::slots(config.timing, &seen).cra,
        }
    };
    (1..).zip(own).map(of).collect()
}

/// Thousandths of a dB: more digits would be noise of the logarithm.
#[must_use]
pub fn rounded_db(db: f64) -> f64 {
    (db * 1e3).round() / 1e3
}

/// Demand assignment of the return link.
fn demand_plan(
    timing: Timing,
    profile: &Profile,
    back: &LinkConfig,
    assigned: &Demand,
) -> Result<DemandPlan, LinkError> {
    let slots = demand::slots(timing, profile);
    let first = link::idle_delay(back, ECHO_BYTES)?;
    Ok(DemandPlan {
        carrier_slots: slots.carrier,
        cra_slots: slots.cra,
        synchro_ms: ms(assigned.synchro),
        request_bytes: dama::SAC_BYTES,
        plan_bytes: demand::signalling(timing, profile).map_or(0, |it| dama::tbtp2_bytes(it.slots)),
        first_packet_ms: FirstPacketMs {
            min: ms(first.min),
            mean: ms(first.mean),
            max: ms(first.max),
        },
        other_terminals: assigned.others.len(),
    })
}

impl<Frames> Segment<Frames> {
    /// What the link says of a segment; symbol rate, MODCOD and `Es/N0` are left to the caller.
    fn of(link: &LinkConfig, rtt_ns: u64, frames: Frames) -> Self {
        let of_packets = link.queue.packets.saturating_mul(IP_PACKET_BYTES as u64);
        let kept = link.losses.iter().map(|loss| 1.0 - loss.model.mean_ratio());
        Self {
            symbol_rate_baud: 0,
            modcod_id: 0,
            modcod: String::new(),
            es_n0_db: 0.0,
            rate_bps: link.carrier.rate_bps().unwrap_or(0.0),
            one_way_delay_ms: ms(link.delay),
            queue_bytes: link.queue.bytes.min(of_packets),
            queue_discipline: match link.queue.aqm {
                Aqm::DropTail => Discipline::DropTail,
                Aqm::CoDel(_) => Discipline::Codel,
                Aqm::FqCoDel(_) => Discipline::FqCodel,
                Aqm::Pie(_) => Discipline::Pie,
                Aqm::DualPi2(_) => Discipline::DualPi2,
            },
            queue_ecn: link.queue.ecn,
            bdp_bytes: bdp_bytes(&link.carrier, rtt_ns),
            loss_ratio: match &link.losses[..] {
                // One process is its own ratio, without rounding.
                [only] => only.model.mean_ratio(),
                _ => 1.0 - kept.product::<f64>(),
            },
            loss_unit: match link.losses.first().map(|loss| loss.unit) {
                Some(LossUnit::Frame) => Unit::Frame,
                _ => Unit::Packet,
            },
            loss_models: link
                .losses
                .iter()
                .map(|loss| match loss.model {
                    LossModel::Bernoulli { .. } => Model::Bernoulli,
                    LossModel::GilbertElliott(_) => Model::GilbertElliott,
                    LossModel::Bursts { .. } => Model::Bursts,
                    LossModel::Windows(_) | LossModel::Units(_) => Model::Trace,
                    LossModel::Numbers(_) => Model::List,
                })
                .collect(),
            jitter_mean_ms: link.jitter.mean_ns() / 1e6,
            frames,
            udp_goodput_bps: steady_goodput_bps(link, IP_PACKET_BYTES, UDP_PAYLOAD_BYTES),
            tcp_goodput_bps: steady_goodput_bps(link, IP_PACKET_BYTES, TCP_PAYLOAD_BYTES),
        }
    }
}

fn advice(
    config: &Config,
    profile: &Profile,
    forward: &LinkConfig,
    back: &LinkConfig,
) -> Vec<String> {
    let warnings = profile.warnings.as_slice().iter().map(ToString::to_string);
    let mut advice: Vec<_> = profile.advice.iter().cloned().chain(warnings).collect();
    // Only where OpenSAND carries the satellite segment is there anything.
    let unsupported = profile::supported(profile);
    let passed_on = unsupported.as_slice().iter();
    advice.extend(passed_on.map(|it| format!("for OpenSAND alone, and not in this plan: {it}")));
    let bdp = bdp_bytes(&forward.carrier, rtt_ns(config, profile));
    advice.push(format!("one TCP flow fills the forward link only with send and receive buffers of {} bytes (2 BDP)", 2 * bdp));
    for (name, link) in [("forward", forward), ("return", back)] {
        if link.queue.bytes < IP_PACKET_BYTES as u64 {
            advice.push(format!(
                "the {name} queue of {} bytes is smaller than one 1500-byte packet",
                link.queue.bytes
            ));
        }
        if let Aqm::CoDel(codel) | Aqm::FqCoDel(link::FqCoDel { codel, .. }) = link.queue.aqm {
            let rtt_ns = rtt_ns(config, profile);
            if codel.interval < rtt_ns {
                advice.push(format!(
                    "the {name} queue's CoDel interval of {} ms is below the round trip of {} ms: it signals again before \
                     a sender can have answered (RFC 8289 section 4.3); interval_ms {:.0} would cover it",
                    ms(codel.interval),
                    ms(rtt_ns),
                    ms(rtt_ns) * 1.1
                ));
            }
        }
        let frame_ns = link.carrier.frame_duration();
        if let Aqm::DualPi2(dual) = link.queue.aqm {
            if dual.step < frame_ns {
                advice.push(format!(
                    "the {name} queue's step_ms of {} is below the {} ms of a frame: L4S packets are marked that \
                     wait for a frame and not behind others; step_ms {} would cover it",
                    ms(dual.step),
                    ms(frame_ns),
                    (ms(frame_ns) * 1.5).ceil()
                ));
            }
        }
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_alone as parse;
    use crate::direction::{Limit, Queue};
    use crate::testing::example;
    use serde_json::{Value, json};

    fn planned(name: &str, edit: impl FnOnce(&mut Value)) -> Value {
        let mut value = example(name);
        edit(&mut value);
        let config = parse(&value.to_string()).unwrap();
        let profile = profile::load(&config.profile).unwrap();
        serde_json::to_value(plan(&config, &profile).unwrap()).unwrap()
    }

    #[test]
    // promise: P4
    fn geo_and_leo_have_the_figures_of_the_frame_arithmetic() {
        for (name, delay_ms, frames) in [("geo", 250.0, 580.0), ("leo", 16.0, 112.0)] {
            let plan = planned(name, |_| {});
            let forward = &plan["forward"];
            assert_eq!(forward["symbol_rate_baud"], 40_000_000);
            assert_eq!(
                (&forward["modcod_id"], &forward["modcod"]),
                (&json!(1), &json!("QPSK 1/4"))
            );
            assert_eq!(forward["es_n0_db"], 16.99);
            assert_eq!(
                (&forward["frame_ns"], &forward["frame_payload_bytes"]),
                (&json!(812_250), &json!(1991))
            );
            assert!((forward["rate_bps"].as_f64().unwrap() - 19.6097e6).abs() < 100.0);
            assert_eq!(forward["one_way_delay_ms"], delay_ms);
            let bdp = 19_609_726.0 * frames / 8e3;
            assert!(
                (forward["bdp_bytes"].as_f64().unwrap() - bdp).abs() < 2.0,
                "{forward}"
            );
            assert_eq!(forward["queue_bytes"], forward["bdp_bytes"]);
            let back = &plan["return"];
            assert_eq!(
                (&back["slots_per_superframe"], &back["burst_payload_bytes"]),
                (&json!(171), &json!(194))
            );
            assert!((back["rate_bps"].as_f64().unwrap() - 10.0147e6).abs() < 100.0);
            assert_eq!(plan["rtt_ms"]["configured"], frames);
        }
    }

    #[test]
    fn goodput_lies_below_the_rate_and_rtt_above_propagation() {
        let plan = planned("geo", |_| {});
        for direction in ["forward", "return"] {
            let of = |name: &str| plan[direction][name].as_f64().unwrap();
            let ratio = of("udp_goodput_bps") / of("rate_bps");
            assert!((0.90..0.98).contains(&ratio), "{direction} {ratio}");
            assert!((of("tcp_goodput_bps") / of("udp_goodput_bps") - 1448.0 / 1472.0).abs() < 1e-3);
        }
        let rtt = |name: &str| plan["rtt_ms"][name].as_f64().unwrap();
        assert!(
            rtt("configured") < rtt("min") && rtt("min") < rtt("mean") && rtt("mean") < rtt("max")
        );
        assert!(rtt("max") < rtt("configured") + 3.0, "{}", rtt("max"));
    }

    #[test]
    fn terminals_with_profiles_of_their_own_are_listed() {
        let plan = planned("geo-terminals", |value| {
            let further = |n: u8, id: u8| json!({"netns": format!("/run/netns/st-{n}"), "tun": "sat0", "subnet": format!("198.18.{}.0/24", 64 + n), "id": id});
            value["terminals"] = json!([further(2, 4), further(3, 5)]);
        });
        let found = |name: &str| -> Vec<Value> {
            let all = plan["terminals"].as_array().unwrap().iter();
            all.map(|it| it[name].clone()).collect()
        };
        assert_eq!(found("terminal"), [1, 2, 3]);
        assert_eq!(found("id"), [1, 4, 5]);
        assert_eq!(found("group"), ["Standard", "Standard", "Premium"]);
        assert_eq!(found("forward_es_n0_db"), [17.99, 10.586, 17.99]);
        assert_eq!(found("cra_kbps"), [512, 256, 512]);
        assert_eq!(planned("geo-dama", |_| {})["terminals"], json!([]));
    }

    #[test]
    fn schema_file_is_that_of_the_types() {
        let title = "What the framing arithmetic says of a link";
        schema::compare_with_file(&schema::written::<Plan>("link-plan", title));
    }

    #[test]
    fn queue_follows_its_unit() {
        let plan = planned("geo", |value| {
            value["forward"]["queue"] = json!({"bytes": 1000});
            value["return"]["queue"] = json!({"bdp": 0.5});
        });
        assert_eq!(plan["forward"]["queue_bytes"], 1000);
        let half = plan["return"]["bdp_bytes"].as_f64().unwrap() / 2.0;
        assert!((plan["return"]["queue_bytes"].as_f64().unwrap() - half).abs() <= 1.0);
        assert!(
            plan["advice"]
                .to_string()
                .contains("smaller than one 1500-byte packet")
        );
        let (aqm, ecn) = (Aqm::DropTail, false);
        let limit = Limit::Bdp(1.0);
        assert_eq!(Queue { limit, aqm, ecn }.of_link(0).bytes, 1500);
        let packets = planned("geo", |value| {
            value["forward"]["queue"] = json!({"packets": 20});
        });
        assert_eq!(packets["forward"]["queue_bytes"], 30_000);
    }

    #[test]
    fn timing_of_opensand_has_its_frames_and_round_trip() {
        let plan = planned("geo", |value| value["timing"] = json!("opensand"));
        assert_eq!(plan["timing"], "opensand");
        let of = |direction: &str, name: &str| plan[direction][name].as_f64().unwrap();
        assert!((of("forward", "rate_bps") - 19.541e6).abs() < 1e3);
        assert!((18.5e6..18.9e6).contains(&of("forward", "udp_goodput_bps")));
        assert_eq!(plan["return"]["slots_per_superframe"], 149);
        assert_eq!(plan["return"]["burst_payload_bytes"], 223);
        // 4 ms, and half of 10 and of 26.5 ms.
        let above = of("rtt_ms", "mean") - of("rtt_ms", "configured");
        assert!((above - 22.25).abs() < 1e-6, "{above}");
    }

    /// Where `OpenSAND` carries the segment it judges the return link, and satlink plans it.
    #[test]
    fn p55_return_links_that_opensand_judges_are_planned_on_its_ticks() {
        let relayed = |value: &mut Value| {
            value["timing"] = json!("opensand");
            for end in ["st", "gw"] {
                value.as_object_mut().unwrap().remove(end);
            }
        };
        let above = |plan: &Value, which: &str| {
            let rtt = |name: &str| plan["rtt_ms"][name].as_f64().unwrap();
            rtt(which) - rtt("configured")
        };
        // 4 ms, a tick, and an SA frame of three superframes.
        let random = planned("geo-aloha", relayed);
        assert!((above(&random, "min") - 4.0).abs() < 1e-6);
        assert!((above(&random, "max") - 4.0 - 10.0 - 79.5).abs() < 1e-6);
        assert!(above(&planned("geo-scpc", relayed), "min") > 0.0);
        let config = parse(&{
            let mut value = example("geo");
            relayed(&mut value);
            value.to_string()
        });
        let mut profile = profile::load(&config.as_ref().unwrap().profile).unwrap();
        profile.st_profile.dama.cra_kbps = 0;
        let unplanned = plan(&config.unwrap(), &profile).unwrap();
        let unplanned = serde_json::to_value(unplanned).unwrap();
        assert_eq!(unplanned["return"]["slots_per_superframe"], 1);
    }

    #[test]
    fn a_step_below_a_frame_is_advised_against() {
        let advice = |step_ms: f64| {
            let plan = planned("geo", |value| {
                value["return"]["queue"] = json!({"bdp": 1, "aqm": "dualpi2", "step_ms": step_ms});
            });
            assert_eq!(plan["return"]["queue_discipline"], "dualpi2");
            assert_eq!(plan["return"]["queue_ecn"], true);
            let advice = plan["advice"].as_array().unwrap().iter();
            advice
                .filter(|it| it.as_str().unwrap().contains("step_ms"))
                .count()
        };
        assert_eq!((advice(0.01), advice(100.0)), (1, 0));
    }

    #[test]
    fn impairments_and_management_are_reported() {
        let plan = planned("geo", |value| {
            value["forward"]["queue"] = json!({"bdp": 1, "aqm": "codel", "ecn": true});
            value["forward"]["loss"] = json!([
                {"model": "gilbert-elliott", "p": 0.1, "r": 0.3, "unit": "frame"},
                {"ratio": 0.5, "unit": "frame"},
            ]);
            value["forward"]["jitter"] = json!({"uniform_ms": 4});
        });
        let forward = &plan["forward"];
        assert_eq!(forward["queue_discipline"], "codel");
        assert_eq!(
            forward["loss_models"],
            json!(["gilbert-elliott", "bernoulli"])
        );
        assert!((forward["loss_ratio"].as_f64().unwrap() - (1.0 - 0.75 * 0.5)).abs() < 1e-12);
        assert_eq!(forward["jitter_mean_ms"], 2.0);
        let advice = plan["advice"].to_string();
        assert!(
            advice.contains("interval_ms 638 would cover it"),
            "{advice}"
        );
        let bare = planned("geo", |_| {});
        let mean = |plan: &Value| plan["rtt_ms"]["mean"].as_f64().unwrap();
        assert!((mean(&plan) - mean(&bare) - 2.0).abs() < 1e-5);
    }
}
