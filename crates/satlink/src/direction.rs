// SPDX-License-Identifier: GPL-3.0-or-later
//! One direction of the satellite link in `link.json`: queue, losses, jitter, outages.

use std::fs;

use link::{Aqm, CoDel, FqCoDel, GilbertElliott, Jitter, Loss, LossModel, LossUnit, Nanos, Pie};
use serde_json::{Map, Value};

use crate::config::{Faults, Object};

/// What a direction adds to the profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// Queue in front of the carrier.
    pub queue: Queue,
    /// Loss processes, outages among them.
    pub losses: Vec<Loss>,
    /// The outages alone.
    pub outages: Option<Loss>,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// What of it can change at run time, as it was given.
    pub asked: Map<String, Value>,
}

/// Queue of a direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Queue {
    /// Drop-tail limit.
    pub limit: Limit,
    /// Active management.
    pub aqm: Aqm,
    /// Mark ECN-capable packets in place of an early drop.
    pub ecn: bool,
}

/// Drop-tail limit of a direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Multiples of the direction's bandwidth-delay product.
    Bdp(f64),
    /// Bytes of waiting IP packets.
    Bytes(u64),
    /// Waiting packets.
    Packets(u64),
}

/// Longest time of an impairment, ms: an hour.
const LONGEST_MS: f64 = 3_600_000.0;
/// Longest time of an outage, s.
const LONGEST_S: f64 = 1e9;
/// Largest loss trace that is read, bytes.
const MAX_TRACE_BYTES: u64 = 64 << 20;

/// Reads the direction `name` of the configuration.
pub(crate) fn read(parent: &mut Object, name: &str, faults: &mut Faults) -> Option<Direction> {
    let mut object = parent.object(name, faults)?;
    let asked = ["queue", "loss", "jitter"].map(|field| object.copy(field));
    let queue = object
        .object("queue", faults)
        .and_then(|object| queue(object, faults));
    let losses = losses(&mut object, faults);
    let jitter = if object.has("jitter") {
        object
            .object("jitter", faults)
            .and_then(|object| jitter(object, faults))
    } else {
        Some(Jitter::None)
    };
    let outages = outages(&mut object, faults);
    object.finish(faults);
    let mut losses = losses?;
    losses.extend(outages.clone());
    Some(Direction {
        queue: queue?,
        losses,
        outages,
        jitter: jitter?,
        asked: asked.into_iter().flatten().collect(),
    })
}

pub(crate) fn queue(mut object: Object, faults: &mut Faults) -> Option<Queue> {
    let given = ["bdp", "bytes", "packets"].map(|name| object.has(name));
    let limit = match given {
        [true, false, false] => object
            .number("bdp", f64::MIN_POSITIVE, 1000.0, faults)
            .map(Limit::Bdp),
        [false, true, false] => object
            .integer("bytes", 1, 1 << 40, faults)
            .map(Limit::Bytes),
        [false, false, true] => object
            .integer("packets", 1, 1 << 30, faults)
            .map(Limit::Packets),
        _ => {
            faults.push(format!(
                "{}: needs exactly one of bdp, bytes and packets (e.g. {{\"bdp\": 1.0}})",
                object.path
            ));
            object.forget(&["bdp", "bytes", "packets"]);
            None
        }
    };
    let aqm = aqm(&mut object, faults);
    let ecn = object.flag("ecn", faults);
    let aqm = aqm?;
    if ecn == Some(true) && aqm == Aqm::DropTail {
        faults.push(format!(
            "{}.ecn: a drop-tail queue does not mark (add \"aqm\", or leave ecn out)",
            object.path
        ));
    }
    object.finish(faults);
    Some(Queue {
        limit: limit?,
        aqm,
        ecn: ecn?,
    })
}

