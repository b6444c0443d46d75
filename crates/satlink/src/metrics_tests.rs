// SPDX-License-Identifier: GPL-3.0-or-later
//! Lines of the metrics file from snapshots.

use super::*;
use emulator::scheduled::{Origin, Scheduled};
use link::Volume;
use std::sync::mpsc::channel;

fn schema() -> Value {
    let title = "One line of raw/link.jsonl: a header first, then one sample per interval, counters are per interval";
    schema::written::<Line<'_>>("link-metrics", title)
}

fn assert_of_schema(lines: &[Value]) {
    let schema = schema();
    for line in lines {
        assert_eq!(schema::check(&schema, "", line, &[]), [""; 0]);
    }
}

#[test]
fn schema_file_is_that_of_the_types() {
    schema::compare_with_file(&schema());
}

fn output<W>(file: W, served: [bool; 4]) -> Output<W> {
    Output {
        file,
        served,
        fifos: FifoNames::default(),
        collector: None,
    }
}

fn header() -> Header {
    Header {
        schema: "satlab/link-metrics/1",
        run_id: "r1".into(),
        version: "0.1.0",
        profile_sha256: "p".into(),
        config_sha256: "c".into(),
        seed: 7,
        clock: "CLOCK_MONOTONIC",
        start_unix_s: 1000.0,
        interval_ms: 100,
        late_limit_us: 1000,
        sched_fifo: true,
        memory_locked: false,
        entity: "all",
    }
}

fn snapshot(tick: u64, packets: u64) -> Snapshot {
    let counters = link::Counters {
        packets_in: packets,
        bytes_in: packets * 1000,
        packets_out: packets,
        bytes_out: packets * 1000,
        frames_sent: packets,
        frame_bytes_available: packets * 2000,
        frame_bytes_used: packets * 1000,
        ..link::Counters::default()
    };
    let late = Some(Late {
        p50: 1.0,
        p99: 2.0,
        max: 3.0,
    });
    Snapshot {
        fifos: Vec::new(),
        terminals: Vec::new(),
        heard: None,
        tick,
        counters,
        queue: Volume::default(),
        carrier: link::Carrier::Wire,
        es_n0_db: None,
        refused: Volume::default(),
        late,
        late_packets: packets / 5,
    }
}

fn written(snapshots: &[(usize, Snapshot)], end: bool) -> Vec<Value> {
    written_by([true; 4], snapshots, end)
}

