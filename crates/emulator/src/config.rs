// SPDX-License-Identifier: GPL-3.0-or-later
//! `link.json` (schemas/link-config.schema.json): every fault at once, unknown fields refused.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::config_checks::{self, FORMATS};
use crate::demand::{self, OtherLoad};
use crate::direction::{self, Direction, DirectionFields};
use crate::gateways;
use crate::terminals::{self, Further};
use crate::timeline::{self, Timeline};
use crate::timing::Timing;
use crate::traces::Traces;
use crate::units::DelayMs;

pub use crate::port::Port;
pub use crate::traces::ReadFile;

/// What `satlink` is asked to emulate.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// SHA-256 of the file, hexadecimal.
    pub sha256: String,
    /// Name of the run, copied into the metrics header.
    pub run_id: String,
    /// Profile folder; relative paths count from the working directory.
    pub profile: PathBuf,
    /// Accept faults of a profile that the loader of `OpenSAND` accepts.
    pub lenient: bool,
    /// Seed of the run. Each direction derives its seed from it.
    pub seed: u64,
    /// Timing of frames.
    pub timing: Timing,
    /// Whether `OpenSAND`'s timing includes its losses and FIFOs.
    pub opensand_defects: bool,
    /// Time by which each forward tick of `OpenSAND` is late, ns.
    pub opensand_drift_ns: u64,
    /// GW to ST.
    pub forward: Direction,
    /// ST to GW.
    pub return_link: Direction,
    /// Delay of the terrestrial segment, each way, ns.
    pub terrestrial_delay_ns: u64,
    /// Devices on the terminal and gateway side of the satellite segment; `None`: `OpenSAND`
    /// carries the segment.
    pub satellite: Option<[Port; 2]>,
    /// Devices on the gateway and server side of the terrestrial segment; `None`: there is no such
    /// segment.
    pub terrestrial: Option<[Port; 2]>,
    /// File to which metrics are appended.
    pub metrics: PathBuf,
    /// Time between two samples, ms.
    pub metrics_interval_ms: u64,
    /// Largest size of that file and the older file next to it, bytes; `None`: no limit.
    pub metrics_max_bytes: Option<u64>,
    /// Collector that gets the samples as probes of `OpenSAND`, if there is one.
    pub probes: Option<Probes>,
    /// Control socket, if there is one.
    pub control: Option<PathBuf>,
    /// Changes that are known beforehand.
    pub timeline: Option<Timeline>,
    /// Traffic of other terminals.
    pub others: Vec<OtherLoad>,
    /// Addresses of the entities if each is a process.
    pub emulation: Option<Emulation>,
    /// Terminals besides the ST.
    pub terminals: Vec<Further>,
    /// Gateways of the other spots to which these terminals belong.
    pub gateways: Vec<gateways::Further>,
}

impl Config {
    /// The devices: terrestrial segment, then satellite segment, then further terminals and
    /// gateways.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        let terrestrial = self.terrestrial.iter().flatten();
        let satellite = terrestrial.chain(self.satellite.iter().flatten());
        let terminals = self.terminals.iter().map(|it| &it.port);
        let gateways = self.gateways.iter().map(|it| &it.port);
        satellite.chain(terminals).chain(gateways)
    }

    /// Number of terminals, the ST included.
    #[must_use]
    pub fn terminal_count(&self) -> usize {
        1 + self.terminals.len()
    }

    /// Whether the terminals besides the ST are those of the profile.
    #[must_use]
    pub fn has_own_profiles(&self) -> bool {
        self.terminals.iter().any(|it| it.id.is_some())
    }
}

/// A collector that gets every sample over UDP under `OpenSAND`'s probe names.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// Address of the collector, ADDRESS:PORT.
    #[schemars(with = "String", extend("format" = "socket-address"))]
    #[schemars(extend("remedy" = "an address and a UDP port, e.g. \"127.0.0.1:5361\""))]
    pub address: SocketAddr,
    /// Path of the network namespace from which samples are sent; parent: the namespace of the
    /// parent process; null: the namespace of this process.
    #[schemars(length(min = 1))]
    pub netns: Option<PathBuf>,
    /// Namespaces in which `OpenSAND`'s entities send probes and logs to 127.0.0.1. These are
    /// forwarded to the collector, and satlink sends no samples of its own.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub from: Vec<PathBuf>,
}

/// Where terminal, satellite and gateway are on the emulation network when each is a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Emulation {
    /// Terminal.
    #[schemars(extend("remedy" = "an IPv4 address"))]
    pub st: Ipv4Addr,
    /// Satellite.
    #[schemars(extend("remedy" = "an IPv4 address"))]
    pub sat: Ipv4Addr,
    /// Gateway.
    #[schemars(extend("remedy" = "an IPv4 address"))]
    pub gw: Ipv4Addr,
    /// UDP port of the forward direction. The return direction has the next port.
    #[schemars(range(min = 1, max = 65534))]
    pub port: u16,
}

