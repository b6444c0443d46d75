// SPDX-License-Identifier: GPL-3.0-or-later
//! A request on the control socket (schemas/link-control.schema.json).

use schema::Faults;
use serde_json::Value;

use crate::rules;
use crate::set_request::SetRequest;
use crate::traces::{ReadFile, Traces};
use crate::validate;

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
    let schema = "satlab/link-control#/$defs/request";
    let mut faults = validate::faults(schema, "request", &value, has_satellite, &mut traces);
    rules::of_terminals("request.set", &value["set"], terminals, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    if value.get("start").is_some() {
        return Ok(Request::StartTimeline);
    }
    let set = value.get("set").map(|set| SetRequest::read(set, &traces));
    match set.transpose() {
        Ok(set) => Ok(set.map_or(Request::GetState, Request::SetRequest)),
        Err(error) => Err(vec![format!("request.set: {error}")]),
    }
}
