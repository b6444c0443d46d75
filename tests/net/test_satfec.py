# SPDX-License-Identifier: GPL-3.0-or-later
"""satfec as a program: two namespaces on one wire whose packet rules drop datagrams in runs."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from satlab.common import paths
from satlab.lab import pki
from tests import job_programs, json_lines, namespaces
from tests.namespaces import run
from tests.pep_chain import DEADLINE_S
from tests.polling import until

pytestmark = pytest.mark.net
WIRE = {"client": "198.18.201.1", "server": "198.18.201.2"}
INSIDE = {"client": "198.18.200.1", "server": "198.18.200.2"}
PORT = 5800
OTHER = {"client": "server", "server": "client"}
SCHEMA = json.loads((paths.SCHEMAS / "satfec.schema.json").read_text())
DROPPING = """table ip lossy {{
  chain input {{
    type filter hook input priority 0; policy accept;
    udp dport {port} udp length > 60 numgen inc mod {period} < {burst} drop
  }}
}}
"""
"""Of the datagrams with data, a run of `burst` in each `period` does not arrive."""


@dataclass
class End:
    """A running end of a tunnel."""

    process: "subprocess.Popen[bytes]"
    out: Path
    errors: Path

    def lines(self, kind: str = "") -> list[dict[str, Any]]:
        """Return the whole lines so far, of one type or all."""
        return json_lines.read(self.out, kind)

    def wait_for(self, kind: str) -> dict[str, Any]:
        """Wait for a line of a type."""
        until(lambda: self.lines(kind) or self.process.poll() is not None, kind)
        assert self.lines(kind), self.errors.read_text()
        return self.lines(kind)[-1]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> dict[str, Any]:
        """Ask it to end, and return its summary."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE_S) == 0
        lines = {line["type"]: line for line in self.lines()}
        for line in lines.values():
            jsonschema.validate(line, SCHEMA)
        return lines["summary"]


@dataclass
class Pair:
    """Two nodes on one wire."""

    folder: Path
    started: list[End] = field(default_factory=list)
    made_keys: dict[str, pki.Pki] = field(default_factory=dict)

    def node(self, role: str) -> str:
        return f"satfec-{os.getpid()}-{role}"

    def inside(self, role: str, *argv: str) -> list[str]:
        return ["ip", "netns", "exec", self.node(role), *argv]

    def reaches(self, role: str, address: str) -> bool:
        """Return whether a ping from a node is answered."""
        argv = self.inside(role, "ping", "-c", "1", "-W", "1", address)
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0

    def start(self, role: str, *argv: str, to: str = "", out: Path | None = None) -> End:
        """Start an end, whatever becomes of it; `out` takes its lines."""
        made, errors = (self.folder / f"{len(self.started)}.{name}" for name in ("out", "err"))
        out, peer = out or made, OTHER[role]
        ends = [f"--listen={WIRE[role]}:{PORT}", f"--peer={to or WIRE[peer]}:{PORT}"]
        inside = [f"--address={INSIDE[role]}", f"--peer-address={INSIDE[peer]}"]
        tunnel = [*inside, "--interval-ms=100"]
        with out.open("wb") as out_file, errors.open("wb") as error_file:
            command = self.inside(role, str(paths.PROGRAMS / "satfec"), *ends, *tunnel, *argv)
            end = End(subprocess.Popen(command, stdout=out_file, stderr=error_file), out, errors)
        self.started.append(end)
        return end

    def tunnel(self, *argv: str, control: str = "") -> tuple[End, End]:
        """Start both ends, connected; with `control`, over QUIC."""
        quic = self.quic(control) if control else {"client": (), "server": ()}
        ends = (
            self.start("client", *quic["client"], *argv),
            self.start("server", *quic["server"], *argv),
        )
        for end in ends:
            end.wait_for("connected")
        return ends

    def keys(self, name: str = "pki") -> pki.Pki:
        """Return certificates that the server can show, of an authority for each name."""
        if name not in self.made_keys:
            made = pki.create(
                self.folder / name, ["satfec.test"], [ip_address(WIRE["server"])], datetime.now(UTC)
            )
            self.made_keys[name] = made
        return self.made_keys[name]

    def quic(self, control: str) -> dict[str, tuple[str, ...]]:
        """Return the options of each end of a QUIC connection."""
        keys = self.keys()
        both = ("--transport=quic", f"--congestion-control={control}")
        return {
            "client": (*both, f"--ca={keys.ca_cert}"),
            "server": (*both, f"--cert={keys.server_cert}", f"--key={keys.server_key}"),
        }

    def drop(self, burst: int, period: int) -> None:
        """Let the client lose datagrams."""
        run(
            *self.inside("client", "nft", "-f", "-"),
            text=DROPPING.format(port=PORT, burst=burst, period=period),
        )


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    if not (paths.PROGRAMS / "satfec").exists():
        pytest.skip("satfec is not built")
    made = Pair(tmp_path)
    nodes = [made.node(role) for role in WIRE]
    try:
        for node in nodes:
            namespaces.add(node)
        ends = zip(nodes, WIRE.values(), strict=True)
        namespaces.join(*(namespaces.End(node, "wire", address) for node, address in ends))
        yield made
    finally:
        for end in made.started:
            end.kill()
        namespaces.remove(*nodes)


