# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs satlab_pep and satlab_tcp_conf on a node between client and server, joined by wires
without delay.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from satlab.common.paths import PROGRAMS, SCHEMAS
from satlab.lab import pki
from tests import job_programs, namespaces
from tests.polling import until

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

CLIENT, SERVER = "198.18.201.2", "198.18.202.2"
NAME = "kepler.satlab.test"
DEADLINE_S = 20.0
ECHO = f"""
import socket
listener = socket.create_server(("{SERVER}", 7))
while True:
    connection, peer = listener.accept()
    connection.recv(1)
    connection.sendall(peer[0].encode())
"""
ASK = f"""
import socket
connection = socket.create_connection(("{SERVER}", 7), 10)
input()
connection.sendall(b"?")
print(connection.recv(100).decode(), flush=True)
input()
"""


ELSEWHERE = "198.18.201.3"
"""Another address on the client's side, such as that of a proxy there."""
ASK_FROM = ASK.replace(", 10)", f', 10, ("{ELSEWHERE}", 0))')
PEPSAL = f"""#!{sys.executable}
import socket, sys, threading
if "-V" in sys.argv:
    sys.exit(print("pepsal ver. 2.0.2"))
listener = socket.socket(socket.AF_INET6)
listener.setsockopt(socket.SOL_IP, 19, 1)
listener.setsockopt(socket.IPPROTO_IPV6, 75, 1)
listener.bind(("::", int(sys.argv[sys.argv.index("-p") + 1])))
listener.listen()
def carry(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
while True:
    near = listener.accept()[0]
    address, port = near.getsockname()[:2]
    far = socket.create_connection((address.removeprefix("::ffff:"), port))
    for ends in ((near, far), (far, near)):
        threading.Thread(target=carry, args=ends, daemon=True).start()
"""
"""A stand-in that does what PEPsal 2.0.2 was seen to do: it listens for IPv4 on a socket of IPv6,
connects from its own address, and writes nothing.
"""
WITH_VALUES = """
import importlib.util, json, pathlib, sys
sys.path.insert(0, str(pathlib.Path(sys.argv[1]).parent))
spec = importlib.util.spec_from_file_location("job", sys.argv[1])
job = sys.modules["job"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(job)
for name, value in json.loads(sys.argv[2]).items():
    setattr(job, name, type(getattr(job, name))(value))
program = sys.argv[1]
del sys.argv[1:3]
job.run_job(program, job.main)
"""


