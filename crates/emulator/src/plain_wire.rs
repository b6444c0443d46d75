// SPDX-License-Identifier: GPL-3.0-or-later
//! A plain wire in place of the satellite link: rate, delay, queue, losses and impairments of each
//! direction, and their changes. It is what `netem` with `tbf` makes of a router.

use link::{
    Carrier, Change, Handover, Impairment, Impairments, LinkConfig, Loss, LossUnit, Nanos, Reorder,
};
use schema::Faults;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config_checks;
use crate::direction::{IP_PACKET_BYTES, Losses, Queue, QueueFields, ReorderFields, bdp_bytes};
use crate::links::{Links, direction_seed};
use crate::scheduled::{Origin, Scheduled};
use crate::set_request::WaitingName;
use crate::traces::Traces;
use crate::units::{Ratio, ns_of_ms, ns_of_s};

/// Rate, delay, queue, losses and impairments of each direction, without frames, and their changes
/// (schemas/virtual-flows.schema.json).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "wire")]
pub struct Wire {
    forward: Half,
    #[serde(rename = "return")]
    back: Half,
    #[serde(default)]
    #[schemars(length(max = 10_000))]
    timeline: Vec<Step>,
}

/// One direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "half")]
struct Half {
    #[schemars(range(min = 0.001, max = 100_000))]
    rate_mbps: f64,
    /// bytes of each packet that the rate counts beyond IP, and the queue does not: 14 as Linux's
    /// tbf on an Ethernet interface
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 255))]
    header_bytes: u8,
    /// one way
    #[schemars(range(min = 0, max = 10_000))]
    delay_ms: f64,
    #[schemars(with = "QueueFields")]
    queue: Value,
    /// without files
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Losses")]
    loss: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ReorderFields")]
    reorder: Option<Value>,
    /// share of the packets that come twice, the copy directly behind the packet
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Ratio")]
    duplicate: Option<f64>,
    /// share of the UDP datagrams with one flipped bit in their payload, and a checksum that fits
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Ratio")]
    corrupt: Option<f64>,
}

/// Changes of one moment; what is not given stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "step")]
struct Step {
    #[schemars(range(min = 0, max = 10_000))]
    at_s: f64,
    #[schemars(extend("enum" = ["forward", "return", "both"]))]
    direction: String,
    #[schemars(range(min = 0.001, max = 100_000))]
    rate_mbps: Option<f64>,
    /// one way
    #[schemars(range(min = 0, max = 10_000))]
    delay_ms: Option<f64>,
    #[schemars(with = "Option<QueueFields>")]
    queue: Option<Value>,
    /// without files
    #[schemars(with = "Option<Losses>")]
    loss: Option<Value>,
    #[schemars(with = "Option<ReorderFields>")]
    reorder: Option<Value>,
    /// share of the packets that come twice, the copy directly behind the packet
    #[schemars(with = "Option<Ratio>")]
    duplicate: Option<f64>,
    /// share of the UDP datagrams with one flipped bit in their payload, and a checksum that fits
    #[schemars(with = "Option<Ratio>")]
    corrupt: Option<f64>,
    /// nothing gets through for so long
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 10_000))]
    outage_s: Option<f64>,
    /// a handover: what becomes of waiting packets; left out: they stay in the same queue
    waiting: Option<WaitingName>,
}

/// The rules of a wire, `wire` of a file.
pub fn check(wire: &Value, faults: &mut Faults) {
    let steps = wire["timeline"].as_array().into_iter().flatten();
    let steps = steps.enumerate();
    let parts = ["forward", "return"].map(|name| (format!("wire.{name}"), &wire[name]));
    let steps = steps.map(|(index, step)| (format!("wire.timeline[{index}]"), step));
    for (place, part) in parts.into_iter().chain(steps) {
        config_checks::queue(&format!("{place}.queue"), &part["queue"], faults);
        config_checks::losses(&format!("{place}.loss"), &part["loss"], None, faults);
    }
}

