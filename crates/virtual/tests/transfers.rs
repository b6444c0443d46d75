// SPDX-License-Identifier: GPL-3.0-or-later
//! Whole transfers over the committed `geo` profile, under the virtual clock.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test"
)]

use std::path::Path;

use emulator::config::{Config, parse};
use resume::Phase::{Normal, Reconnaissance, Unvalidated, Validating};
use satperf::streams::SourceState;
use satvirtual::outcome::{Outcome, TransferResult};
use satvirtual::transfer::{Direction, SCHEMA, Transfer};
use serde_json::{Value, json};

/// The frame model's echo over `geo` takes 580.85 to 581.81 ms (`satlink plan`); a handshake is
/// longer by the time that its datagrams spend in frames.
const RTT_MS: std::ops::RangeInclusive<f64> = 580.5..=584.5;

fn link(forward_loss: f64, timeline: &Value) -> Config {
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles/geo");
    let port = |name: &str| json!({"netns": "/none", "tun": name});
    let text = json!({
        "schema": "satlab/link-config/1", "run_id": "virtual", "profile": profile, "seed": 7, "timing": "standard",
        "forward": {"loss": {"unit": "frame", "ratio": forward_loss}, "queue": {"bdp": 1.2}},
        "return": {"loss": {"unit": "frame", "ratio": 0.0}, "queue": {"bdp": 1.2}},
        "terrestrial_one_way_delay_ms": 40.0,
        "st": port("st"), "gw": port("gw"), "near": port("near"), "far": port("far"),
        "metrics": "none", "metrics_interval_ms": 100, "control": null, "timeline": timeline,
    });
    parse(&text.to_string(), &|path| Err(format!("{path}: no file"))).unwrap()
}

fn transfer(bytes: u64) -> Transfer {
    Transfer {
        schema: SCHEMA.into(),
        seed: 1,
        direction: Direction::Download,
        bytes,
        marks_bytes: vec![bytes / 2, bytes],
        streams: 1,
        source_mbps: None,
        start_s: 0.0,
        repeats: 1,
        pause_s: 10.0,
        zero_rtt: false,
        stack: satvirtual::stacks::Library::Quinn,
        timeout_s: 60.0,
        client: quic::LegOptions::default(),
        server: quic::LegOptions::default(),
        programs: None,
        fec: None,
        neighbour: false,
    }
}

fn run(config: &Config, transfer: &Transfer) -> Outcome {
    let profile = profile::load(&config.profile).unwrap();
    satvirtual::run(config, &profile, transfer).unwrap()
}

fn only(outcome: &Outcome) -> &TransferResult {
    assert_eq!(outcome.transfers.len(), 1);
    &outcome.transfers[0]
}

#[test]
fn a_download_takes_the_round_trips_it_must() {
    let outcome = run(&link(0.0, &Value::Null), &transfer(2_000_000));
    let done = only(&outcome);
    assert_eq!((done.status, done.bytes), ("ok", 2_000_000));
    assert!(RTT_MS.contains(&done.handshake_ms.unwrap()), "{done:?}");
    let answered = done.time_to_first_byte_ms.unwrap() / 2.0;
    assert!(RTT_MS.contains(&answered), "{done:?}");
    let times: Vec<_> = done.marks.iter().map(|mark| mark.t_s.unwrap()).collect();
    assert!(
        times[0] < times[1] && times[1] <= done.duration_s,
        "{times:?}"
    );
}

#[test]
// promise: P74
fn the_bytes_are_equal_with_equal_seeds() {
    let (config, transfer) = (link(0.001, &Value::Null), transfer(1_000_000));
    let text = |transfer| serde_json::to_string(&run(&config, transfer)).unwrap();
    let once = text(&transfer);
    assert_eq!(once, text(&transfer));
    let other = link(0.02, &Value::Null);
    assert_ne!(
        once,
        serde_json::to_string(&run(&other, &transfer)).unwrap()
    );
}

#[test]
fn an_upload_is_timed_where_it_arrives() {
    let upload = Transfer {
        direction: Direction::Upload,
        streams: 3,
        ..transfer(500_000)
    };
    let outcome = run(&link(0.0, &Value::Null), &upload);
    let done = only(&outcome);
    assert_eq!((done.status, done.bytes), ("ok", 500_000));
    assert!(outcome.link[1].in_packets > outcome.link[0].in_packets);
}

#[test]
fn a_resumed_session_saves_a_round_trip() {
    let twice = Transfer {
        repeats: 2,
        zero_rtt: true,
        ..transfer(200_000)
    };
    let outcome = run(&link(0.0, &Value::Null), &twice);
    let [first, second] = &outcome.transfers[..] else {
        panic!("{:?}", outcome.transfers)
    };
    assert!(!first.zero_rtt && second.zero_rtt);
    let saved = first.time_to_first_byte_ms.unwrap() - second.time_to_first_byte_ms.unwrap();
    assert!(RTT_MS.contains(&saved), "{saved}");
    assert!((second.started_s - first.duration_s - 10.0).abs() < 1e-6);
}

