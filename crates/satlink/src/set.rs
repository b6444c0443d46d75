// SPDX-License-Identifier: GPL-3.0-or-later
//! What a request or a step of the time line sets: read with every fault at once, then turned into orders.

use dvb::modcod::ModCod;
use link::{Carrier, Change, Handover, Jitter, Loss, Nanos, Waiting};
use serde_json::{Map, Value};

use crate::config::{Faults, Object};
use crate::direction::{self, Queue};
use crate::order::{Order, Origin};
use crate::plan::{self, DIRECTIONS};

/// Longest delay of a direction, ms.
const LONGEST_DELAY_MS: f64 = 10_000.0;
/// Longest outage, s.
const LONGEST_OUTAGE_S: f64 = 1e9;
/// Most attenuation, dB: no link is left.
const MOST_ATTENUATION_DB: f64 = 100.0;
/// Highest symbol rate.
const MOST_BAUD: u64 = 10_000_000_000;
/// The satellite link's directions, by the name for both.
const BOTH: &str = "both";
/// What can change; of a wire the first ones alone.
const CHANGES: [&str; 9] = [
    "delay_ms",
    "loss",
    "jitter",
    "outage",
    "queue",
    "attenuation_db",
    "modcod",
    "symbol_rate_baud",
    "handover",
];
const CHANGES_OF_WIRES: usize = 4;

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
    Attenuation(f64),
    /// `None`: adaptive coding chooses.
    Modcod(Option<ModCod>),
    SymbolRate(u64),
    Handover(Takeover),
}

/// The link that takes over; what is not said is as in the profile and the configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Takeover {
    delay_ns: Option<Nanos>,
    symbol_rate: Option<u64>,
    queue: Option<Queue>,
    waiting: Waiting,
}

/// What is known of a direction when orders are made.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its carrier.
    pub carrier: Carrier,
    /// Round trip of the propagation, ns: queues may be given in its multiples.
    pub rtt_ns: u64,
    /// One-way delay of this direction, which `rtt_ns` holds twice.
    pub delay_ns: Nanos,
    /// Its queue; `None` for a wire.
    pub queue: Option<Queue>,
    /// Outages of the configuration, which stay when losses change.
    pub outages: Option<Loss>,
    /// Its slots come with plans, which meet what happens to the forward link.
    pub has_plans: bool,
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
    let refused = refused(&object, &directions);
    if !refused.is_empty() {
        let faults_of = |(name, reason): &(&str, &str)| format!("{}: {reason}", object.place(name));
        faults.extend(refused.iter().map(faults_of));
        for (name, _) in refused {
            object.forget(&[name]);
        }
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

/// Changes that the directions do not know, and why.
fn refused(object: &Object, directions: &[usize]) -> Vec<(&'static str, &'static str)> {
    let is_wire = directions[0] > 1;
    let mut refused = Vec::new();
    for name in CHANGES.into_iter().filter(|name| object.has(name)) {
        if is_wire && CHANGES[CHANGES_OF_WIRES..].contains(&name) {
            refused.push((name, "a wire has none (leave it out)"));
        } else if name == "modcod" && directions != [0] {
            refused.push((
                name,
                "only the forward link has MODCODs (direction forward)",
            ));
        }
    }
    refused
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
        "attenuation_db" => {
            What::Attenuation(object.number(name, 0.0, MOST_ATTENUATION_DB, faults)?)
        }
        "modcod" => modcod(object, faults)?,
        "symbol_rate_baud" => What::SymbolRate(symbol_rate(object, faults)?),
        "handover" => What::Handover(takeover(object, faults)?),
        _ => {
            let inner = object.object(name, faults)?;
            What::Queue(direction::queue(inner, faults)?)
        }
    })
}

fn symbol_rate(object: &mut Object, faults: &mut Faults) -> Option<u64> {
    object.integer("symbol_rate_baud", 1, MOST_BAUD, faults)
}

/// An id, or the word that lets adaptive coding choose.
fn modcod(object: &mut Object, faults: &mut Faults) -> Option<What> {
    let remedy = "an id, 1 to 28, or \"acm\"";
    object.take("modcod", remedy, faults, |value| {
        if value.as_str() == Some("acm") {
            return Some(What::Modcod(None));
        }
        let modcod = ModCod::by_id(u8::try_from(value.as_u64()?).ok()?)?;
        Some(What::Modcod(Some(modcod)))
    })
}

fn takeover(object: &mut Object, faults: &mut Faults) -> Option<Takeover> {
    let mut inner = object.object("handover", faults)?;
    let waiting = inner.word("waiting", &["keep", "flush", "drop"], faults);
    let delay_ms = inner
        .has("delay_ms")
        .then(|| inner.number("delay_ms", 0.0, LONGEST_DELAY_MS, faults));
    let rate = inner
        .has("symbol_rate_baud")
        .then(|| symbol_rate(&mut inner, faults));
    let queue = inner.has("queue").then(|| {
        let queue = inner.object("queue", faults)?;
        direction::queue(queue, faults)
    });
    inner.finish(faults);
    let waiting = match waiting? {
        "keep" => Waiting::Keep,
        "flush" => Waiting::Flush,
        _ => Waiting::Drop,
    };
    Some(Takeover {
        delay_ns: delay_ms.flatten().map(|ms| (ms * 1e6).round() as Nanos),
        symbol_rate: rate.flatten(),
        queue: queue.flatten(),
        waiting,
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
                lasts,
                asked: asked.field.clone(),
                ..Order::new(at, change, origin)
            };
            (index, order)
        };
        let plans = targets.iter().position(|target| target.has_plans);
        self.directions
            .iter()
            .flat_map(move |&index| self.changes.iter().map(move |asked| made(index, asked)))
            .flat_map(move |(index, order)| {
                let plans = plans.filter(|_| index == 0);
                let mirrored = plans.map(|plans| (plans, order.for_plans()));
                [(index, order)].into_iter().chain(mirrored)
            })
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
            Self::Attenuation(db) => (Change::Attenuation(*db), None),
            Self::Modcod(modcod) => (Change::Modcod(*modcod), None),
            Self::SymbolRate(rate) => (Change::SymbolRate(*rate), None),
            Self::Handover(takeover) => (Change::Handover(takeover.handover(target)), None),
        }
    }
}