/// The active management, drop-tail where none is named.
fn aqm(object: &mut Object, faults: &mut Faults) -> Option<Aqm> {
    if !object.has("aqm") {
        return Some(Aqm::DropTail);
    }
    let name = object.word("aqm", &["codel", "fq-codel", "pie"], faults);
    let (codel, pie) = (CoDel::default(), Pie::default());
    if name == Some("pie") {
        let target = time(object, "target_ms", Some(pie.target), faults)?;
        return Some(Aqm::Pie(Pie { target, ..pie }));
    }
    let target = time(object, "target_ms", Some(codel.target), faults);
    let interval = time(object, "interval_ms", Some(codel.interval), faults);
    let codel = CoDel {
        target: target?,
        interval: interval?.max(1),
    };
    if name? == "codel" {
        return Some(Aqm::CoDel(codel));
    }
    Some(Aqm::FqCoDel(FqCoDel {
        codel,
        ..FqCoDel::default()
    }))
}

/// One loss process or a list of them.
pub(crate) fn losses(parent: &mut Object, faults: &mut Faults) -> Option<Vec<Loss>> {
    let Some(items) = parent.list("loss") else {
        let object = parent.object("loss", faults)?;
        return Some(vec![loss(object, faults)?]);
    };
    let read = |(index, item): (usize, Value)| {
        let place = format!("{}[{index}]", parent.place("loss"));
        Object::new(item, place, faults).and_then(|object| loss(object, faults))
    };
    let losses: Vec<_> = items.into_iter().enumerate().map(read).collect();
    losses.into_iter().collect()
}

fn loss(mut object: Object, faults: &mut Faults) -> Option<Loss> {
    let models = ["bernoulli", "gilbert-elliott", "bursts", "trace"];
    let name = if object.has("model") {
        object.word("model", &models, faults)
    } else {
        Some(models[0])
    };
    let unit = object.word("unit", &["packet", "frame"], faults);
    let model = match name {
        Some("gilbert-elliott") => gilbert_elliott(&mut object, faults),
        Some("bursts") => bursts(&mut object, faults),
        Some("trace") => trace(&mut object, faults),
        Some(_) => object
            .number("ratio", 0.0, 1.0, faults)
            .map(|ratio| LossModel::Bernoulli { ratio }),
        // Its fields cannot be told from unknown ones.
        None => return None,
    };
    object.finish(faults);
    let unit = if unit? == "frame" {
        LossUnit::Frame
    } else {
        LossUnit::Packet
    };
    Some(Loss {
        model: model?,
        unit,
    })
}

fn gilbert_elliott(object: &mut Object, faults: &mut Faults) -> Option<LossModel> {
    let mut ratio = |name: &str, default: Option<f64>| {
        if default.is_some() && !object.has(name) {
            return default;
        }
        object.number(name, 0.0, 1.0, faults)
    };
    let (p, r) = (ratio("p", None), ratio("r", None));
    let (good, bad) = (
        ratio("good_ratio", Some(0.0)),
        ratio("bad_ratio", Some(1.0)),
    );
    let step = if object.has("step_ms") {
        Some(time(object, "step_ms", None, faults)?.max(1))
    } else {
        None
    };
    Some(LossModel::GilbertElliott(GilbertElliott {
        p: p?,
        r: r?,
        good: good?,
        bad: bad?,
        step,
    }))
}

fn bursts(object: &mut Object, faults: &mut Faults) -> Option<LossModel> {
    let period = time(object, "period_ms", None, faults);
    let duration = time(object, "duration_ms", None, faults);
    let first = time(object, "first_ms", Some(0), faults);
    let (period, duration, first) = (period?, duration?, first?);
    if period == 0 || duration > period {
        faults.push(format!(
            "{}: a burst of duration_ms does not fit period_ms (period above 0, duration at most the period)",
            object.path
        ));
        return None;
    }
    Some(LossModel::Bursts {
        period,
        duration,
        first,
    })
}