def pings(pair: Pair, count: int = 480) -> int:
    """Ping the client through the tunnel, 2 ms apart; return how many were answered."""
    argv = pair.inside(*f"server ping -q -c {count} -i 0.002 -s 500 -W 3".split(), INSIDE["client"])
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    received = re.search(r"(\d+) received", done.stdout)
    assert received, done.stdout + done.stderr
    return int(received[1])


@pytest.mark.parametrize("order", ["immediate", "in-order"])
@pytest.mark.promise("P70")
def test_runs_of_lost_datagrams_are_repaired(pair: Pair, order: str) -> None:
    """8 of each 200 datagrams are lost, the last time more than z packets before the end:

    S(10,100) repairs them.
    """
    client, server = pair.tunnel("--code=10,100", f"--deliver={order}", "--hold-ms=5000")
    pair.drop(8, 200)
    assert pings(pair) == 480
    server.end()
    seen = client.wait_for("counters")
    assert seen["recovered"] > 10, seen
    assert seen["lost"] == 0, seen
    assert 0 < seen["recovery_delay_mean_ms"] <= seen["recovery_delay_max_ms"] < 5000


def test_without_a_code_losses_stay(pair: Pair) -> None:
    pair.tunnel("--code=none")
    pair.drop(8, 100)
    assert 480 * 0.92 - 8 <= pings(pair) <= 480 * 0.92 + 8


def test_redundancy_follows_the_losses_between_two_hosts(pair: Pair) -> None:
    """Runs of 24 datagrams need S(2,100):

    S(5,100), with which an end begins, repairs 18 packets.
    """
    client, server = pair.tunnel("--code=adaptive", "--hold-ms=5000")
    pair.drop(24, 400)
    pings(pair, 1000)
    change = server.wait_for("code")
    assert (change["code"], change["reason"]) == ("2,100", "report"), change
    assert 10 <= change["burst_packets"] <= 24, change
    assert pings(pair, 1000) >= 1000 - 24, "a run at the very end has no repair packets behind it"
    summary = server.end()
    assert summary["code"] == "2,100"
    assert summary["reports_received"] > 5
    assert client.wait_for("counters")["recovered"] > 30
    codes = {line["code"] for line in client.lines("code")}
    assert "2,100" not in codes, "nothing is lost on the way to the server"


def downloaded(pair: Pair, amount: str) -> int:
    """Download over TCP; return the bytes that came."""
    listener = subprocess.Popen(
        pair.inside("server", "iperf3", "-s", "-1", "-B", INSIDE["server"]),
        stdout=subprocess.DEVNULL,
    )
    try:
        until(lambda: "5201" in run(*pair.inside("server", "ss", "-ltn")), "iperf3")
        text = run(
            *pair.inside("client", "iperf3", "-c", INSIDE["server"], "-n", amount, "-R", "-J")
        )
    finally:
        listener.kill()
        listener.wait()
    return int(json.loads(text)["end"]["sum_received"]["bytes"])


def test_bulk_data_crosses_in_packets_of_the_mtu(pair: Pair) -> None:
    """TCP in both directions; no datagram is longer than the MTU and 40 bytes."""
    client, server = pair.tunnel("--code=5,100")
    assert downloaded(pair, "20M") >= 20_000_000
    sent = server.end()
    assert sent["repairs_sent"] == pytest.approx(sent["sources_sent"] / 5, rel=0.05)
    assert sent["source_bytes_sent"] / sent["sources_sent"] <= 1405
    assert client.wait_for("counters")["malformed"] == 0


