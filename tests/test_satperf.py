# SPDX-License-Identifier: GPL-3.0-or-later
"""satperf over the loopback: what it writes, its exit statuses, and its answers to faults."""

import contextlib
import json
import random
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from satlab.common import paths
from satlab.common.processes import wait
from satlab.lab import pki

NAME = "perf.satlab.test"
SCHEMA = json.loads((paths.SCHEMAS / "satperf.schema.json").read_text())
STACKS = ("quinn", "quiche")
END_S = 60.0


@pytest.fixture
def satperf() -> Path:
    if not paths.SATPERF.exists():
        pytest.skip(f"{paths.SATPERF} is not built")
    return paths.SATPERF


@dataclass
class Server:
    process: "subprocess.Popen[bytes]"
    port: int
    output: Path


@dataclass
class Bench:
    """A folder with keys, and the program."""

    program: Path
    folder: Path
    keys: pki.Pki

    def listen(self, *options: str) -> list[str]:
        keys = ["--cert", str(self.keys.server_cert), "--key", str(self.keys.server_key)]
        return [str(self.program), "server", "--listen", "127.0.0.1:0", *keys, *options]

    @contextlib.contextmanager
    def server(self, *options: str) -> Iterator[Server]:
        """A server that has said where it listens."""
        log, output = self.folder / "server.log", self.folder / "server.jsonl"
        with log.open("wb") as words:
            process = subprocess.Popen(
                [*self.listen("--output", str(output)), *options], stderr=words
            )
        try:
            assert wait(lambda: b"listening" in log.read_bytes(), 20), log.read_text()
            yield Server(process, int(log.read_text().split(":")[-1]), output)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            process.wait(20)

    def connect(self, port: int, *options: str) -> list[str]:
        connect = f"{self.program} client --connect 127.0.0.1:{port} --server-name {NAME}".split()
        return [*connect, "--ca", str(self.keys.ca_cert), "--timeout", "30", *options]

    def client(self, port: int, *options: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.connect(port, *options), capture_output=True, text=True, timeout=END_S, check=False
        )

    def begun(self, port: int, count: int, *options: str) -> tuple["subprocess.Popen[str]", str]:
        """Start a client that would go on for 20 s; return it after so many lines, and these."""
        argv = self.connect(port, *options, "--duration", "20")
        client = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert client.stdout is not None
        return client, "".join(client.stdout.readline() for _ in range(count))


@pytest.fixture
def bench(satperf: Path, tmp_path: Path) -> Bench:
    return Bench(satperf, tmp_path, pki.create(tmp_path / "pki", [NAME], [], datetime.now(UTC)))


def lines(text: str) -> list[dict[str, Any]]:
    """Read lines, each of which must be as the schema says."""
    found = [json.loads(line) for line in text.splitlines()]
    for line in found:
        jsonschema.validate(line, SCHEMA)
    return found


def summary(text: str, side: str = "client") -> dict[str, Any]:
    (found,) = [line for line in lines(text) if line["type"] == "summary" and line["side"] == side]
    return found


@pytest.mark.parametrize("direction", ["download", "upload"])
@pytest.mark.parametrize("stack", STACKS)
def test_both_files_report_all_and_the_data_is_equal(
    bench: Bench, stack: str, direction: str
) -> None:
    with bench.server("--stack", stack, "--once") as server:
        done = bench.client(
            server.port,
            *f"--stack {stack} --bytes 30000001 --streams 3 --direction {direction}".split(),
        )
        assert done.returncode == 0, done.stderr
        assert server.process.wait(20) == 0
    receiver = "client" if direction == "download" else "server"
    got = summary(done.stdout, receiver)
    assert (got["status"], got["bytes"], got["data_equal"]) == ("ok", 30_000_001, True)
    assert got["handshake_ms"] > 0
    assert (
        0
        < got["time_to_first_byte_ms"]
        <= got["reached_2mb_s"] * 1000
        <= got["reached_10mb_s"] * 1000
    )
    own = lines(server.output.read_text())
    assert [line for line in lines(done.stdout) if line["side"] == "server"] == own
    assert [line["type"] for line in own][:: len(own) - 1] == ["start", "summary"]
    assert own[0]["role"] == ("sender" if direction == "download" else "receiver")
    received = [
        line
        for line in lines(done.stdout)
        if line["side"] == receiver and line["type"] == "interval"
    ]
    assert sum(line["bytes"] for line in received) == 30_000_001


