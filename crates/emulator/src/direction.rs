// SPDX-License-Identifier: GPL-3.0-or-later
//! One direction of the satellite link in `link.json`: queue, losses, jitter, outages.

use link::{
    Aqm, Carrier, CoDel, DualPi2, FqCoDel, GilbertElliott, Jitter, Loss, LossModel, LossUnit,
    Nanos, Pie, Reorder,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::traces::Traces;
use crate::units::{Ms, Ratio, Seconds, ns_of_ms};

/// Full-size IPv4 packet on a path with an MTU of 1500.
pub const IP_PACKET_BYTES: usize = 1500;

/// What a direction adds to the profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// Queue in front of the carrier.
    pub queue: Queue,
    /// Loss processes, outages among them.
    pub losses: Vec<Loss>,
    /// The outages alone.
    pub outages: Option<Loss>,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Settings of the direction that can change at run time, as in the file.
    pub requested: Map<String, Value>,
}

/// Queue of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "QueueFields")]
pub struct Queue {
    /// Drop-tail limit.
    pub limit: Limit,
    /// Active management.
    pub aqm: Aqm,
    /// Mark ECN-capable packets in place of an early drop.
    pub ecn: bool,
}

/// Drop-tail limit of a direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Multiples of the direction's bandwidth-delay product.
    Bdp(f64),
    /// Bytes of waiting IP packets.
    Bytes(u64),
    /// Waiting packets.
    Packets(u64),
}

/// Bandwidth-delay product: bytes that the carrier sends in one round trip; 0 for a wire.
pub(crate) fn bdp_bytes(carrier: &Carrier, rtt_ns: u64) -> u64 {
    (carrier.rate_bps().unwrap_or(0.0) * rtt_ns as f64 / 8e9).round() as u64
}

impl Queue {
    /// The queue of a terminal that has a part of a carrier, one of `count`: of its bandwidth-delay
    /// product.
    pub(crate) fn of_part(self, count: usize) -> Self {
        let limit = match self.limit {
            Limit::Bdp(factor) => Limit::Bdp(factor / count as f64),
            other => other,
        };
        Self { limit, ..self }
    }

    /// The queue, its limit in bytes and packets. One given in BDP holds at least one full-size
    /// packet, else a path without delay would carry nothing.
    #[must_use]
    pub fn of_link(self, bdp_bytes: u64) -> link::Queue {
        let (bytes, packets) = match self.limit {
            Limit::Bytes(bytes) => (bytes, u64::MAX),
            Limit::Bdp(factor) => {
                let bytes = (bdp_bytes as f64 * factor).round() as u64;
                (bytes.max(IP_PACKET_BYTES as u64), u64::MAX)
            }
            Limit::Packets(packets) => (u64::MAX, packets),
        };
        link::Queue {
            bytes,
            packets,
            aqm: self.aqm,
            ecn: self.ecn,
        }
    }
}

/// Queue of a direction: its limit, and active queue management.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "queue")]
#[schemars(extend("oneOf" = [{"required": ["bdp"]}, {"required": ["bytes"]}, {"required": ["packets"]}]))]
#[schemars(extend("dependentRequired" = {"target_ms": ["aqm"], "interval_ms": ["aqm"], "step_ms": ["aqm"]}))]
pub(crate) struct QueueFields {
    /// multiples of the direction's bandwidth-delay product
    #[serde(default)]
    #[schemars(with = "f64", extend("exclusiveMinimum" = 0, "maximum" = 1000))]
    bdp: Option<f64>,
    /// bytes of IP packets
    #[serde(default)]
    #[schemars(with = "u64", range(min = 1, max = 1_099_511_627_776_u64))]
    bytes: Option<u64>,
    /// packets
    #[serde(default)]
    #[schemars(with = "u64", range(min = 1, max = 1_073_741_824))]
    packets: Option<u64>,
    /// active management; left out: drop-tail
    aqm: Option<Management>,
    /// mark ECN-capable packets instead of dropping them early; needs aqm; dualpi2 always does
    #[serde(default)]
    ecn: bool,
    /// waiting time that the AQM accepts; default: 5 for codel and fq-codel, 15 for
    /// pie and dualpi2
    target_ms: Option<Ms>,
    /// interval of codel and fq-codel, at least the longest round trip; default: 100
    interval_ms: Option<Ms>,
    /// dualpi2: waiting time above which an L4S packet is marked, at least the duration of a frame;
    /// default: 1
    step_ms: Option<Ms>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Management {
    Codel,
    FqCodel,
    Pie,
    #[serde(rename = "dualpi2")]
    DualPi2,
}

impl TryFrom<QueueFields> for Queue {
    type Error = &'static str;