CONTROLS = ("off", "cubic")


@pytest.mark.parametrize("control", CONTROLS)
def test_runs_of_lost_quic_packets_are_repaired(pair: Pair, control: str) -> None:
    """Frames that waited for the window share a packet, so a lost one takes several:

    S(2,100) repairs 48 in a row.
    """
    client, server = pair.tunnel("--code=2,100", "--hold-ms=5000", control=control)
    pair.drop(8, 200)
    assert pings(pair) == 480
    sent = server.end()
    assert (sent["outer_connections"], sent["dropped_outer"], sent["send_errors"]) == (1, 0, 0)
    seen = client.wait_for("counters")
    assert seen["recovered"] > 10, seen
    assert seen["lost"] == 0, seen
    assert client.wait_for("ready")["transport"] == "quic"


@pytest.mark.parametrize("control", CONTROLS)
def test_bulk_data_crosses_a_quic_connection(pair: Pair, control: str) -> None:
    """Packets of 1,400 bytes fit into datagrams on a wire of 1,500."""
    client, server = pair.tunnel("--code=5,100", control=control)
    assert downloaded(pair, "5M") >= 5_000_000
    sent = server.end()
    assert sent["dropped_too_long"] == 0
    seen = client.wait_for("counters")
    assert (seen["malformed"], seen["dropped_foreign"]) == (0, 0)


def test_an_end_of_a_quic_connection_is_killed_and_starts_anew(pair: Pair) -> None:
    client, server = pair.tunnel("--peer-timeout-s=4", control="cubic")
    server.kill()
    assert not pair.reaches("server", INSIDE["client"]), "nothing passes without the tunnel"
    failed(client, 1, "was silent for 4 s")
    client, server = pair.tunnel(control="off")
    for role, end in (("client", client), ("server", server)):
        assert pings(pair, 10) == 10
        end.kill()
        pair.start(role, *pair.quic("off")[role]).wait_for("connected")
        until(lambda: pings(pair, 5) == 5, "both ends hear each other")


def test_what_cannot_work_with_quic_is_named(pair: Pair) -> None:
    """Options and files that are missing, another authority, another name."""
    failed(pair.start("server", "--transport=quic"), 2, "needs --ca, or --cert and --key")
    wrong = pair.start("server", "--transport=quic", "--ca=/nonexistent")
    failed(wrong, 3, "/nonexistent: no certificate")
    ends = pair.quic("cubic")
    needs = "the path takes 1500 bytes, and packets of 1430 bytes need 1508"
    failed(pair.start("client", *ends["client"], "--mtu=1430"), 3, needs)
    pair.start("server", *ends["server"])
    other = f"--ca={pair.keys('other').ca_cert}"
    stranger = pair.start("client", *ends["client"][:2], other)
    failed(stranger, 1, f"no QUIC connection with {WIRE['server']}:{PORT}")
    failed(pair.start("client", *ends["client"], "--server-name=other.test"), 1, "certificate")
    pair.start("client", *ends["client"], "--server-name=satfec.test").wait_for("connected")


def test_it_has_no_privileges_and_its_device_goes_with_it(pair: Pair) -> None:
    client, _ = pair.tunnel()
    status = Path(f"/proc/{client.process.pid}/status").read_text()
    assert re.search(r"^CapEff:\s+0+$", status, re.M)
    assert re.search(r"^CapPrm:\s+0+$", status, re.M)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M)
    assert "fec0" in run("ip", "-n", pair.node("client"), "link")
    client.kill()
    assert "fec0" not in run("ip", "-n", pair.node("client"), "link")


@pytest.mark.promise("P71")
def test_a_killed_end_is_named_and_no_packet_bypasses_the_tunnel(pair: Pair) -> None:
    client, server = pair.tunnel("--peer-timeout-s=2")
    client.kill()
    assert not pair.reaches("client", INSIDE["server"])
    failed(server, 1, "was silent for 2 s")
    pair.tunnel()
    assert pings(pair, 10) == 10


def test_an_end_that_starts_anew_is_heard(pair: Pair) -> None:
    client, _ = pair.tunnel("--code=5,100")
    assert pings(pair, 20) == 20
    client.kill()
    pair.start("client", "--code=5,100").wait_for("connected")
    assert pings(pair, 20) == 20


def failed(end: End, status: int, said: str) -> None:
    """Assert that an end has ended by itself, and why."""
    assert end.process.wait(DEADLINE_S) == status, end.errors.read_text()
    assert said in end.errors.read_text()


