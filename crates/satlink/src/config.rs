// SPDX-License-Identifier: GPL-3.0-or-later
//! `link.json` (schemas/link-config.schema.json): every fault at once, unknown fields refused.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use thiserror::Error;

use crate::demand::{self, OtherLoad};
use crate::direction::{self, Direction};
use crate::entity::{self, Emulation, Entity};
use crate::timeline::{self, Timeline};

/// Largest configuration that is read, bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Longest path of a Unix socket, bytes: `sun_path` less its end.
const LONGEST_SOCKET_PATH: usize = 107;
/// The version of the file this release reads.
const SCHEMA: &str = "satlab/link-config/1";

/// What `satlink` is asked to emulate.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// SHA-256 of the file, hexadecimal.
    pub sha256: String,
    /// Name of the run, copied into the metrics header.
    pub run_id: String,
    /// Profile folder; relative paths count from the working directory.
    pub profile: PathBuf,
    /// Take of a profile what the loader of `OpenSAND` takes although it is wrong.
    pub lenient: bool,
    /// Seed of the run; each direction derives its own.
    pub seed: u64,
    /// When frames open.
    pub timing: Timing,
    /// GW to ST.
    pub forward: Direction,
    /// ST to GW.
    pub return_link: Direction,
    /// Delay of the terrestrial segment, each way, ns.
    pub terrestrial_delay_ns: u64,
    /// Satellite segment, terminal and gateway side; `None`: `OpenSAND` carries it.
    pub satellite: Option<[Port; 2]>,
    /// Terrestrial segment, gateway and server side; `None`: there is none.
    pub terrestrial: Option<[Port; 2]>,
    /// File that metrics are appended to.
    pub metrics: PathBuf,
    /// Time between two samples, ms.
    pub metrics_interval_ms: u64,
    /// Collector that gets the samples as probes of `OpenSAND`, if there is one.
    pub probes: Option<Probes>,
    /// Control socket, if there shall be one.
    pub control: Option<PathBuf>,
    /// Changes that are known beforehand.
    pub timeline: Option<Timeline>,
    /// Traffic of other terminals.
    pub others: Vec<OtherLoad>,
    /// Where the entities are when each is a process.
    pub emulation: Option<Emulation>,
}

/// When frames open, and what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// As the standards say.
    Standard,
    /// As the schedulers of `OpenSAND` 8.2 do.
    OpenSand,
}

impl Timing {
    /// Its word in configuration and plan.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::OpenSand => "opensand",
        }
    }

    /// Release error beyond which a packet counts as late, µs: as much as the round-trip time may be off; on the ticks of
    /// `OpenSAND` a whole batch is due at one moment and is written packet by packet.
    #[must_use]
    pub fn late_limit_us(self) -> u64 {
        match self {
            Self::Standard => 1000,
            Self::OpenSand => 3000,
        }
    }
}

impl Config {
    /// The devices of an entity: terrestrial segment, then satellite segment.
    #[must_use]
    pub fn ports_of(&self, entity: Entity) -> Vec<&Port> {
        let [st, gw] = [0, 1].map(|index| self.satellite.as_ref().map(|ends| &ends[index]));
        match entity {
            Entity::All => self.ports().collect(),
            Entity::St => st.into_iter().collect(),
            Entity::Sat => Vec::new(),
            Entity::Gw => self.terrestrial.iter().flatten().chain(gw).collect(),
        }
    }

    /// The devices: terrestrial segment, then satellite segment.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        let terrestrial = self.terrestrial.iter().flatten();
        terrestrial.chain(self.satellite.iter().flatten())
    }
}

/// A collector of probes.
#[derive(Debug, Clone, PartialEq)]
pub struct Probes {
    /// Where it listens.
    pub address: SocketAddr,
    /// Path of the network namespace from which it is reached; `None`: that of this process.
    pub netns: Option<PathBuf>,
}

/// A TUN device in a network namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// Path of the namespace, e.g. `/run/netns/NAME`.
    pub netns: PathBuf,
    /// Name of the device, 1 to 15 characters.
    pub tun: String,
}

/// Every fault of a configuration; displays one per line as `file: field: reason (remedy)`.
#[derive(Debug, PartialEq, Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigError(pub Vec<String>);

/// Reads and checks `path`.
///
/// # Errors
/// All faults of the file.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let one = |reason: String| ConfigError(vec![format!("{}: {reason}", path.display())]);
    let meta = fs::metadata(path).map_err(|error| one(format!("cannot be read: {error}")))?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        return Err(one(format!("is no file of at most {MAX_BYTES} bytes")));
    }
    let text = fs::read_to_string(path).map_err(|error| one(format!("cannot be read: {error}")))?;
    parse(&text).map_err(|faults| {
        ConfigError(
            faults
                .0
                .iter()
                .map(|fault| format!("{}: {fault}", path.display()))
                .collect(),
        )
    })
}