def test_options_in_force_are_reported(bench: Bench) -> None:
    leg = "--congestion-control reno --initial-window 100 --ack-threshold 20".split()
    with bench.server(*leg) as server:
        start = lines(bench.client(server.port, "--duration", "0.3", *leg).stdout)[0]
    expected = {"congestion_control": "reno", "initial_window": 100, "ack_threshold": 20}
    assert expected.items() <= start["options"].items()
    request = {"direction": "download", "bytes": None, "duration_ms": 300, "streams": 1}
    assert start["request"] == request


@pytest.mark.parametrize("direction", ["download", "upload"])
def test_a_source_with_a_rate_sets_the_pace(bench: Bench, direction: str) -> None:
    with bench.server("--once") as server:
        done = bench.client(
            server.port, "--bytes", "1000000", "--source-mbps", "8", "--direction", direction
        )
    got = summary(done.stdout, "client" if direction == "download" else "server")
    assert (got["status"], got["data_equal"]) == ("ok", True)
    assert got["t_s"] >= 0.98
    assert lines(done.stdout)[0]["request"]["source_mbps"] == 8


def bound_at(address: str) -> bool:
    """Return whether a UDP socket is bound to an own address of the host (proc_net(5))."""
    number = f"{int.from_bytes(socket.inet_aton(address), 'little'):08X}"
    return any(
        row.split()[1].startswith(number)
        for row in Path("/proc/net/udp").read_text().splitlines()[1:]
    )


@pytest.mark.parametrize(("stack", "direction"), [("quinn", "download"), ("noq", "upload")])
def test_a_client_takes_another_address_and_keeps_its_connection(
    bench: Bench, stack: str, direction: str
) -> None:
    # An own address of this test: those of 127.0.0.0/8 are the host's.
    address = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}.77"  # noqa: S311 - no secret
    # Eight seconds, of which the address is bound for more than seven.
    options = f"--stack {stack} --source-mbps 2 --bytes 2000000 --direction {direction}".split()
    with bench.server("--stack", stack, "--once") as server:
        argv = bench.connect(
            server.port, *options, "--migrate", f"0.5:{address}", "--migrate", "1:127.0.0.1"
        )
        client = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert wait(lambda: bound_at(address), 20)
        text, _ = client.communicate(timeout=END_S)
        assert client.returncode == 0, text[-300:]
        assert server.process.wait(20) == 0
    got = summary(text, "client" if direction == "download" else "server")
    assert (got["status"], got["bytes"], got["data_equal"]) == ("ok", 2_000_000, True)


@pytest.mark.parametrize("direction", ["download", "upload"])
@pytest.mark.parametrize("stack", STACKS)
def test_a_server_ends_with_its_client(bench: Bench, stack: str, direction: str) -> None:
    for _ in range(5):
        with bench.server("--stack", stack, "--once") as server:
            done = bench.client(
                server.port, "--stack", stack, "--bytes", "2000000", "--direction", direction
            )
            assert done.returncode == 0, done.stderr
            assert server.process.wait(30) == 0


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("fault", ["ca", "name"])
def test_t08_a_refused_certificate_fails_with_its_reason(
    bench: Bench, stack: str, fault: str, tmp_path: Path
) -> None:
    other = pki.create(tmp_path / "other", [NAME], [], datetime.now(UTC))
    wrong = {"ca": f"--ca {other.ca_cert}", "name": "--server-name other.satlab.test"}[fault]
    with bench.server("--stack", stack) as server:
        argv = replaced(bench.connect(server.port, "--stack", stack, "--bytes", "1000"), wrong)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=END_S, check=False)
    assert done.returncode == 1
    assert summary(done.stdout)["status"] == "failed"
    assert done.stderr.startswith("error: ")
    assert "hint: " in done.stderr


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.promise("P84")
def test_a_killed_server_is_noticed(bench: Bench, stack: str) -> None:
    leg = ("--stack", stack, "--max-idle-ms", "2000")
    with bench.server(*leg) as server:
        client, first = bench.begun(server.port, 4, *leg)
        server.process.send_signal(signal.SIGKILL)
        rest, _ = client.communicate(timeout=END_S)
    assert client.returncode == 1
    last = summary(first + rest)
    assert (last["status"], last["reason"]) == ("failed", "timed out")
    assert last["bytes"] > 0


@pytest.mark.parametrize("stack", STACKS)
def test_a_killed_client_is_a_failed_sample_of_the_server(bench: Bench, stack: str) -> None:
    leg = ("--stack", stack, "--max-idle-ms", "2000")
    with bench.server(*leg, "--once") as server:
        client, _ = bench.begun(server.port, 1, *leg)
        assert wait(lambda: len(server.output.read_text().splitlines()) > 2, 20)
        client.kill()
        client.communicate(timeout=END_S)
        assert server.process.wait(END_S) == 1
    assert summary(server.output.read_text(), "server")["status"] == "failed"


