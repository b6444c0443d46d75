# SPDX-License-Identifier: GPL-3.0-or-later
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import polling

Job = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture
def job(trial: Callable[[str], Any]) -> Job:
    """Start the job, `instance` telling apart the two sides."""
    return lambda instance, *arguments, **environment: trial("satlab_iperf3").start(
        *arguments, JOB_INSTANCE_ID=str(instance), **environment
    )


def report(folder: Path, instance: int) -> dict[str, Any]:
    path = folder / "files" / f"satlab_iperf3-{instance}" / "iperf3_json.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def wait_for_tcp(port: int, state: str) -> None:
    """Wait until a socket with this local port is in a state (/proc/net/tcp: 0A listening, 01
    established).
    """
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        if any(fields[1].endswith(f":{port:04X}") and fields[3] == state for fields in sockets):
            return
        time.sleep(0.02)
    raise TimeoutError(f"no socket in state {state}")


def statistics(folder: Path, instance: int) -> set[str]:
    records = [json.loads(line) for line in (folder / "stats.jsonl").read_text().splitlines()]
    return {
        name
        for record in records
        if record["_metadata"]["job_instance_id"] == instance
        for name in record
    }


def test_both_sides_of_a_reversed_tcp_transfer_are_kept(
    job: Job, port: int, tmp_path: Path
) -> None:
    client = job(2, "-p", str(port), "client", "127.0.0.1", "-t", "1", "-R", "tcp", "-C", "cubic")
    server = job(1, "-p", str(port), "server", "-B", "127.0.0.1", "-1")  # the client waits for it
    assert (client.wait(120), server.wait(120)) == (0, 0)
    sender, receiver = report(tmp_path, 1), report(tmp_path, 2)
    assert sender["end"]["sum_sent"]["sender"] is True
    assert receiver["end"]["sum_received"]["bytes"] > 0
    assert len(receiver["intervals"]) >= 9
    common = {
        "throughput",
        "sent_data",
        "average_throughput",
        "total_transfer",
        "iperf3_json",
        "_metadata",
    }
    assert statistics(tmp_path, 1) == common | {"cwnd", "retransmissions", "total_retransmission"}
    assert statistics(tmp_path, 2) == common


def test_a_payload_takes_the_place_of_a_length(job: Job, port: int, tmp_path: Path) -> None:
    server = job(1, "-p", str(port), "server", "-B", "127.0.0.1", "-1")
    client = job(2, "-p", str(port), "client", "127.0.0.1", "-n", "3000000", "-R", "tcp")
    assert (client.wait(120), server.wait(120)) == (0, 0)
    assert report(tmp_path, 2)["end"]["sum_received"]["bytes"] >= 3_000_000
    assert report(tmp_path, 2)["start"]["test_start"]["duration"] == 0


def test_udp_reports_losses_at_the_receiver(job: Job, port: int, tmp_path: Path) -> None:
    server = job(1, "-p", str(port), "server", "-B", "127.0.0.1", "-1")
    client = job(
        2, "-p", str(port), "client", "127.0.0.1", "-t", "1", "-R", "udp", "-b", "1M", "-l", "1000"
    )
    assert (client.wait(120), server.wait(120)) == (0, 0)
    assert {"jitter", "lost_pkts", "plr", "total_lost_pkts", "total_plr"} <= statistics(tmp_path, 2)
    assert report(tmp_path, 2)["start"]["test_start"]["blksize"] == 1000


STOPS = pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])


@STOPS
def test_a_stopped_server_stores_what_it_has(
    job: Job, port: int, tmp_path: Path, stop: signal.Signals
) -> None:
    server = job(1, "-p", str(port), "server", "-B", "127.0.0.1")
    client = job(2, "-p", str(port), "client", "127.0.0.1", "-t", "20", "-R", "udp", "-b", "1M")
    wait_for_tcp(port, "01")
    time.sleep(1)  # iperf3 does not report how many intervals it has
    server.send_signal(stop)
    assert server.wait(120) == 0
    assert report(tmp_path, 1)["intervals"]
    assert "interrupt" in report(tmp_path, 1)["error"]
    assert client.wait(120) == 1, "its server has gone"