impl Takeover {
    fn handover(&self, target: &Target) -> Handover {
        let own = target.carrier;
        let carrier = self
            .symbol_rate
            .map_or(own, |rate| own.with_symbol_rate(rate));
        let delay = self.delay_ns.unwrap_or(target.delay_ns);
        let rtt_ns = target.rtt_ns - 2 * target.delay_ns + 2 * delay;
        let bdp = plan::bdp_bytes(&carrier, rtt_ns);
        let queue = self.queue.or(target.queue);
        Handover {
            carrier,
            delay,
            queue: queue.map_or(link::Queue::drop_tail(0), |it| plan::queue(it, bdp)),
            waiting: self.waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{parse, tests::example};
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
            delay_ns: 0,
            queue: None,
            outages: outages.clone(),
            has_plans: false,
        })
    }

    #[test]
    fn plans_meet_what_happens_to_the_forward_link() {
        let mut targets = targets();
        targets[1].has_plans = true;
        let set = set(json!({"direction": "both", "outage": 2})).unwrap();
        let orders: Vec<_> = set.orders(&targets, 5, Origin::Control).collect();
        let down = Change::Outage(true);
        let changes: Vec<_> = orders
            .iter()
            .map(|(index, it)| (*index, it.change.clone()))
            .collect();
        let plans = Change::Plans(Box::new(down.clone()));
        assert_eq!(changes, [(0, down.clone()), (1, plans), (1, down)]);
        // It ends with the outage, and nobody is told of it twice.
        let (_, mirrored) = &orders[1];
        assert!(mirrored.asked.is_empty());
        let end = mirrored.next(5).unwrap();
        let up = Change::Plans(Box::new(Change::Outage(false)));
        assert_eq!(
            (end.at, end.change, end.asked.len()),
            (2_000_000_005, up, 0)
        );
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
        assert!(wire.contains("set.queue: a wire has none"), "{wire}");
    }

    #[test]
    fn the_radio_link_changes_by_what_it_is_made_of() {
        let set = set(
            json!({"direction": "forward", "attenuation_db": 6.5, "modcod": 4, "symbol_rate_baud": 1000}),
        );
        let expected = [
            Change::Attenuation(6.5),
            Change::Modcod(ModCod::by_id(4)),
            Change::SymbolRate(1000),
        ];
        let expected = expected.map(|change| (0, change, None));
        assert_eq!(changes(&set.unwrap()), expected);
        let acm = self::set(json!({"direction": "forward", "modcod": "acm"})).unwrap();
        assert_eq!(changes(&acm), [(0, Change::Modcod(None), None)]);
    }

    #[test]
    fn a_handover_takes_what_is_not_said_from_the_profile() {
        let value = example("geo");
        let config = parse(&value.to_string()).unwrap();
        let profile = profile::load(&config.profile).unwrap();
        let targets = plan::targets(&config, &profile);
        let asked = json!({"direction": "forward", "handover": {"waiting": "flush", "delay_ms": 16, "symbol_rate_baud": 20_000_000}});
        let set = set(asked).unwrap();
        let orders: Vec<_> = set.orders(&targets, 0, Origin::Control).collect();
        let [(0, order)] = &orders[..] else {
            panic!("{orders:?}")
        };
        let Change::Handover(handover) = order.change else {
            panic!("{order:?}")
        };
        assert_eq!(
            handover.carrier,
            targets[0].carrier.with_symbol_rate(20_000_000)
        );
        assert_eq!(
            (handover.delay, handover.waiting),
            (16_000_000, Waiting::Flush)
        );
        // One BDP of 9.8 Mbit/s and 2 (16 + 40) ms.
        assert_eq!(handover.queue.bytes, 137_268);
    }

    #[test]
    fn what_a_direction_has_not_is_refused() {
        let both = json!({"direction": "both", "modcod": 29});
        assert!(
            set(both)
                .unwrap_err()
                .contains("set.modcod: only the forward link")
        );
        let wire = json!({"direction": "terrestrial_up", "attenuation_db": 1, "handover": {"waiting": "keep"}});
        assert_eq!(set(wire).unwrap_err().lines().count(), 2);
        let wrong = json!({"direction": "forward", "modcod": 29, "attenuation_db": -1, "symbol_rate_baud": 0,
            "handover": {"waiting": "hold", "queue": {}, "rate": 1}});
        let faults = set(wrong).unwrap_err();
        for expected in [
            "set.modcod: 29 is not allowed (an id, 1 to 28, or \"acm\")",
            "set.attenuation_db: -1 is not allowed (a number from 0 to 100)",
            "set.symbol_rate_baud: 0 is not allowed",
            "set.handover.waiting: \"hold\" is not allowed (one of: keep, flush, drop)",
            "set.handover.queue: needs exactly one of",
            "set.handover.rate: is unknown",
        ] {
            assert!(faults.contains(expected), "{expected} not in\n{faults}");
        }
    }
}