impl Half {
    fn carrier(&self) -> Carrier {
        Carrier::Line {
            rate_bps: (self.rate_mbps * 1e6).round() as u64,
            header_bytes: self.header_bytes,
        }
    }

    fn losses(&self) -> serde_json::Result<Vec<Loss>> {
        let no_files = |_: &str| Err::<String, _>("a wire has no files".to_owned());
        match &self.loss {
            None => Ok(vec![Loss::random(0.0, LossUnit::Packet)]),
            Some(value) => Losses::deserialize(value)?.read(&Traces::new(&no_files)),
        }
    }

    fn queue(&self, rtt_ns: Nanos) -> serde_json::Result<link::Queue> {
        let queue = Queue::deserialize(&self.queue)?;
        Ok(queue.of_link(bdp_bytes(&self.carrier(), rtt_ns)))
    }

    fn link(&self, rtt_ns: Nanos, seed: u64) -> serde_json::Result<LinkConfig> {
        let queue = self.queue(rtt_ns)?;
        let impairments = Impairments {
            reorder: self.reorder.as_ref().map(reorder).transpose()?.flatten(),
            duplicate: self.duplicate.unwrap_or(0.0),
            corrupt: self.corrupt.unwrap_or(0.0),
        };
        Ok(LinkConfig {
            losses: self.losses()?,
            impairments,
            ..LinkConfig::new(self.carrier(), ns_of_ms(self.delay_ms), queue, seed)
        })
    }

    /// This direction after a step.
    fn after(&self, step: &Step) -> Self {
        Self {
            rate_mbps: step.rate_mbps.unwrap_or(self.rate_mbps),
            header_bytes: self.header_bytes,
            delay_ms: step.delay_ms.unwrap_or(self.delay_ms),
            queue: step.queue.clone().unwrap_or_else(|| self.queue.clone()),
            loss: step.loss.clone().or_else(|| self.loss.clone()),
            reorder: step.reorder.clone().or_else(|| self.reorder.clone()),
            duplicate: step.duplicate.or(self.duplicate),
            corrupt: step.corrupt.or(self.corrupt),
        }
    }
}

/// Takes checked fields; `None`: packets keep their order.
fn reorder(fields: &Value) -> serde_json::Result<Option<Reorder>> {
    ReorderFields::deserialize(fields).map(Into::into)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &u8) -> bool {
    *value == 0
}

impl Wire {
    fn rtt_ns(halves: [&Half; 2]) -> Nanos {
        halves.iter().map(|half| ns_of_ms(half.delay_ms)).sum()
    }

    /// Most bytes that can be on the way or in a queue of one direction: of the highest rate, the
    /// longest delays and the largest queue that come up.
    ///
    /// # Errors
    /// A queue that the schema does not allow.
    pub fn most_in_flight(&self) -> serde_json::Result<u64> {
        let mut most = 0;
        let halves = [&self.forward, &self.back];
        let delays = |half: &Half| {
            let steps = self.timeline.iter().filter_map(|step| step.delay_ms);
            steps.fold(half.delay_ms, f64::max)
        };
        let rtt_ns: Nanos = halves.iter().map(|half| ns_of_ms(delays(half))).sum();
        for half in halves {
            let states = self.timeline.iter().map(|step| half.after(step));
            for state in states.chain([half.clone()]) {
                let queue = state.queue(rtt_ns)?;
                let full_size = IP_PACKET_BYTES as u64;
                let waiting = queue.bytes.min(queue.packets.saturating_mul(full_size));
                most = most.max(waiting.saturating_add(bdp_bytes(&state.carrier(), rtt_ns)));
            }
        }
        Ok(most)
    }