/// Checks the text of a configuration.
///
/// # Errors
/// All faults of the text.
pub fn parse(text: &str) -> Result<Config, ConfigError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        ConfigError(vec![format!(
            "is no JSON: {error} (see schemas/link-config.schema.json)"
        )])
    })?;
    let mut faults = Vec::new();
    let config = Object::new(value, String::new(), &mut faults)
        .and_then(|object| read(object, profile::sha256_hex(text.as_bytes()), &mut faults));
    match config {
        Some(config) if faults.is_empty() => Ok(config),
        _ => Err(ConfigError(faults)),
    }
}

pub(crate) type Faults = Vec<String>;

fn read(mut object: Object, sha256: String, faults: &mut Faults) -> Option<Config> {
    object.word("schema", &[SCHEMA], faults);
    let timing = object.word("timing", &["standard", "opensand"], faults);
    let run_id = object.text("run_id", usize::MAX, faults);
    let profile = object.text("profile", usize::MAX, faults);
    let lenient = object.flag("lenient", faults);
    let seed = object.integer("seed", 0, u64::MAX, faults);
    let forward = direction::read(&mut object, "forward", faults);
    let return_link = direction::read(&mut object, "return", faults);
    let delay_ms = object.number("terrestrial_one_way_delay_ms", 0.0, 10_000.0, faults);
    let satellite = segment(&mut object, ["st", "gw"], faults);
    let terrestrial = segment(&mut object, ["near", "far"], faults);
    let metrics = object.text("metrics", usize::MAX, faults);
    let interval = object.integer("metrics_interval_ms", 10, 10_000, faults);
    let probes = probes(&mut object, faults);
    let control = control(&mut object, faults);
    let timeline = timeline::read(&mut object, satellite.is_some(), faults);
    let others = demand::read(&mut object, faults);
    let emulation = entity::read(&mut object, faults);
    object.finish(faults);
    let config = Config {
        sha256,
        run_id: run_id?,
        profile: profile?.into(),
        lenient: lenient?,
        seed: seed?,
        timing: if timing? == "opensand" {
            Timing::OpenSand
        } else {
            Timing::Standard
        },
        forward: forward?,
        return_link: return_link?,
        terrestrial_delay_ns: (delay_ms? * 1e6).round() as u64,
        satellite,
        terrestrial,
        metrics: metrics?.into(),
        metrics_interval_ms: interval?,
        probes,
        control,
        timeline,
        others: others?,
        emulation,
    };
    distinct_ports(&config, faults);
    Some(config)
}

/// The collector; none for null and where it is left out.
fn probes(parent: &mut Object, faults: &mut Faults) -> Option<Probes> {
    if parent.is_nothing("probes") {
        return None;
    }
    let mut object = parent.object("probes", faults)?;
    let remedy = "an address and a UDP port, e.g. \"127.0.0.1:5361\"";
    let address = object.take("address", remedy, faults, |value| {
        value.as_str()?.parse().ok()
    });
    let is_own = object.is_nothing("netns");
    let netns = (!is_own).then(|| object.text("netns", usize::MAX, faults));
    object.finish(faults);
    Some(Probes {
        address: address?,
        netns: netns.flatten().map(|path| namespace(&path)),
    })
}

/// A path, or the word for the namespace of the process that started this one.
fn namespace(text: &str) -> PathBuf {
    if text == "parent" {
        format!("/proc/{}/ns/net", std::os::unix::process::parent_id()).into()
    } else {
        text.into()
    }
}

/// Path of the control socket; none for null and where it is left out.
fn control(object: &mut Object, faults: &mut Faults) -> Option<PathBuf> {
    if object.is_nothing("control") {
        return None;
    }
    object
        .text("control", LONGEST_SOCKET_PATH, faults)
        .map(PathBuf::from)
}

/// One device cannot be two ends.
fn distinct_ports(config: &Config, faults: &mut Faults) {
    let named = |names: [&'static str; 2], ports: &Option<[Port; 2]>| {
        let ports = ports.clone().into_iter().flatten();
        names.into_iter().zip(ports).collect::<Vec<_>>()
    };
    let terrestrial = named(["near", "far"], &config.terrestrial);
    let ports = [terrestrial, named(["st", "gw"], &config.satellite)].concat();
    for (index, (name, port)) in ports.iter().enumerate() {
        for (other, _) in ports[..index].iter().filter(|(_, other)| other == port) {
            faults.push(format!(
                "{name}: is the same device as {other} (give each end its own TUN device)"
            ));
        }
    }
}

