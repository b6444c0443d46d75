# SPDX-License-Identifier: GPL-3.0-or-later
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from collect import pep, satperf, stored, tcp_parameters
from collect.fixtures import example_run
from collect.records import Record
from satlab.common.paths import SCHEMAS

OPTIONS = {
    "congestion_control": "cubic",
    "initial_window": 10,
    "slow_start": "standard",
    "ack_threshold": None,
    "packet_threshold": None,
    "max_ack_delay_ms": None,
    "receive_window": 1,
    "stream_receive_window": 1,
    "send_window": 1,
    "initial_rtt_ms": 333,
    "max_idle_ms": 1,
    "careful_resume": "off",
}


def start(side: str, role: str, t_unix_s: float, **options: Any) -> dict[str, Any]:
    request = {"direction": "download", "bytes": None, "duration_ms": 1000, "streams": 1}
    socket = {"send_buffer_bytes": 1, "receive_buffer_bytes": 1, "gso_segments": 1}
    return {
        "type": "start",
        "schema": "satlab/satperf/1",
        "side": side,
        "role": role,
        "version": "0",
        "stack": "quinn",
        "t_unix_s": t_unix_s,
        "peer": "1.2.3.4:5",
        "request": request,
        "options": OPTIONS | options,
        "socket": socket,
    }


def interval(side: str, t_s: float, goodput_bps: float) -> dict[str, Any]:
    counts = dict.fromkeys(
        ("sent_packets", "received_packets", "lost_packets", "acks_sent", "acks_received"), 1
    )
    figures = {
        "bytes": round(goodput_bps / 80),
        "goodput_bps": goodput_bps,
        "cwnd_bytes": 12000,
        "rtt_ms": 600.0,
        "in_flight_bytes": None,
        "slow_start": None,
        "app_limited": None,
        "pacing_bps": None,
        "sent_bytes": 1500,
        "acked_bytes": None,
        "ack_ms": None,
        "handed": False,
    }
    return {"type": "interval", "side": side, "t_s": t_s, "interval_s": 0.1, **figures, **counts}


def summary(side: str, **changed: Any) -> dict[str, Any]:
    counts = dict.fromkeys(
        ("sent_packets", "received_packets", "lost_packets", "acks_sent", "acks_received"), 7
    )
    return {
        "type": "summary",
        "side": side,
        "status": "ok",
        "reason": "done",
        "t_s": 1.0,
        "handshake_ms": 608.0,
        "zero_rtt": "not_asked",
        "time_to_first_byte_ms": 1210.0,
        "bytes": 1000,
        "goodput_bps": 8000.0,
        "reached_2mb_s": None,
        "reached_10mb_s": None,
        "reached_100mb_s": None,
        "data_equal": True,
        **counts,
        "sent_bytes": 1,
        "lost_bytes": 0,
        "retransmitted_share": 0.0,
        "cpu_s": 0.1,
        "careful_resume": None,
        **changed,
    }


def lines(**client: Any) -> list[dict[str, Any]]:
    return [
        start("client", "receiver", 1000.0),
        start("server", "sender", 1000.3, congestion_control="reno"),
        interval("client", 0.1, 0.0),
        interval("client", 0.2, 8e6),
        interval("server", 0.1, 0.0),
        summary("client", **client),
        summary("server", data_equal=None, time_to_first_byte_ms=None),
    ]


def gather(rows: list[dict[str, Any]]) -> list[Record]:
    schema = json.loads((SCHEMAS / "satperf.schema.json").read_text())
    for row in rows:
        jsonschema.validate(row, schema)
    run = satperf.Satperf.model_validate({"schema": "satlab/satperf-run/1", "lines": rows})
    return satperf.records(run, {"job": "satlab_satperf", "instance": "4"}, 990.0)


def one(found: list[Record], metric: str) -> Record:
    return next(record for record in found if record.metric == metric and record.t_s is None)


def test_figures_come_from_the_receiver_and_the_sender_is_named() -> None:
    found = gather(lines())
    goodput = one(found, "goodput_bps")
    assert (goodput.value, goodput.labels["congestion_control"], goodput.labels["transport"]) == (
        8000.0,
        "reno",
        "QUIC",
    )
    assert (one(found, "connect_ms").value, one(found, "ttfb_ms").value) == (608.0, 1210.0)
    series = [r for r in found if r.metric == "goodput_bps" and r.t_s is not None]
    assert [r.t_s for r in series] == pytest.approx([10.1, 10.2])
    assert [r.value for r in series] == [0.0, 8e6]
    assert next(r.t_s for r in found if r.metric == "cwnd_bytes") == pytest.approx(10.4)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"status": "failed", "reason": "timed out"}, "timed out"),
        ({"data_equal": False}, "not the one that was sent"),
        ({"goodput_bps": None, "time_to_first_byte_ms": None}, "no payload arrived"),
    ],
)
def test_a_transfer_that_failed_is_a_failed_sample(changed: dict[str, Any], reason: str) -> None:
    goodput = one(gather(lines(**changed)), "goodput_bps")
    assert (goodput.status, goodput.value) == ("failed", None)
    assert reason in goodput.reason


def test_lines_without_an_end_are_a_failed_sample() -> None:
    assert one(gather(lines()[:-2]), "goodput_bps").status == "failed"