/// Every fault of a configuration; displays one per line as `file: field: reason (remedy)`.
#[derive(Debug, PartialEq, Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigError(pub Vec<String>);

/// The fields of the file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(rename = "schema")]
    #[schemars(extend("const" = "satlab/link-config/1"))]
    _schema: String,
    #[schemars(length(min = 1))]
    run_id: String,
    /// folder with `OpenSAND` 8.2 XML
    #[schemars(length(min = 1))]
    profile: PathBuf,
    /// accept faults of the profile that `OpenSAND`'s loader accepts
    #[serde(default)]
    lenient: bool,
    #[schemars(range(min = 0, max = 18_446_744_073_709_551_615_u64))]
    seed: u64,
    timing: Timing,
    /// with timing opensand: drop the forward packets that 8.2.0 drops in nearly full BBFRAMEs, and
    /// take the queue limits from the FIFO sizes of the profile
    #[serde(default)]
    opensand_defects: bool,
    /// with the defects of `OpenSAND`: time by which each forward tick starts the next one late, us
    #[serde(default)]
    #[schemars(range(min = 0, max = 5000))]
    opensand_drift_us: u64,
    #[schemars(with = "DirectionFields")]
    forward: Value,
    #[serde(rename = "return")]
    #[schemars(with = "DirectionFields")]
    return_link: Value,
    terrestrial_one_way_delay_ms: DelayMs,
    /// device on the terminal side of the satellite segment; st and gw are both null if `OpenSAND`
    /// carries that segment
    st: Option<Port>,
    /// device on the gateway side of the satellite segment; st and gw are both null if `OpenSAND`
    /// carries that segment
    gw: Option<Port>,
    /// device on the gateway side of the terrestrial segment; near and far are both null without
    /// that segment. If each entity is a process, the gateway's process serves it
    near: Option<Port>,
    /// device on the server side of the terrestrial segment; near and far are both null without
    /// that segment. If each entity is a process, the gateway's process serves it
    far: Option<Port>,
    /// file to which link metrics are appended
    #[schemars(length(min = 1))]
    metrics: PathBuf,
    #[schemars(range(min = 10, max = 10_000))]
    metrics_interval_ms: u64,
    /// largest size of the metrics file and of the older file next to it (FILE.1) together; null or
    /// left out: no limit
    #[schemars(range(min = 1_048_576, max = 1_099_511_627_776_u64))]
    metrics_max_bytes: Option<u64>,
    /// collector of the samples; null or left out: none
    probes: Option<Probes>,
    /// path of the control socket; null or left out: none
    #[schemars(length(min = 1, max = 107))]
    control: Option<PathBuf>,
    /// changes at known times; null or left out: none
    timeline: Option<timeline::Fields>,
    /// traffic of other terminals on the return carrier, if slots are assigned on demand; null or
    /// left out: these terminals are silent
    #[schemars(with = "Option<Vec<demand::Fields>>", length(max = 1000))]
    others: Option<Vec<OtherLoad>>,
    /// addresses of terminal, satellite and gateway if each is a process; null or left out: one
    /// process emulates all of them
    emulation: Option<Emulation>,
    /// terminals besides the ST: either all of the profile's, or terminals that are equal to the ST
    /// and share its carriers; null or left out: only the ST
    #[schemars(with = "Option<Vec<terminals::Fields>>", length(max = 63))]
    terminals: Option<Vec<Further>>,
    /// gateways of the other spots to which the terminals belong; null or left out: only the first
    /// gateway
    #[schemars(with = "Option<Vec<gateways::Fields>>", length(max = 30))]
    gateways: Option<Vec<gateways::Further>>,
}

static SCHEMA: LazyLock<Value> = LazyLock::new(schema);

/// The schema of the file.
fn schema() -> Value {
    schema::read::<Fields>("link-config", "What satlink is asked to emulate")
}

/// Checks the text of a configuration. Loss traces come from `read`.
///
/// # Errors
/// All faults of the text.
pub fn parse(text: &str, read: &ReadFile<'_>) -> Result<Config, ConfigError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        ConfigError(vec![format!(
            "is not JSON: {error} (see schemas/link-config.schema.json)"
        )])
    })?;
    let mut traces = Traces::new(read);
    let mut faults = schema::check(&SCHEMA, "", &value, &FORMATS);
    config_checks::configuration(&value, &mut traces, &mut faults);
    if !faults.is_empty() {
        return Err(ConfigError(faults));
    }
    let sha256 = profile::sha256_hex(text.as_bytes());
    config(value, sha256, &traces).map_err(|error| ConfigError(vec![error.to_string()]))
}

