// SPDX-License-Identifier: GPL-3.0-or-later
//! The controller with each kind of request, and the socket with a client.

use std::io::{BufRead, BufReader};
use std::thread;

use link::Change;
use rand_core::{RngCore, SeedableRng};
use serde_json::json;

use super::*;
use crate::testing::example;
use emulator::config::parse;
use emulator::scheduled::{Applied, variations};

fn answered(controller: &mut Controller<'_>, now: Nanos, request: &[u8]) -> Value {
    serde_json::to_value(controller.answer(now, request)).unwrap()
}

fn config(edit: impl FnOnce(&mut Value)) -> Config {
    let mut value = example("geo");
    edit(&mut value);
    parse(&value.to_string(), &cli::read_trace).unwrap()
}

fn state(config: &Config) -> State {
    State::new(config, [250.0, 250.0, 40.0, 40.0])
}

fn controller<'a>(config: &'a Config, state: &'a State) -> Controller<'a> {
    // Lives as long as the test's process.
    let profile = Box::leak(Box::new(profile::load(&config.profile).unwrap()));
    Controller {
        config,
        targets: links::targets(config, profile),
        moves: GatewayChanges::new(config, profile),
        variations: variations(profile),
        mailboxes: [(); 4].map(|()| Some(Arc::new(Mailbox::new().unwrap()))),
        state,
        has_started: false,
    }
}

fn posted(controller: &Controller<'_>, direction: usize) -> Vec<Scheduled> {
    let mailbox = controller.mailboxes[direction].as_ref().unwrap();
    std::iter::from_fn(|| mailbox.take()).collect()
}

#[test]
fn set_reaches_the_mailboxes_of_its_directions() {
    let config = config(|_| {});
    let state = state(&config);
    let mut controller = controller(&config, &state);
    let request = br#"{"set": {"direction": "both", "delay_ms": 100, "queue": {"bytes": 9}}}"#;
    assert_eq!(answered(&mut controller, 7, request)["ok"], true);
    for direction in [0, 1] {
        let changes = posted(&controller, direction);
        assert_eq!(changes.len(), 2);
        assert_eq!(changes[0].change, Change::Delay(100_000_000));
        assert_eq!(changes[0].at, 7);
        assert!(matches!(changes[1].change, Change::Queue(queue) if queue.bytes == 9));
    }
    assert!(posted(&controller, 2).is_empty());
}

#[test]
fn faulty_request_changes_nothing_and_reports_all() {
    let config = config(|_| {});
    let state = state(&config);
    let mut controller = controller(&config, &state);
    let request = br#"{"set": {"direction": "forward", "delay_ms": 1, "colour": 2}, "more": 3}"#;
    let answer = answered(&mut controller, 0, request);
    assert_eq!(answer["ok"], false);
    assert_eq!(
        answer["faults"],
        json!([
            "request.more: is unknown (remove it)",
            "request.set.colour: is unknown (remove it)"
        ])
    );
    assert!(posted(&controller, 0).is_empty());
}

#[test]
fn state_follows_what_was_carried_out() {
    let config = config(|_| {});
    let state = state(&config);
    let mut controller = controller(&config, &state);
    let delay = |controller: &mut Controller<'_>| {
        answered(controller, 0, br#"{"get": "state"}"#)["directions"]["return"]["delay_ms"].clone()
    };
    assert_eq!(delay(&mut controller), 250.0);
    let _ = answered(
        &mut controller,
        0,
        br#"{"set": {"direction": "return", "delay_ms": 5}}"#,
    );
    assert_eq!(delay(&mut controller), 250.0);
    for error in [Some(link::LinkError::NoQueue), None] {
        let change = posted(&controller, 1).pop();
        let change = change.unwrap_or_else(|| {
            let _ = answered(
                &mut controller,
                0,
                br#"{"set": {"direction": "return", "delay_ms": 5}}"#,
            );
            posted(&controller, 1).pop().unwrap()
        });
        let expected = if error.is_some() { 250.0 } else { 5.0 };
        let applied = Applied {
            at: 1,
            change,
            error,
        };
        state.observe(&Message::Change(1, Box::new(applied)));
        assert_eq!(delay(&mut controller).as_f64(), Some(expected));
    }
}

