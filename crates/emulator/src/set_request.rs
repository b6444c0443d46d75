// SPDX-License-Identifier: GPL-3.0-or-later
//! What a request or a step of the timeline sets, and the changes of the links that follow.

use dvb::modcod::ModCod;
use link::{Carrier, Change, Handover, Impairment, Jitter, Loss, Nanos, Waiting};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::direction::{JitterFields, Losses, Queue, QueueFields, ReorderFields, bdp_bytes};
use crate::scheduled::{Origin, Scheduled};
use crate::traces::Traces;
use crate::units::{Baud, DelayMs, Mbps, Ratio, ns_of_s};

/// Fields that can change. A wire has only the first `CHANGES_OF_WIRES`.
pub(crate) const CHANGES: [&str; 13] = [
    "delay_ms",
    "loss",
    "jitter",
    "reorder",
    "duplicate",
    "corrupt",
    "outage",
    "queue",
    "attenuation_db",
    "modcod",
    "symbol_rate_baud",
    "handover",
    "gateway",
];
pub(crate) const CHANGES_OF_WIRES: usize = 7;

/// Changes of one direction, or of both directions of the satellite link, while the link runs.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "set", extend("minProperties" = 2))]
pub(crate) struct SetFields {
    direction: Directions,
    /// number of the terminal whose link changes, 1 is the ST; left out: all terminals that share
    /// the direction
    #[schemars(range(min = 1, max = 64))]
    terminal: Option<usize>,
    /// one-way delay; packets in flight keep their delay, and no packet overtakes another
    delay_ms: Option<DelayMs>,
    loss: Option<Losses>,
    jitter: Option<JitterFields>,
    reorder: Option<ReorderFields>,
    /// share of the packets that come twice, the copy directly behind the packet
    duplicate: Option<Ratio>,
    /// share of the UDP datagrams with one flipped bit in their payload, and a checksum that fits
    corrupt: Option<Ratio>,
    /// true: packets sent from now on are lost, until false; a number: for this many s
    #[schemars(extend("remedy" = "true, false, or seconds above 0 to 1e9"))]
    outage: Option<OutageFields>,
    /// new queue; not for a terrestrial direction
    #[schemars(with = "Option<QueueFields>")]
    queue: Option<Queue>,
    /// reduces the Es/N0 of frames sent from now on, in addition to the profile's attenuation; not
    /// for a terrestrial direction
    #[schemars(range(min = 0, max = 100))]
    attenuation_db: Option<f64>,
    /// fixed MODCOD by its id in EN 302 307-1, or acm, which adapts it; only for the direction
    /// forward
    #[schemars(extend("remedy" = "an id, 1 to 28, or \"acm\""))]
    modcod: Option<ModcodFields>,
    /// not for a terrestrial direction, nor for a return link with slots on demand
    symbol_rate_baud: Option<Baud>,
    handover: Option<Takeover>,
    gateway: Option<GatewayFields>,
}