def test_what_cannot_work_is_named(pair: Pair) -> None:
    """A peer that never answers, one with another MTU, a path that is too narrow, a device that is
    there.
    """
    failed(pair.start("client", "--peer-timeout-s=1"), 1, "was silent for 1 s")
    nobody = pair.start("client", "--peer-timeout-s=1", to="198.18.201.9")
    failed(nobody, 1, "198.18.201.9:5800 was silent for 1 s")
    soon = "--peer-timeout-s=2"
    one, two = pair.start("client", "--mtu=1300", soon), pair.start("server", "--mtu=1400", soon)
    failed(one, 1, "the other end has an MTU of 1400 bytes, this one of 1300")
    failed(two, 1, "the other end has an MTU of 1300 bytes, this one of 1400")
    needs = "the path takes 1500 bytes, and packets of 1480 bytes need 1520"
    failed(pair.start("client", "--mtu=1480"), 3, needs)
    pair.tunnel()
    taken = pair.start("client", f"--listen={WIRE['client']}:5801")
    failed(taken, 2, "cannot be used multiple times")
    wrong = pair.start("client", "--code=3")
    failed(wrong, 2, "is not K,Z with two whole numbers, none or adaptive")


def test_an_end_of_another_version_is_named(pair: Pair) -> None:
    client = pair.start("client", "--peer-timeout-s=2")
    client.wait_for("ready")
    older = (
        "import socket;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);"
        f"s.bind(('{WIRE['server']}',{PORT}));s.sendto(b'\\x80SFEC\\x01'+bytes(19)+b'\\x01',('{WIRE['client']}',{PORT}))"
    )
    run(*pair.inside("server", "python3", "-c", older))
    failed(client, 1, "the other end speaks version 1 of the tunnel, this one version 2")


@pytest.mark.parametrize(("control", "mtu", "longest"), [("", 1200, 1160), ("off", 1280, 1202)])
def test_a_path_that_becomes_narrower_is_answered(
    pair: Pair, control: str, mtu: int, longest: int
) -> None:
    """The sender of a long packet learns the longest size; the tunnel goes on."""
    client, server = pair.tunnel("--code=none", control=control)
    for role in WIRE:
        run("ip", "-n", pair.node(role), "link", "set", "wire", "mtu", str(mtu))
    argv = pair.inside("server", *"ping -c 2 -W 1 -M do -s 1300".split(), INSIDE["client"])
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert re.search(f"mtu ?= ?{longest}", done.stdout + done.stderr)
    assert server.wait_for("path_mtu")["packet_bytes"] == longest
    assert pings(pair, 10) == 10
    assert client.process.poll() is None


def test_foreign_datagrams_change_nothing(pair: Pair) -> None:
    """From the peer's own address and port: noise is counted, and the tunnel works."""
    client, server = pair.tunnel("--code=5,100")
    server.process.send_signal(signal.SIGSTOP)
    noise = (
        "import"
        " os,socket;s=socket.socket(socket.AF_INET,socket.SOCK_RAW,socket.IPPROTO_UDP);[s.sendto((5800).to_bytes(2)*2+(8+n%90).to_bytes(2)+bytes(2)+bytes([n&1"  # noqa: E501
        f" if n%3 else 128])+os.urandom(n%90),('{WIRE['client']}',0)) for n in range(2000)]"
    )
    run(*pair.inside("server", "python3", "-c", noise))
    server.process.send_signal(signal.SIGCONT)
    seen: Callable[[], bool] = lambda: client.lines("counters")[-1]["dropped_foreign"] > 100  # noqa: E731
    until(seen, "noise is counted")
    assert client.process.poll() is None


def test_a_full_disk_only_costs_lines(pair: Pair) -> None:
    client = pair.start("client", out=Path("/dev/full"))
    pair.start("server").wait_for("connected")
    assert pings(pair, 50) == 50
    assert client.errors.read_text().count("No space left on device") == 1


# --- the job --------------------------------------------------------------------------------------