#[test]
fn what_takes_too_long_is_censored_and_what_dies_is_failed() {
    let hasty = Transfer {
        timeout_s: 2.0,
        ..transfer(5_000_000)
    };
    let outcome = run(&link(0.0, &Value::Null), &hasty);
    assert_eq!(only(&outcome).status, "censored");
    assert!(only(&outcome).marks.iter().all(|mark| mark.t_s.is_none()));
    let cut = json!({"starts": "at-once", "steps": [{"at_s": 1.0, "set": {"direction": "both", "outage": true}}]});
    let mut mortal = transfer(5_000_000);
    mortal.client.max_idle_ms = 5_000;
    let outcome = run(&link(0.0, &cut), &mortal);
    assert_eq!(only(&outcome).status, "failed");
    assert!(only(&outcome).reason.contains("timed out"), "{outcome:?}");
}

#[test]
fn payload_in_time_is_ok_though_the_report_is_late() {
    let alone = run(&link(0.0, &Value::Null), &transfer(200_000));
    // Less than the round trip in which the client fetches the server's report.
    let twice = Transfer {
        repeats: 2,
        timeout_s: only(&alone).duration_s + 0.1,
        ..transfer(200_000)
    };
    let outcome = run(&link(0.0, &Value::Null), &twice);
    let statuses: Vec<_> = outcome.transfers.iter().map(|done| done.status).collect();
    assert_eq!(statuses, ["ok", "ok"]);
}

#[test]
fn losses_are_repaired_and_counted() {
    let outcome = run(&link(0.02, &Value::Null), &transfer(2_000_000));
    assert_eq!(only(&outcome).status, "ok");
    assert!(outcome.link[0].lost_packets > 0, "{outcome:?}");
}

#[test]
fn a_sample_has_what_was_sent_and_acknowledged_and_what_the_link_lost() {
    let outcome = run(&link(0.005, &Value::Null), &transfer(2_000_000));
    assert!(
        outcome
            .samples
            .is_sorted_by_key(|it| (it.sent_bytes, it.acked_bytes))
    );
    let last = outcome.samples.last().unwrap();
    let acked = last.acked_bytes.unwrap();
    assert!(last.sent_bytes > 2_000_000 && acked < last.sent_bytes);
    assert!(acked > 1_000_000, "{last:?}");
    assert!(last.forward_lost_packets > 0 && last.return_lost_packets == 0);
    // A round trip at least, and no wait of the receiver's that matters.
    let times = outcome.samples.iter().filter_map(|it| it.ack_ms);
    let shortest = times.fold(f64::INFINITY, f64::min);
    assert!((580.0..600.0).contains(&shortest), "{shortest}");
}

#[test]
fn a_receiver_that_waits_delays_acknowledgements() {
    let mut late = transfer(500_000);
    late.server.max_ack_delay_ms = Some(200);
    late.server.ack_threshold = Some(1000);
    let mean = |transfer: &Transfer| {
        let outcome = run(&link(0.0, &Value::Null), transfer);
        let times: Vec<_> = outcome.samples.iter().filter_map(|it| it.ack_ms).collect();
        times.iter().sum::<f64>() / times.len() as f64
    };
    let (usual, waiting) = (mean(&transfer(500_000)), mean(&late));
    assert!(waiting > usual + 50.0, "{waiting} after {usual}");
}

#[test]
fn a_small_stream_window_slows_a_transfer_down() {
    let mut narrow = transfer(2_000_000);
    narrow.client.stream_receive_window = 65_536;
    let slow = run(&link(0.0, &Value::Null), &narrow);
    let fast = run(&link(0.0, &Value::Null), &transfer(2_000_000));
    assert!(only(&slow).duration_s > 2.0 * only(&fast).duration_s);
}

#[test]
fn an_initial_window_of_one_packet_sends_one_packet() {
    let mut cautious = transfer(100_000);
    cautious.client.initial_window = 1;
    cautious.server.initial_window = 1;
    assert_eq!(only(&run(&link(0.0, &Value::Null), &cautious)).status, "ok");
}

#[test]
fn a_slow_source_sets_the_pace() {
    let slow = Transfer {
        source_mbps: Some(1.0),
        ..transfer(500_000)
    };
    let outcome = run(&link(0.0, &Value::Null), &slow);
    let done = only(&outcome);
    let making = done.duration_s - done.asked_ms.unwrap() / 1e3;
    assert!((4.0..4.4).contains(&making), "{done:?}");
    let limited = outcome
        .samples
        .iter()
        .filter(|one| one.app_limited && one.supply == SourceState::Slow);
    // Slow start takes three round trips to follow the source.
    assert!(
        limited.count() * 10 > outcome.samples.len() * 3,
        "{outcome:?}"
    );
}