@dataclass
class Chain:
    """Client, proxy and server, each a namespace."""

    name: str
    folder: Path
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    def node(self, role: str) -> str:
        """Return the name of a namespace."""
        return f"{self.name}-{role}"

    def run(self, node: str, *argv: str) -> str:
        inside = ["ip", "netns", "exec", self.node(node), *argv]
        return subprocess.run(inside, capture_output=True, text=True, check=True, timeout=20).stdout

    def start(self, node: str, *argv: str) -> "subprocess.Popen[str]":
        inside = ["ip", "netns", "exec", self.node(node), *argv]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(inside, text=True, **pipes)
        self.started.append(process)
        return process

    def job(
        self,
        job: str,
        *arguments: str,
        values: dict[str, str | int] | None = None,
        **environment: str,
    ) -> "subprocess.Popen[str]":
        """Start a job on the proxy; `values` replace constants of its module."""
        raw = self.folder / job
        raw.mkdir(exist_ok=True)
        words = job_programs.command(job, "proxy", raw, *arguments, **environment)
        if values is not None:
            program = words.index(sys.executable) + 1
            told = ["-c", WITH_VALUES, words[program], json.dumps(values)]
            words[program : program + 1] = told
        return self.start("proxy", *words)

    def haproxy(self) -> "subprocess.Popen[str]":
        """Start haproxy between client and server, ready."""
        job = self.job("satlab_pep", "haproxy", CLIENT, SERVER)
        self.ready("satlab_pep")
        return job

    def quic(self, keys: pki.Pki, *options: str, **more: Any) -> "subprocess.Popen[str]":
        """Start satpep between client and server."""
        words = ("quic", CLIENT, SERVER, "-l", "4433", *options)
        return self.job("satlab_pep", *words, SATLAB_PKI=str(keys.folder), **more)

    def listens(self, node: str, protocol: str, port: int) -> bool:
        """Return whether a socket on a node has a port."""
        return f":{port:04X} " in self.run(node, "cat", f"/proc/net/{protocol}")

    def ready(self, job: str) -> None:
        stats = self.folder / job / "stats.jsonl"
        until(lambda: stats.exists() and '"ready": 1' in stats.read_text(), f"{job} ready")
        awaiting = self.job("satlab_await", job, "-d", "5")
        assert awaiting.wait(10) == 0, "announced to satlab_await, too"

    def stored(self, job: str, name: str, schema: str) -> dict[str, Any]:
        files = sorted((self.folder / job / "files" / f"{job}-1").glob(f"{name}*.json"))
        document: dict[str, Any] = json.loads(files[-1].read_text())
        jsonschema.validate(document, json.loads((SCHEMAS / schema).read_text()))
        return document

    def proxies(self) -> list[int]:
        """Return the proxy programs that run."""
        found = []
        for pid in self.run("proxy", "ip", "netns", "pids", self.node("proxy")).split():
            with contextlib.suppress(FileNotFoundError):  # it was the asking one
                found += [int(pid)] if "haproxy" in Path(f"/proc/{pid}/comm").read_text() else []
        return found

    def state(self) -> list[str]:
        """What a proxy must leave as it found it; whether a new wire has a carrier yet is not of
        it.
        """
        table = ("ip", "route", "show", "table", "all")
        memory = ("cat", "/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem")
        asked = (table, ("ip", "rule"), ("nft", "list", "ruleset"), memory)
        inside = self.run("proxy", "ip", "netns", "pids", self.node("proxy"))
        return [
            *(self.run("proxy", *argv).replace("linkdown ", "") for argv in asked),
            str(len(inside.split())),
        ]


@pytest.fixture
def chain(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Chain]:
    # satpep refuses to run outside a lab's namespaces.
    prefix = getattr(request, "param", "satlab-")
    found = Chain(f"{prefix}peplab{secrets.token_hex(3)}", tmp_path)
    nodes = ("client", "proxy", "server")
    try:
        for node in nodes:
            namespaces.add(found.node(node))
            found.run(
                node, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv4.ip_forward=1"
            )
        for number, (far, address) in enumerate((("client", CLIENT), ("server", SERVER))):
            via = address.removesuffix("2") + "1"
            namespaces.join(
                namespaces.End(found.node("proxy"), f"lan{number}", via),
                namespaces.End(found.node(far), "eth0", address),
            )
            found.run(far, "ip", "route", "add", "default", "via", via)
        yield found
    finally:
        for process in found.started:
            process.kill()
            process.communicate()
        namespaces.remove(*map(found.node, nodes))


@pytest.fixture
def keys(tmp_path: Path) -> pki.Pki:
    return pki.create(tmp_path / "pki", [NAME], [ip_address(SERVER)], datetime.now(UTC))


def ask(chain: Chain) -> "subprocess.Popen[str]":
    """Open a connection to the server, which answers with the address that it sees."""
    chain.start("server", sys.executable, "-c", ECHO)
    until(lambda: chain.listens("server", "tcp", 7), "echo server")
    return chain.start("client", sys.executable, "-c", ASK)


def says(process: "subprocess.Popen[str]") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    print(file=process.stdin, flush=True)
    return process.stdout.readline().strip()


def stop(process: "subprocess.Popen[str]") -> tuple[int, str]:
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=20)
    return process.returncode, log


def fails(process: "subprocess.Popen[str]", status: int, *said: str) -> None:
    """Assert that a job has ended by itself, and why."""
    _, log = process.communicate(timeout=20)
    assert process.returncode == status, log
    assert all(words in log for words in said), log


@pytest.fixture
def haproxy() -> None:
    if not shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin"):
        pytest.skip("haproxy is not installed")