def test_an_interrupt_keeps_what_was_measured(bench: Bench) -> None:
    with bench.server() as server:
        client, first = bench.begun(server.port, 3)
        client.send_signal(signal.SIGINT)
        rest, _ = client.communicate(timeout=END_S)
    assert client.returncode == 130
    assert summary(first + rest)["reason"] == "interrupted"


@pytest.mark.parametrize("stack", STACKS)
def test_malformed_packets_do_no_harm(bench: Bench, stack: str) -> None:
    seeded = random.Random(1)  # noqa: S311 - no secret
    with (
        bench.server("--stack", stack) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        client = subprocess.Popen(
            bench.connect(server.port, "--stack", stack, "--bytes", "20000000"),
            stdout=subprocess.PIPE,
        )
        # Any bytes, and what looks like a first packet of QUIC version 1.
        for _ in range(2000):
            head = seeded.choice([b"", b"\xc0\0\0\0\1\x08"])
            sender.sendto(
                head + seeded.randbytes(seeded.randrange(1400)), ("127.0.0.1", server.port)
            )
        text, _ = client.communicate(timeout=END_S)
        assert client.returncode == 0
        assert summary(text.decode())["data_equal"] is True
        again = bench.client(server.port, "--stack", stack, "--bytes", "1000")
        assert again.returncode == 0, again.stderr


def test_a_full_disk_ends_the_run_with_status_3(bench: Bench) -> None:
    with bench.server() as server:
        done = bench.client(server.port, "--duration", "10", "--output", "/dev/full")
    assert done.returncode == 3
    assert "No space left" in done.stderr


@pytest.mark.parametrize("stack", STACKS)
def test_a_qlog_that_cannot_be_written_ends_the_run_with_status_3(bench: Bench, stack: str) -> None:
    few = resource.RLIMIT_FSIZE, (50_000, 50_000)  # as a full disk, but for the error's name
    with bench.server("--stack", stack) as server:
        words = f"--stack {stack} --bytes 1000000000 --qlog {bench.folder}/qlog"
        done = subprocess.run(
            bench.connect(server.port, *words.split()),
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
            restore_signals=False,
            preexec_fn=lambda: resource.setrlimit(*few),
        )
    assert done.returncode == 3
    assert "qlog: File too large" in done.stderr
    assert summary(done.stdout)["status"] == "failed"


@pytest.mark.parametrize("stack", STACKS)
def test_qlog_is_written_where_asked(bench: Bench, stack: str) -> None:
    folder = bench.folder / "qlog"
    with bench.server("--stack", stack, "--qlog", str(folder), "--once") as server:
        done = bench.client(
            server.port, "--stack", stack, "--bytes", "100000", "--qlog", str(folder)
        )
        assert done.returncode == 0, done.stderr
        server.process.wait(20)
    files = {file.name for file in folder.iterdir()}
    assert files == {f"{stack}-client-0.sqlog", f"{stack}-server-0.sqlog"}
    for file in folder.iterdir():
        records = [json.loads(record) for record in file.read_text().split("\x1e")[1:]]
        assert len(records) > 10


def test_a_second_run_sends_its_request_at_once(bench: Bench) -> None:
    session = bench.folder / "session"
    leg = ("--stack", "quiche", "--bytes", "1000", "--zero-rtt", str(session))
    with bench.server("--stack", "quiche") as server:
        first, second = (summary(bench.client(server.port, *leg).stdout) for _ in range(2))
        assert session.stat().st_mode & 0o777 == 0o600
    assert (first["zero_rtt"], second["zero_rtt"]) == ("not_asked", "accepted")
    # Another process has other keys: the session is refused, the transfer is not.
    with bench.server("--stack", "quiche") as server:
        third = summary(bench.client(server.port, *leg).stdout)
    assert (third["zero_rtt"], third["status"]) == ("refused", "ok")


@pytest.mark.parametrize("direction", ["download", "upload"])
def test_the_sender_uses_the_set_of_its_path_and_leaves_a_private_file(
    bench: Bench, direction: str
) -> None:
    state, qlog = bench.folder / "state", bench.folder / "qlog"
    path = {"local": "127.0.0.1", "remote": "127.0.0.1", "cwnd_bytes": 1_000_000, "rtt_ms": 1.0}
    document = {
        "schema": "satlab/resume-state/1",
        "paths": [path | {"saved_unix_s": time.time() - 60}],
    }
    state.write_text(json.dumps(document))
    state.chmod(0o600)
    mine = ("--careful-resume", "on", "--resume-state", str(state), "--qlog", str(qlog))
    at_server, at_client = (mine, ()) if direction == "download" else ((), mine)
    with bench.server(*at_server, "--once") as server:
        done = bench.client(server.port, "--bytes", "3000000", "--direction", direction, *at_client)
        assert done.returncode == 0, done.stderr
        server.process.wait(20)
        lines = [json.loads(line) for line in server.output.read_text().splitlines()]
    lines += [json.loads(line) for line in done.stdout.splitlines()]
    reports = {one["side"]: one["careful_resume"] for one in lines if one["type"] == "summary"}
    sender, receiver = ("server", "client") if direction == "download" else ("client", "server")
    assert reports[sender]["phases"][0]["phase"] == "reconnaissance" and reports[receiver] is None
    (file,) = qlog.iterdir()
    records = [json.loads(record) for record in file.read_text().split("\x1e")[1:]]
    updates = [
        one["data"] for one in records if one.get("name") == "recovery:careful_resume_phase_updated"
    ]
    assert updates[0]["new_phase"] == "reconnaissance"
    reported = [one["phase"] for one in reports[sender]["phases"]]
    assert [one["new_phase"] for one in updates][: len(reported)] == reported
    assert updates[0]["restored_data"] == {"saved_congestion_window": 1_000_000, "saved_rtt": 1.0}
    # How much a loopback carries in its round trip is not certain; whatever is left is of this
    # path.
    assert state.stat().st_mode & 0o777 == 0o600
    left = json.loads(state.read_text())
    assert left["schema"] == "satlab/resume-state/1"
    assert all((one["local"], one["remote"]) == ("127.0.0.1", "127.0.0.1") for one in left["paths"])


def refused(argv: list[str], status: int, *said: str) -> None:
    """Assert that a program ends at once, with a status and these words."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=END_S, check=False)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert all(words in done.stderr for words in said), done.stderr


def test_a_wrong_state_file_is_refused_whole(bench: Bench) -> None:
    state = bench.folder / "state"
    state.write_text('{"schema": "satlab/resume-state/1", "paths": [], "more": 1}')
    state.chmod(0o600)
    words = f"--bytes 1 --resume-state {state} --careful-resume on"
    refused(bench.connect(1, *words.split()), 2, "more", "delete the file")
    state.chmod(0o644)
    refused(bench.connect(1, *words.split()), 2, "mode must be 0600")


CLIENTS = {
    "--congestion-control bbr": "use --stack quiche",
    "--stack quiche --congestion-control reno-quicly": "use reno, or --stack quinn",
    "--initial-window 0 --receive-window 1": "receive-window: 1",
    "--stack quiche --ack-threshold 9": "no ACK frequency",
    "--zero-rtt s": "use --stack quiche",
    "--resume-state s": "add --careful-resume on",
    "--stack quiche --careful-resume on": "careful-resume: is not offered with quiche",
    "--ca /nonexistent": "/nonexistent: no certificate",
    "--stack quiche --migrate 1:127.0.0.2": "quiche has none here",
    "--migrate 2:127.0.0.2 --migrate 1:127.0.0.1": "the times do not rise",
    "--migrate 1:::1": "another IP version",
    "--migrate soon": "not a time and an address",
}
SERVERS = {
    "--key /dev/null": (2, "/dev/null: no private key"),
    "--listen 203.0.113.1:1": (3, "listen on 203.0.113.1:1"),
    "--output /nonexistent/file": (3, "/nonexistent/file"),
}


def replaced(argv: list[str], options: str) -> list[str]:
    """Add options to a command line, each in the place of an earlier one of its name."""
    words = options.split()
    if words[0] in argv:
        first = argv.index(words[0])
        del argv[first : first + 2]
    return [*argv, *words]


@pytest.mark.parametrize("options", CLIENTS)
def test_each_mistake_of_a_client_has_its_words(bench: Bench, options: str) -> None:
    refused(replaced(bench.connect(9, "--bytes", "1"), options), 2, CLIENTS[options])


@pytest.mark.parametrize("options", SERVERS)
def test_each_mistake_of_a_server_has_its_status_and_its_words(bench: Bench, options: str) -> None:
    refused(replaced(bench.listen(), options), *SERVERS[options])


def test_a_port_in_use_is_reported(bench: Bench) -> None:
    with bench.server() as server:
        refused(replaced(bench.listen(), f"--listen 127.0.0.1:{server.port}"), 3, "in use")
