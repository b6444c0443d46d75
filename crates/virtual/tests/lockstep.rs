// SPDX-License-Identifier: GPL-3.0-or-later
//! Programs in lock-step with the virtual time: a plain protocol without QUIC, whose times are
//! known, and faults.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test"
)]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use emulator::config::{Config, parse};
use satvirtual::lockstep;
use satvirtual::lockstep::message::{INTERFACE, MAX_DATAGRAMS, Pipe, payload};
use satvirtual::lockstep::process::Process;
use satvirtual::outcome::{Outcome, TransferResult};
use satvirtual::transfer::{Direction, Program, SCHEMA, Transfer};
use serde_json::{Value, json};

/// Payload of a datagram.
const PART: u64 = 1200;
const BYTES: u64 = 120_000;
/// The echo of the frame model over `geo` (`satlink plan`), ms, with the time of datagrams in
/// frames.
const RTT_MS: std::ops::RangeInclusive<f64> = 580.5..=584.5;

fn link() -> Config {
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles/geo");
    let port = |name: &str| json!({"netns": "/none", "tun": name});
    let text = json!({
        "schema": "satlab/link-config/1", "run_id": "virtual", "profile": profile, "seed": 7, "timing": "standard",
        "forward": {"loss": {"unit": "frame", "ratio": 0.0}, "queue": {"bdp": 1.2}},
        "return": {"loss": {"unit": "frame", "ratio": 0.0}, "queue": {"bdp": 1.2}},
        "terrestrial_one_way_delay_ms": 40.0,
        "st": port("st"), "gw": port("gw"), "near": port("near"), "far": port("far"),
        "metrics": "none", "metrics_interval_ms": 100, "control": null, "timeline": null,
    });
    parse(&text.to_string(), &|path| Err(format!("{path}: no file"))).unwrap()
}

fn transfer() -> Transfer {
    Transfer {
        schema: SCHEMA.into(),
        seed: 1,
        direction: Direction::Download,
        bytes: BYTES,
        marks_bytes: vec![PART, BYTES],
        streams: 1,
        source_mbps: None,
        start_s: 0.25,
        repeats: 1,
        pause_s: 10.0,
        zero_rtt: false,
        timeout_s: 60.0,
        stack: satvirtual::stacks::Library::Quinn,
        client: quic::LegOptions::default(),
        server: quic::LegOptions::default(),
        programs: None,
        fec: None,
        neighbour: false,
    }
}

/// A program as a function from (line of JSON, bytes) to (line of JSON, bytes).
struct Function<F>(F, VecDeque<u8>);

impl<F: FnMut(Value, &[u8]) -> (String, Vec<u8>)> Pipe for Function<F> {
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        let end = message.iter().position(|&it| it == b'\n').unwrap();
        let line = serde_json::from_slice(&message[..end]).unwrap();
        let (line, bytes) = (self.0)(line, &message[end + 1..]);
        self.1.extend(line.bytes().chain(*b"\n").chain(bytes));
        Ok(())
    }

    fn line(&mut self) -> Result<Vec<u8>, String> {
        let end = self.1.iter().position(|&it| it == b'\n').unwrap();
        let line = self.1.drain(..=end).collect::<Vec<_>>();
        Ok(line[..end].to_vec())
    }

    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, String> {
        Ok(self.1.drain(..length).collect())
    }
}

fn program(answer: impl FnMut(Value, &[u8]) -> (String, Vec<u8>) + 'static) -> Box<dyn Pipe> {
    Box::new(Function(answer, VecDeque::new()))
}

fn hello() -> (String, Vec<u8>) {
    (
        json!({"interface": INTERFACE, "name": "plain 1"}).to_string(),
        Vec::new(),
    )
}

fn answer(timer_ns: Option<u64>, sent: &[u64], report: &Value) -> (String, Vec<u8>) {
    let heads: Vec<_> = sent.iter().map(|bytes| json!({"bytes": bytes})).collect();
    let line = json!({"timer_ns": timer_ns, "datagrams": heads, "report": report});
    (line.to_string(), vec![7; sent.iter().sum::<u64>() as usize])
}

/// Asks with one datagram; knows the payload by its length alone.
fn client() -> Box<dyn Pipe> {
    let mut received = 0;
    program(move |line, bytes| {
        if line.get("role").is_some() {
            return hello();
        }
        let starts = line["start"] == true;
        received = if starts {
            0
        } else {
            received + bytes.len() as u64
        };
        let whole = profile::sha256_hex(&payload(BYTES as usize));
        let sha256 = (received == BYTES).then_some(whole);
        let report =
            json!({"connected": received > 0, "received_bytes": received, "sha256": sha256});
        answer(None, if starts { &[1] } else { &[] }, &report)
    })
}