@pytest.mark.usefixtures("haproxy")
@pytest.mark.promise("P64")
def test_haproxy_splits_and_leaves_nothing_behind(chain: Chain) -> None:
    before = chain.state()
    sides = ("-C", "reno", "-w", "100", "-c", CLIENT, "--client-side-congestion-control", "cubic")
    conf = chain.job("satlab_tcp_conf", *sides, "--client-side-initial-window", "20", "-p", "C")
    chain.ready("satlab_tcp_conf")
    pep = chain.haproxy()
    client = ask(chain)
    established = ("ss", "-tnH", "state", "established")
    until(
        lambda: len(chain.run("proxy", *established).splitlines()) == 2,
        "one connection on each leg",
    )
    time.sleep(2)  # samples of ss, each 0.2 s if the host is quiet
    assert says(client) == CLIENT, "the server sees the client's own address"
    client.communicate("\n", timeout=10)
    assert stop(pep)[0] == 0
    assert stop(conf)[0] == 0
    assert chain.state() == before
    assert chain.stored("satlab_pep", "pep_json", "pep.schema.json")["connections"] == 1
    seen = chain.stored("satlab_tcp_conf", "tcp_conf_json", "tcp-conf.schema.json")
    legs = {c["side"]: (c["congestion_control"], c["initial_window"]) for c in seen["connections"]}
    assert legs == {"client": ("cubic", 20), "server": ("reno", 100)}
    assert (seen["tcp_rmem"][2], seen["tcp_wmem"][2]) == (33_000_000, 33_000_000)


@pytest.mark.usefixtures("haproxy")
@pytest.mark.promise("P64")
def test_a_killed_proxy_fails_the_job_and_the_next_one_works(chain: Chain) -> None:
    before = chain.state()
    pep = chain.haproxy()
    (program,) = chain.proxies()
    os.kill(program, signal.SIGKILL)
    fails(pep, 1, "haproxy ended with status -9")
    assert "status -9" in chain.stored("satlab_pep", "pep_json", "pep.schema.json")["fault"]
    assert chain.state() == before
    assert says(ask(chain)) == CLIENT, "without the proxy packets pass as before"


@pytest.mark.usefixtures("haproxy")
def test_an_agent_may_kill_the_proxy_before_it_stops_the_job(chain: Chain) -> None:
    pep = chain.haproxy()
    (program,) = chain.proxies()
    os.kill(program, signal.SIGKILL)
    until(lambda: not chain.proxies(), "the end of the proxy")
    pep.send_signal(signal.SIGTERM)
    assert pep.wait(timeout=20) == 0
    assert chain.stored("satlab_pep", "pep_json", "pep.schema.json")["fault"] == ""


@pytest.mark.usefixtures("haproxy")
def test_what_a_killed_job_left_is_removed_by_the_next(chain: Chain) -> None:
    before = chain.state()
    pep = chain.haproxy()
    pep.kill()
    pep.wait()
    for pid in chain.proxies():
        os.kill(pid, signal.SIGKILL)
    (chain.folder / "satlab_pep" / "stats.jsonl").unlink()
    assert stop(chain.haproxy())[0] == 0
    assert chain.state() == before