fn trace(object: &mut Object, faults: &mut Faults) -> Option<LossModel> {
    let place = object.place("file");
    let path = object.text("file", usize::MAX, faults)?;
    let text = match fs::metadata(&path) {
        Ok(meta) if meta.is_file() && meta.len() <= MAX_TRACE_BYTES => fs::read_to_string(&path),
        Ok(_) => {
            faults.push(format!(
                "{place}: {path} is no file of at most {MAX_TRACE_BYTES} bytes"
            ));
            return None;
        }
        Err(error) => Err(error),
    };
    let fault = |reason: String| format!("{place}: {path}: {reason}");
    match text.map(|text| link::parse_trace(&text)) {
        Ok(Ok(model)) => return Some(model),
        Ok(Err(error)) => faults.extend(error.0.into_iter().map(fault)),
        Err(error) => faults.push(fault(format!("cannot be read: {error}"))),
    }
    None
}

pub(crate) fn jitter(mut object: Object, faults: &mut Faults) -> Option<Jitter> {
    let jitter = if object.has("uniform_ms") {
        time(&mut object, "uniform_ms", None, faults).map(|most| Jitter::Uniform { most })
    } else {
        let mean = time(&mut object, "mean_ms", None, faults);
        let sigma = time(&mut object, "sigma_ms", None, faults);
        mean.zip(sigma)
            .map(|(mean, sigma)| Jitter::Normal { mean, sigma })
    };
    object.finish(faults);
    jitter
}

/// Outages as one loss process of frames; `None` if none is given, or after a fault.
fn outages(object: &mut Object, faults: &mut Faults) -> Option<Loss> {
    let name = "outages_s";
    if !object.has(name) {
        return None;
    }
    let remedy = "pairs [start, end] of seconds from 0 to 1e9, in order, none overlapping the next";
    let windows = object.take(name, remedy, faults, |value| {
        let mut last = 0.0;
        let mut windows = Vec::new();
        for pair in value.as_array()? {
            let [start, end] = pair.as_array()?.as_slice() else {
                return None;
            };
            let (start, end) = (start.as_f64()?, end.as_f64()?);
            if !(last <= start && start <= end && end <= LONGEST_S) {
                return None;
            }
            last = end;
            windows.push(nanos(start * 1e9)..nanos(end * 1e9));
        }
        Some(windows)
    })?;
    Some(Loss {
        model: LossModel::Windows(windows.into()),
        unit: LossUnit::Frame,
    })
}

/// A time in ms, 0 to an hour; required unless there is a default.
fn time(
    object: &mut Object,
    name: &str,
    default: Option<Nanos>,
    faults: &mut Faults,
) -> Option<Nanos> {
    if default.is_some() && !object.has(name) {
        return default;
    }
    let ms = object.number(name, 0.0, LONGEST_MS, faults)?;
    Some(nanos(ms * 1e6))
}