@dataclass
class Job:
    """A job on a node, and what it sent."""

    process: "subprocess.Popen[str]"
    raw: Path

    def ready(self) -> None:
        stats = self.raw / "stats.jsonl"
        until(
            lambda: (
                self.process.poll() is not None
                or (stats.exists() and '"ready": 1' in stats.read_text())
            ),
            "ready",
        )
        assert self.process.poll() is None, self.process.communicate()

    def stored(self) -> dict[str, Any]:
        (file,) = (self.raw / "files" / "satlab_fec-1").glob("fec_json*.json")
        document: dict[str, Any] = json.loads(file.read_text())
        jsonschema.validate(document, json.loads((paths.SCHEMAS / "fec.schema.json").read_text()))
        return document

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=20)
        return self.process.returncode


def job(pair: Pair, role: str, *argv: str, name: str = "raw") -> Job:
    """Start the job on a node."""
    raw = pair.folder / f"{role}-{name}"
    raw.mkdir()
    command = job_programs.command("satlab_fec", role, raw, WIRE[role], WIRE[OTHER[role]], *argv)
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return Job(subprocess.Popen(pair.inside(role, *command), text=True, **pipes), raw)


def state(pair: Pair) -> list[str]:
    """Return what a job must leave as it found it."""
    asked = (
        ("ip", "-4", "rule"),
        ("ip", "-4", "route", "show", "table", "all"),
        ("ip", "-br", "link"),
    )
    return [run(*pair.inside("client", *argv)) for argv in asked]


@pytest.fixture
def jobs(pair: Pair) -> Iterator[dict[str, Job]]:
    """The job on both nodes, ready."""
    found = {role: job(pair, role, "5,100") for role in WIRE}
    try:
        for each in found.values():
            each.ready()
        yield found
    finally:
        for each in found.values():
            if each.process.poll() is None:
                each.stop()


@pytest.mark.parametrize(
    ("code", "transport"), [("5,100", "udp"), ("adaptive", "udp"), ("adaptive", "quic")]
)
def test_the_job_leads_traffic_through_the_tunnel_and_leaves_nothing_behind(
    pair: Pair, code: str, transport: str
) -> None:
    before = state(pair)
    outer = {
        role: ("-t", transport if transport == "udp" else f"quic-{role}", "-c", "off")
        for role in WIRE
    }
    found = {
        role: job(pair, role, code, *outer[role], "--pki", str(pair.keys().folder)) for role in WIRE
    }
    for each in found.values():
        each.ready()
    assert "dev fec0" in run(*pair.inside("client", "ip", "route", "get", WIRE["server"]))
    assert all(pair.reaches("client", WIRE["server"]) for _ in range(10))
    assert [each.stop() for each in found.values()] == [0, 0]
    assert state(pair) == before
    for each in found.values():
        stored = each.stored()
        assert (stored["code"], stored["fault"]) == (code, "")
        summary = stored["report"][-1]
        assert summary["type"] == "summary"
        assert summary["sources_received"] >= 10
        assert summary["outer_connections"] == (transport == "quic")
        assert '"recovered"' in (each.raw / "stats.jsonl").read_text()
    assert pair.reaches("client", WIRE["server"]), "without the tunnel packets pass as before"


def test_a_killed_tunnel_fails_the_job_and_the_peer_stays_unreachable(
    pair: Pair, jobs: dict[str, Job]
) -> None:
    client = jobs["client"]
    (child,) = (
        int(pid) for pid in run("ps", "-o", "pid=", "--ppid", str(client.process.pid)).split()
    )
    os.kill(child, signal.SIGKILL)
    _, said = client.process.communicate(timeout=20)
    assert client.process.returncode == 1
    assert "satfec ended with status -9" in said
    assert "status -9" in client.stored()["fault"]
    assert not pair.reaches("client", WIRE["server"]), "no packet bypasses the tunnel"
    again = job(pair, "client", "5,100", name="again")
    again.ready()
    assert pair.reaches("client", WIRE["server"])
    assert again.stop() == 0


def test_a_job_without_a_peer_names_it(pair: Pair) -> None:
    alone = job(pair, "client", "none", "-s", "1")
    _, said = alone.process.communicate(timeout=60)
    assert alone.process.returncode == 1
    assert "was silent for 1 s" in said
    assert run(*pair.inside("client", "ip", "rule")).count("lookup 1448") == 1


@pytest.mark.parametrize(
    "arguments",
    [["3"], ["0,5"], ["none", "-m", "20000"], ["none", "-o", "later"], ["none", "-l", "0"]],
)
def test_arguments_are_checked(pair: Pair, arguments: list[str]) -> None:
    wrong = job(pair, "client", *arguments)
    wrong.process.communicate(timeout=20)
    assert wrong.process.returncode == 2
