// SPDX-License-Identifier: GPL-3.0-or-later
//! `satvirtual flows`: the program over files, as a user runs it.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn half(rate_mbps: f64, delay_ms: f64, queue: &Value) -> Value {
    json!({"rate_mbps": rate_mbps, "delay_ms": delay_ms, "queue": queue})
}

fn flow(id: &str, stack: &str, control: &str, start_s: f64) -> Value {
    json!({"id": id, "from": "server1", "to": "client1", "stack": stack,
           "congestion_control": control, "start_s": start_s, "datagram_bytes": 1200})
}

fn spec(duration_s: f64, flows: &[Value]) -> Value {
    let half = half(10.0, 30.0, &json!({"bdp": 1}));
    json!({"schema": "satlab/virtual-flows/1", "seed": 1, "duration_s": duration_s,
           "wire": {"forward": half, "return": half}, "flows": flows})
}

fn run(name: &str, spec: &Value) -> Output {
    let folder = std::env::temp_dir().join(format!("satvirtual-flows-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file: PathBuf = folder.join(format!("{name}.json"));
    std::fs::write(&file, spec.to_string()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_satvirtual"))
        .args(["flows".as_ref(), file.as_os_str()])
        .output()
        .unwrap()
}

fn outcome(name: &str, spec: &Value) -> Value {
    let output = run(name, spec);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn mean(flow: &Value, phase: usize, figure: &str) -> f64 {
    flow["phases"][phase][figure]["mean"].as_f64().unwrap()
}

#[test]
fn p384_a_host_that_wakes_programs_up_late_slows_the_start_and_does_so_each_time() {
    let mut late = spec(5.0, &[flow("a", "quinn", "cubic", 0.0)]);
    let at_once = outcome("at-once", &late);
    assert!(at_once["request"].get("host_latency_us").is_none());
    late["host_latency_us"] = json!(20_000);
    let found = outcome("late", &late);
    assert_eq!(found, outcome("late", &late));
    // Two wake-ups of 10 ms in the mean are a third of the propagation's round trip: slow start
    // takes longer.
    let grown = |of: &Value| of["flows"][0]["time_to_80_percent_s"].as_f64().unwrap();
    assert!(grown(&found) > grown(&at_once));
    late["host_latency_us"] = json!(-1);
    let refused = run("negative", &late);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("host_latency_us"));
}

#[test]
fn one_flow_fills_the_link() {
    let found = outcome("one", &spec(20.0, &[flow("a", "quinn", "cubic", 0.0)]));
    let used = found["groups"][0]["utilisation"].as_f64().unwrap();
    // 1200 bytes of UDP payload in 1228 bytes, less QUIC's own headers and the first round trips.
    assert!((0.90..0.97).contains(&used), "{used}");
    let flow = &found["flows"][0];
    assert_eq!(flow["status"], "ok");
    assert_eq!(flow["bins"]["rtt_ms"].as_array().unwrap().len(), 200);
    let rtt_ms = mean(flow, 0, "rtt_ms");
    assert!((70.0..125.0).contains(&rtt_ms), "{rtt_ms}");
    let share = flow["retransmitted_share"].as_f64().unwrap();
    assert!(share > 0.0 && share < 0.05, "{share}");
    let queue = &found["queues"][0]["phases"][0];
    assert!(
        (55.0..62.0).contains(&queue["max_ms"].as_f64().unwrap()),
        "{queue}"
    );
}

#[test]
// promise: P74
fn flows_of_one_kind_share_and_runs_are_equal_to_the_bit() {
    let flows: Vec<_> = (0..4)
        .map(|index| flow(&index.to_string(), "quinn", "cubic", 0.0))
        .collect();
    let shared = spec(30.0, &flows);
    let [first, second] = [(); 2].map(|()| run("equal", &shared));
    assert!(first.status.success());
    assert_eq!(first.stdout, second.stdout);
    let found: Value = serde_json::from_slice(&first.stdout).unwrap();
    let jain = found["groups"][0]["jain"].as_f64().unwrap();
    assert!(jain > 0.6, "{jain}");
    let mut other = shared;
    other["seed"] = 2.into();
    assert_ne!(run("other", &other).stdout, first.stdout);
}

#[test]
fn dualpi2_marks_a_flow_and_keeps_its_queue_near_15_ms() {
    let with = |queue: &Value| {
        let mut alone = spec(20.0, &[flow("a", "quinn", "cubic", 0.0)]);
        alone["wire"]["forward"]["queue"] = queue.clone();
        let found = outcome("aqm", &alone);
        let lost = found["flows"][0]["lost_packets"].as_u64().unwrap();
        let queue = &found["queues"][0]["phases"][0];
        (lost, queue["p95_ms"].as_f64().unwrap())
    };
    let (lost, queue_ms) = with(&json!({"bdp": 5, "aqm": "dualpi2"}));
    let (lost_at_limit, full_ms) = with(&json!({"bdp": 5}));
    // Slow start is an overload, which drops.
    assert!(lost * 5 < lost_at_limit, "{lost} of {lost_at_limit}");
    assert!(queue_ms < 30.0 && full_ms > 200.0, "{queue_ms} {full_ms}");
}

#[test]
fn search_ends_slow_start_before_a_deep_queue_is_full() {
    let lost = |slow_start: &str| {
        let mut alone = spec(6.0, &[flow("a", "quinn", "cubic", 0.0)]);
        alone["wire"]["forward"]["queue"] = json!({"bdp": 7});
        alone["flows"][0]["slow_start"] = json!(slow_start);
        let found = outcome(slow_start, &alone);
        let used = found["groups"][0]["utilisation"].as_f64().unwrap();
        assert!(used > 0.8, "{slow_start}: {used}");
        found["flows"][0]["lost_packets"].as_u64().unwrap()
    };
    assert!(lost("standard") > 100);
    assert_eq!(lost("search"), 0);
    let mut other = spec(6.0, &[flow("a", "quinn", "reno", 0.0)]);
    other["flows"][0]["slow_start"] = json!("search");
    let refused = run("search-reno", &other);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        text.contains("search is not offered with another"),
        "{text}"
    );
}

#[test]
fn a_late_flow_comes_to_its_share() {
    let found = outcome(
        "late",
        &spec(
            40.0,
            &[
                flow("a", "quinn", "reno", 0.0),
                flow("b", "quinn", "reno", 15.0),
            ],
        ),
    );
    let late = &found["flows"][1];
    let share = late["share_20s"].as_f64().unwrap();
    assert!((0.05..0.7).contains(&share), "{share}");
    assert_eq!(late["bins"]["payload_bytes"][100], Value::Null);
    let jain = found["groups"][0]["jain_over_time"].as_array().unwrap();
    assert_eq!((jain.len(), &jain[5]), (40, &Value::Null));
    assert!(jain[39].is_number());
}

#[test]
fn a_delay_step_shows_in_the_second_phase() {
    let mut stepped = spec(30.0, &[flow("a", "quinn", "reno", 0.0)]);
    stepped["phases_s"] = json!([15]);
    stepped["wire"]["timeline"] = json!([{"at_s": 15, "direction": "both", "delay_ms": 60}]);
    let found = outcome("step", &stepped);
    let flow = &found["flows"][0];
    let rise = mean(flow, 1, "rtt_ms") - mean(flow, 0, "rtt_ms");
    assert!((25.0..65.0).contains(&rise), "{rise}");
}

#[test]
fn cross_traffic_is_a_flow_and_takes_its_rate() {
    let udp = json!({"id": "udp", "group": "cross", "from": "server2", "to": "client2",
                     "stack": "udp", "rate_mbps": 4, "start_s": 2, "stop_s": 18});
    let upload = json!({"id": "up", "group": "up", "from": "client1", "to": "server1",
                        "stack": "quinn", "congestion_control": "cubic", "start_s": 0});
    let found = outcome(
        "cross",
        &spec(20.0, &[flow("a", "quinn", "cubic", 0.0), udp, upload]),
    );
    let groups = found["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 3);
    // While both queues stand, some datagrams are dropped.
    let goodput = found["flows"][1]["goodput_mbps"].as_f64().unwrap();
    assert!((3.2..4.0).contains(&goodput), "{goodput}");
    assert!(mean(&found["flows"][0], 0, "goodput_mbps") < 8.0);
    assert_eq!(groups[2]["direction"], "return");
    assert!(mean(&found["flows"][2], 0, "goodput_mbps") > 6.0);
}

#[test]
// promise: P86
fn bytes_end_a_flow_and_a_dead_flow_stays_in_the_figures() {
    let mut short = flow("short", "quinn", "cubic", 0.0);
    short["bytes"] = 500_000.into();
    let mut cut = spec(60.0, &[short, flow("long", "quinn", "cubic", 0.0)]);
    let found = outcome("bytes", &cut);
    let short = &found["flows"][0];
    assert_eq!(
        (&short["status"], &short["payload_bytes"]),
        (&json!("ok"), &json!(500_000))
    );
    assert!(short["ended_s"].as_f64().unwrap() < 10.0);
    // The idle timer of 30 s ends what an outage cuts.
    cut["wire"]["timeline"] = json!([{"at_s": 10, "direction": "both", "outage_s": 45}]);
    let output = run("dead", &cut);
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let long = &found["flows"][1];
    assert_eq!(long["status"], "failed");
    assert!(!long["reason"].as_str().unwrap().is_empty());
    assert_eq!(found["groups"][0]["failed"], 1);
    // 10 of 60 s were carried.
    assert!(mean(long, 0, "goodput_mbps") < 2.0);
}

#[test]
fn faults_end_with_status_2_and_their_places() {
    let mut bad = spec(10.0, &[flow("a", "quinn", "bbr3", 0.0)]);
    bad["flows"][0]["start_s"] = 11.into();
    bad["flows"][0]["to"] = "moon".into();
    let output = run("bad", &bad);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for place in [
        "flows[0].start_s",
        "flows[0].to",
        "flows[0].congestion_control",
    ] {
        assert!(text.contains(place), "{place} not in\n{text}");
    }
    assert!(output.stdout.is_empty());
}

#[cfg(feature = "noq")]
#[test]
fn bbr3_keeps_the_queue_short_and_runs_are_equal_to_the_bit() {
    let alone = |control| spec(30.0, &[flow("a", "noq", control, 0.0)]);
    let [first, second] = [(); 2].map(|()| run("bbr3", &alone("bbr3")));
    assert!(
        first.status.success(),
        "{}",
        String::from_utf8_lossy(&first.stderr)
    );
    assert_eq!(first.stdout, second.stdout);
    let bbr: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert!(
        bbr["flows"][0]["library"]
            .as_str()
            .unwrap()
            .starts_with("noq-proto")
    );
    let cubic = outcome("noq-cubic", &alone("cubic"));
    let median = |found: &Value| found["queues"][0]["phases"][0]["p50_ms"].as_f64().unwrap();
    assert!(
        median(&bbr) < median(&cubic),
        "{} {}",
        median(&bbr),
        median(&cubic)
    );
    assert!(mean(&bbr["flows"][0], 0, "goodput_mbps") > 8.0);
}

#[test]
// promise: P88
fn flows_share_a_tunnel_that_repairs_bursts() {
    let mut shared = spec(
        60.0,
        &["a", "b"].map(|id| {
            let mut flow = flow(id, "quinn", "cubic", 0.0);
            flow["bytes"] = 5_000_000.into();
            flow
        }),
    );
    // Bursts of up to 8 packets; S(5,100) repairs 20.
    shared["wire"]["forward"]["loss"] =
        json!({"model": "bursts", "period_ms": 200, "duration_ms": 8, "unit": "packet"});
    let plain = outcome("plain", &shared);
    // A packet that comes out of order is a loss for QUIC: the tunnel keeps the order.
    shared["fec"] = json!({"code": "5,100", "hold_ms": 200});
    let coded = outcome("coded", &shared);
    let ended = |found: &Value, flow: usize| found["flows"][flow]["ended_s"].as_f64().unwrap();
    for flow in 0..2 {
        assert_eq!(coded["flows"][flow]["status"], "ok");
        assert!(ended(&coded, flow) < 0.7 * ended(&plain, flow));
    }
}

/// S(5,100) before the first report; without losses S(50,100) after 10 s of reports; bursts of 25
/// packets need S(2,100).
#[test]
fn adaptive_redundancy_of_flows_is_the_same_in_every_run() {
    let run = |name: &str, loss: Option<Value>, fec: &str| {
        let mut file = spec(40.0, &[flow("a", "udp", "", 0.0)]);
        let flow = file["flows"][0].as_object_mut().unwrap();
        flow.remove("congestion_control");
        flow.insert("rate_mbps".into(), 6.into());
        file["fec"] = json!({"code": fec, "hold_ms": 200});
        if let Some(loss) = loss {
            file["wire"]["forward"]["loss"] = loss;
        }
        outcome(name, &file)["tunnel"][1].clone()
    };
    let bursts = json!({"model": "bursts", "period_ms": 500, "duration_ms": 30, "unit": "packet"});
    let clean = run("adaptive-clean", None, "adaptive");
    let lossy = run("adaptive-lossy", Some(bursts.clone()), "adaptive");
    let count = |end: &Value, name: &str| end[name].as_u64().unwrap();
    let share = |end: &Value| count(end, "repairs_sent") as f64 / count(end, "sources_sent") as f64;
    assert_eq!(count(&clean, "code_changes"), 1);
    assert!((0.02..0.08).contains(&share(&clean)), "{clean}");
    assert_eq!(count(&lossy, "code_changes"), 1);
    assert!((0.48..=0.5).contains(&share(&lossy)), "{lossy}");
    assert_eq!(lossy, run("adaptive-again", Some(bursts), "adaptive"));
    assert_eq!(run("fixed", None, "5,100")["code_changes"], 0);
    let golden = [&clean, &lossy].map(|end| count(end, "repairs_sent"));
    assert_eq!(golden, [1619, 12_164]);
}

#[test]
fn a_flow_starts_with_what_was_saved_of_its_path() {
    let mut resumed = spec(20.0, &[flow("a", "quinn", "cubic", 0.0)]);
    resumed["flows"][0]["bytes"] = 1_000_000.into();
    for direction in ["forward", "return"] {
        resumed["wire"][direction]["delay_ms"] = 300.into();
    }
    let cold = outcome("cold", &resumed);
    assert_eq!(cold["flows"][0]["careful_resume"], Value::Null);
    resumed["flows"][0]["careful_resume"] = "on".into();
    let lonely = run("unsaved", &resumed);
    assert_eq!(lonely.status.code(), Some(2), "needs what was saved");
    resumed["flows"][0]["saved"] = json!({"cwnd_bytes": 750_000, "rtt_ms": 600});
    let warm = outcome("warm", &resumed);
    let jump = &warm["flows"][0]["careful_resume"];
    assert_eq!(
        (&jump["jump_bytes"], &jump["retreated"]),
        (&json!(375_000), &json!(false))
    );
    let ended = |found: &Value| found["flows"][0]["ended_s"].as_f64().unwrap();
    assert!(ended(&warm) < ended(&cold) - 1.0);
}

#[test]
fn a_client_that_moves_keeps_its_connection_and_the_sender_starts_anew() {
    let mut moved = spec(30.0, &[flow("a", "quinn", "cubic", 0.0)]);
    moved["flows"][0]["migrate_s"] = json!([15]);
    let found = outcome("moved", &moved);
    let flow = &found["flows"][0];
    assert_eq!(flow["status"], "ok");
    let window = |bin: usize| flow["bins"]["cwnd_bytes"][bin].as_u64().unwrap();
    // RFC 9000 section 9.4: what is known of the old path does not count.
    let least = (150..155).map(window).min().unwrap();
    assert!(least < window(148) / 2, "{least} {}", window(148));
    assert!(mean(flow, 0, "goodput_mbps") > 8.0);
}

#[test]
fn losses_of_a_wire_are_checked() {
    let mut bad = spec(10.0, &[flow("a", "quinn", "cubic", 0.0)]);
    bad["wire"]["forward"]["loss"] = json!([
        {"model": "bursts", "period_ms": 10, "duration_ms": 20, "unit": "packet"},
        {"model": "trace", "file": "losses.txt", "unit": "packet"},
    ]);
    bad["fec"] = json!({"code": "0,100", "hold_ms": 0});
    let output = run("losses", &bad);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    for expected in [
        "loss[0]: a burst of duration_ms does not fit",
        "a wire has no files",
    ] {
        assert!(text.contains(expected), "{expected} not in\n{text}");
    }
}