fn nanos(value: f64) -> Nanos {
    value.round() as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{parse, tests::example};
    use serde_json::json;

    fn direction(edit: impl FnOnce(&mut Value)) -> Result<Direction, String> {
        let mut value = example("geo");
        edit(&mut value["forward"]);
        let config = parse(&value.to_string()).map_err(|faults| faults.to_string())?;
        Ok(config.forward)
    }

    #[test]
    fn fields_left_out_mean_what_they_meant() {
        let plain = direction(|_| {}).unwrap();
        assert_eq!(plain.jitter, Jitter::None);
        assert_eq!(plain.losses, [Loss::random(0.0, LossUnit::Packet)]);
        assert_eq!((plain.queue.aqm, plain.queue.ecn), (Aqm::DropTail, false));
    }

    #[test]
    fn queues_are_read() {
        let queue = |queue: Value| direction(|forward| forward["queue"] = queue).unwrap().queue;
        assert_eq!(queue(json!({"packets": 200})).limit, Limit::Packets(200));
        let codel = queue(json!({"bdp": 1, "aqm": "codel", "ecn": true, "interval_ms": 600}));
        let (target, interval) = (5_000_000, 600_000_000);
        assert_eq!(codel.aqm, Aqm::CoDel(CoDel { target, interval }));
        assert!(codel.ecn);
        let fq = queue(json!({"bdp": 1, "aqm": "fq-codel", "target_ms": 20}));
        assert!(matches!(fq.aqm, Aqm::FqCoDel(fq) if fq.codel.target == 20_000_000));
        assert_eq!(
            queue(json!({"bdp": 1, "aqm": "pie"})).aqm,
            Aqm::Pie(Pie::default())
        );
    }

    #[test]
    fn losses_jitter_and_outages_are_read() {
        let read = direction(|forward| {
            forward["loss"] = json!([
                {"model": "gilbert-elliott", "p": 0.01, "r": 0.167, "step_ms": 10, "unit": "frame"},
                {"model": "bursts", "period_ms": 1000, "duration_ms": 20, "unit": "packet"},
                {"ratio": 0.01, "unit": "packet"},
            ]);
            forward["jitter"] = json!({"mean_ms": 3, "sigma_ms": 0.5});
            forward["outages_s"] = json!([[1, 2.5], [3, 4]]);
        })
        .unwrap();
        let LossModel::GilbertElliott(chain) = read.losses[0].model else {
            panic!("{read:?}")
        };
        assert_eq!(
            (chain.step, chain.bad.to_bits()),
            (Some(10_000_000), 1f64.to_bits())
        );
        let (period, duration, first) = (1_000_000_000, 20_000_000, 0);
        assert_eq!(
            read.losses[1].model,
            LossModel::Bursts {
                period,
                duration,
                first
            }
        );
        assert_eq!(read.losses[2], Loss::random(0.01, LossUnit::Packet));
        let windows = [1_000_000_000..2_500_000_000, 3_000_000_000..4_000_000_000];
        assert_eq!(read.losses[3].model, LossModel::Windows(windows.into()));
        let (mean, sigma) = (3_000_000, 500_000);
        assert_eq!(read.jitter, Jitter::Normal { mean, sigma });
        let uniform = direction(|forward| forward["jitter"] = json!({"uniform_ms": 2})).unwrap();
        assert_eq!(uniform.jitter, Jitter::Uniform { most: 2_000_000 });
    }

    #[test]
    fn every_fault_has_its_place() {
        let faults = direction(|forward| {
            forward["queue"] = json!({"bdp": 1, "aqm": "red", "target_ms": -1, "ecn": 1});
            forward["loss"] = json!([
                {"model": "gilbert-elliott", "p": 2, "unit": "frame", "q": 1},
                {"model": "bursts", "period_ms": 10, "duration_ms": 20, "unit": "packet"},
                {"model": "trace", "file": "/nonexistent", "unit": "packet"},
                7,
            ]);
            forward["jitter"] = json!({"mean_ms": 1});
            forward["outages_s"] = json!([[2, 1]]);
        })
        .unwrap_err();
        for expected in [
            "forward.queue.aqm: \"red\" is not allowed (one of: codel, fq-codel, pie)",
            "forward.queue.target_ms: -1 is not allowed",
            "forward.queue.ecn: 1 is not allowed (true or false)",
            "forward.loss[0].p: 2 is not allowed",
            "forward.loss[0].r: is missing",
            "forward.loss[0].q: is unknown",
            "forward.loss[1]: a burst of duration_ms does not fit",
            "forward.loss[2].file: /nonexistent: cannot be read",
            "forward.loss[3]: is no object",
            "forward.jitter.sigma_ms: is missing",
            "forward.outages_s: [[2,1]] is not allowed (pairs",
        ] {
            assert!(faults.contains(expected), "{expected} not in\n{faults}");
        }
        let ecn = direction(|forward| forward["queue"] = json!({"bdp": 1, "ecn": true}));
        assert!(ecn.unwrap_err().contains("a drop-tail queue does not mark"));
    }
}
