// SPDX-License-Identifier: GPL-3.0-or-later
//! Client and server joined by the emulator's own link model, in simulated time: an hour over a satellite in seconds.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use dvb::modcod::{FrameSize, ModCod};
use link::{Carrier, Link, LinkConfig, Loss, LossUnit, Queue, Stage};
use quic::{CongestionControl, LegOptions};
use serde_json::Value;

use crate::app::App;
use crate::book::Setting;
use crate::client::Client;
use crate::record::{Direction, Request, Side, Socket};
use crate::server::Server;
use crate::stack::quinn::Quinn;
use crate::stack::{Datagram, Setup, Stack, Trust};

/// IPv4 and UDP headers, which the link carries, too.
const HEADERS: usize = 28;

/// Propagation, each way.
const DELAY: u64 = 325_000_000;

/// A path as asked for.
#[derive(Clone, Copy)]
struct Path {
    rate_bps: f64,
    loss: f64,
    seed: u64,
}

/// Large of draft-kuhn-quic-4-sat-07 section 3, as fast in both directions.
const LARGE: Path = Path {
    rate_bps: 250e6,
    loss: 0.0,
    seed: 1,
};

fn link(path: Path) -> Link {
    let modcod = ModCod::by_id(12).unwrap();
    let carrier = |symbol_rate| Carrier::Forward {
        symbol_rate,
        modcod,
        frame_size: FrameSize::Normal,
        pilots: false,
        label: [2, 0, 0, 0, 0, 1],
    };
    let per_symbol = carrier(100_000_000).rate_bps().unwrap() / 1e8;
    let bdp = (path.rate_bps * 2.0 * DELAY as f64 / 1e9 / 8.0) as u64;
    let carrier = carrier((path.rate_bps / per_symbol) as u64);
    let mut config = LinkConfig::new(carrier, DELAY, Queue::drop_tail(bdp), path.seed);
    if path.loss > 0.0 {
        config
            .losses
            .push(Loss::random(path.loss, LossUnit::Packet));
    }
    Link::new(config).unwrap()
}

struct Pki(PathBuf);

impl Pki {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("satperf-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let made = rcgen::generate_simple_self_signed(["perf.test".to_owned()]).unwrap();
        std::fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(dir.join("key.pem"), made.key_pair.serialize_pem()).unwrap();
        Self(dir)
    }

    fn server(&self) -> Trust {
        Trust::Server {
            cert: self.0.join("cert.pem"),
            key: self.0.join("key.pem"),
        }
    }

    fn client(&self) -> Trust {
        Trust::Client {
            ca: self.0.join("cert.pem"),
        }
    }
}

impl Drop for Pki {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Host {
    address: SocketAddr,
    stack: Box<dyn Stack>,
    app: Box<dyn App>,
    /// From this host to the other.
    out: Link,
    lines: Vec<Value>,
}

impl Host {
    fn step(&mut self, begin: Instant, now: u64) {
        let instant = begin + Duration::from_nanos(now);
        if self.stack.timeout().is_some_and(|due| due <= instant) {
            self.stack.handle_timeout(instant);
        }
        self.app.step(instant, self.stack.as_mut());
        self.lines.extend(
            self.app
                .lines()
                .iter()
                .map(|line| serde_json::from_str::<Value>(line).unwrap()),
        );
        let mut buffer = Vec::new();
        while let Some(transmit) = self.stack.transmit(instant, 10, &mut buffer) {
            for datagram in buffer.chunks(transmit.segment.unwrap_or(usize::MAX)) {
                let mut packet = [0; HEADERS].to_vec();
                packet[0] = 0x45;
                packet.extend_from_slice(datagram);
                self.out.push(now, &packet);
            }
            buffer.clear();
        }
    }