/// Sends a datagram every 2 ms once it was asked.
fn server() -> Box<dyn Pipe> {
    let mut left = 0;
    program(move |line, bytes| {
        if line.get("role").is_some() {
            return hello();
        }
        let now = line["now_ns"].as_u64().unwrap();
        left += if bytes.is_empty() { 0 } else { BYTES / PART };
        let sends = u64::from(left > 0);
        left -= sends;
        let state = json!({
            "cwnd_bytes": 12_000, "in_flight_bytes": 12_000, "slow_start": true, "supply": "slow", "rtt_ms": 580.0,
            "lost_packets": 3,
        });
        let report =
            json!({"connected": true, "requested": sends > 0 || left > 0, "sender": state});
        answer(
            (left > 0).then_some(now + 2_000_000),
            &[PART][..sends as usize],
            &report,
        )
    })
}

fn run(pipes: [Box<dyn Pipe>; 2], transfer: &Transfer) -> Outcome {
    let config = link();
    let profile = profile::load(&config.profile).unwrap();
    lockstep::run(&config, &profile, transfer, pipes).unwrap()
}

fn only(outcome: &Outcome) -> &TransferResult {
    assert_eq!(outcome.transfers.len(), 1);
    &outcome.transfers[0]
}

#[test]
// promise: P82
fn a_transfer_takes_a_round_trip_and_the_sender_s_time() {
    let outcome = run([client(), server()], &transfer());
    let done = only(&outcome);
    assert_eq!((done.status, done.bytes), ("ok", BYTES), "{}", done.reason);
    assert!(
        RTT_MS.contains(&done.time_to_first_byte_ms.unwrap()),
        "{done:?}"
    );
    let last_ms = done.marks[1].t_s.unwrap() * 1e3;
    let sending_ms = 2.0 * (BYTES / PART - 1) as f64;
    assert!(
        (sending_ms + 580.0..sending_ms + 586.0).contains(&last_ms),
        "{done:?}"
    );
    assert_eq!(outcome.stack, "plain 1");
    let states: Vec<_> = outcome.samples.iter().map(|it| it.lost_packets).collect();
    assert!(states.len() > 10 && states.iter().all(|&lost| lost == 3));
}

#[test]
fn equal_programs_have_equal_outcomes() {
    let [first, second] =
        [(); 2].map(|()| serde_json::to_string(&run([client(), server()], &transfer())).unwrap());
    assert_eq!(first, second);
}

#[test]
fn a_second_connection_counts_from_zero() {
    let twice = Transfer {
        repeats: 2,
        ..transfer()
    };
    let outcome = run([client(), server()], &twice);
    let [first, second] = &outcome.transfers[..] else {
        panic!("{:?}", outcome.transfers);
    };
    assert_eq!((first.status, second.status), ("ok", "ok"));
    let pause = second.started_s - (first.started_s + first.duration_s);
    assert!((pause - 10.0).abs() < 1e-6, "{pause}");
}

/// A server that answers its set-up, and to all else the same.
fn fixed(text: &str) -> Box<dyn Pipe> {
    let text = text.to_owned();
    program(move |line, _| {
        if line.get("role").is_some() {
            return hello();
        }
        (text.clone(), Vec::new())
    })
}