@pytest.mark.skipif(
    not all((PROGRAMS / name).exists() for name in ("satpep", "satperf")), reason="not built"
)
@pytest.mark.promise("P65")
def test_satpep_splits_quic_and_leaves_nothing_behind(chain: Chain, keys: pki.Pki) -> None:
    before = chain.state()
    both = "-C reno -w 100 --client-side-initial-window 20 -a 10".split()
    server = "--server-side-congestion-control cubic --server-side-careful-resume on".split()
    server += ("--server-side-receive-window", "4194304")
    job = chain.quic(keys, *both, *server, "-p", "shop")
    chain.ready("satlab_pep")
    trust = ("--cert", str(keys.server_cert), "--key", str(keys.server_key))
    chain.start("server", str(PROGRAMS / "satperf"), "server", "--listen", f"{SERVER}:4433", *trust)
    until(lambda: chain.listens("server", "udp", 4433), "satperf server")
    call = f"--connect {SERVER}:4433 --server-name {NAME} --ca {keys.ca_cert}".split()
    client = chain.start("client", str(PROGRAMS / "satperf"), "client", *call, "--bytes", "2000000")
    lines, log = client.communicate(timeout=30)
    assert client.returncode == 0, log
    records = [json.loads(line) for line in lines.splitlines()]
    ends = [line for line in records if (line["type"], line["side"]) == ("summary", "client")]
    assert (ends[0]["bytes"], ends[0]["data_equal"]) == (2_000_000, True)
    assert stop(job)[0] == 0
    assert chain.state() == before
    seen = chain.stored("satlab_pep", "pep_json", "pep.schema.json")
    assert seen["connections"] == 1
    assert "--domains-of shop.satlab.test" in " ".join(seen["argv"])
    ready = next(line for line in seen["report"] if line["type"] == "ready")
    windows = [ready[side]["initial_window"] for side in ("client_side", "server_side")]
    assert (windows, ready["client_side"]["congestion_control"]) == ([20, 100], "reno")
    assert [ready[side]["careful_resume"] for side in ("client_side", "server_side")] == [
        "off",
        "on",
    ]
    assert [ready[side]["receive_window"] for side in ("client_side", "server_side")] == [
        64 << 20,
        4 << 20,
    ]


@pytest.mark.skipif(not (PROGRAMS / "satpep").exists(), reason="not built")
def test_p380_what_bbr3_lacks_is_refused_by_name(chain: Chain, keys: pki.Pki) -> None:
    bbr3 = ("--server-side-congestion-control", "bbr3")
    job = chain.quic(keys, *bbr3, "--client-side-careful-resume", "on")
    refused = "client-side: careful-resume: is not offered next to bbr3"
    fails(job, 1, "satpep ended with status 2", refused)
    job = chain.quic(keys, *bbr3)
    until(lambda: job.poll() is not None or chain.listens("proxy", "udp", 4433), "its socket")
    if job.poll() is not None:  # built with an older compiler
        fails(job, 1, "congestion-control: bbr3: built without noq; build it")
    else:
        assert stop(job)[0] == 0


@pytest.mark.skipif(not (PROGRAMS / "satpep").exists(), reason="not built")
@pytest.mark.parametrize("chain", ["host-"], indirect=True)
def test_t08_outside_a_lab_satpep_needs_the_operators_consent(
    chain: Chain, keys: pki.Pki, tmp_path: Path
) -> None:
    consent, refused = tmp_path / "quic-proxy-consent", "this is not a network namespace of a lab"
    values = {"CONSENT": str(consent)}
    assert refused in chain.quic(keys, values=values).communicate(timeout=20)[1]
    consent.touch()
    for owner, mode in ((65534, 0o644), (0, 0o666), (0, 0o664)):  # others may have written it
        os.chown(consent, owner, 0)
        consent.chmod(mode)
        assert refused in chain.quic(keys, values=values).communicate(timeout=20)[1]
    os.chown(consent, 0, 0)
    consent.chmod(0o644)
    job = chain.quic(keys, values=values)
    chain.ready("satlab_pep")
    assert stop(job)[0] == 0