fn config(value: Value, sha256: String, traces: &Traces<'_>) -> serde_json::Result<Config> {
    let fields = Fields::deserialize(value)?;
    let segment = |one: Option<Port>, other: Option<Port>| Some([one?, other?]);
    let timeline = fields.timeline.map(|it| Timeline::read(it, traces));
    Ok(Config {
        sha256,
        run_id: fields.run_id,
        profile: fields.profile,
        lenient: fields.lenient,
        seed: fields.seed,
        timing: fields.timing,
        opensand_defects: fields.opensand_defects,
        opensand_drift_ns: fields.opensand_drift_us * 1000,
        forward: direction::read(&fields.forward, traces)?,
        return_link: direction::read(&fields.return_link, traces)?,
        terrestrial_delay_ns: fields.terrestrial_one_way_delay_ms.ns(),
        satellite: segment(fields.st, fields.gw),
        terrestrial: segment(fields.near, fields.far),
        metrics: fields.metrics,
        metrics_interval_ms: fields.metrics_interval_ms,
        metrics_max_bytes: fields.metrics_max_bytes,
        probes: fields.probes,
        control: fields.control,
        timeline: timeline.transpose()?,
        others: fields.others.unwrap_or_default(),
        emulation: fields.emulation,
        terminals: fields.terminals.unwrap_or_default(),
        gateways: fields.gateways.unwrap_or_default(),
    })
}

/// As [`parse`], for tests: no file is there.
#[cfg(test)]
pub(crate) fn parse_alone(text: &str) -> Result<Config, ConfigError> {
    parse(text, &|_| {
        Err("cannot be read: there is no such file".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::{parse_alone as parse, *};
    use crate::direction::Limit;
    use crate::testing::example;
    use serde_json::json;
    use std::path::Path;

    fn faults(value: &Value) -> String {
        parse(&value.to_string())
            .expect_err("must be refused")
            .to_string()
    }

    #[test]
    fn schema_file_is_that_of_the_types() {
        schema::compare_with_file(&super::schema());
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
        let half = "gw: is null, and st is not (name both, or none)";
        assert_eq!(faults(&value), half);
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

    #[test]
    fn further_terminals_are_read_and_what_cannot_be_shared_is_refused() {
        let further = |n: u8| json!({"netns": format!("/run/netns/st-{n}"), "tun": "sat0", "subnet": format!("198.18.{}.0/24", 64 + n)});
        let mut value = example("geo");
        value["terminals"] = json!([further(2), further(3)]);
        let config = parse(&value.to_string()).unwrap();
        assert_eq!((config.terminal_count(), config.ports().count()), (3, 6));
        value["terminals"] =
            json!([further(2), further(2), {"netns": "x", "tun": "y", "subnet": "1.2.3.4"}]);
        value["timing"] = json!("opensand");
        let step = json!({"direction": "return", "terminal": 9, "jitter": {"uniform_ms": 1}});
        value["timeline"] = json!({"starts": "at-once", "steps": [{"at_s": 1, "set": step}]});
        let faults = faults(&value);
        for expected in [
            "terminals[1]: is the same device as terminals[0]",
            "terminals[2].subnet: \"1.2.3.4\" is not allowed (an IPv4 subnet",
            "terminals: two subnets overlap",
            "terminals: share carriers of the standards alone",
            "timeline.steps[0].set.terminal: there is no terminal 9 (1 to 4)",
            "timeline.steps[0].set.jitter: terminals share this carrier",
        ] {
            assert!(faults.contains(expected), "{expected}\n{faults}");
        }
    }

    #[test]
    fn addresses_are_read_and_checked() {
        let read = |emulation: Value| {
            let mut value = example("geo");
            value["emulation"] = emulation;
            parse(&value.to_string()).map(|config| config.emulation)
        };
        let local = Emulation {
            st: Ipv4Addr::new(127, 99, 0, 3),
            sat: Ipv4Addr::new(127, 99, 0, 1),
            gw: Ipv4Addr::new(127, 99, 0, 2),
            port: 41_733,
        };
        let good =
            json!({"st": "127.99.0.3", "sat": "127.99.0.1", "gw": "127.99.0.2", "port": 41733});
        assert_eq!(read(good.clone()).unwrap(), Some(local));
        assert_eq!(read(Value::Null).unwrap(), None);
        let mut bad = good;
        bad["gw"] = "127.99.0.1".into();
        assert!(
            read(bad.clone())
                .unwrap_err()
                .to_string()
                .contains("one address")
        );
        bad["st"] = "somewhere".into();
        bad["port"] = 65_535.into();
        let faults = read(bad).unwrap_err().to_string();
        for part in [
            "emulation.st: \"somewhere\" is not allowed",
            "emulation.port: 65535",
        ] {
            assert!(faults.contains(part), "{faults}");
        }
    }
}