/// Both ends of a segment; null for both leaves it out, without a fault.
fn segment(parent: &mut Object, names: [&str; 2], faults: &mut Faults) -> Option<[Port; 2]> {
    let null = |name: &str| parent.fields.get(name).is_some_and(Value::is_null);
    if names.into_iter().all(null) {
        for name in names {
            parent.fields.remove(name);
        }
        return None;
    }
    let [one, other] = names.map(|name| port(parent, name, faults));
    Some([one?, other?])
}

fn port(parent: &mut Object, name: &str, faults: &mut Faults) -> Option<Port> {
    let mut object = parent.object(name, faults)?;
    let netns = object.text("netns", usize::MAX, faults);
    let tun = object.text("tun", 15, faults);
    object.finish(faults);
    Some(Port {
        netns: netns?.into(),
        tun: tun?,
    })
}

/// A JSON object whose fields are taken one by one; what is left at the end is unknown.
pub(crate) struct Object {
    pub(crate) path: String,
    fields: Map<String, Value>,
}

impl Object {
    pub(crate) fn new(value: Value, path: String, faults: &mut Faults) -> Option<Self> {
        if let Value::Object(fields) = value {
            Some(Self { path, fields })
        } else {
            let place = if path.is_empty() { "the file" } else { &path };
            faults.push(format!(
                "{place}: is no object (see schemas/link-config.schema.json)"
            ));
            None
        }
    }