@STOPS
def test_a_stopped_client_stores_what_it_has_and_has_failed(
    job: Job, port: int, tmp_path: Path, stop: signal.Signals
) -> None:
    server = job(1, "-p", str(port), "server", "-B", "127.0.0.1", "-1")
    client = job(2, "-p", str(port), "client", "127.0.0.1", "-t", "20", "tcp")
    wait_for_tcp(port, "01")
    time.sleep(1)  # iperf3 does not report how many intervals it has
    client.send_signal(stop)
    assert (client.wait(120), server.wait(120)) == (1, 1)
    assert {"throughput", "average_throughput", "iperf3_json"} <= statistics(tmp_path, 2)
    kept = report(tmp_path, 2)
    assert (bool(kept["intervals"]), "interrupt" in kept["error"]) == (True, True)
    assert report(tmp_path, 1)["intervals"], "the other side keeps its part"


@STOPS
def test_a_server_that_is_stopped_while_iperf3_starts_ends_in_order(
    trial: Callable[[str], Any], tmp_path: Path, stop: signal.Signals
) -> None:
    """iperf3 handles signals once it listens; before, it dies without its JSON."""
    test, started = trial("satlab_iperf3"), tmp_path / "started"
    server = test.start("server", **test.stand_in("iperf3", f": > {started}\nexec sleep 60\n"))
    polling.until(started.exists, seconds=120)
    server.send_signal(stop)
    output, _ = server.communicate(timeout=120)
    assert (server.returncode, "before it had started" in output) == (0, True), output


def test_an_idle_server_that_is_stopped_stores_nothing(job: Job, port: int, tmp_path: Path) -> None:
    server = job(1, "-p", str(port), "server", "-B", "127.0.0.1")
    wait_for_tcp(port, "0A")
    server.send_signal(signal.SIGTERM)
    assert server.wait(120) == 0
    assert not (tmp_path / "files").exists()


# A stand-in for iperf3 that prints a given report and exits with 0, as the real one does after some
# errors.
FAKE = "#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit 0\n"
STREAM = {"bits_per_second": 1.0, "bytes": 1, "end": 0.1, "sender": False}
TOTAL = {"sum_received": {"bits_per_second": 1.0, "bytes": 1}}
GOOD = {"start": {"timestamp": {"timesecs": 1795262219}}, "intervals": [{"streams": [STREAM]}]}


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (json.dumps({**GOOD, "end": {**TOTAL, "sender_tcp_congestion": "bbr"}}), 0, ""),
        (
            json.dumps({**GOOD, "end": {**TOTAL, "sender_tcp_congestion": "reno"}}),
            1,
            "congestion control reno, not bbr",
        ),
        (json.dumps({**GOOD, "end": TOTAL}), 1, "congestion control None, not bbr"),
        (
            json.dumps({**GOOD, "end": {}, "error": "unable to receive"}),
            1,
            "iperf3: unable to receive",
        ),
        (json.dumps({"intervals": [], "end": {"sender_tcp_congestion": "bbr"}}), 1, ""),
        ("iperf3: nonsense", 1, "iperf3 printed no JSON"),
    ],
)
def test_the_client_fails_closed(
    job: Job, tmp_path: Path, text: str, status: int, said: str
) -> None:
    (tmp_path / "iperf3").write_text(FAKE.format(text=text))
    (tmp_path / "iperf3").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    client = job(2, "client", "127.0.0.1", "-t", "1", "-R", "tcp", "-C", "bbr", PATH=path)
    log, _ = client.communicate(timeout=120)
    assert (client.returncode, said in log) == (status, True), log


def test_totals_of_iperf3_before_3_11_are_what_arrived(
    module: Callable[[str], ModuleType],
) -> None:
    """Its one total of UDP has the bytes that were sent."""
    span = {"bytes": 114_000, "omitted": False}
    interval = {"streams": [{"sender": False}], "sum": span}
    warm_up = {"streams": [{"sender": False}], "sum": {**span, "omitted": True}}
    total = {"seconds": 1.0, "bytes": 240_000, "bits_per_second": 1.92e6}
    total |= {"lost_packets": 10, "lost_percent": 5.0}
    report = {"intervals": [warm_up, interval, interval], "end": {"sum": total}}
    assert module("satlab_iperf3").total_statistics(report) == {
        "average_throughput": 1.824e6,
        "total_transfer": 228_000,
        "total_lost_pkts": 10,
        "total_plr": 5.0,
    }