#[test]
fn test_t38_nonsense_of_a_program_is_a_failed_transfer() {
    let many = json!({"timer_ns": 0, "datagrams": vec![json!({"bytes": 1}); MAX_DATAGRAMS + 1]});
    let rtt = r#"{"timer_ns": null, "report": {"sender": {"cwnd_bytes": 1, "in_flight_bytes": 1, "slow_start": true,
        "supply": "slow", "rtt_ms": -1.0, "lost_packets": 0}}}"#;
    for (text, words) in [
        ("", "not valid"),
        ("[1]", "not valid"),
        (r#"{"timer_ns": null, "speed": 1}"#, "speed"),
        (r#"{"timer_ns": null, "report": {"speed": 1}}"#, "speed"),
        (r#"{"timer_ns": -1}"#, "not valid"),
        (r#"{"timer_ns": 0}"#, "its timer does not advance"),
        (
            r#"{"timer_ns": null, "datagrams": [{"bytes": 0}]}"#,
            "a datagram of 0 bytes",
        ),
        (
            r#"{"timer_ns": null, "datagrams": [{"bytes": 70000}]}"#,
            "a datagram of 70000",
        ),
        (
            r#"{"timer_ns": null, "datagrams": [{"bytes": 9, "ecn": 4}]}"#,
            "ECN 4",
        ),
        (&many.to_string(), "more than 1024 datagrams"),
        (rtt, "round-trip time"),
        (
            r#"{"timer_ns": null, "report": {"received_bytes": 5}}"#,
            "it reports 5 bytes",
        ),
    ] {
        let text = text.replace('\n', " ");
        let outcome = run([client(), fixed(&text)], &transfer());
        let done = only(&outcome);
        assert_eq!(done.status, "failed", "{text}");
        assert!(
            done.reason.starts_with("the server: ") && done.reason.contains(words),
            "{}",
            done.reason
        );
    }
}

#[test]
fn what_a_program_reports_is_its_own_refusal() {
    let answer = r#"{"timer_ns": null, "report": {"error": "no\nkey"}}"#;
    let outcome = run([client(), fixed(answer)], &transfer());
    let done = only(&outcome);
    assert_eq!(
        (done.status, &*done.reason),
        ("failed", "the server gave up: no key")
    );
}

#[test]
fn a_program_that_does_nothing_is_given_up_at_the_time_limit() {
    let outcome = run([client(), fixed(r#"{"timer_ns": null}"#)], &transfer());
    let done = only(&outcome);
    assert_eq!((done.status, done.duration_s), ("censored", 60.0));
}

#[test]
fn a_set_up_can_be_declined_or_misunderstood() {
    let declines = json!({"interface": INTERFACE, "name": "x", "unsupported": "uploads"});
    let other = json!({"interface": "satlab/virtual-interface/9", "name": "x"});
    let unnamed = json!({"interface": INTERFACE, "name": "a\nb"});
    for (text, status, words) in [
        (declines, "unsupported", "the client: uploads"),
        (
            other,
            "failed",
            "its interface is satlab/virtual-interface/9",
        ),
        (unnamed, "failed", "printable"),
    ] {
        let says = program(move |_, _| (text.to_string(), Vec::new()));
        let outcome = run([says, server()], &transfer());
        let done = only(&outcome);
        assert_eq!(done.status, status);
        assert!(done.reason.contains(words), "{}", done.reason);
    }
}

#[test]
fn wrong_payload_is_a_failed_transfer() {
    for (ends_at, reason) in [
        (PART, " bytes instead of 120000"),
        (BYTES, ": 120000 bytes with another SHA-256"),
    ] {
        let mut received = 0;
        let says = program(move |line, bytes| {
            if line.get("role").is_some() {
                return hello();
            }
            received += bytes.len() as u64;
            let sha256 = (received >= ends_at).then_some("00");
            let report = json!({"received_bytes": received, "sha256": sha256});
            let sent: &[u64] = if line["start"] == true { &[1] } else { &[] };
            answer(None, sent, &report)
        });
        let outcome = run([says, server()], &transfer());
        let done = only(&outcome);
        assert_eq!(done.status, "failed");
        assert!(done.reason.starts_with("wrong payload"), "{}", done.reason);
        assert!(done.reason.ends_with(reason), "{}", done.reason);
    }
}

// --- processes
// ------------------------------------------------------------------------------------------------------

fn shell(text: &str, name: &str) -> Result<Box<dyn Pipe>, std::io::Error> {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.log"));
    let argv = ["/bin/sh", "-c", text].map(str::to_owned).to_vec();
    let environment = [(
        "GREETING".to_owned(),
        json!({"interface": INTERFACE, "name": "sh"}).to_string(),
    )];
    let process = Process::start(&Program {
        argv,
        environment: environment.into(),
        log,
    })?;
    Ok(Box::new(process))
}

#[test]
fn test_t39_a_process_that_ends_or_floods_is_a_failed_transfer() {
    for (number, (text, words)) in [
        ("exit 3", "it ended with status 3"),
        ("kill -9 $$", "it ended with signal 9"),
        (
            r#"head -n 1 >/dev/null; printf '%s\n' "$GREETING" >&0; exit 0"#,
            "it ended with status 0",
        ),
        (
            "exec 3>&0; while :; do echo 0000000000000000; done | tr -d '\\n' >&3",
            "a line of more than 65536 bytes",
        ),
        (
            "head -n 1 >/dev/null; echo text on standard output; echo nonsense >&0; cat >/dev/null",
            "not valid",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let says = shell(text, &format!("fault-{number}")).unwrap();
        let outcome = run([client(), says], &transfer());
        let done = only(&outcome);
        assert_eq!(done.status, "failed", "{text}");
        assert!(
            done.reason.starts_with("the server: ") && done.reason.contains(words),
            "{text}: {}",
            done.reason
        );
    }
}

#[test]
fn a_missing_program_is_an_error() {
    let program = Program {
        argv: vec!["/no/such/program".into()],
        environment: BTreeMap::new(),
        log: Path::new(env!("CARGO_TARGET_TMPDIR")).join("missing.log"),
    };
    assert!(Process::start(&program).is_err());
}