    fn try_from(fields: QueueFields) -> Result<Self, Self::Error> {
        let limit = match (fields.bdp, fields.bytes, fields.packets) {
            (Some(factor), None, None) => Limit::Bdp(factor),
            (None, Some(bytes), None) => Limit::Bytes(bytes),
            (None, None, Some(packets)) => Limit::Packets(packets),
            _ => return Err("a queue needs exactly one of bdp, bytes and packets"),
        };
        let (pie, codel, dual) = (Pie::default(), CoDel::default(), DualPi2::default());
        let target = |default: Nanos| fields.target_ms.map_or(default, Ms::ns);
        let codel = CoDel {
            target: target(codel.target),
            interval: fields.interval_ms.map_or(codel.interval, Ms::ns).max(1),
        };
        let aqm = match fields.aqm {
            None => Aqm::DropTail,
            Some(Management::Codel) => Aqm::CoDel(codel),
            Some(Management::FqCodel) => Aqm::FqCoDel(FqCoDel {
                codel,
                ..FqCoDel::default()
            }),
            Some(Management::Pie) => Aqm::Pie(Pie {
                target: target(pie.target),
                ..pie
            }),
            Some(Management::DualPi2) => Aqm::DualPi2(DualPi2 {
                target: target(dual.target),
                step: fields.step_ms.map_or(dual.step, Ms::ns),
                ..dual
            }),
        };
        let ecn = fields.ecn || matches!(aqm, Aqm::DualPi2(_));
        Ok(Self { limit, aqm, ecn })
    }
}

/// One direction of the satellite link.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "direction")]
pub(crate) struct DirectionFields {
    #[schemars(with = "QueueFields")]
    queue: Queue,
    loss: Losses,
    jitter: Option<JitterFields>,
    /// outages as pairs of start and end, in s since the start of the emulator, in order; packets
    /// sent during an outage are lost
    #[schemars(extend("remedy" = WINDOWS))]
    outages_s: Option<Vec<[Seconds; 2]>>,
}

/// What `outages_s` has to be.
pub(crate) const WINDOWS: &str =
    "pairs [start, end] of seconds from 0 to 1e9, in order, none overlapping the next";

/// Takes a direction from a checked configuration.
pub(crate) fn read(value: &Value, traces: &Traces<'_>) -> serde_json::Result<Direction> {
    let fields = DirectionFields::deserialize(value)?;
    let mut losses = fields.loss.read(traces)?;
    let outages = fields.outages_s.map(|windows| {
        let windows = windows.into_iter().map(|it| it.map(Seconds::ns));
        Loss {
            model: LossModel::Windows(windows.map(|[start, end]| start..end).collect()),
            unit: LossUnit::Frame,
        }
    });
    losses.extend(outages.clone());
    let requested =
        ["queue", "loss", "jitter"].map(|name| Some((name.to_owned(), value.get(name)?.clone())));
    Ok(Direction {
        queue: fields.queue,
        losses,
        outages,
        jitter: fields.jitter.map_or(Jitter::None, Jitter::from),
        requested: requested.into_iter().flatten().collect(),
    })
}

/// One loss process, or several. A unit is lost if any process loses it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "losses")]
pub(crate) enum Losses {
    One(LossFields),
    Several(Vec<LossFields>),
}

/// Losses hit single IP packets, or whole frames or bursts.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "loss_unit")]
pub(crate) enum Unit {
    Packet,
    Frame,
}

/// A loss process. Its fields say which; `model` may be left out for independent losses.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
#[schemars(rename = "loss")]
pub(crate) enum LossFields {
    Independent {
        #[serde(default, rename = "model")]
        #[schemars(with = "String", extend("const" = "bernoulli"))]
        _model: Option<String>,
        ratio: Ratio,
        unit: Unit,
    },
    GilbertElliott {
        #[serde(rename = "model")]
        #[schemars(extend("const" = "gilbert-elliott"))]
        _model: String,
        /// probability to go from good to bad, per step
        p: Ratio,
        /// probability to go from bad to good, per step
        r: Ratio,
        /// 0
        good_ratio: Option<Ratio>,
        /// 1
        bad_ratio: Option<Ratio>,
        /// time of one step of the chain; left out: one step per unit
        step_ms: Option<Ms>,
        /// bad periods shorter than this count as good; default: 0. Above 0 it needs `step_ms`
        min_burst_ms: Option<Ms>,
        unit: Unit,
    },
    Bursts {
        #[serde(rename = "model")]
        #[schemars(extend("const" = "bursts"))]
        _model: String,
        period_ms: Ms,
        duration_ms: Ms,
        /// start of the first burst; default: 0
        first_ms: Option<Ms>,
        unit: Unit,
    },
    Trace {
        #[serde(rename = "model")]
        #[schemars(extend("const" = "trace"))]
        _model: String,
        /// file of the losses: either a line 0 or 1 for each unit, or lines START END in s
        #[schemars(length(min = 1))]
        file: String,
        unit: Unit,
    },
    /// Single units, by their numbers.
    List {
        #[serde(rename = "model")]
        #[schemars(extend("const" = "list"))]
        _model: String,
        /// counted from 1 since these losses are in force; what the queue drops does not count
        #[schemars(length(min = 1, max = 10_000), inner(range(min = 1)))]
        numbers: Vec<u64>,
        unit: Unit,
    },
}

impl Losses {
    /// The processes; traces are those that were read.
    pub(crate) fn read(self, traces: &Traces<'_>) -> serde_json::Result<Vec<Loss>> {
        let all = match self {
            Self::One(loss) => vec![loss],
            Self::Several(all) => all,
        };
        all.into_iter().map(|it| it.read(traces)).collect()
    }
}

impl LossFields {
    fn read(self, traces: &Traces<'_>) -> serde_json::Result<Loss> {
        let (model, unit) = match self {
            Self::Independent { ratio, unit, .. } => {
                (LossModel::Bernoulli { ratio: ratio.0 }, unit)
            }
            Self::GilbertElliott {
                p,
                r,
                good_ratio,
                bad_ratio,
                step_ms,
                min_burst_ms,
                unit,
                ..
            } => {
                let chain = GilbertElliott {
                    p: p.0,
                    r: r.0,
                    good: good_ratio.unwrap_or_default().0,
                    bad: bad_ratio.map_or(1.0, |it| it.0),
                    step: step_ms.map(|ms| ms.ns().max(1)),
                    shortest: min_burst_ms.unwrap_or_default().ns(),
                };
                (LossModel::GilbertElliott(chain), unit)
            }
            Self::Bursts {
                period_ms,
                duration_ms,
                first_ms,
                unit,
                ..
            } => {
                let bursts = LossModel::Bursts {
                    period: period_ms.ns(),
                    duration: duration_ms.ns(),
                    first: first_ms.unwrap_or_default().ns(),
                };
                (bursts, unit)
            }
            Self::List {
                mut numbers, unit, ..
            } => {
                numbers.sort_unstable();
                numbers.dedup();
                (LossModel::Numbers(numbers.into()), unit)
            }
            Self::Trace { file, unit, .. } => {
                let unread = || serde::de::Error::custom(format!("{file}: was not read"));
                (traces.model(&file).ok_or_else(unread)?, unit)
            }
        };
        let unit = match unit {
            Unit::Packet => LossUnit::Packet,
            Unit::Frame => LossUnit::Frame,
        };
        Ok(Loss { model, unit })
    }
}

/// Time that is added to the delay: uniform from 0, or normal cut at 0. Packets keep their order.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
#[schemars(rename = "jitter")]
pub(crate) enum JitterFields {
    Uniform { uniform_ms: Ms },
    Normal { mean_ms: Ms, sigma_ms: Ms },
}

impl From<JitterFields> for Jitter {
    fn from(fields: JitterFields) -> Self {
        match fields {
            JitterFields::Uniform { uniform_ms } => Self::Uniform {
                most: uniform_ms.ns(),
            },
            JitterFields::Normal { mean_ms, sigma_ms } => Self::Normal {
                mean: mean_ms.ns(),
                sigma: sigma_ms.ns(),
            },
        }
    }
}

/// Packets that later ones overtake.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "reorder")]
pub(crate) struct ReorderFields {
    /// share of the packets that are held back; 0: packets keep their order
    ratio: Ratio,
    /// a held packet goes on behind so many later ones; left out: only after `ms`
    #[schemars(range(min = 1, max = 10_000))]
    packets: Option<u64>,
    /// longest time that a packet is held back
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 10_000))]
    ms: f64,
}

