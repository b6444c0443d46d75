// SPDX-License-Identifier: GPL-3.0-or-later
//! The timeline of `link.json`: changes at times that are known beforehand.

use link::Nanos;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::scheduled::{Origin, Scheduled};
use crate::set_request::{SetFields, SetRequest, Target};
use crate::traces::Traces;
use crate::units::Seconds;

/// Changes at their times.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// Whether time 0 is the start of the emulator; otherwise it is the request that starts the
    /// timeline.
    pub starts_at_once: bool,
    /// Steps in order of time; steps of the same time in the order given.
    steps: Vec<(Nanos, SetRequest)>,
}

/// Changes at known times.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "timeline")]
pub(crate) struct Fields {
    /// time 0 of the steps: the start of the emulator, or the request {"start": "timeline"}
    starts: Starts,
    #[schemars(length(max = 10_000))]
    steps: Vec<Step>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Starts {
    AtOnce,
    OnRequest,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Step {
    at_s: Seconds,
    #[schemars(with = "SetFields")]
    set: Value,
}

impl Timeline {
    /// Reads a checked timeline.
    pub(crate) fn read(fields: Fields, traces: &Traces<'_>) -> serde_json::Result<Self> {
        let step = |step: Step| Ok((step.at_s.ns(), SetRequest::read(&step.set, traces)?));
        let steps: serde_json::Result<Vec<_>> = fields.steps.into_iter().map(step).collect();
        let mut steps = steps?;
        steps.sort_by_key(|(at, _)| *at);
        Ok(Self {
            starts_at_once: matches!(fields.starts, Starts::AtOnce),
            steps,
        })
    }

    /// Number of steps.
    #[must_use]
    pub fn count(&self) -> usize {
        self.steps.len()
    }

    /// Returns the steps in order of time.
    pub(crate) fn steps(&self) -> &[(Nanos, SetRequest)] {
        &self.steps
    }

    /// Its changes but those of gateway, with the direction of each, when its time 0 is `zero`.
    pub fn scheduled(
        &self,
        targets: &[Target; 4],
        zero: Nanos,
    ) -> impl Iterator<Item = (usize, Scheduled)> {
        self.steps
            .iter()
            .flat_map(move |(at, set)| set.scheduled(targets, zero + at, Origin::Timeline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_alone as parse;
    use crate::testing::example;
    use serde_json::json;

    fn timeline(value: &Value) -> Result<Option<Timeline>, String> {
        let mut config = example("geo");
        config["timeline"] = value.clone();
        let config = parse(&config.to_string()).map_err(|faults| faults.to_string())?;
        Ok(config.timeline)
    }

    #[test]
    fn steps_are_sorted_by_time() {
        let set = |ms: u64| json!({"direction": "return", "delay_ms": ms});
        let steps = json!([{"at_s": 2.5, "set": set(1)}, {"at_s": 0, "set": set(2)}]);
        let read = timeline(&json!({"starts": "on-request", "steps": steps}))
            .unwrap()
            .unwrap();
        assert!(!read.starts_at_once);
        let times: Vec<_> = read.steps.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 2_500_000_000]);
        assert_eq!(timeline(&Value::Null).unwrap(), None);
    }

    #[test]
    fn every_fault_has_its_place() {
        let steps =
            json!([{"at_s": -1, "set": {"direction": "both", "delay_ms": "x"}}, 7, {"at_s": 1}]);
        let faults = timeline(&json!({"starts": "later", "steps": steps})).unwrap_err();
        for expected in [
            "timeline.starts: \"later\" is not allowed (one of: at-once, on-request)",
            "timeline.steps[0].at_s: -1 is not allowed",
            "timeline.steps[0].set.delay_ms: \"x\" is not allowed",
            "timeline.steps[1]: is not an object",
            "timeline.steps[2].set: is missing",
        ] {
            assert!(faults.contains(expected), "{expected} not in\n{faults}");
        }
        assert!(
            timeline(&json!({"starts": "at-once", "steps": 1}))
                .unwrap_err()
                .contains("a list of at most")
        );
    }
}
