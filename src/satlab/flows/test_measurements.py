# SPDX-License-Identifier: GPL-3.0-or-later
"""What is made of satperf's lines, qlog files, `ss` and packets."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from satlab.check.sandboxed_program import ExitReport
from satlab.flows import measurements, tcp_states
from satlab.flows.endpoint_commands import Place
from satlab.flows.measurements import FlowRun, Measured
from satlab.flows.packet_counts import AtInterface
from satlab.flows.time_series import Seen
from satlab.lab.pki import Pki

ZERO = 1000.0
SS = (
    "ESTAB 0 0 198.18.4.2:4433 198.18.1.2:40001 cubic wscale:7,7 rtt:61.5/0.5 mss:1448 cwnd:20"
    " bytes_sent:90000 bytes_retrans:2896 bytes_received:90000 retrans:0/2\nESTAB 0 0"
    " 198.18.4.2:4433 198.18.1.2:40000 cubic rtt:60/1 mss:1448 cwnd:10 bytes_received:120\nLISTEN 0"
    " 5 198.18.4.2:4433 0.0.0.0:*\n"
)


def course(folder: Path, stop_s: float = 10.0, **flow: Any) -> FlowRun:
    given = {
        "id": "a",
        "from": "server1",
        "to": "client1",
        "stack": "quinn",
        "congestion_control": "cubic",
        "start_s": 0,
    }
    place = Place(
        0,
        given | flow,
        10,
        {"server": "198.18.4.2", "client": "198.18.1.2"},
        Pki(folder, ""),
        folder / "ca",
        folder,
        folder / "payload",
        1 << 20,
    )
    for side in ("server", "client"):
        (folder / side).mkdir(exist_ok=True)
    return FlowRun(place, stop_s)


def measured(tcp: dict[str, Any] | None = None) -> Measured:
    at = {side: {4433: AtInterface()} for side in ("server", "client")}
    for side, one in at.items():
        one[4433].from_client.add(ZERO + (0.03 if side == "server" else 0.0), 1200)
        for second in range(1, 4):
            one[4433].from_server.add(ZERO + second, 1200)
        one[4433].from_client.finish()
        one[4433].from_server.finish()
    return Measured(ZERO, at, {4433: tcp} if tcp else {})


def satperf(
    folder: Path, side: str, role: str, *lines: dict[str, Any], start_s: float = 0.1
) -> None:
    start = {
        "type": "start",
        "side": side,
        "role": role,
        "t_unix_s": ZERO + start_s,
        "stack": "quinn-proto 0.11",
    }
    text = "".join(json.dumps(line | {"side": side}) + "\n" for line in (start, *lines))
    (folder / side / "satperf.jsonl").write_text(text)


def interval(t_s: float, **values: Any) -> dict[str, Any]:
    return {
        "type": "interval",
        "t_s": t_s,
        "bytes": 0,
        "cwnd_bytes": 12_000,
        "rtt_ms": 60.0,
        "lost_packets": 0,
    } | values


def test_satperf_reports_payload_at_the_receiver_and_state_at_the_sender(tmp_path: Path) -> None:
    run = course(tmp_path)
    end = {
        "type": "summary",
        "status": "ok",
        "reason": "done",
        "data_equal": True,
        "acks_sent": 5,
        "t_s": 9.9,
    }
    satperf(tmp_path, "client", "receiver", interval(1, bytes=500), interval(2, bytes=700), end)
    states = interval(1, lost_packets=2), interval(2, lost_packets=1, cwnd_bytes=24_000)
    satperf(
        tmp_path,
        "server",
        "sender",
        *states,
        end | {"sent_bytes": 2000, "lost_bytes": 100, "sent_packets": 9},
    )
    seen = measurements.read(run, measured())
    assert (seen.status, seen.ended_s) == ("ok", 10.0)
    assert [seen.payload.at(t) for t in (1.1, 1.6, 2.11)] == pytest.approx([500, 850, 1200])
    assert (seen.cwnd.at(2.11), seen.lost.end, seen.acks) == (24_000, 3, 5)
    assert (seen.sent_bytes, seen.lost_bytes, seen.sent_packets) == (2000, 100, 9)
    assert seen.sources["payload"] == "satperf at the client"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ({"status": "failed", "reason": "no handshake"}, "no handshake"),
        ({"status": "ok", "reason": "done", "data_equal": False}, "differs from the sent data"),
    ],
)
def test_a_failure_that_satperf_reports_is_the_flow_s(
    tmp_path: Path, end: dict[str, Any], reason: str
) -> None:
    run = course(tmp_path)
    satperf(tmp_path, "client", "receiver", interval(1, bytes=500), {"type": "summary", **end})
    run.gone, run.gone_s = ("client", ExitReport(1, "", 0, 0, "")), 4.0
    seen = measurements.read(run, measured())
    assert (seen.status, seen.ended_s) == ("failed", 4.0)
    assert reason in seen.reason


def test_tcp_is_the_connection_with_the_payload(tmp_path: Path) -> None:
    states = {side: list(tcp_states.parse(SS, ZERO + 1, "server")) for side in ("server", "client")}
    assert len(states["server"]) == 2
    found = tcp_states.of_flow(states, 4433, "client")
    assert [one.peer for one in found["server"]] == [40_001]
    seen = measurements.read(course(tmp_path, stack="tcp"), measured(found))
    assert (seen.payload.end, seen.rtt.at(1), seen.cwnd.at(1), seen.lost.end) == (
        90_000,
        61.5,
        20 * 1448,
        2,
    )
    assert (seen.sent_bytes, seen.lost_bytes) == (90_000, 2896)
    assert tcp_states.of_flow(states, 4434, "client") == {"server": [], "client": []}


def test_ports_of_the_client_s_side_come_second() -> None:
    (one,) = tcp_states.parse(
        "ESTAB 0 0 198.18.1.2:40000 198.18.4.2:4433 cubic rtt:60/1 cwnd:10", 1, "client"
    )
    assert (one.port, one.peer, one.number("bytes_sent"), one.retransmitted) == (4433, 40_000, 0, 0)


def qlog(folder: Path, side: str, events: list[dict[str, Any]]) -> None:
    header = {"qlog_format": "JSON-SEQ", "trace": {"vantage_point": {"type": side}}}
    (folder / side / "qlog").mkdir(parents=True)
    lines = "".join(f"\x1e{json.dumps(one)}\n" for one in (header, *events))
    (folder / side / "qlog" / "a.sqlog").write_text(lines)


def stream(name: str, time: float, offset: int, length: int) -> dict[str, Any]:
    frame = {"frame_type": "stream", "stream_id": 0, "offset": offset, "length": length}
    return {
        "time": time,
        "name": name,
        "data": {"header": {"packet_type": "1RTT"}, "frames": [frame]},
    }


def test_ngtcp2_is_read_from_both_qlog_files_by_the_packets_clock(tmp_path: Path) -> None:
    run = course(tmp_path, stack="ngtcp2", congestion_control="bbr2")
    metrics = {"congestion_window": 24_000, "smoothed_rtt": 61.0}
    received = {"time": 5, "name": "transport:packet_received", "data": {}}
    updated = {"time": 1000, "name": "recovery:metrics_updated", "data": metrics}
    lost = {"time": 1500, "name": "recovery:packet_lost", "data": {}}
    sent = [
        stream("transport:packet_sent", 1200, 0, 1000),
        stream("transport:packet_sent", 1600, 0, 500),
    ]
    qlog(tmp_path, "server", [received, updated, sent[0], lost, sent[1], updated | {"time": 1700}])
    first = {"time": 0, "name": "transport:packet_sent", "data": {}}
    qlog(tmp_path, "client", [first, stream("transport:packet_received", 1250, 0, 1000)])
    seen = measurements.read(run, measured())
    assert seen.status == "ok"
    # The server's first packet came at 0.03 s, 5 ms on its clock; the client's left at 0.
    assert seen.cwnd.at(1.71) == 24_000
    assert seen.rtt.at(1.73) == 61.0
    assert (seen.payload.at(1.2), seen.payload.at(1.25)) == (0, 1000)
    assert (seen.sent_bytes, seen.lost_bytes, seen.lost.end) == (1500, 500, 1)
    assert seen.sources["window, RTT, losses"] == "qlog of the server"


def test_picoquic_is_read_from_one_document_and_named_by_its_archive(tmp_path: Path) -> None:
    run = course(tmp_path, stack="picoquic", congestion_control="bbr")
    frame = {"frame_type": "stream", "stream_id": 0, "offset": 0, "length": 1000}
    received = [
        1250_000,
        "transport",
        "packet_received",
        {"packet_type": "1RTT", "frames": [frame]},
    ]
    trace = {
        "vantage_point": {"type": "client"},
        "configuration": {"time_units": "us"},
        "event_fields": ["relative_time", "category", "event", "data"],
        "events": [[0, "transport", "packet_sent", {}], received],
    }
    folder = tmp_path / "client" / "qlog"
    folder.mkdir(parents=True)
    whole = json.dumps({"qlog_version": "draft-00", "traces": [trace]})
    (folder / "a.client.qlog").write_text(
        whole.removesuffix("]}]}")
    )  # as a program that is stopped leaves it
    seen = measurements.read(run, measured())
    assert (seen.payload.at(1.2), seen.payload.at(1.25)) == (0, 1000)
    assert re.fullmatch(r"picoquic of aiopquic \d+\.\d+\.\d+, bbr", seen.library)


def test_a_flow_whose_qlog_file_cannot_be_read_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = course(tmp_path, stack="ngtcp2")
    seen = measurements.read(run, measured())
    assert (seen.status, seen.reason) == (
        "failed",
        "what arrived cannot be read: qlog of the client: no file",
    )
    assert seen.sources["payload"] == "none: qlog of the client: no file"
    silent = Measured(ZERO, {side: {4433: AtInterface()} for side in ("server", "client")}, {})
    assert measurements.read(run, silent).reason == "nothing arrived until the end"
    qlog(tmp_path, "client", [])
    monkeypatch.setattr("satlab.check.trace.qlog_records.MAX_BYTES", 10)
    assert measurements.read(run, measured()).reason.endswith("it has more than 10 bytes")


def test_datagrams_are_counted_from_packets(tmp_path: Path) -> None:
    seen = measurements.read(course(tmp_path, stack="udp"), measured())
    assert (seen.payload.end, seen.sent_packets, seen.received_packets, seen.lost_bytes) == (
        3600,
        3,
        3,
        0,
    )


@pytest.mark.parametrize(
    ("asked", "payload", "gone", "status", "ended_s"),
    [
        (None, 100, None, "ok", 10.0),
        (None, 0, None, "failed", 10.0),
        (100, 100, None, "ok", 5.0),
        (200, 100, None, "censored", 10.0),
        (None, 100, ExitReport(-9, "", 0, 0, ""), "failed", 4.0),
        (100, 100, ExitReport(0, "", 0, 0, ""), "ok", 5.0),
    ],
)
def test_every_end_of_a_flow_has_its_status(
    tmp_path: Path,
    asked: int | None,
    payload: int,
    gone: ExitReport | None,
    status: str,
    ended_s: float,
) -> None:
    run = course(tmp_path, **({} if asked is None else {"bytes": asked}))
    run.gone, run.gone_s = (("server", gone), 4.0) if gone else (None, None)
    seen = Seen()
    seen.payload.add(0, 0)
    seen.payload.add(5.0, payload)
    measurements.judge(seen, run)
    assert (seen.status, seen.ended_s) == (status, ended_s)
    if gone and status == "failed":
        assert seen.reason == "the server: it ended with signal 9"


def test_a_flow_that_never_began_fails_with_the_reason(tmp_path: Path) -> None:
    run = course(tmp_path)
    run.refused = "the server: it does not listen"
    seen = Seen()
    measurements.judge(seen, run)
    assert (seen.status, seen.reason, seen.ended_s) == (
        "failed",
        "the server: it does not listen",
        0,
    )


def test_a_flow_whose_client_has_not_moved_is_failed(tmp_path: Path) -> None:
    run = course(tmp_path, migrate_s=[4])
    end = {"type": "summary", "status": "ok", "reason": "done", "data_equal": True, "t_s": 9.9}
    satperf(tmp_path, "client", "receiver", interval(1, bytes=500), end)
    satperf(tmp_path, "server", "sender", interval(1), end)
    packets = measured()
    at_server = packets.interfaces["server"][4433]
    at_server.note_client(ZERO + 0.1, bytes([198, 18, 1, 2]))
    stays = measurements.read(run, packets)
    assert (stays.status, stays.moved_s) == ("failed", [])
    assert "that its client takes at 4 s" in stays.reason
    at_server.note_client(ZERO + 4.07, bytes([198, 18, 1, 130]))
    moves = measurements.read(run, packets)
    assert (moves.status, moves.moved_s) == ("ok", [4.07])
    at_the_end = measurements.read(course(tmp_path, migrate_s=[9.5]), measured())
    assert at_the_end.status == "ok"
