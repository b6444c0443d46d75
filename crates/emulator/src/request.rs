// SPDX-License-Identifier: GPL-3.0-or-later
//! Requests on the control socket and their answers (schemas/link-control.schema.json).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schema::Faults;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config_checks::{self, FORMATS};
use crate::set_request::{SetFields, SetRequest};
use crate::traces::{ReadFile, Traces};

static SCHEMA: LazyLock<Value> =
    LazyLock::new(|| schema::read::<Fields>("link-control", "A request to satlink"));

/// What is asked of a running link.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Changes, at once.
    SetRequest(SetRequest),
    /// Its state.
    GetState,
    /// The start of the timeline.
    StartTimeline,
}

/// A request to the control socket of satlink, one per line.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "request")]
#[schemars(extend("oneOf" = [{"required": ["set"]}, {"required": ["get"]}, {"required": ["start"]}]))]
struct Fields {
    #[serde(default)]
    #[schemars(with = "SetFields")]
    set: Option<Value>,
    #[serde(default)]
    #[schemars(with = "String", extend("enum" = ["state"]))]
    get: Option<String>,
    #[serde(default, rename = "start")]
    #[schemars(with = "String", extend("enum" = ["timeline"]))]
    _start: Option<String>,
}

/// The answer to a request.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
#[schemars(rename = "answer")]
pub enum Answer {
    /// Nothing was done.
    Refused {
        /// false
        #[schemars(extend("const" = false))]
        ok: bool,
        /// all faults of the request
        faults: Faults,
    },
    /// Answer to a request for the state.
    State {
        /// true
        #[schemars(extend("const" = true))]
        ok: bool,
        /// time since the start of the emulator, s
        t_s: f64,
        /// null: there is none
        timeline: Option<TimelineState>,
        /// fields of each direction as they were last set; null if another emulator carries the
        /// direction
        directions: BTreeMap<&'static str, Option<Map<String, Value>>>,
    },
    /// The request was accepted. The metrics record the change.
    Taken {
        /// true
        #[schemars(extend("const" = true))]
        ok: bool,
        /// time since the start of the emulator, s
        t_s: f64,
    },
}

/// Progress of a timeline.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimelineState {
    /// Number of steps of the timeline.
    pub steps: usize,
    /// Whether the timeline has started.
    pub started: bool,
}

/// Reads a request to a path with so many terminals. Any bytes are read; loss traces come from
/// `read`.
///
/// # Errors
/// All faults.
pub fn parse(
    text: &[u8],
    has_satellite: bool,
    terminals: usize,
    read: &ReadFile<'_>,
) -> Result<Request, Faults> {
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| vec![format!("request: is not JSON: {error}")])?;
    let mut traces = Traces::new(read);
    let mut faults = schema::check(&SCHEMA, "request", &value, &FORMATS);
    if value["set"].is_object() {
        let place = "request.set";
        config_checks::set(
            place,
            &value["set"],
            has_satellite,
            &mut traces,
            &mut faults,
        );
        config_checks::of_terminals(place, &value["set"], terminals, &mut faults);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let read = |error: serde_json::Error| vec![format!("request: {error}")];
    let Fields { set, get, .. } = serde_json::from_value(value).map_err(read)?;
    match (set, get) {
        (Some(set), _) => {
            let set = SetRequest::read(&set, &traces);
            set.map(Request::SetRequest).map_err(read)
        }
        (None, Some(_)) => Ok(Request::GetState),
        (None, None) => Ok(Request::StartTimeline),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its schema counts")]
    enum Line {
        Request(Fields),
        Answer(Answer),
    }

    #[test]
    fn schema_file_is_that_of_the_types() {
        let title = "A request to the control socket of satlink, one per line, and its answer";
        schema::compare_with_file(&schema::read::<Line>("link-control", title));
    }
}
