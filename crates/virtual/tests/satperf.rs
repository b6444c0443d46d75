// SPDX-License-Identifier: GPL-3.0-or-later
//! satperf's client and server over a large satellite link, in virtual time: minutes in seconds.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test"
)]

use dvb::modcod::{FrameSize, ModCod};
use link::{Carrier, LinkConfig, Loss, LossUnit, Queue};
use quic::{CongestionControl, LegOptions};
use satperf::record::{Direction, Request};
use satvirtual::path;
use satvirtual::transfer::{SCHEMA, Transfer};
use serde_json::Value;

/// Propagation, each way.
const DELAY: u64 = 325_000_000;

/// A satellite link.
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

fn link(path: Path) -> LinkConfig {
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
    config
}

fn terrestrial() -> LinkConfig {
    LinkConfig::new(Carrier::Wire, 0, Queue::drop_tail(1 << 20), 1)
}

/// The lines of both ends.
struct Output {
    client: Vec<Value>,
    server: Vec<Value>,
}

impl Output {
    /// The client's file, which holds the server's lines, too.
    fn summary(&self, side: &str) -> &Value {
        summary(&self.client, side)
    }
}

fn summary<'a>(lines: &'a [Value], side: &str) -> &'a Value {
    let mut found = lines.iter();
    found
        .find(|line| line["type"] == "summary" && line["side"] == side)
        .unwrap()
}

/// Runs a client until it has an outcome.
fn run(path: Path, request: Request, options: &LegOptions, timeout_s: u64) -> Output {
    let down = Path {
        seed: path.seed + 1,
        ..path
    };
    let links = [link(down), link(path), terrestrial(), terrestrial()];
    let transfer = Transfer {
        schema: SCHEMA.into(),
        seed: path.seed,
        direction: request.direction,
        bytes: request.bytes.unwrap_or(1),
        marks_bytes: Vec::new(),
        streams: request.streams,
        source_mbps: request.source_mbps,
        start_s: 0.0,
        repeats: 1,
        pause_s: 0.0,
        zero_rtt: false,
        stack: satvirtual::stacks::Library::Quinn,
        timeout_s: timeout_s as f64,
        client: options.clone(),
        server: options.clone(),
        programs: None,
        fec: None,
        neighbour: false,
    };
    let path = path::Path::new(&links).unwrap();
    let (world, _) = satvirtual::simulate(path, &transfer, request, true).unwrap();
    let [client, server] = world.lines.map(|lines| {
        let values = lines.iter().map(|line| serde_json::from_str(line).unwrap());
        values.collect()
    });
    Output { client, server }
}

fn request(direction: Direction, bytes: u64) -> Request {
    Request {
        direction,
        bytes: Some(bytes),
        duration_ms: None,
        streams: 1,
        source_mbps: None,
    }
}

fn with(congestion_control: CongestionControl) -> LegOptions {
    LegOptions {
        congestion_control,
        ..LegOptions::default()
    }
}

/// The acceptance test: 100 MB at 250 Mbit/s, 650 ms, a queue of one BDP, on one stream.
fn hundred_megabytes(congestion_control: CongestionControl, loss: f64) -> Value {
    let path = Path { loss, ..LARGE };
    let request = request(Direction::Download, 100_000_000);
    let output = run(path, request, &with(congestion_control), 20_000);
    let summary = output.summary("client");
    assert_eq!(
        (&summary["status"], &summary["bytes"]),
        (&"ok".into(), &100_000_000.into()),
        "{summary}"
    );
    assert_eq!(summary["data_equal"], true, "{summary}");
    let server = self::summary(&output.server, "server");
    assert_eq!(server["status"], "ok");
    summary.clone()
}

#[test]
// promise: P84
fn cubic_carries_100_mb_without_loss() {
    let summary = hundred_megabytes(CongestionControl::Cubic, 0.0);
    assert!(
        summary["reached_100mb_s"].as_f64().unwrap() < 20.0,
        "{summary}"
    );
}

#[test]
fn cubic_carries_100_mb_with_one_percent_loss() {
    hundred_megabytes(CongestionControl::Cubic, 0.01);
}

#[test]
fn reno_carries_100_mb_without_loss() {
    hundred_megabytes(CongestionControl::Reno, 0.0);
}

#[test]
fn reno_carries_100_mb_with_one_percent_loss() {
    hundred_megabytes(CongestionControl::Reno, 0.01);
}

#[test]
fn acknowledgements_are_cut_at_equal_goodput() {
    let request = request(Direction::Download, 30_000_000);
    let often = LegOptions::default();
    let seldom = LegOptions {
        ack_threshold: Some(20),
        ..LegOptions::default()
    };
    let [often, seldom] = [often, seldom].map(|options| {
        let output = run(LARGE, request, &options, 100);
        let summary = output.summary("client");
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
    let output = run(path, request, &LegOptions::default(), 200);
    let summary = output.summary("client");
    assert_eq!(
        (&summary["status"], &summary["data_equal"]),
        (&"ok".into(), &Value::Null),
        "{summary}"
    );
    let received = self::summary(&output.server, "server");
    assert_eq!(
        (&received["bytes"], &received["data_equal"]),
        (&3_000_001.into(), &true.into())
    );
    assert_eq!(
        output.summary("server"),
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
            source_mbps: None,
        };
        let output = run(path, request, &LegOptions::default(), 60);
        assert_eq!(output.summary("client")["status"], "ok");
        let receiver = if direction == Direction::Download {
            "client"
        } else {
            "server"
        };
        let summary = output.summary(receiver);
        assert_eq!(summary["data_equal"], true, "{summary}");
        let intervals: Vec<_> = output
            .client
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
        let output = run(path, request, &options, timeout_s);
        let summary = output.summary("client");
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
        let output = run(path, request, &options, 600);
        let summary = output.summary("client");
        assert_eq!(
            (&summary["status"], &summary["data_equal"]),
            (&"ok".into(), &true.into()),
            "{summary}"
        );
    }
}