fn written_by(served: [bool; 4], snapshots: &[(usize, Snapshot)], end: bool) -> Vec<Value> {
    let (sender, receiver) = channel();
    for (direction, snapshot) in snapshots {
        sender
            .send(Message::Snapshot(*direction, Box::new(snapshot.clone())))
            .unwrap();
    }
    if end {
        let late = Some(Late {
            p50: 1.0,
            p99: 2.0,
            max: 3.0,
        });
        let end = End::new(1001.0, "SIGTERM".into(), [late, None, None, None], 0.5);
        sender.send(Message::End(Box::new(end))).unwrap();
    }
    drop(sender);
    let mut out = Vec::new();
    assert!(write_all(
        output(&mut out, served),
        &header(),
        receiver.iter(),
        |error| panic!("{error}")
    ));
    String::from_utf8(out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn lines_have_exactly_the_fields_of_the_schema() {
    let snapshots = [0, 1, 2, 3].map(|direction| (direction, snapshot(1, 5)));
    let lines = written(&snapshots, true);
    let kinds: Vec<_> = lines.iter().map(|line| line["type"].clone()).collect();
    assert_eq!(kinds, ["header", "sample", "end"]);
    assert_of_schema(&lines);
}

#[test]
fn changes_have_exactly_the_fields_of_the_schema() {
    let requested = Map::from_iter([("delay_ms".to_owned(), 5.into())]);
    for error in [None, Some(link::LinkError::NoQueue)] {
        let applied = Applied {
            at: 1_500_000_000,
            change: Scheduled {
                requested: requested.clone(),
                ..Scheduled::new(0, link::Change::Delay(5), Origin::Timeline)
            },
            error,
        };
        let mut out = Vec::new();
        let messages = [Message::Change(1, Box::new(applied))].into_iter();
        assert!(write_all(
            output(&mut out, [true; 4]),
            &header(),
            messages,
            |_| ()
        ));
        let text = String::from_utf8(out).unwrap();
        let line: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_of_schema(std::slice::from_ref(&line));
        assert_eq!(line["type"], "change");
        assert_eq!(line["direction"], "return");
        assert_eq!(line["t_unix_s"], 1001.5);
    }
}

#[test]
fn p192_each_terminal_has_its_figures_in_the_schema_s_form() {
    let of = |packets: u64| emulator::bearer::OfTerminal {
        counters: link::Counters {
            bytes_in: packets * 1000,
            bytes_dropped: packets * 100,
            packets_out: packets,
            bytes_out: packets * 1000,
            superframes: packets,
            slots_assigned: 2 * packets,
            ..link::Counters::default()
        },
        queue: Volume::new(1, 1500),
        fifos: Vec::new(),
        carrier: link::Carrier::Wire,
        es_n0_db: Some(12.345_678),
    };
    let shared = |tick: u64| Snapshot {
        terminals: vec![of(tick * 10), of(tick * 30)],
        ..snapshot(tick, 40)
    };
    let mut snapshots = Vec::new();
    for tick in [1, 2] {
        snapshots.extend([(0, shared(tick)), (1, snapshot(tick, 5))]);
    }
    let lines = written_by([true, true, false, false], &snapshots, true);
    assert_of_schema(&lines);
    let second = &lines[2]["forward"]["terminals"][1];
    assert_eq!(
        (&second["terminal"], &second["out_packets"]),
        (&2.into(), &30.into())
    );
    assert_eq!(second["rate_bps"], 30.0 * 8000.0 / 0.1);
    // 1500 bytes wait at both ends of the interval.
    assert_eq!(second["sent_bps"], 30.0 * 7200.0 / 0.1);
    assert_eq!(
        (&second["slots_assigned"], &second["es_n0_db"]),
        (&60.into(), &12.346.into())
    );
    assert!(
        lines[2]["return"].get("terminals").is_none(),
        "one terminal has none"
    );
}

/// What an interval's FIFO sent, and how long its packets waited.
fn fifo(sent: u64, waits: &[(u32, u32)]) -> link::FifoState {
    let waits = waits.iter();
    link::FifoState {
        queue: Volume::new(1, 500),
        sent: Volume::new(sent, 0),
        dropped: Volume::new(2 * sent, 0),
        waits: waits
            .map(|&(us, packets)| link::Waited { us, packets })
            .collect(),
        ..link::FifoState::default()
    }
}

/// Two terminals, the second one idle, and a return link of one FIFO; the second tick lacks the
/// forward link.
fn queues() -> Vec<(usize, Snapshot)> {
    let of = |fifos: Vec<link::FifoState>| emulator::bearer::OfTerminal {
        counters: link::Counters::default(),
        queue: Volume::default(),
        fifos,
        carrier: link::Carrier::Wire,
        es_n0_db: None,
    };
    let mut snapshots = Vec::new();
    for tick in 1..4 {
        let two = vec![
            fifo(3 * tick, &[(2000, 2), (4000, 1)]),
            fifo(tick, &[(90_000, 1)]),
        ];
        let forward = Snapshot {
            terminals: vec![of(two), of(vec![link::FifoState::default(); 2])],
            ..snapshot(tick, 5)
        };
        let back = Snapshot {
            fifos: vec![fifo(tick, &[(7000, 1)])],
            ..snapshot(tick, 5)
        };
        snapshots.push((1, back));
        if tick != 2 {
            snapshots.push((0, forward));
        }
    }
    snapshots
}

#[test]
// promise: P20
fn p297_queues_have_their_times_and_fifos_their_names_in_the_schema_s_form() {
    let names = ["EF", "BE"].map(str::to_owned).to_vec();
    let mut out = Vec::new();
    let output = Output {
        fifos: [vec![names.clone(), names], vec![], vec![], vec![]],
        ..output(&mut out, [true, true, false, false])
    };
    let messages = queues().into_iter();
    let messages = messages.map(|(index, it)| Message::Snapshot(index, Box::new(it)));
    assert!(write_all(output, &header(), messages, |error| panic!(
        "{error}"
    )));
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_of_schema(&lines);
    let (forward, back) = (&lines[2]["forward"], &lines[2]["return"]);
    let first = &forward["terminals"][0];
    assert_eq!(first["fifos"][0]["fifo"], "EF");
    assert_eq!(
        first["fifos"][1]["waits_us"],
        serde_json::json!([[90_000, 1]])
    );
    let counted = ["sent_packets", "dropped_packets"].map(|it| &first["fifos"][0][it]);
    assert_eq!(
        counted,
        [6, 12],
        "counters run on where a tick was left out"
    );
    let percentiles = ["queue_p50_ms", "queue_p95_ms"].map(|it| &first[it]);
    assert_eq!(percentiles, [2.0, 90.0]);
    assert_eq!(forward["queue_p99_ms"], 90.0);
    assert!(forward.get("waits_us").is_none());
    let idle = &forward["terminals"][1];
    assert!(idle["queue_p50_ms"].is_null() && idle.get("fifos").is_none());
    // Those of the tick that was left out, too.
    assert_eq!(back["waits_us"], serde_json::json!([[7000, 1], [7000, 1]]));
    assert_eq!(back["queue_p50_ms"], 7.0);
}

#[test]
fn directions_of_another_emulator_are_null() {
    let snapshots: Vec<_> = (1..3)
        .flat_map(|tick| [(2, snapshot(tick, 5)), (3, snapshot(tick, 5))])
        .collect();
    let lines = written_by([false, false, true, true], &snapshots, true);
    assert_eq!(lines.len(), 4);
    assert!(lines[1]["forward"].is_null() && lines[2]["return"].is_null());
    assert_eq!(lines[1]["terrestrial_up"]["out_packets"], 5);
    assert_eq!(lines[2]["terrestrial_up"]["out_packets"], 0);
}

#[test]
fn counters_are_per_interval_and_rates_per_second() {
    let mut snapshots = Vec::new();
    for (tick, packets) in [(1, 10), (2, 30)] {
        snapshots.extend((0..4).map(|direction| (direction, snapshot(tick, packets))));
    }
    let lines = written(&snapshots, false);
    let second = &lines[2]["forward"];
    assert_eq!(
        (&second["out_packets"], &second["in_bytes"]),
        (&20.into(), &20_000.into())
    );
    assert!((second["rate_bps"].as_f64().unwrap() - 1.6e6).abs() < 1e-3);
    assert_eq!(second["frame_fill_ratio"], 0.5);
    assert!((lines[2]["t_unix_s"].as_f64().unwrap() - 1000.2).abs() < 1e-9);
}

#[test]
fn incomplete_tick_is_covered_by_the_next_sample() {
    let mut snapshots: Vec<_> = (0..3)
        .map(|direction| (direction, snapshot(1, 10)))
        .collect();
    snapshots.extend((0..4).map(|direction| (direction, snapshot(2, 30))));
    let lines = written(&snapshots, false);
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["return"]["out_packets"], 30);
    assert!((lines[1]["return"]["rate_bps"].as_f64().unwrap() - 1.2e6).abs() < 1e-3);
}

#[test]
fn refused_packets_are_dropped_ones() {
    let refused = Snapshot {
        refused: Volume::new(2, 2000),
        ..snapshot(1, 10)
    };
    let lines = written(
        &[0, 1, 2, 3].map(|direction| (direction, refused.clone())),
        false,
    );
    let forward = &lines[1]["forward"];
    assert_eq!(
        (&forward["out_packets"], &forward["dropped_packets"]),
        (&8.into(), &2.into())
    );
}

#[test]
// promise: P14
fn full_disk_is_noted_once_and_the_rest_drained() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (sender, receiver) = channel();
    for tick in 1..10 {
        sender
            .send(Message::Snapshot(0, Box::new(snapshot(tick, tick))))
            .unwrap();
    }
    sender
        .send(Message::End(Box::new(End::new(
            1.0,
            "x".into(),
            [None; 4],
            0.0,
        ))))
        .unwrap();
    let mut notes = 0;
    assert!(!write_all(
        output(Full, [true; 4]),
        &header(),
        receiver.iter(),
        |_| {
            notes += 1;
        }
    ));
    assert_eq!(notes, 1);
    assert!(receiver.try_recv().is_err());
}