    /// The four directions, in the order of [`crate::directions::DIRECTIONS`].
    ///
    /// # Errors
    /// A queue that the schema does not allow.
    pub fn links(&self, seed: u64) -> serde_json::Result<Links> {
        let rtt_ns = Self::rtt_ns([&self.forward, &self.back]);
        let seed = |direction| direction_seed(seed, direction);
        let none = |seed| LinkConfig::new(Carrier::Wire, 0, link::Queue::drop_tail(0), seed);
        Ok([
            self.forward.link(rtt_ns, seed(0))?,
            self.back.link(rtt_ns, seed(1))?,
            none(seed(2)),
            none(seed(3)),
        ])
    }

    /// Its changes, with the direction of each.
    ///
    /// # Errors
    /// A queue that the schema does not allow.
    pub fn scheduled(&self) -> serde_json::Result<Vec<(usize, Scheduled)>> {
        let mut steps: Vec<_> = self.timeline.iter().collect();
        steps.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        let mut halves = [self.forward.clone(), self.back.clone()];
        let mut all = Vec::new();
        for step in steps {
            let is_meant = |name: &str| step.direction == name || step.direction == "both";
            let meant = [is_meant("forward"), is_meant("return")];
            for (half, _) in halves.iter_mut().zip(meant).filter(|it| it.1) {
                *half = half.after(step);
            }
            let rtt_ns = Self::rtt_ns([&halves[0], &halves[1]]);
            for (index, half) in halves.iter().enumerate().filter(|it| meant[it.0]) {
                all.extend(
                    step.changes(half, rtt_ns)?
                        .into_iter()
                        .map(|it| (index, it)),
                );
            }
        }
        Ok(all)
    }
}

impl Step {
    /// The changes that make a direction `half`.
    fn changes(&self, half: &Half, rtt_ns: Nanos) -> serde_json::Result<Vec<Scheduled>> {
        let (carrier, delay) = (half.carrier(), ns_of_ms(half.delay_ms));
        let mut changes = Vec::new();
        if let Some(waiting) = self.waiting {
            changes.push(Change::Handover(Handover {
                carrier,
                delay,
                queue: half.queue(rtt_ns)?,
                waiting: waiting.into(),
            }));
        } else {
            changes.extend(self.rate_mbps.map(|_| Change::Carrier(carrier)));
            changes.extend(self.delay_ms.map(|_| Change::Delay(delay)));
            if self.queue.is_some() {
                changes.push(Change::Queue(half.queue(rtt_ns)?));
            }
        }
        if self.loss.is_some() {
            changes.push(Change::Losses(half.losses()?));
        }
        let impairments = [
            (self.reorder.as_ref().map(reorder).transpose()?).map(Impairment::Reorder),
            self.duplicate.map(Impairment::Duplicate),
            self.corrupt.map(Impairment::Corrupt),
        ];
        changes.extend(impairments.into_iter().flatten().map(Change::Impairment));
        let at = ns_of_s(self.at_s);
        let made = |change| Scheduled::new(at, change, Origin::Timeline);
        let outage = self.outage_s.map(|length| Scheduled {
            lasts: Some(ns_of_s(length)),
            ..made(Change::Outage(true))
        });
        Ok(changes.into_iter().map(made).chain(outage).collect())
    }
}

#[cfg(test)]
mod tests {
    use link::Waiting;
    use serde_json::json;

    use super::*;