    /// Next moment at which something is due, ns.
    fn due(&mut self, begin: Instant) -> u64 {
        let timers = [self.stack.timeout(), self.app.wake()]
            .into_iter()
            .flatten()
            .min();
        let timer = timers.map(|due| due.saturating_duration_since(begin).as_nanos() as u64);
        [timer, self.out.next_event()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(u64::MAX)
    }

    fn summary(&self, side: &str) -> &Value {
        self.lines
            .iter()
            .find(|line| line["type"] == "summary" && line["side"] == side)
            .unwrap()
    }
}

fn deliver(from: &mut Link, sender: SocketAddr, to: &mut Host, begin: Instant, now: u64) {
    let mut packet = Vec::new();
    while from.pop(now, &mut packet).is_some() {
        let data = BytesMut::from(&packet[HEADERS..]);
        let datagram = Datagram {
            from: sender,
            to: to.address,
            ecn: None,
            data,
        };
        to.stack
            .receive(begin + Duration::from_nanos(now), datagram);
    }
}

/// Makes client and server, and says when time begins.
fn hosts(
    name: &str,
    path: Path,
    request: Request,
    options: &LegOptions,
    timeout_s: u64,
) -> (Instant, [Host; 2]) {
    let pki = Pki::new(name);
    let begin = Instant::now();
    let setting = |side, stack: &dyn Stack| {
        let (socket, epoch) = (Socket::default(), (begin, 0.0));
        Rc::new(Setting {
            side,
            stack: stack.name(),
            options: options.clone(),
            socket,
            epoch,
            cpu_s: || 0.0,
        })
    };
    let make = |trust| {
        let setup = Setup {
            options: options.clone(),
            trust,
            qlog: None,
            session: None,
        };
        Box::new(Quinn::new(setup).unwrap())
    };
    let (here, there): (SocketAddr, SocketAddr) = (
        "198.18.1.2:1".parse().unwrap(),
        "198.18.4.2:2".parse().unwrap(),
    );
    let (mut near, far) = (make(pki.client()), make(pki.server()));
    let conn = near.connect(begin, here, there, "perf.test").unwrap();
    let timeout = Duration::from_secs(timeout_s);
    let client = Client::new(
        setting(Side::Client, near.as_ref()),
        conn,
        there.to_string(),
        request,
        begin,
        timeout,
    );
    let server = Server::new(setting(Side::Server, far.as_ref()), true);
    let host = |address, stack, app, path| Host {
        address,
        stack,
        app,
        out: link(path),
        lines: Vec::new(),
    };
    let hosts = [
        host(here, near, Box::new(client) as Box<dyn App>, path),
        host(
            there,
            far,
            Box::new(server),
            Path {
                seed: path.seed + 1,
                ..path
            },
        ),
    ];
    (begin, hosts)
}

/// Runs until both ends have an outcome; gives client and server.
fn run(
    name: &str,
    path: Path,
    request: Request,
    options: &LegOptions,
    timeout_s: u64,
) -> [Host; 2] {
    simulate(name, path, request, options, timeout_s, 2)
}

/// Runs until the first `ends` of client and server have an outcome.
fn simulate(
    name: &str,
    path: Path,
    request: Request,
    options: &LegOptions,
    timeout_s: u64,
    ends: usize,
) -> [Host; 2] {
    let (begin, mut hosts) = hosts(name, path, request, options, timeout_s);
    let mut now = 0;
    loop {
        let [near, far] = &mut hosts;
        deliver(&mut near.out, near.address, far, begin, now);
        deliver(&mut far.out, far.address, near, begin, now);
        for host in &mut hosts {
            host.step(begin, now);
        }
        if hosts[..ends]
            .iter()
            .all(|host| host.app.outcome().is_some())
        {
            return hosts;
        }
        let due = hosts.iter_mut().map(|host| host.due(begin)).min().unwrap();
        assert!(due < 86_400_000_000_000, "nothing will ever happen");
        now = due.max(now + 1);
    }
}

fn request(direction: Direction, bytes: u64) -> Request {
    Request {
        direction,
        bytes: Some(bytes),
        duration_ms: None,
        streams: 1,
    }
}

fn with(congestion_control: CongestionControl) -> LegOptions {
    LegOptions {
        congestion_control,
        ..LegOptions::default()
    }
}

/// The acceptance test: 100 MB at 250 Mbit/s, 650 ms, a queue of one BDP, on one stream.
fn hundred_megabytes(name: &str, congestion_control: CongestionControl, loss: f64) -> Value {
    let path = Path { loss, ..LARGE };
    let request = request(Direction::Download, 100_000_000);
    let [client, server] = run(name, path, request, &with(congestion_control), 20_000);
    let summary = client.summary("client");
    assert_eq!(
        (&summary["status"], &summary["bytes"]),
        (&"ok".into(), &100_000_000.into()),
        "{summary}"
    );
    assert_eq!(summary["data_equal"], true, "{summary}");
    assert_eq!(server.summary("server")["status"], "ok");
    summary.clone()
}

#[test]
fn cubic_carries_100_mb_without_loss() {
    let summary = hundred_megabytes("cubic-0", CongestionControl::Cubic, 0.0);
    assert!(
        summary["reached_100mb_s"].as_f64().unwrap() < 20.0,
        "{summary}"
    );
}

#[test]
fn cubic_carries_100_mb_with_one_percent_loss() {
    hundred_megabytes("cubic-1", CongestionControl::Cubic, 0.01);
}

#[test]
fn reno_carries_100_mb_without_loss() {
    hundred_megabytes("reno-0", CongestionControl::Reno, 0.0);
}

#[test]
fn reno_carries_100_mb_with_one_percent_loss() {
    hundred_megabytes("reno-1", CongestionControl::Reno, 0.01);
}

#[test]
fn acknowledgements_are_cut_at_equal_goodput() {
    let request = request(Direction::Download, 30_000_000);
    let often = LegOptions::default();
    let seldom = LegOptions {
        ack_threshold: Some(20),
        ..LegOptions::default()
    };
    let [often, seldom] = [("often", often), ("seldom", seldom)].map(|(name, options)| {
        let [client, _] = run(name, LARGE, request, &options, 100);
        let summary = client.summary("client");
        assert_eq!(summary["status"], "ok", "{summary}");
        (
            summary["acks_sent"].as_f64().unwrap(),
            summary["goodput_bps"].as_f64().unwrap(),
        )
    });
    assert!(often.0 / seldom.0 >= 5.0, "{often:?} {seldom:?}");
    assert!(
        (seldom.1 / often.1 - 1.0).abs() < 0.05,
        "{often:?} {seldom:?}"
    );
}

#[test]
fn uploads_on_several_streams_arrive_whole() {
    let path = Path {
        rate_bps: 20e6,
        loss: 0.001,
        ..LARGE
    };
    let request = Request {
        streams: 7,
        ..request(Direction::Upload, 3_000_001)
    };
    let [client, server] = run("upload", path, request, &LegOptions::default(), 200);
    let summary = client.summary("client");
    assert_eq!(
        (&summary["status"], &summary["data_equal"]),
        (&"ok".into(), &Value::Null),
        "{summary}"
    );
    let received = server.summary("server");
    assert_eq!(
        (&received["bytes"], &received["data_equal"]),
        (&3_000_001.into(), &true.into())
    );
    assert_eq!(
        client.summary("server"),
        received,
        "the client's file holds the server's lines, too"
    );
}

#[test]
fn a_duration_ends_in_time_and_its_intervals_add_up() {
    let path = Path {
        rate_bps: 20e6,
        ..LARGE
    };
    for direction in [Direction::Download, Direction::Upload] {
        let request = Request {
            direction,
            bytes: None,
            duration_ms: Some(5_000),
            streams: 2,
        };
        let [client, _] = run(
            &format!("duration-{direction:?}"),
            path,
            request,
            &LegOptions::default(),
            60,
        );
        assert_eq!(client.summary("client")["status"], "ok");
        let receiver = if direction == Direction::Download {
            "client"
        } else {
            "server"
        };
        let summary = client.summary(receiver);
        assert_eq!(summary["data_equal"], true, "{summary}");
        let intervals: Vec<_> = client
            .lines
            .iter()
            .filter(|line| line["type"] == "interval" && line["side"] == receiver)
            .collect();
        let sum = |name: &str| {
            intervals
                .iter()
                .map(|line| line[name].as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!(sum("bytes"), summary["bytes"].as_u64().unwrap());
        // Slow start from ten packets: five to seven doublings.
        assert!((300_000..1_500_000).contains(&sum("bytes")), "{summary}");
        let length: f64 = intervals
            .iter()
            .map(|line| line["interval_s"].as_f64().unwrap())
            .sum();
        assert!((4.9..6.4).contains(&length), "{length}");
    }
}

#[test]
fn a_peer_that_is_silent_ends_the_run_with_its_reason() {
    let path = Path { loss: 1.0, ..LARGE };
    for (timeout_s, reason) in [(5, "timeout after 5 s"), (60, "timed out")] {
        let request = request(Direction::Download, 1_000);
        let options = LegOptions {
            max_idle_ms: 10_000,
            ..LegOptions::default()
        };
        let [client, _] = simulate(
            &format!("silent-{timeout_s}"),
            path,
            request,
            &options,
            timeout_s,
            1,
        );
        let summary = client.summary("client");
        assert_eq!(
            (&summary["status"], &summary["reason"]),
            (&"failed".into(), &reason.into())
        );
    }
}

#[test]
fn twenty_seeds_of_a_lossy_geo_link_arrive_whole() {
    for seed in 0..20 {
        let path = Path {
            rate_bps: 20e6,
            loss: 0.01,
            seed: 2 * seed,
        };
        let request = Request {
            streams: 3,
            ..request(Direction::Download, 2_000_000)
        };
        let options = LegOptions {
            initial_window: 100,
            ..LegOptions::default()
        };
        let [client, _] = run(&format!("seed-{seed}"), path, request, &options, 600);
        let summary = client.summary("client");
        assert_eq!(
            (&summary["status"], &summary["data_equal"]),
            (&"ok".into(), &true.into()),
            "{summary}"
        );
    }
}
