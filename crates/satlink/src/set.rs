// SPDX-License-Identifier: GPL-3.0-or-later
//! What a request or a step of the time line sets: read with every fault at once, then turned into orders.

use link::{Carrier, Change, Jitter, Loss, Nanos};
use serde_json::{Map, Value};

use crate::config::{Faults, Object};
use crate::direction::{self, Queue};
use crate::order::{Order, Origin};
use crate::plan::{self, DIRECTIONS};

/// Longest delay of a direction, ms.
const LONGEST_DELAY_MS: f64 = 10_000.0;
/// Longest outage, s.
const LONGEST_OUTAGE_S: f64 = 1e9;
/// The satellite link's directions, by the name for both.
const BOTH: &str = "both";
const CHANGES: [&str; 5] = ["delay_ms", "loss", "jitter", "outage", "queue"];

/// Changes of one or two directions, all at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// Indexes into [`DIRECTIONS`].
    directions: Vec<usize>,
    changes: Vec<Asked>,
}

#[derive(Debug, Clone, PartialEq)]
struct Asked {
    what: What,
    /// The field as it was given.
    field: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    Delay(Nanos),
    Losses(Vec<Loss>),
    Jitter(Jitter),
    Outage(bool, Option<Nanos>),
    Queue(Queue),
}

/// What is known of a direction when orders are made.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its carrier.
    pub carrier: Carrier,
    /// Round trip of the propagation, ns: queues may be given in its multiples.
    pub rtt_ns: u64,
    /// Outages of the configuration, which stay when losses change.
    pub outages: Option<Loss>,
}

/// Reads a set; without satellite segment its directions are refused.
pub(crate) fn read(mut object: Object, has_satellite: bool, faults: &mut Faults) -> Option<Set> {
    let [forward, back, down, up] = DIRECTIONS;
    let words = [forward, back, BOTH, down, up];
    let word = object.word("direction", &words, faults);
    let directions = match DIRECTIONS.iter().position(|name| Some(*name) == word) {
        Some(index) => vec![index],
        None => vec![0, 1],
    };
    let is_radio = directions[0] < 2;
    if word.is_some() && is_radio && !has_satellite {
        faults.push(format!(
            "{}: another emulator carries it (terrestrial_down or terrestrial_up)",
            object.place("direction")
        ));
    }
    if !is_radio && object.has("queue") {
        faults.push(format!(
            "{}: a wire has no queue (leave it out)",
            object.place("queue")
        ));
        object.forget(&["queue"]);
    } else if !CHANGES.iter().any(|name| object.has(name)) {
        faults.push(format!(
            "{}: changes nothing (give one of: {})",
            object.path,
            CHANGES.join(", ")
        ));
    }
    let changes = CHANGES
        .iter()
        .filter(|name| object.has(name))
        .map(|name| (*name, object.copy(name)))
        .collect::<Vec<_>>();
    let changes = changes
        .into_iter()
        .filter_map(|(name, field)| {
            let what = change(&mut object, name, faults)?;
            Some(Asked { what, field })
        })
        .collect();
    object.finish(faults);
    word.map(|_| Set {
        directions,
        changes,
    })
}

fn change(object: &mut Object, name: &str, faults: &mut Faults) -> Option<What> {
    Some(match name {
        "delay_ms" => {
            let ms = object.number(name, 0.0, LONGEST_DELAY_MS, faults)?;
            What::Delay((ms * 1e6).round() as Nanos)
        }
        "loss" => What::Losses(direction::losses(object, faults)?),
        "jitter" => {
            let inner = object.object(name, faults)?;
            What::Jitter(direction::jitter(inner, faults)?)
        }
        "outage" => outage(object, faults)?,
        _ => {
            let inner = object.object(name, faults)?;
            What::Queue(direction::queue(inner, faults)?)
        }
    })
}

/// True, false, or a time after which it ends.
fn outage(object: &mut Object, faults: &mut Faults) -> Option<What> {
    let remedy = "true, false, or seconds above 0 to 1e9";
    object.take("outage", remedy, faults, |value| match value {
        Value::Bool(is_down) => Some(What::Outage(*is_down, None)),
        _ => value
            .as_f64()
            .filter(|s| *s > 0.0 && *s <= LONGEST_OUTAGE_S)
            .map(|s| What::Outage(true, Some((s * 1e9).round() as Nanos))),
    })
}