    fn wire(timeline: &Value) -> Wire {
        let half = json!({"rate_mbps": 10, "delay_ms": 30, "queue": {"bdp": 1}});
        let whole = json!({"forward": half, "return": half, "timeline": timeline});
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_queue_in_bdp_counts_both_ways() {
        let [forward, back, down, up] = wire(&json!([])).links(1).unwrap();
        assert_eq!((forward.queue.bytes, back.queue.bytes), (75_000, 75_000));
        assert_eq!(forward.delay, 30_000_000);
        assert_eq!([down.carrier, up.carrier], [Carrier::Wire; 2]);
    }

    #[test]
    fn what_can_be_on_the_way_counts_every_change() {
        assert_eq!(wire(&json!([])).most_in_flight().unwrap(), 150_000);
        let steps = json!([
            {"at_s": 1, "direction": "both", "delay_ms": 60},
            {"at_s": 2, "direction": "forward", "rate_mbps": 50, "queue": {"packets": 100}},
        ]);
        assert_eq!(wire(&steps).most_in_flight().unwrap(), 750_000 + 150_000);
    }

    #[test]
    fn steps_change_what_they_name() {
        let steps = json!([
            {"at_s": 90, "direction": "both", "delay_ms": 60, "outage_s": 0.5},
            {"at_s": 10, "direction": "forward", "rate_mbps": 50},
        ]);
        let changes = wire(&steps).scheduled().unwrap();
        let whats: Vec<_> = changes
            .iter()
            .map(|(index, it)| (*index, it.at / 1_000_000_000, it.change.clone()))
            .collect();
        let carrier = Carrier::line(50_000_000);
        let expected = [
            (0, 10, Change::Carrier(carrier)),
            (0, 90, Change::Delay(60_000_000)),
            (0, 90, Change::Outage(true)),
            (1, 90, Change::Delay(60_000_000)),
            (1, 90, Change::Outage(true)),
        ];
        assert_eq!(whats, expected);
    }

    #[test]
    fn impairments_are_there_at_first_and_change() {
        let order = json!({"ratio": 0.1, "packets": 2, "ms": 50});
        let half = json!({"rate_mbps": 10.0, "delay_ms": 30.0, "queue": {"bdp": 1},
                          "reorder": order, "duplicate": 0.2, "corrupt": 0.3});
        let none = json!({"ratio": 0, "ms": 1});
        let steps = json!([
            {"at_s": 1, "direction": "forward", "reorder": none, "corrupt": 0.0},
            {"at_s": 2, "direction": "forward", "rate_mbps": 20},
        ]);
        let whole = json!({"forward": half, "return": half, "timeline": steps});
        let wire: Wire = serde_json::from_value(whole).unwrap();
        assert_eq!(serde_json::to_value(&wire).unwrap()["forward"], half);
        let [forward, ..] = wire.links(1).unwrap();
        let reorder = Reorder {
            ratio: 0.1,
            packets: Some(2),
            hold: 50_000_000,
        };
        let expected = Impairments {
            reorder: Some(reorder),
            duplicate: 0.2,
            corrupt: 0.3,
        };
        assert_eq!(forward.impairments, expected);
        let changes = wire.scheduled().unwrap();
        let changes: Vec<_> = changes.iter().map(|it| it.1.change.clone()).collect();
        let expected = [
            Change::Impairment(Impairment::Reorder(None)),
            Change::Impairment(Impairment::Corrupt(0.0)),
            Change::Carrier(Carrier::line(20_000_000)),
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn steps_keep_the_header_of_packets() {
        let half =
            json!({"rate_mbps": 10, "header_bytes": 14, "delay_ms": 30, "queue": {"bdp": 1}});
        let steps = json!([{"at_s": 1, "direction": "forward", "rate_mbps": 50}]);
        let whole = json!({"forward": half, "return": half, "timeline": steps});
        let wire: Wire = serde_json::from_value(whole).unwrap();
        let line = |rate_bps| Carrier::Line {
            rate_bps,
            header_bytes: 14,
        };
        assert_eq!(wire.links(1).unwrap()[1].carrier, line(10_000_000));
        let changes = wire.scheduled().unwrap();
        assert_eq!(changes[0].1.change, Change::Carrier(line(50_000_000)));
    }

    #[test]
    fn a_handover_takes_the_new_product_for_its_queue() {
        let steps = json!([{"at_s": 1, "direction": "both", "delay_ms": 60, "waiting": "drop"}]);
        let changes = wire(&steps).scheduled().unwrap();
        let Change::Handover(handover) = &changes[0].1.change else {
            panic!("{changes:?}")
        };
        assert_eq!(handover.queue.bytes, 150_000);
        assert_eq!(handover.waiting, Waiting::Drop);
    }
}
