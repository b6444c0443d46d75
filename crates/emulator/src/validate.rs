// SPDX-License-Identifier: GPL-3.0-or-later
//! Checks files and requests against their schemas and [`crate::rules`].

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

use schema::{Faults, Schemas};
use serde_json::Value;

use crate::rules;
use crate::terminals::Subnet;
use crate::traces::Traces;

static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the texts are part of this program")]
    Schemas::parse(&[
        include_str!("../../../schemas/link-config.schema.json"),
        include_str!("../../../schemas/link-control.schema.json"),
    ])
    .expect("schemas are whole")
});

/// Faults of `value` against a schema, e.g. `satlab/link-config#/$defs/set`; `place` names it, and
/// is empty for a file.
pub(crate) fn faults(
    schema: &str,
    place: &str,
    value: &Value,
    has_satellite: bool,
    traces: &mut Traces<'_>,
) -> Faults {
    let mut rule = |name: &str, place: &str, value: &Value, faults: &mut Faults| {
        let text = value.as_str().unwrap_or_default();
        let mut refuse_unless = |is_ok: bool| {
            if !is_ok {
                faults.push(format!("{place}: is not a valid {name}"));
            }
        };
        match name {
            "ipv4" => refuse_unless(text.parse::<Ipv4Addr>().is_ok()),
            "socket-address" => refuse_unless(text.parse::<SocketAddr>().is_ok()),
            "windows" => refuse_unless(rules::is_in_order(value)),
            "ipv4-subnet" => refuse_unless(Subnet::parse(text).is_some()),
            "ipv6-subnet" => refuse_unless(Subnet::parse6(text).is_some()),
            "loss-trace" => traces.check(place, text, faults),
            "bursts" => rules::bursts(place, value, faults),
            "chain" => rules::chain(place, value, faults),
            "queue" => rules::queue(place, value, faults),
            "set" => rules::set(place, value, has_satellite, faults),
            "whole-configuration" => {
                rules::distinct_ports(value, faults);
                rules::defects(value, faults);
                rules::terminals(value, faults);
            }
            "entity-addresses" => rules::distinct_entities(place, value, faults),
            _ => faults.push(format!("{place}: no rule is called {name}")),
        }
    };
    SCHEMAS.check(schema, place, value, &mut rule)
}