#[test]
fn variations_of_the_profile_start_with_the_timeline() {
    let begun = |timeline: Value| {
        let config = config(|value| value["timeline"] = timeline);
        let state = state(&config);
        let mut controller = controller(&config, &state);
        let mut profile = profile::load(&config.profile).unwrap();
        profile.st_profile.physical.downlink.attenuation = profile::Attenuation::OnOff {
            on: 1,
            off: 1,
            amplitude_db: 6.0,
        };
        controller.variations = variations(&profile);
        controller.start_at_once();
        let at_once = posted(&controller, 0);
        let _ = answered(&mut controller, 5, br#"{"start": "timeline"}"#);
        let later = posted(&controller, 0);
        assert!(posted(&controller, 1).is_empty());
        let summary = |changes: Vec<Scheduled>| {
            changes
                .iter()
                .map(|it| (it.at, it.origin))
                .collect::<Vec<_>>()
        };
        [at_once, later].map(summary)
    };
    let (now, later) = (vec![(0, Origin::Profile)], vec![(5, Origin::Profile)]);
    let waiting = json!({"starts": "on-request", "steps": []});
    assert_eq!(begun(waiting), [vec![], later]);
    assert_eq!(begun(Value::Null), [now, vec![]]);
}

fn with_terminals(value: &mut Value) {
    let further = |n: u8| json!({"netns": format!("/run/netns/st-{n}"), "tun": "sat0", "subnet": format!("198.18.{}.0/24", 64 + n)});
    value["terminals"] = json!([further(2), further(3)]);
}

#[test]
// promise: P18
fn p191_a_change_of_one_terminal_is_sent_and_shown_as_its_own() {
    let config = config(with_terminals);
    let state = state(&config);
    let mut controller = controller(&config, &state);
    let shown = |controller: &mut Controller<'_>, request: &[u8]| {
        assert_eq!(answered(controller, 7, request)["ok"], true);
        let change = posted(controller, 0).pop().unwrap();
        let terminal = change.terminal;
        let applied = Applied {
            at: 7,
            change,
            error: None,
        };
        state.observe(&Message::Change(0, Box::new(applied)));
        let all = answered(controller, 0, br#"{"get": "state"}"#)["directions"]["forward"].clone();
        (terminal, all)
    };
    let one = br#"{"set": {"direction": "forward", "terminal": 2, "attenuation_db": 6}}"#;
    let (terminal, fields) = shown(&mut controller, one);
    assert_eq!(terminal, Some(1));
    assert_eq!(fields["terminals"], json!({"2": {"attenuation_db": 6}}));
    assert!(fields.get("attenuation_db").is_none());
    // Plans that the terminal may miss are on the return link.
    assert_eq!(posted(&controller, 1).pop().unwrap().terminal, Some(1));
    let all = br#"{"set": {"direction": "forward", "attenuation_db": 0}}"#;
    let (terminal, fields) = shown(&mut controller, all);
    assert_eq!((terminal, &fields["attenuation_db"]), (None, &json!(0)));
    assert_eq!(fields["terminals"], json!({"2": {}}));
}

#[test]
fn p191_what_terminals_share_does_not_change_for_one() {
    let config = config(with_terminals);
    let state = state(&config);
    let mut controller = controller(&config, &state);
    for (set, fault) in [
        (
            json!({"direction": "forward", "terminal": 4, "outage": true}),
            "request.set.terminal: there is no terminal 4 (1 to 3)",
        ),
        (
            json!({"direction": "forward", "terminal": 0, "outage": true}),
            "request.set.terminal: 0 is not allowed",
        ),
        (
            json!({"direction": "return", "delay_ms": 1}),
            "request.set.delay_ms: terminals share this carrier",
        ),
        (
            json!({"direction": "both", "queue": {"bytes": 9}}),
            "request.set.queue: terminals share this carrier",
        ),
        (
            json!({"direction": "terrestrial_up", "terminal": 1, "outage": true}),
            "request.set.terminal: all share a terrestrial direction",
        ),
    ] {
        let answer = answered(
            &mut controller,
            0,
            json!({"set": set}).to_string().as_bytes(),
        );
        assert_eq!(answer["ok"], false, "{set}");
        assert!(answer["faults"].to_string().contains(fault), "{answer}");
    }
    assert!(posted(&controller, 0).is_empty() && posted(&controller, 1).is_empty());
}

#[test]
fn a_handover_shows_as_the_link_that_took_over() {
    let config = config(|_| {});
    let state = state(&config);
    let mut controller = controller(&config, &state);
    for request in [
        &br#"{"set": {"direction": "forward", "modcod": 4}}"#[..],
        br#"{"set": {"direction": "forward", "handover": {"waiting": "keep", "delay_ms": 16}}}"#,
    ] {
        let _ = answered(&mut controller, 0, request);
        let change = posted(&controller, 0).pop().unwrap();
        let applied = Applied {
            at: 1,
            change,
            error: None,
        };
        state.observe(&Message::Change(0, Box::new(applied)));
    }
    let shown =
        answered(&mut controller, 0, br#"{"get": "state"}"#)["directions"]["forward"].clone();
    assert_eq!(shown["delay_ms"], 16.0);
    for gone in ["modcod", "handover", "waiting"] {
        assert!(shown.get(gone).is_none(), "{shown}");
    }
}

#[test]
fn timeline_starts_once_at_its_request() {
    let steps = json!([{"at_s": 1, "set": {"direction": "forward", "outage": 2}}]);
    let config =
        config(|value| value["timeline"] = json!({"starts": "on-request", "steps": steps}));
    let state = state(&config);
    let mut controller = controller(&config, &state);
    controller.start_at_once();
    assert!(posted(&controller, 0).is_empty());
    let start = br#"{"start": "timeline"}"#;
    assert_eq!(answered(&mut controller, 5_000_000_000, start)["ok"], true);
    let changes = posted(&controller, 0);
    assert_eq!(
        (changes[0].at, changes[0].lasts),
        (6_000_000_000, Some(2_000_000_000))
    );
    assert_eq!(answered(&mut controller, 6_000_000_000, start)["ok"], false);
    assert!(posted(&controller, 0).is_empty());
}

#[test]
// promise: P14
fn any_bytes_are_answered() {
    let config = config(|_| {});
    let state = state(&config);
    let mut controller = controller(&config, &state);
    let mut random = rand_pcg::Pcg64::seed_from_u64(5);
    let mut below = |bound: usize| random.next_u32() as usize % bound;
    let valid = br#"{"set":{"direction":"both","delay_ms":1e2,"loss":[{"ratio":0.1,"unit":"frame"}],"outage":true,"jitter":{"mean_ms":1,"sigma_ms":2},"queue":{"bdp":1,"aqm":"pie"}}}"#;
    let mut taken = 0;
    for _ in 0..20_000 {
        let mut request = valid.to_vec();
        for _ in 0..below(6) {
            let place = below(request.len());
            match below(3) {
                0 => request[place] = below(256) as u8,
                1 => drop(request.remove(place)),
                _ => request.insert(place, b' ' + below(95) as u8),
            }
        }
        let answer = answered(&mut controller, below(1 << 30) as u64, &request);
        assert!(answer["ok"].is_boolean());
        taken += u32::from(answer["ok"] == true);
        for direction in 0..4 {
            let _ = posted(&controller, direction);
        }
    }
    assert!(taken > 1000, "{taken}");
    for extreme in ["", "[", "null", &"[".repeat(MAX_REQUEST), "{\"set\":{}}"] {
        assert_eq!(
            answered(&mut controller, 0, extreme.as_bytes())["ok"],
            false
        );
    }
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("satlink-{name}-{}", std::process::id()))
}

#[test]
fn socket_answers_line_by_line_and_goes_without_a_trace() {
    let config = config(|_| {});
    let state = state(&config);
    let mut controller = controller(&config, &state);
    let path = path("control");
    let socket = Socket::bind(&path).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(Socket::bind(&path).is_err());
    let stop = Event::new().unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| socket.serve(&mut controller, &stop, Instant::now()));
        let ask = |bytes: &[u8]| {
            let mut stream = UnixStream::connect(&path).unwrap();
            // The server may have hung up before it has read all.
            let _ = stream.write_all(bytes);
            BufReader::new(stream)
                .lines()
                .take(2)
                .map_while(Result::ok)
                .collect::<Vec<_>>()
        };
        let answers = ask(b"{\"get\": \"state\"}\n\xff\xfe\n");
        assert!(answers[0].contains("\"ok\":true") && answers[1].contains("is not JSON"));
        drop(UnixStream::connect(&path).unwrap());
        let long = ask(&vec![b'x'; MAX_REQUEST + 5000]);
        assert!(
            long.is_empty() || long[0].contains("is longer than"),
            "{long:?}"
        );
        let answers = ask(b"{\"get\": \"state\"}\n{\"get\": 1}\n");
        assert!(answers[0].contains("\"ok\":true"));
        stop.set();
        server.join().unwrap().unwrap();
    });
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn socket_of_a_killed_process_is_replaced() {
    let path = path("stale");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(Socket::bind(&path).unwrap());
    assert!(!path.exists());
    fs::write(&path, "a file").unwrap();
    assert!(Socket::bind(&path).is_err());
    fs::remove_file(&path).unwrap();
}

/// Replays the kept inputs of the fuzz target `control`.
#[test]
fn kept_requests_are_answered() {
    let config = config(|_| {});
    let profile = profile::load(&config.profile).unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/control");
    let mut taken = [0, 0];
    for entry in fs::read_dir(folder).unwrap() {
        let request = fs::read(entry.unwrap().path()).unwrap();
        let said =
            serde_json::to_value(answer(&config, &profile, &request)).unwrap()["ok"].as_bool();
        taken[usize::from(said.unwrap())] += 1;
    }
    assert!(taken[0] >= 3 && taken[1] >= 2, "{taken:?}");
}
