// SPDX-License-Identifier: GPL-3.0-or-later
//! The time line of `link.json`: changes at times that are known beforehand.

use link::Nanos;
use serde_json::Value;

use crate::config::{Faults, Object};
use crate::order::{Order, Origin};
use crate::set::{self, Set, Target};

/// Steps that are read at most.
const MAX_STEPS: usize = 10_000;
/// Latest step, s.
const LATEST_S: f64 = 1e9;

/// Changes at their times.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// Its time 0 is that of the emulator; else that of the request that starts it.
    pub starts_at_once: bool,
    /// In order of time; steps of one time in the order given.
    steps: Vec<(Nanos, Set)>,
}

/// Reads `timeline`; null, or left out: there is none.
pub(crate) fn read(
    parent: &mut Object,
    has_satellite: bool,
    faults: &mut Faults,
) -> Option<Timeline> {
    let name = "timeline";
    if parent.is_nothing(name) {
        return None;
    }
    let mut object = parent.object(name, faults)?;
    let starts = object.word("starts", &["at-once", "on-request"], faults);
    let place = object.place("steps");
    let steps = object.take(
        "steps",
        &format!("a list of at most {MAX_STEPS} steps"),
        faults,
        |value| {
            let items = value.as_array()?;
            (items.len() <= MAX_STEPS).then(|| items.clone())
        },
    );
    let mut steps: Vec<_> = steps
        .unwrap_or_default()
        .into_iter()
        .enumerate()
        .filter_map(|(index, item)| step(item, format!("{place}[{index}]"), has_satellite, faults))
        .collect();
    object.finish(faults);
    steps.sort_by_key(|(at, _)| *at);
    Some(Timeline {
        starts_at_once: starts? == "at-once",
        steps,
    })
}

fn step(
    item: Value,
    place: String,
    has_satellite: bool,
    faults: &mut Faults,
) -> Option<(Nanos, Set)> {
    let mut object = Object::new(item, place, faults)?;
    let at_s = object.number("at_s", 0.0, LATEST_S, faults);
    let set = object
        .object("set", faults)
        .and_then(|object| set::read(object, has_satellite, faults));
    object.finish(faults);
    Some(((at_s? * 1e9).round() as Nanos, set?))
}

impl Timeline {
    /// Number of steps.
    #[must_use]
    pub fn count(&self) -> usize {
        self.steps.len()
    }

    /// Its orders, with the direction of each, when its time 0 is `zero`.
    pub fn orders(
        &self,
        targets: &[Target; 4],
        zero: Nanos,
    ) -> impl Iterator<Item = (usize, Order)> {
        self.steps
            .iter()
            .flat_map(move |(at, set)| set.orders(targets, zero + at, Origin::Timeline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{parse, tests::example};
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
            "timeline.steps[1]: is no object",
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