def test_missing_programs_and_taken_ports_are_reported(chain: Chain, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    pepsal = chain.job("satlab_pep", "pepsal", CLIENT, SERVER, PATH=str(empty))
    fails(pepsal, 3, "pepsal is not installed")
    listen = "import socket; socket.create_server(('0.0.0.0', 5500)).accept()"
    chain.start("proxy", sys.executable, "-c", listen)
    until(lambda: chain.listens("proxy", "tcp", 5500), "port taken")
    fails(chain.job("satlab_pep", "haproxy", CLIENT, SERVER), 3, "port 5500 is in use")


def test_pepsal_splits_whatever_comes_from_the_client_s_side(chain: Chain, tmp_path: Path) -> None:
    """Behind another PEPsal connections come from that proxy's address."""
    program = tmp_path / "bin" / "pepsal"
    program.parent.mkdir()
    program.write_text(PEPSAL)
    program.chmod(0o755)
    chain.run("client", "ip", "address", "add", f"{ELSEWHERE}/24", "dev", "eth0")
    before = chain.state()
    path = f"{program.parent}:{os.environ['PATH']}"
    refused = chain.job(
        "satlab_pep", "pepsal", CLIENT, SERVER, PATH=path, values={"PEPSAL_FILES": 1 << 40}
    )
    fails(refused, 3, "limit of open files to 1099511627776", "ulimit -Hn")
    pep = chain.job("satlab_pep", "pepsal", CLIENT, SERVER, PATH=path, values={"PEPSAL_FILES": 1})
    chain.ready("satlab_pep")
    assert says(ask(chain)) == SERVER.removesuffix("2") + "1", "the server sees the proxy"
    elsewhere = chain.start("client", sys.executable, "-c", ASK_FROM)
    assert says(elsewhere) == SERVER.removesuffix("2") + "1"
    assert stop(pep)[0] == 0
    seen = chain.stored("satlab_pep", "pep_json", "pep.schema.json")
    assert (seen["connections"], seen["version"]) == (2, "2.0.2")
    assert chain.state() == before


def test_p304_what_a_proxy_cannot_split_is_refused_before_it_starts(chain: Chain) -> None:
    for engine, client, server, said in (
        ("haproxy", CLIENT, "2001:2:0:1204::2", "different IP versions"),
        ("pepsal", "2001:2:0:1201::2", "2001:2:0:1204::2", "pepsal knows IPv4 alone"),
    ):
        fails(chain.job("satlab_pep", engine, client, server), 2, said)


@pytest.mark.promise("P65")
def test_another_congestion_control_than_asked_for_fails_the_job(chain: Chain) -> None:
    conf = chain.job("satlab_tcp_conf", "-C", "reno")
    chain.ready("satlab_tcp_conf")
    chain.start("server", "iperf3", "-s", "-1", "-B", SERVER)
    until(lambda: chain.listens("server", "tcp", 5201), "iperf3")
    chain.start("proxy", "iperf3", "-c", SERVER, "-t", "5", "-C", "cubic")
    fails(conf, 1, "uses cubic, not reno")


@pytest.mark.promise("P50")
def test_a_session_on_a_control_network_is_neither_changed_nor_judged(chain: Chain) -> None:
    """What the conductor of a real OpenBACH keeps open to each agent: here it uses another
    congestion control.
    """
    ends = (("proxy", "198.19.0.1"), ("client", "198.19.0.2"))
    namespaces.join(*(namespaces.End(chain.node(node), "mgmt0", at) for node, at in ends))
    before = chain.run("proxy", "ip", "route", "show", "dev", "mgmt0")
    chain.start("client", "iperf3", "-s", "-1", "-B", "198.19.0.2")
    until(lambda: chain.listens("client", "tcp", 5201), "iperf3")
    session = chain.start("proxy", "iperf3", "-c", "198.19.0.2", "-t", "4", "-C", "reno")
    until(
        lambda: "198.19.0.2:5201" in chain.run("proxy", "ss", "-tnH"),
        "a session on the control network",
    )
    conf = chain.job("satlab_tcp_conf", "-C", "cubic", "-w", "40")
    chain.ready("satlab_tcp_conf")
    client = ask(chain)
    assert says(client)
    assert chain.run("proxy", "ip", "route", "show", "dev", "mgmt0") == before
    assert "initcwnd 40" in chain.run("proxy", "ip", "route", "show", "dev", "lan0")
    assert session.wait(20) == 0
    assert conf.poll() is None, "the session has not failed the job"
    assert stop(conf)[0] == 0
    seen = chain.stored("satlab_tcp_conf", "tcp_conf_json", "tcp-conf.schema.json")
    assert all("198.19." not in connection["peer"] for connection in seen["connections"])


def test_an_unknown_congestion_control_is_refused_and_nothing_is_changed(chain: Chain) -> None:
    before = chain.state()
    fails(chain.job("satlab_tcp_conf", "-C", "hybla9"), 3, "hybla9")
    assert chain.state() == before