def test_a_server_s_own_file_counts_nothing_twice() -> None:
    assert gather([start("server", "sender", 1000.0), summary("server")]) == []


def tcp_document() -> dict[str, Any]:
    """A node that was to use Reno on both sides, with a connection that did and one that did not."""
    side = {"congestion_control": "reno", "initial_window": 100, "initial_receive_window": None}
    common = {
        "interface": "lan0",
        "side": "client",
        "cwnd_max": 240,
        "rtt_min_ms": 0.1,
        "bytes_acked": 1,
    }
    more = {"bytes_received": 1, "retransmits": 0, "samples": 3}
    connections = [
        {
            "local": "a:1",
            "peer": "b:2",
            "congestion_control": name,
            "initial_window": 100,
            "fault": fault,
            **common,
            **more,
        }
        for name, fault in (("reno", ""), ("cubic", "a:1 to b:2 uses cubic, not reno"))
    ]
    return {
        "schema": "satlab/tcp-conf/1",
        "preset": "none",
        "asked": {"client": side, "server": side},
        "routes": [],
        "tcp_rmem": [1, 2, 3],
        "tcp_wmem": [1, 2, 3],
        "samples": 3,
        "connections": connections,
    }


def test_a_leg_that_used_something_else_is_a_failed_sample() -> None:
    document = tcp_document()
    found = tcp_parameters.records(
        tcp_parameters.TcpConf.model_validate(document), {"entity": "proxy-gw"}
    )
    leg = one(found, "tcp_leg_ok")
    assert (leg.status, leg.labels["congestion_control"], leg.labels["initial_window_asked"]) == (
        "failed",
        "cubic, reno",
        "100",
    )
    assert one(found, "tcp_leg_cwnd_max_packets").value == 240


def test_the_legs_of_a_run_are_returned_for_its_manifest(tmp_path: Path) -> None:
    legs = {"congestion_control": "bbr", "initial_window": 100}
    quic = {
        "schema": "satlab/pep/1",
        "engine": "satpep",
        "version": "0",
        "argv": ["satpep"],
        "client": "a",
        "server": "b",
        "connections": 1,
        "report": [{"type": "ready", "client_side": legs, "server_side": legs}],
        "fault": "",
    }
    jobs = []
    for number, (job, name, document) in enumerate(
        [("satlab_tcp_conf", tcp_parameters.STAT, tcp_document()), ("satlab_pep", pep.STAT, quic)],
        start=1,
    ):
        folder = tmp_path / "raw" / "files" / f"{job}-{number}"
        folder.mkdir(parents=True)
        (folder / f"{name}.json").write_text(json.dumps(document))
        jobs.append(example_run.job(number, job, "proxy-gw", "l", 1.0, 2.0))
    (tmp_path / "raw" / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    returned = stored(tmp_path).legs
    about = {
        "node": "proxy-gw",
        "protocol": "quic",
        "congestion_control": "bbr",
        "initial_window": "100",
    }
    assert returned == [
        {
            "node": "proxy-gw",
            "protocol": "tcp",
            "leg": "lan0",
            "congestion_control": "cubic, reno",
            "congestion_control_asked": "reno",
            "initial_window": "100",
            "initial_window_asked": "100",
            "fault": "a:1 to b:2 uses cubic, not reno",
        },
        about | {"leg": "client"},
        about | {"leg": "server"},
    ]
    assert stored(tmp_path / "nothing").legs == []


HAPROXY = {
    "schema": "satlab/pep/1",
    "engine": "haproxy",
    "version": "2",
    "argv": [],
    "client": "a",
    "server": "b",
}


def test_a_proxy_that_nothing_went_through_is_a_failed_sample() -> None:
    document = {**HAPROXY, "connections": 0, "report": [], "fault": ""}
    (record,) = pep.records(pep.Pep.model_validate(document), {})
    assert (record.status, record.reason) == ("failed", "no connection went through the proxy")


def test_what_satpep_has_in_force_is_compared_with_what_was_asked_for() -> None:
    legs = {"congestion_control": "reno", "initial_window": 100, "ack_threshold": None}
    asked = [
        "satpep",
        "quic",
        "--client-side-initial-window",
        "100",
        "--server-side-congestion-control",
        "cubic",
    ]
    document = {
        **HAPROXY,
        "engine": "satpep",
        "version": "0",
        "argv": asked,
        "connections": 1,
        "report": [{"type": "ready", "client_side": legs, "server_side": legs}],
        "fault": "",
    }
    found = {
        r.labels["side"]: r
        for r in pep.records(pep.Pep.model_validate(document), {})
        if "side" in r.labels
    }
    assert (found["client"].status, found["client"].labels["initial_window"]) == ("ok", "100")
    assert (found["server"].status, found["server"].reason) == (
        "failed",
        "congestion_control is reno, not cubic",
    )


def test_a_proxy_that_died_is_named_whoever_ended_first() -> None:
    fault = "haproxy ended with status -9: no output"
    document = {**HAPROXY, "connections": 3, "report": [], "fault": fault}
    (record,) = pep.records(pep.Pep.model_validate(document), {})
    assert (record.status, record.reason) == ("failed", "haproxy ended with status -9: no output")