#[test]
fn payload_counts_in_order() {
    let outcome = run(&link(0.0, &Value::Null), &transfer(20_000_000));
    let received: Vec<_> = outcome
        .samples
        .iter()
        .map(|one| one.received_bytes)
        .collect();
    // 20 Mbit/s carry 125 kB between two samples: more at once had waited for what slow start's
    // overshoot lost.
    assert!(received.windows(2).any(|two| two[1] - two[0] > 400_000));
}

/// Twice 2 MB with Careful Resume, and what happens to the link in between.
fn resumed(mode: quic::CarefulResume, timeline: &Value) -> Outcome {
    let mut twice = Transfer {
        repeats: 2,
        pause_s: 30.0,
        ..transfer(4_000_000)
    };
    twice.server.careful_resume = mode;
    run(&link(0.0, timeline), &twice)
}

#[test]
// promise: P73
fn careful_resume_reaches_two_megabytes_in_a_round_trip_after_the_initial_window() {
    let outcome = resumed(quic::CarefulResume::On, &Value::Null);
    let plain = resumed(quic::CarefulResume::Off, &Value::Null);
    let [first, second] = &outcome.transfers[..] else {
        panic!("{:?}", outcome.transfers)
    };
    // Without state it is an ordinary transfer; only then is there something to resume.
    assert!(first.careful_resume.as_ref().unwrap().phases.is_empty());
    assert!((first.duration_s / plain.transfers[0].duration_s - 1.0).abs() < 0.02);
    assert!(plain.transfers[1].careful_resume.is_none());
    let resume = second.careful_resume.as_ref().unwrap();
    let phases: Vec<_> = resume.phases.iter().map(|it| it.phase).collect();
    assert_eq!(phases, [Reconnaissance, Unvalidated, Validating, Normal]);
    assert!(!resume.retreated && resume.lost_bytes == 0);
    assert!(
        second.duration_s < plain.transfers[1].duration_s - 1.0,
        "{second:?}"
    );
    // No more than the initial window before it was confirmed: the jump begins a round trip after
    // the request.
    let jump = &resume.phases[1];
    assert!(
        jump.t_s * 1e3 > second.asked_ms.unwrap() + RTT_MS.start(),
        "{jump:?}"
    );
    assert!(jump.pipe_size_bytes < 2 * 12_000 + 1_500, "{jump:?}");
}

#[test]
fn of_two_clients_behind_one_address_one_resumes() {
    let mut twice = transfer(10_000_000);
    twice.repeats = 2;
    twice.timeout_s = 120.0;
    twice.server.careful_resume = quic::CarefulResume::On;
    let alone = run(&link(0.0, &Value::Null), &twice);
    twice.neighbour = true;
    let both = run(&link(0.0, &Value::Null), &twice);
    // The first transfer has no neighbour yet.
    assert_eq!(
        alone.transfers[0].duration_s.to_bits(),
        both.transfers[0].duration_s.to_bits()
    );
    let resumed = |outcome: &Outcome| {
        let it = outcome.transfers[1].careful_resume.as_ref().unwrap();
        (it.phases.is_empty(), it.jump_bytes.is_some())
    };
    assert_eq!(
        (resumed(&alone), resumed(&both)),
        ((false, true), (true, false))
    );
    assert_eq!(both.transfers[1].status, "ok");
    // What the neighbour took is on the same link: 10 MB of each.
    let out =
        |outcome: &Outcome| serde_json::to_value(&outcome.link).unwrap()[0]["out_bytes"].as_u64();
    assert!(out(&both).unwrap() > out(&alone).unwrap() + 5_000_000);
    let again = run(&link(0.0, &Value::Null), &twice);
    assert_eq!(
        again.transfers[1].duration_s.to_bits(),
        both.transfers[1].duration_s.to_bits()
    );
}

#[test]
fn a_jump_into_a_link_that_became_slow_is_taken_back() {
    let slow = json!({"starts": "at-once", "steps": [
        {"at_s": 20.0, "set": {"direction": "forward", "symbol_rate_baud": 5_000_000, "queue": {"bdp": 0.2}}}]});
    let outcome = resumed(quic::CarefulResume::On, &slow);
    let plain = resumed(quic::CarefulResume::Off, &slow);
    let resume = outcome.transfers[1].careful_resume.as_ref().unwrap();
    assert!(resume.retreated, "{resume:?}");
    let (on, off) = (&outcome.transfers[1], &plain.transfers[1]);
    assert!(on.duration_s < 1.1 * off.duration_s, "{on:?} {off:?}");
}