impl From<ReorderFields> for Option<Reorder> {
    fn from(fields: ReorderFields) -> Self {
        (fields.ratio.0 > 0.0).then(|| Reorder {
            ratio: fields.ratio.0,
            packets: fields.packets,
            hold: ns_of_ms(fields.ms).max(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_alone as parse;
    use crate::testing::example;
    use serde_json::json;

    fn direction(edit: impl FnOnce(&mut Value)) -> Result<Direction, String> {
        let mut value = example("geo");
        edit(&mut value["forward"]);
        let config = parse(&value.to_string()).map_err(|faults| faults.to_string())?;
        Ok(config.forward)
    }

    #[test]
    fn fields_left_out_mean_what_they_meant() {
        let plain = direction(|_| {}).unwrap();
        assert_eq!(plain.jitter, Jitter::None);
        assert_eq!(plain.losses, [Loss::random(0.0, LossUnit::Packet)]);
        assert_eq!((plain.queue.aqm, plain.queue.ecn), (Aqm::DropTail, false));
    }

    #[test]
    fn queues_are_read() {
        let queue = |queue: Value| direction(|forward| forward["queue"] = queue).unwrap().queue;
        assert_eq!(queue(json!({"packets": 200})).limit, Limit::Packets(200));
        let codel = queue(json!({"bdp": 1, "aqm": "codel", "ecn": true, "interval_ms": 600}));
        let (target, interval) = (5_000_000, 600_000_000);
        assert_eq!(codel.aqm, Aqm::CoDel(CoDel { target, interval }));
        assert!(codel.ecn);
        let fq = queue(json!({"bdp": 1, "aqm": "fq-codel", "target_ms": 20}));
        assert!(matches!(fq.aqm, Aqm::FqCoDel(fq) if fq.codel.target == 20_000_000));
        assert_eq!(
            queue(json!({"bdp": 1, "aqm": "pie"})).aqm,
            Aqm::Pie(Pie::default())
        );
        let dual = queue(json!({"bdp": 1, "aqm": "dualpi2", "target_ms": 30, "step_ms": 4}));
        let (target, step) = (30_000_000, 4_000_000);
        let update = DualPi2::default().update;
        assert_eq!(
            dual.aqm,
            Aqm::DualPi2(DualPi2 {
                target,
                update,
                step
            })
        );
        assert!(dual.ecn, "it marks in any case");
    }

    #[test]
    fn losses_jitter_and_outages_are_read() {
        let read = direction(|forward| {
            forward["loss"] = json!([
                {"model": "gilbert-elliott", "p": 0.01, "r": 0.167, "step_ms": 1, "min_burst_ms": 10, "unit": "frame"},
                {"model": "bursts", "period_ms": 1000, "duration_ms": 20, "unit": "packet"},
                {"ratio": 0.01, "unit": "packet"},
                {"model": "list", "numbers": [7, 2, 7], "unit": "packet"},
            ]);
            forward["jitter"] = json!({"mean_ms": 3, "sigma_ms": 0.5});
            forward["outages_s"] = json!([[1, 2.5], [3, 4]]);
        })
        .unwrap();
        let LossModel::GilbertElliott(chain) = read.losses[0].model else {
            panic!("{read:?}")
        };
        assert_eq!(
            (chain.step, chain.shortest, chain.bad.to_bits()),
            (Some(1_000_000), 10_000_000, 1f64.to_bits())
        );
        let (period, duration, first) = (1_000_000_000, 20_000_000, 0);
        assert_eq!(
            read.losses[1].model,
            LossModel::Bursts {
                period,
                duration,
                first
            }
        );
        assert_eq!(read.losses[2], Loss::random(0.01, LossUnit::Packet));
        let windows = [1_000_000_000..2_500_000_000, 3_000_000_000..4_000_000_000];
        assert_eq!(read.losses[3].model, LossModel::Numbers([2, 7].into()));
        assert_eq!(read.losses[4].model, LossModel::Windows(windows.into()));
        let (mean, sigma) = (3_000_000, 500_000);
        assert_eq!(read.jitter, Jitter::Normal { mean, sigma });
        let uniform = direction(|forward| forward["jitter"] = json!({"uniform_ms": 2})).unwrap();
        assert_eq!(uniform.jitter, Jitter::Uniform { most: 2_000_000 });
    }

    #[test]
    fn every_fault_has_its_place() {
        let faults = direction(|forward| {
            forward["queue"] = json!({"bdp": 1, "aqm": "red", "target_ms": -1, "ecn": 1});
            forward["loss"] = json!([
                {"model": "gilbert-elliott", "p": 2, "unit": "frame", "q": 1},
                {"model": "bursts", "period_ms": 10, "duration_ms": 20, "unit": "packet"},
                {"model": "trace", "file": "/nonexistent", "unit": "packet"},
                {"model": "gilbert-elliott", "p": 0.1, "r": 0.1, "min_burst_ms": 5, "unit": "packet"},
                7,
                {"model": "list", "numbers": [0], "unit": "packet"},
            ]);
            forward["jitter"] = json!({"mean_ms": 1});
            forward["outages_s"] = json!([[2, 1]]);
        })
        .unwrap_err();
        for expected in [
            "forward.queue.aqm: \"red\" is not allowed (one of: codel, fq-codel, pie, dualpi2)",
            "forward.queue.target_ms: -1 is not allowed",
            "forward.queue.ecn: 1 is not allowed (true or false)",
            "forward.loss[0].p: 2 is not allowed",
            "forward.loss[0].r: is missing",
            "forward.loss[0].q: is unknown",
            "forward.loss[3].min_burst_ms: a chain without time has no bursts of a length (add \"step_ms\")",
            "forward.loss[1]: a burst of duration_ms does not fit",
            "forward.loss[2].file: /nonexistent: cannot be read",
            "forward.loss[4]: is not an object",
            "forward.loss[5].numbers[0]: 0 is not allowed",
            "forward.jitter.sigma_ms: is missing",
            "forward.outages_s: [[2,1]] is not allowed (pairs",
        ] {
            assert!(faults.contains(expected), "{expected} not in\n{faults}");
        }
        let ecn = direction(|forward| forward["queue"] = json!({"bdp": 1, "ecn": true}));
        assert!(ecn.unwrap_err().contains("a drop-tail queue does not mark"));
    }
}
