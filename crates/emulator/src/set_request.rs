// SPDX-License-Identifier: GPL-3.0-or-later
//! What a request or a step of the timeline sets, and the changes of the links that follow.

use dvb::modcod::ModCod;
use link::{Carrier, Change, Handover, Jitter, Loss, Nanos, Waiting};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::direction::{JitterFields, Queue, bdp_bytes, losses};
use crate::directions::DIRECTIONS;
use crate::scheduled::{Origin, Scheduled};
use crate::traces::Traces;
use crate::units::{ns_of_ms, ns_of_s};

/// What can change; of a wire the first ones alone.
pub(crate) const CHANGES: [&str; 10] = [
    "delay_ms",
    "loss",
    "jitter",
    "outage",
    "queue",
    "attenuation_db",
    "modcod",
    "symbol_rate_baud",
    "handover",
    "gateway",
];
pub(crate) const CHANGES_OF_WIRES: usize = 4;

/// Changes of one or two directions, all at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct SetRequest {
    /// Indexes into [`DIRECTIONS`].
    directions: Vec<usize>,
    /// Index of the terminal; `None`: all.
    pub(crate) terminal: Option<usize>,
    pub(crate) gateway: Option<Gateway>,
    changes: Vec<Requested>,
}

/// The gateway that a terminal belongs to from then on, with the carriers of its group there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gateway {
    /// Its id in the profile.
    pub id: u8,
    /// What happens to packets that wait.
    pub waiting: Waiting,
    /// The field as it was given.
    pub field: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GatewayFields {
    id: u8,
    #[serde(with = "WaitingName")]
    waiting: Waiting,
}

#[derive(Debug, Clone, PartialEq)]
struct Requested {
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
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Takeover {
    delay_ms: Option<f64>,
    symbol_rate_baud: Option<u64>,
    /// Of a plain line in place of the carrier.
    rate_mbps: Option<f64>,
    #[serde(default)]
    header_bytes: u8,
    queue: Option<Queue>,
    #[serde(with = "WaitingName")]
    waiting: Waiting,
}

#[derive(Deserialize)]
#[serde(remote = "Waiting", rename_all = "lowercase")]
enum WaitingName {
    Keep,
    Flush,
    Drop,
}

/// What is known of a direction when changes are made.
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

impl SetRequest {
    /// Takes a checked set.
    pub(crate) fn read(value: &Value, traces: &Traces<'_>) -> serde_json::Result<Self> {
        let direction = DIRECTIONS
            .iter()
            .position(|name| value["direction"] == *name);
        let given = CHANGES
            .into_iter()
            .filter(|name| *name != "gateway")
            .filter_map(|name| Some((name, value.get(name)?)));
        let gateway = value.get("gateway").map(|field| {
            let GatewayFields { id, waiting } = GatewayFields::deserialize(field)?;
            let field = Map::from_iter([("gateway".to_owned(), field.clone())]);
            Ok(Gateway { id, waiting, field })
        });
        let changes = given.map(|(name, field)| {
            Ok(Requested {
                what: What::read(name, field, traces)?,
                field: Map::from_iter([(name.to_owned(), field.clone())]),
            })
        });
        let terminal = value.get("terminal").map(usize::deserialize).transpose()?;
        Ok(Self {
            terminal: terminal.map(|number| number.saturating_sub(1)),
            directions: direction.map_or_else(|| vec![0, 1], |index| vec![index]),
            gateway: gateway.transpose()?,
            changes: changes.collect::<serde_json::Result<_>>()?,
        })
    }

    /// Its changes at `at`, with the direction of each; a change of gateway is among those of
    /// [`crate::gateway_changes::GatewayChanges`].
    pub fn scheduled(
        &self,
        targets: &[Target; 4],
        at: Nanos,
        origin: Origin,
    ) -> impl Iterator<Item = (usize, Scheduled)> {
        let made = move |index: usize, requested: &Requested| {
            let (change, lasts) = requested.what.change(&targets[index]);
            let scheduled = Scheduled {
                lasts,
                terminal: self.terminal,
                requested: requested.field.clone(),
                ..Scheduled::new(at, change, origin)
            };
            (index, scheduled)
        };
        let plans = targets.iter().position(|target| target.has_plans);
        self.directions
            .iter()
            .flat_map(move |&index| {
                self.changes
                    .iter()
                    .map(move |requested| made(index, requested))
            })
            .flat_map(move |(index, change)| {
                let plans = plans.filter(|_| index == 0);
                let mirrored = plans.map(|plans| (plans, change.for_plans()));
                [(index, change)].into_iter().chain(mirrored)
            })
    }
}

impl What {
    fn read(name: &str, value: &Value, traces: &Traces<'_>) -> serde_json::Result<Self> {
        Ok(match name {
            "delay_ms" => Self::Delay(ns_of_ms(f64::deserialize(value)?)),
            "loss" => Self::Losses(losses(value, traces)?),
            "jitter" => Self::Jitter(JitterFields::deserialize(value)?.into()),
            "outage" => match value {
                Value::Bool(is_down) => Self::Outage(*is_down, None),
                _ => Self::Outage(true, Some(ns_of_s(f64::deserialize(value)?))),
            },
            "queue" => Self::Queue(Queue::deserialize(value)?),
            "attenuation_db" => Self::Attenuation(f64::deserialize(value)?),
            "modcod" if value == "acm" => Self::Modcod(None),
            "modcod" => Self::Modcod(ModCod::by_id(u8::deserialize(value)?)),
            "symbol_rate_baud" => Self::SymbolRate(u64::deserialize(value)?),
            _ => Self::Handover(Takeover::deserialize(value)?),
        })
    }

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
                let bdp = bdp_bytes(&target.carrier, target.rtt_ns);
                (Change::Queue(queue.of_link(bdp)), None)
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
        let same_kind = self
            .symbol_rate_baud
            .map_or(own, |rate| own.with_symbol_rate(rate));
        let carrier = self.rate_mbps.map_or(same_kind, |rate| Carrier::Line {
            rate_bps: (rate * 1e6).round() as u64,
            header_bytes: self.header_bytes,
        });
        let delay = self.delay_ms.map_or(target.delay_ns, ns_of_ms);
        let rtt_ns = target.rtt_ns - 2 * target.delay_ns + 2 * delay;
        let bdp = bdp_bytes(&carrier, rtt_ns);
        let queue = self.queue.or(target.queue);
        Handover {
            carrier,
            delay,
            queue: queue.map_or(link::Queue::drop_tail(0), |it| it.of_link(bdp)),
            waiting: self.waiting,
        }
    }
}

#[cfg(test)]
#[path = "set_request_tests.rs"]
mod tests;