/// The direction of a change.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Directions {
    Forward,
    Return,
    Both,
    TerrestrialDown,
    TerrestrialUp,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum OutageFields {
    IsDown(bool),
    Seconds(#[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000_000))] f64),
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum ModcodFields {
    Id(#[schemars(range(min = 1, max = 28))] u8),
    #[expect(dead_code, reason = "a constant")]
    Acm(#[schemars(extend("const" = "acm"))] String),
}

/// Changes of one or two directions, all at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct SetRequest {
    /// Indexes into [`crate::directions::DIRECTIONS`].
    directions: Vec<usize>,
    /// Index of the terminal; `None`: all.
    pub(crate) terminal: Option<usize>,
    pub(crate) gateway: Option<Gateway>,
    changes: Vec<Requested>,
}

/// The gateway that a terminal belongs to from then on, with the carriers of its group there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gateway {
    /// Id of the gateway in the profile.
    pub id: u8,
    /// What happens to packets that wait.
    pub waiting: Waiting,
    /// The field as it was given.
    pub field: Map<String, Value>,
}

/// Another gateway of the lab takes over the terminal, or all terminals. A terminal then uses the
/// carriers of its group at that gateway. Only for direction both, and with a profile whose
/// attenuation is constant.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GatewayFields {
    /// id of the gateway in the profile
    #[schemars(range(min = 0, max = 30))]
    id: u8,
    /// packets in the terminal's queues move to the new carriers, leave over the old carriers, or
    /// are dropped
    waiting: WaitingName,
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
    Impairment(Impairment),
    Outage(bool, Option<Nanos>),
    Queue(Queue),
    Attenuation(f64),
    /// `None`: adaptive coding chooses.
    Modcod(Option<ModCod>),
    SymbolRate(u64),
    Handover(Takeover),
}

/// Another link takes over. Fields that are left out have the values of profile and configuration.
/// Not for a terrestrial direction.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "handover")]
struct Takeover {
    delay_ms: Option<DelayMs>,
    symbol_rate_baud: Option<Baud>,
    /// rate of the new link, which is a plain line without frames; in place of `symbol_rate_baud`
    rate_mbps: Option<Mbps>,
    /// bytes that `rate_mbps` counts for each packet in addition to IP, for example 14 as Linux's
    /// tbf on Ethernet; default: 0
    #[schemars(range(min = 0, max = 255))]
    header_bytes: Option<u8>,
    #[schemars(with = "Option<QueueFields>")]
    queue: Option<Queue>,
    /// packets in the queue move to the new link, leave over the old link, or are dropped
    waiting: WaitingName,
}

/// Treatment of waiting packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "waiting")]
pub(crate) enum WaitingName {
    /// They move to the new link.
    Keep,
    /// They leave over the old link.
    Flush,
    /// They are dropped.
    Drop,
}

impl From<WaitingName> for Waiting {
    fn from(name: WaitingName) -> Self {
        match name {
            WaitingName::Keep => Self::Keep,
            WaitingName::Flush => Self::Flush,
            WaitingName::Drop => Self::Drop,
        }
    }
}

/// What is known of a direction when changes are made.
#[derive(Debug, Clone)]
pub struct Target {
    /// Carrier of the link.
    pub carrier: Carrier,
    /// Round trip of the propagation, ns: queues may be given in its multiples.
    pub rtt_ns: u64,
    /// One-way delay of this direction, which `rtt_ns` holds twice.
    pub delay_ns: Nanos,
    /// Queue of the link; `None` for a wire.
    pub queue: Option<Queue>,
    /// Outages of the configuration, which stay when losses change.
    pub outages: Option<Loss>,
    /// Its slots come with plans, which meet what happens to the forward link.
    pub has_plans: bool,
}

impl SetRequest {
    /// Takes a checked set.
    pub(crate) fn read(value: &Value, traces: &Traces<'_>) -> serde_json::Result<Self> {
        let set = SetFields::deserialize(value)?;
        let field = |name: &str| Map::from_iter([(name.to_owned(), value[name].clone())]);
        let changes = [
            set.delay_ms.map(|ms| What::Delay(ms.ns())),
            set.loss
                .map(|it| it.read(traces))
                .transpose()?
                .map(What::Losses),
            set.jitter.map(|it| What::Jitter(it.into())),
            set.reorder
                .map(|it| What::Impairment(Impairment::Reorder(it.into()))),
            set.duplicate
                .map(|it| What::Impairment(Impairment::Duplicate(it.0))),
            set.corrupt
                .map(|it| What::Impairment(Impairment::Corrupt(it.0))),
            set.outage.map(|it| match it {
                OutageFields::IsDown(is_down) => What::Outage(is_down, None),
                OutageFields::Seconds(s) => What::Outage(true, Some(ns_of_s(s))),
            }),
            set.queue.map(What::Queue),
            set.attenuation_db.map(What::Attenuation),
            set.modcod.map(|it| match it {
                ModcodFields::Id(id) => What::Modcod(ModCod::by_id(id)),
                ModcodFields::Acm(_) => What::Modcod(None),
            }),
            set.symbol_rate_baud.map(|rate| What::SymbolRate(rate.0)),
            set.handover.map(What::Handover),
        ];
        let changes = CHANGES.into_iter().zip(changes).filter_map(|(name, what)| {
            let field = field(name);
            Some(Requested { what: what?, field })
        });
        Ok(Self {
            terminal: set.terminal.map(|number| number.saturating_sub(1)),
            directions: match set.direction {
                Directions::Forward => vec![0],
                Directions::Return => vec![1],
                Directions::Both => vec![0, 1],
                Directions::TerrestrialDown => vec![2],
                Directions::TerrestrialUp => vec![3],
            },
            gateway: set.gateway.map(|it| Gateway {
                id: it.id,
                waiting: it.waiting.into(),
                field: field("gateway"),
            }),
            changes: changes.collect(),
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
    fn change(&self, target: &Target) -> (Change, Option<Nanos>) {
        match self {
            Self::Delay(delay) => (Change::Delay(*delay), None),
            Self::Losses(losses) => {
                let all = losses.iter().chain(&target.outages).cloned().collect();
                (Change::Losses(all), None)
            }
            Self::Jitter(jitter) => (Change::Jitter(*jitter), None),
            Self::Impairment(impairment) => (Change::Impairment(*impairment), None),
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
            .map_or(own, |rate| own.with_symbol_rate(rate.0));
        let carrier = self.rate_mbps.map_or(same_kind, |rate| Carrier::Line {
            rate_bps: (rate.0 * 1e6).round() as u64,
            header_bytes: self.header_bytes.unwrap_or(0),
        });
        let delay = self.delay_ms.map_or(target.delay_ns, DelayMs::ns);
        let rtt_ns = target.rtt_ns - 2 * target.delay_ns + 2 * delay;
        let bdp = bdp_bytes(&carrier, rtt_ns);
        let queue = self.queue.or(target.queue);
        Handover {
            carrier,
            delay,
            queue: queue.map_or(link::Queue::drop_tail(0), |it| it.of_link(bdp)),
            waiting: self.waiting.into(),
        }
    }
}

#[cfg(test)]
#[path = "set_request_tests.rs"]
mod tests;