    pub(crate) fn place(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// Takes a field and reads it; both a missing and a refused value are faults with `remedy`.
    pub(crate) fn take<T>(
        &mut self,
        name: &str,
        remedy: &str,
        faults: &mut Faults,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let place = self.place(name);
        let Some(value) = self.fields.remove(name) else {
            faults.push(format!("{place}: is missing ({remedy})"));
            return None;
        };
        let read = read(&value);
        if read.is_none() {
            faults.push(format!("{place}: {value} is not allowed ({remedy})"));
        }
        read
    }

    pub(crate) fn text(
        &mut self,
        name: &str,
        longest: usize,
        faults: &mut Faults,
    ) -> Option<String> {
        let remedy = if longest == usize::MAX {
            "a non-empty text".to_owned()
        } else {
            format!("a text of 1 to {longest} bytes")
        };
        self.take(name, &remedy, faults, |value| {
            let text = value.as_str()?;
            ((1..=longest).contains(&text.len()) && !text.contains('\0')).then(|| text.to_owned())
        })
    }

    pub(crate) fn word(
        &mut self,
        name: &str,
        allowed: &[&'static str],
        faults: &mut Faults,
    ) -> Option<&'static str> {
        let remedy = format!("one of: {}", allowed.join(", "));
        self.take(name, &remedy, faults, |value| {
            allowed
                .iter()
                .copied()
                .find(|word| value.as_str() == Some(word))
        })
    }

    pub(crate) fn integer(
        &mut self,
        name: &str,
        min: u64,
        max: u64,
        faults: &mut Faults,
    ) -> Option<u64> {
        self.take(
            name,
            &format!("an integer, {min} to {max}"),
            faults,
            |value| value.as_u64().filter(|value| (min..=max).contains(value)),
        )
    }

    pub(crate) fn number(
        &mut self,
        name: &str,
        min: f64,
        max: f64,
        faults: &mut Faults,
    ) -> Option<f64> {
        let least = if min > 0.0 {
            "above 0".to_owned()
        } else {
            format!("from {min}")
        };
        self.take(
            name,
            &format!("a number {least} to {max}"),
            faults,
            |value| value.as_f64().filter(|value| (min..=max).contains(value)),
        )
    }

    pub(crate) fn object(&mut self, name: &str, faults: &mut Faults) -> Option<Object> {
        let path = self.place(name);
        let value = self.take(
            name,
            "an object, see schemas/link-config.schema.json",
            faults,
            |value| Some(value.clone()),
        )?;
        Object::new(value, path, faults)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// True where a field is left out; null, which says the same, is taken.
    pub(crate) fn is_nothing(&mut self, name: &str) -> bool {
        if self.fields.get(name).is_some_and(Value::is_null) {
            self.fields.remove(name);
        }
        !self.has(name)
    }

    /// The field alone, as it was given; empty where it is left out.
    pub(crate) fn copy(&self, name: &str) -> Map<String, Value> {
        self.fields
            .get_key_value(name)
            .map(|(name, value)| (name.clone(), value.clone()))
            .into_iter()
            .collect()
    }

    /// Takes fields without reading them: their fault is told already.
    pub(crate) fn forget(&mut self, names: &[&str]) {
        for name in names {
            self.fields.remove(*name);
        }
    }

    /// Takes a list; `None`, and nothing taken, where there is none.
    pub(crate) fn list(&mut self, name: &str) -> Option<Vec<Value>> {
        let Some(Value::Array(_)) = self.fields.get(name) else {
            return None;
        };
        match self.fields.remove(name) {
            Some(Value::Array(items)) => Some(items),
            _ => None,
        }
    }

    /// True or false; false where it is left out.
    pub(crate) fn flag(&mut self, name: &str, faults: &mut Faults) -> Option<bool> {
        if !self.has(name) {
            return Some(false);
        }
        self.take(name, "true or false", faults, Value::as_bool)
    }

    /// What was not taken is unknown.
    pub(crate) fn finish(self, faults: &mut Faults) {
        for name in self.fields.keys() {
            faults.push(format!("{}: is unknown (remove it)", self.place(name)));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::direction::Limit;
    use serde_json::json;

    /// A complete configuration on the shipped profile `name`.
    pub(crate) fn example(name: &str) -> Value {
        let profile = format!(
            "{}/../../opensand-profiles/{name}",
            env!("CARGO_MANIFEST_DIR")
        );
        let port = |node: &str| json!({"netns": format!("/run/netns/{node}"), "tun": "sat0"});
        let direction = json!({"queue": {"bdp": 1.0}, "loss": {"ratio": 0.0, "unit": "packet"}});
        json!({
            "schema": "satlab/link-config/1", "run_id": "r1", "profile": profile, "timing": "standard", "seed": 7,
            "forward": direction, "return": direction, "terrestrial_one_way_delay_ms": 40.0,
            "st": port("st"), "gw": port("gw"), "near": port("near"), "far": port("far"),
            "metrics": "link.jsonl", "metrics_interval_ms": 100,
        })
    }

    fn faults(value: &Value) -> String {
        parse(&value.to_string())
            .expect_err("must be refused")
            .to_string()
    }

    #[test]
    fn complete_configuration_is_read() {
        let config = parse(&example("geo").to_string()).unwrap();
        assert_eq!(config.terrestrial_delay_ns, 40_000_000);
        assert_eq!(config.forward.queue.limit, Limit::Bdp(1.0));
        assert_eq!(config.timing, Timing::Standard);
        assert_eq!(
            config.terrestrial.unwrap()[1].netns,
            Path::new("/run/netns/far")
        );
        assert_eq!(config.sha256.len(), 64);
    }

    #[test]
    fn every_fault_is_reported_with_its_place() {
        let mut value = example("geo");
        value["timing"] = json!("fast");
        value["seed"] = json!(-1);
        value["forward"]["queue"] = json!({"bdp": 1, "bytes": 1});
        value["return"]["loss"]["ratio"] = json!(1.5);
        value["return"]["loss"]["burst"] = json!(3);
        value["near"]["tun"] = json!("sixteen-letters-");
        value["metrics_interval_ms"] = json!(1);
        value["colour"] = json!("blue");
        value["probes"] = json!({"address": "localhost", "port": 1});
        value.as_object_mut().unwrap().remove("run_id");
        let faults = faults(&value);
        for expected in [
            "timing: \"fast\" is not allowed (one of: standard, opensand)",
            "seed: -1 is not allowed (an integer, 0 to",
            "forward.queue: needs exactly one of bdp, bytes and packets",
            "return.loss.ratio: 1.5 is not allowed (a number from 0 to 1)",
            "return.loss.burst: is unknown",
            "near.tun: \"sixteen-letters-\" is not allowed (a text of 1 to 15 bytes)",
            "metrics_interval_ms: 1 is not allowed (an integer, 10 to 10000)",
            "colour: is unknown",
            "probes.address: \"localhost\" is not allowed (an address and a UDP port",
            "probes.port: is unknown",
            "run_id: is missing",
        ] {
            assert!(faults.contains(expected), "{expected} not in\n{faults}");
        }
        assert_eq!(faults.lines().count(), 11, "{faults}");
    }

    #[test]
    fn shapes_other_than_objects_are_refused() {
        assert!(parse("[1]").is_err());
        assert!(parse("{").is_err());
        let mut value = example("geo");
        value["st"] = json!("st");
        value["forward"]["queue"] = json!({});
        assert_eq!(faults(&value).lines().count(), 2);
    }

    #[test]
    fn satellite_segment_is_whole_or_left_out() {
        let mut value = example("geo");
        value["gw"] = Value::Null;
        assert!(faults(&value).starts_with("gw: is no object"));
        value["st"] = Value::Null;
        let config = parse(&value.to_string()).unwrap();
        assert_eq!(config.satellite, None);
        assert_eq!(config.ports().count(), 2);
    }

    #[test]
    fn one_device_is_one_end() {
        let mut value = example("geo");
        value["far"] = value["near"].clone();
        assert!(faults(&value).contains("far: is the same device as near"));
    }
}