impl Set {
    /// Orders for `at`, with the direction of each.
    pub fn orders(
        &self,
        targets: &[Target; 4],
        at: Nanos,
        origin: Origin,
    ) -> impl Iterator<Item = (usize, Order)> {
        let made = move |index: usize, asked: &Asked| {
            let (change, lasts) = asked.what.change(&targets[index]);
            let order = Order {
                at,
                change,
                lasts,
                is_end: false,
                origin,
                asked: asked.field.clone(),
            };
            (index, order)
        };
        self.directions
            .iter()
            .flat_map(move |&index| self.changes.iter().map(move |asked| made(index, asked)))
    }
}

impl What {
    fn change(&self, target: &Target) -> (Change, Option<Nanos>) {
        match self {
            Self::Delay(delay) => (Change::Delay(*delay), None),
            Self::Losses(losses) => {
                let all = losses.iter().chain(&target.outages).cloned().collect();
                (Change::Losses(all), None)
            }
            Self::Jitter(jitter) => (Change::Jitter(*jitter), None),
            Self::Outage(is_down, lasts) => (Change::Outage(*is_down), *lasts),
            Self::Queue(queue) => {
                let bdp = plan::bdp_bytes(&target.carrier, target.rtt_ns);
                (Change::Queue(plan::queue(*queue, bdp)), None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::LossUnit;
    use serde_json::json;

    fn set(value: Value) -> Result<Set, String> {
        let mut faults = Vec::new();
        let set = Object::new(value, "set".into(), &mut faults)
            .and_then(|object| read(object, true, &mut faults));
        match set {
            Some(set) if faults.is_empty() => Ok(set),
            _ => Err(faults.join("\n")),
        }
    }

    fn targets() -> [Target; 4] {
        let outages = Some(Loss::random(0.5, LossUnit::Frame));
        [(); 4].map(|()| Target {
            carrier: Carrier::Wire,
            rtt_ns: 1,
            outages: outages.clone(),
        })
    }

    fn changes(set: &Set) -> Vec<(usize, Change, Option<Nanos>)> {
        set.orders(&targets(), 5, Origin::Control)
            .map(|(index, order)| (index, order.change, order.lasts))
            .collect()
    }

    #[test]
    fn both_directions_get_every_change() {
        let set = set(json!({"direction": "both", "delay_ms": 0.5, "outage": 2})).unwrap();
        let delay = Change::Delay(500_000);
        let outage = (Change::Outage(true), Some(2_000_000_000));
        let expected = [0, 1].map(|index| {
            [
                (index, delay.clone(), None),
                (index, outage.0.clone(), outage.1),
            ]
        });
        assert_eq!(changes(&set), expected.concat());
    }

    #[test]
    fn configured_outages_outlive_new_losses() {
        let loss = json!({"ratio": 0.1, "unit": "packet"});
        let set = set(json!({"direction": "terrestrial_up", "loss": loss})).unwrap();
        let losses = vec![
            Loss::random(0.1, LossUnit::Packet),
            Loss::random(0.5, LossUnit::Frame),
        ];
        assert_eq!(changes(&set), [(3, Change::Losses(losses), None)]);
    }

    #[test]
    fn every_fault_has_its_place() {
        let faults = set(
            json!({"direction": "up", "delay_ms": -1, "loss": {"ratio": 2, "unit": "packet"},
            "jitter": {"uniform_ms": "x"}, "outage": 0, "queue": {}, "colour": 1}),
        )
        .unwrap_err();
        for expected in [
            "set.direction: \"up\" is not allowed (one of: forward, return, both, terrestrial_down, terrestrial_up)",
            "set.delay_ms: -1 is not allowed",
            "set.loss.ratio: 2 is not allowed",
            "set.jitter.uniform_ms: \"x\" is not allowed",
            "set.outage: 0 is not allowed (true, false, or seconds",
            "set.queue: needs exactly one of",
            "set.colour: is unknown",
        ] {
            assert!(faults.contains(expected), "{expected} not in\n{faults}");
        }
        assert_eq!(faults.lines().count(), 7, "{faults}");
        let nothing = set(json!({"direction": "both"})).unwrap_err();
        assert!(nothing.contains("set: changes nothing"), "{nothing}");
        let wire = set(json!({"direction": "terrestrial_up", "queue": {"bdp": 1}})).unwrap_err();
        assert!(wire.contains("set.queue: a wire has no queue"), "{wire}");
    }
}
