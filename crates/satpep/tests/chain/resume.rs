// SPDX-License-Identifier: GPL-3.0-or-later
//! Careful Resume on the leg between the proxies: Proxy-GW sends downloads, and remembers.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quinn::VarInt;
use satpep::proxy::Proxy;
use satpep::report::Report;
use satpep::start_error::StartError;
use serde_json::{Value, json};

use crate::lab::{ALPN, Pki, close_frame, connect, soon};

/// A state file that knows the path over the loopback.
fn state_file(pki: &Pki) -> PathBuf {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let path = json!({
        "local": "127.0.0.1", "remote": "127.0.0.1", "cwnd_bytes": 1_000_000, "rtt_ms": 1.0,
        "saved_unix_s": unix.as_secs_f64() - 60.0,
    });
    let file = pki.file("paths.json");
    let text = json!({"schema": "satlab/resume-state/1", "paths": [path]}).to_string();
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// What the qlog files of the leg to the client restored, by connection; `None`: nothing was known.
fn restored(folder: &Path) -> Vec<Option<Value>> {
    let mut files: Vec<_> = (std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("client-side"))
        .collect();
    files.sort();
    let first_update = |path: PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        (text
            .split('\u{1e}')
            .filter_map(|record| serde_json::from_str::<Value>(record).ok()))
        .find(|record| record["name"] == "recovery:careful_resume_phase_updated")
        .map(|record| record["data"]["restored_data"].clone())
    };
    files.into_iter().map(first_update).collect()
}

#[tokio::test]
// promise: P73
async fn one_connection_at_a_time_has_the_set_of_the_satellite_leg() {
    let pki = Pki::new();
    let origin = pki.origin(&[ALPN]);
    let (file, qlog) = (state_file(&pki), pki.file("qlog"));
    let next_hop = origin.local_addr().unwrap().to_string();
    let gw = pki.proxy(&[
        "--next-hop",
        &next_hop,
        "--client-side-careful-resume",
        "on",
        "--resume-state",
        &file.display().to_string(),
        "--qlog",
        &qlog.display().to_string(),
    ]);
    let st = pki.proxy(&["--next-hop", &gw.address.to_string()]);
    let (first, to_first) = connect(&pki, st.address, &origin).await;
    let (second, to_second) = connect(&pki, st.address, &origin).await;
    soon(async {
        let mut send = to_first.open_uni().await.unwrap();
        let data = vec![7; 3_000_000];
        let ((), received) = tokio::join!(
            async {
                send.write_all(&data).await.unwrap();
                send.finish().unwrap();
            },
            async { first.accept_uni().await.unwrap().read_to_end(1 << 24).await }
        );
        assert!(received.unwrap() == data);
    })
    .await;
    for (client, server) in [(&first, &to_first), (&second, &to_second)] {
        client.close(VarInt::from_u32(0), b"");
        close_frame(server).await;
    }
    let closed = gw.line("closed", 2).await;
    assert!(closed["client_side"].get("jump").is_some(), "{closed}");
    gw.end().await;
    let saved = json!({"saved_congestion_window": 1_000_000, "saved_rtt": 1.0});
    assert_eq!(restored(&qlog), [Some(saved), None]);
    // How much a loopback carries in its round trip is not certain; whatever is left is of this
    // path, and private.
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let left: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(left["schema"], "satlab/resume-state/1");
    let paths = left["paths"].as_array().unwrap();
    assert!(paths.iter().all(|path| path["remote"] == "127.0.0.1"));
}

#[tokio::test]
async fn a_quiet_connection_leaves_the_set_to_others_though_it_goes_on() {
    let pki = Pki::new();
    let origin = pki.origin(&[ALPN]);
    let (file, qlog) = (state_file(&pki), pki.file("qlog"));
    let next_hop = origin.local_addr().unwrap().to_string();
    let gw = pki.proxy(&[
        "--next-hop",
        &next_hop,
        "--client-side-careful-resume",
        "on",
        "--resume-state",
        &file.display().to_string(),
        "--qlog",
        &qlog.display().to_string(),
    ]);
    let (first, to_first) = connect(&pki, gw.address, &origin).await;
    soon(async {
        let mut send = to_first.open_uni().await.unwrap();
        send.write_all(b"a page").await.unwrap();
        send.finish().unwrap();
        let mut there = first.accept_uni().await.unwrap();
        assert_eq!(there.read_to_end(9).await.unwrap(), b"a page");
        // A browser keeps its connection. The set is there some time after the page.
        loop {
            let (later, to_later) = connect(&pki, gw.address, &origin).await;
            later.close(VarInt::from_u32(0), b"");
            close_frame(&to_later).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            if restored(&qlog)[1..].iter().any(Option::is_some) {
                return;
            }
        }
    })
    .await;
    assert_eq!(first.close_reason(), None);
    gw.end().await;
}

#[tokio::test]
async fn a_connection_that_never_comes_leaves_the_set_to_the_next_one() {
    let pki = Pki::new();
    let file = state_file(&pki);
    // Nobody listens there any more.
    let next_hop = pki.origin(&[ALPN]).local_addr().unwrap().to_string();
    let state = file.display().to_string();
    let before = std::fs::read_to_string(&file).unwrap();
    let gw = pki.proxy(&[
        "--next-hop",
        &next_hop,
        "--client-side-careful-resume",
        "on",
        "--handshake-timeout-ms",
        "200",
        "--resume-state",
        &state,
    ]);
    // The proxy may or may not be faster than the end of the handshake with it.
    let _ = soon(pki.client().connect(gw.address, "origin.test").unwrap()).await;
    let closed = gw.line("closed", 1).await;
    assert_eq!(closed["outcome"], "failed");
    gw.end().await;
    let [before, after] = [before, std::fs::read_to_string(&file).unwrap()]
        .map(|text| serde_json::from_str::<Value>(&text).unwrap());
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_wrong_or_open_state_file_is_refused() {
    let pki = Pki::new();
    let file = state_file(&pki);
    let state = file.display().to_string();
    let more = [
        "--next-hop",
        "127.0.0.1:9",
        "--server-side-careful-resume",
        "on",
        "--resume-state",
        &state,
    ];
    let refused = || {
        let (report, _) = Report::new(std::io::sink(), None).unwrap();
        let options = pki.options("127.0.0.1:0", &more);
        match Proxy::bind(options, report).unwrap_err() {
            StartError::Memory(error) => error.to_string(),
            other => panic!("{other}"),
        }
    };
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("state/1", "state/2")).unwrap();
    assert!(refused().contains("schema"), "{}", refused());
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(refused().contains("0600"), "{}", refused());
}
