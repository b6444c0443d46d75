# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab serve` as a whole: a client that follows OpenBACH's contract, privileges, and what a kill leaves behind."""

import contextlib
import csv
import http.client
import io
import ipaddress
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from satlab.common import paths
from satlab.common.errors import ExitStatus
from satlab.netlab import lab, netns, ownership, pki, privileges
from satlab.netlab.pki import Pki
from satlab.serve.supervisor import helper_socket
from tests.polling import until

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

STANDIN = Path(__file__).with_name("standin_serve.py")
PASSWORD = "a password for one test"  # noqa: S105
ENVIRONMENT = os.environ | {"PYTHONPATH": paths.PYTHONPATH}
OVER = ("Finished Ok", "Finished Ko", "Stopped")
ENTITIES = {"sender": "198.18.1.2", "receiver": "198.18.4.2"}
ECHO = {
    "name": "echo",
    "description": "Echo requests from the sender to the receiver",
    "arguments": {"count": "How many"},
    "constants": {"target": "198.18.4.2"},
    "openbach_functions": [
        {
            "id": 1,
            "label": "echo",
            "start_job_instance": {
                "entity_name": "sender",
                "satlab_ping": {"destination_ip": "$target", "count": "$count", "interval": 0.2},
            },
        }
    ],
}
NOBODY_LISTENS = {
    "name": "nobody_listens",
    "arguments": {"count": "Not used by the program, but by the scenario"},
    "openbach_functions": [
        {
            "id": 1,
            "start_job_instance": {
                "entity_name": "sender",
                "satlab_iperf3": {"client": {"server_ip": "198.18.4.2", "duration_s": "$count"}},
            },
        }
    ],
}


class Client:
    """A JSON client that keeps the cookie."""

    def __init__(self, port: int, trusted: Path | None = None) -> None:
        self.port, self.cookie, self.attributes = port, "", ""
        self.tls = None if trusted is None else ssl.create_default_context(cafile=trusted)

    def connect(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.tls)

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = self.connect()
        with contextlib.closing(connection):
            headers = {"content-type": "application/json", "cookie": self.cookie}
            connection.request(method, path, None if method == "GET" else json.dumps(body or {}), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            if given := answer.headers["set-cookie"]:
                self.cookie, _, self.attributes = given.partition(";")
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if is_json and text else text

    def expect(self, status: int, method: str, path: str, body: Any = None) -> Any:
        got, answer = self.request(method, path, body)
        assert got == status, (method, path, got, answer)
        return answer

    def log_in(self) -> None:
        self.expect(200, "POST", "/login/", {"login": "openbach", "password": PASSWORD})

    def instance(self, number: int, *, quiet: bool = True) -> Any:
        return self.expect(200, "GET", f"/scenario_instance/{number}/{'?quiet' if quiet else ''}")

    def await_status(self, number: int, statuses: tuple[str, ...], seconds: float = 120) -> str:
        until(lambda: self.instance(number)["status"] in statuses, seconds=seconds)
        return str(self.instance(number)["status"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Service:
    """A server in processes of its own; `state` outlives it."""

    def __init__(self, state: Path, *, standin: bool = False, tls: Pki | None = None) -> None:
        self.state, self.standin, self.tls = state, standin, tls
        self.port = free_port()
        argv = [*self.argv, "--set-password", "openbach", "--role", "admin"]
        subprocess.run(argv, input=f"{PASSWORD}\n", text=True, check=True, env=ENVIRONMENT)
        self.start()

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-m", "satlab", "serve", "--state", str(self.state)]

    def start(self) -> None:
        argv = [*self.argv, "--listen", f"127.0.0.1:{self.port}"]
        if self.tls is not None:
            argv += ["--tls-cert", str(self.tls.server_cert), "--tls-key", str(self.tls.server_key)]
        if self.standin:
            argv = [sys.executable, str(STANDIN), str(self.state), str(self.port)]
        self.process = subprocess.Popen(argv, env=ENVIRONMENT)
        self.client = Client(self.port, None if self.tls is None else self.tls.ca_cert)

        def answers() -> bool:
            assert self.process.poll() is None
            with contextlib.suppress(OSError):
                return self.client.request("GET", "/version/")[0] == 200
            return False

        until(answers, seconds=60)
        self.client.log_in()

    def api_pid(self) -> int:
        parents = {pid: fields[1] for pid, fields in processes().items()}
        return next(pid for pid, parent in parents.items() if parent == str(self.process.pid))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def run_labs(self) -> list[str]:
        return sorted(name for name in netns.lab_ids() if name.startswith("run-"))


def processes() -> dict[int, list[str]]:
    """Return state, parent and so on of every process (proc(5), from field 3)."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal():
                found[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
    return found


def marked(mark: str) -> list[int]:
    """Return the processes with this text in their environment."""
    found = []
    for pid in processes():
        with contextlib.suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """The server."""
    with serving() as running:
        yield running


@contextlib.contextmanager
def serving(*, standin: bool = False, tls: Pki | None = None) -> Iterator[Service]:
    """Run a server whose end leaves no process, lab or owner of its own behind."""
    state = Path("/tmp") / f"satlab-serve-{secrets.token_hex(4)}"
    running = Service(state, standin=standin, tls=tls)
    try:
        yield running
        assert running.stop() == 0
        until(lambda: not marked(str(state)), seconds=20)
        assert not list((state / "scratch").glob("*"))
        assert not helper_socket(state).exists()
    finally:
        running.kill()
        helper_socket(state).unlink(missing_ok=True)
        ownership.sweep()
        subprocess.run(["rm", "-rf", str(state)], check=True)


def set_up(client: Client) -> str:
    """Create a project with entities and a scenario; return the path of the scenario's instances."""
    client.request("DELETE", "/project/trial/")
    client.expect(200, "POST", "/project/", {"name": "trial", "description": "", "owners": []})
    for name, address in ENTITIES.items():
        entity = {"name": name, "description": "", "agent": {"address": address}}
        client.expect(200, "POST", "/project/trial/entity/", entity)
    client.expect(200, "POST", "/job/", {"name": "satlab_ping", "path": "ignored"})
    client.expect(200, "POST", "/project/trial/scenario/", ECHO)
    return "/project/trial/scenario/echo/scenario_instance/"


def launch(client: Client, where: str, count: int) -> int:
    body = {"arguments": {"count": str(count)}, "link": {"profile": "leo"}}
    return int(client.expect(200, "POST", where, body)["scenario_instance_id"])


def test_a_client_that_follows_the_contract(service: Service) -> None:
    client = service.client
    assert client.expect(200, "GET", "/openbach/version/") == {"openbach_version": "2.7.0"}
    assert client.expect(200, "GET", "/logs/?level=4&delay=10000") == []
    where = set_up(client)
    assert {agent["address"] for agent in client.expect(200, "GET", "/agent/")} >= set(ENTITIES.values())

    first, second, third = (launch(client, where, count) for count in (3, 600, 3))
    assert client.await_status(first, OVER) == "Finished Ok"
    found = client.instance(first, quiet=False)
    (function,) = found["openbach_functions"]
    assert (function["status"], function["job"]["status"]) == ("Finished", "Not Running")
    assert function["job"]["agent_name"] == "client"

    job = function["job"]["id"]
    assert "rtt_ms" in client.expect(200, "GET", f"/statistic/{job}/")["statistics"]
    assert len(client.expect(200, "GET", f"/statistic/{job}/?name=rtt_ms")["rtt_ms"]) == 3
    rows = list(csv.DictReader(io.StringIO(client.expect(200, "GET", f"/scenario_instance/{first}/csv/"))))
    rtts = [float(row["rtt_ms"]) for row in rows if row["rtt_ms"]]
    assert len(rtts) == 3
    assert all(111 < rtt < 200 for rtt in rtts)
    assert {row["@job_instance_id"] for row in rows} == {str(job)}

    client.await_status(second, ("Running",))
    client.expect(204, "POST", f"/scenario_instance/{third}/")
    assert client.instance(third)["status"] == "Stopped"
    until(lambda: client.expect(202, "GET", "/job_instance/?address=198.18.1.2")["instances"], seconds=60)
    client.expect(204, "POST", f"/scenario_instance/{second}/")
    assert client.await_status(second, OVER) == "Stopped"
    client.expect(204, "DELETE", f"/scenario_instance/{second}/")
    client.expect(404, "GET", f"/scenario_instance/{second}/")
    client.expect(204, "DELETE", "/login/")
    client.expect(403, "GET", "/agent/")
    client.log_in()


def test_t02_the_api_process_has_no_privilege(service: Service) -> None:
    lines = Path(f"/proc/{service.api_pid()}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert set(status["Uid"].split()) == {str(privileges.API_UID)}
    assert {status[key].strip() for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Groups"].strip() == ""


def test_t02_the_helper_answers_the_api_alone(service: Service) -> None:
    path = helper_socket(service.state)
    assert path.stat().st_uid == privileges.API_UID
    with socket.socket(socket.AF_UNIX) as anonymous:  # root may connect, but gets no answer
        anonymous.connect(str(path))
        anonymous.settimeout(20)
        answer = b""
        with contextlib.suppress(ConnectionError):
            anonymous.sendall(b'{"verb":"status","run_id":"x"}\n')
            answer = anonymous.recv(100)
        assert answer == b""
    argv = privileges.drop_argv(privileges.new_uid(), [path.parent])
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
    done = subprocess.run([*argv, "/usr/bin/python3", "-c", connect], capture_output=True, text=True, check=False)
    assert "PermissionError" in done.stderr


def test_t01_only_the_asked_port_listens(service: Service) -> None:
    table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text() + Path("/proc/net/udp").read_text()
    inodes = {
        str(link.readlink())
        for pid in (service.process.pid, service.api_pid())
        for link in Path(f"/proc/{pid}/fd").iterdir()
        if link.is_symlink()
    }
    mine = [
        line.split()[1]
        for line in table.splitlines()
        if len(line.split()) > 9 and f"socket:[{line.split()[9]}]" in inodes
    ]
    assert {place.partition(":")[2] for place in mine} == {f"{service.port:04X}"}
    assert {place.partition(":")[0] for place in mine} == {"0100007F"}


def test_t01_over_tls_passwords_and_cookies_are_sealed(tmp_path: Path) -> None:
    addresses = [ipaddress.IPv4Address("127.0.0.1")]
    tls = pki.create(tmp_path / "pki", ["localhost"], addresses, datetime.now(UTC))
    with serving(tls=tls) as service:
        assert {"Secure", "HttpOnly", "SameSite=strict"} <= {
            part.strip() for part in service.client.attributes.split(";")
        }
        service.client.expect(200, "GET", "/agent/")
        anonymous = Client(
            service.port, pki.create(tmp_path / "other", ["localhost"], addresses, datetime.now(UTC)).ca_cert
        )
        with pytest.raises(ssl.SSLCertVerificationError):
            anonymous.request("GET", "/version/")
        with pytest.raises((http.client.HTTPException, ConnectionError)):  # the server does not answer in clear
            Client(service.port).request("GET", "/version/")
        assert not Path(f"/proc/{service.api_pid()}/environ").read_bytes().count(b"server.key")
    tls.server_key.chmod(0o644)
    state = str(tmp_path / "state")
    argv = [sys.executable, "-m", "satlab", "serve", "--state", state, "--listen", f"127.0.0.1:{free_port()}"]
    argv += ["--tls-cert", str(tls.server_cert), "--tls-key", str(tls.server_key)]
    done = subprocess.run(argv, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == ExitStatus.USAGE
    assert f"hint: chmod 600 {tls.server_key}" in done.stderr


def test_six_launches_in_real_labs_with_a_kill_in_between() -> None:
    """One fails, one runs when the server is killed, one is stopped before it runs; none is lost, repeated or left."""
    with serving() as service:
        where = set_up(service.client)
        service.client.expect(200, "POST", "/job/", {"name": "satlab_iperf3", "path": "ignored"})
        service.client.expect(200, "POST", "/project/trial/scenario/", NOBODY_LISTENS)
        fails = where.replace("echo", "nobody_listens")
        first, failing, killed, stopped, fifth, sixth = launched = [
            launch(service.client, place, count)
            for place, count in ((where, 2), (fails, 1), (where, 600), (where, 2), (where, 2), (where, 2))
        ]
        service.client.expect(204, "POST", f"/scenario_instance/{stopped}/")
        assert service.client.await_status(failing, OVER) == "Finished Ko"
        until(
            lambda: service.client.instance(killed, quiet=False)["openbach_functions"][0]["status"] == "Finished",
            seconds=90,
        )
        service.kill()
        service.start()
        assert service.client.await_status(sixth, OVER) == "Finished Ok"
        found = {number: service.client.instance(number, quiet=False) for number in launched}
        assert {number: each["status"] for number, each in found.items()} == {
            **dict.fromkeys((first, fifth, sixth), "Finished Ok"),
            **dict.fromkeys((failing, killed), "Finished Ko"),
            stopped: "Stopped",
        }
        runs = [each["run_id"] for each in found.values() if each["run_id"] is not None]
        assert sorted(runs) == sorted(folder.name for folder in (service.state / "runs").iterdir())
        assert len(set(runs)) == 5, "all but the stopped one, each once"
        for run_id in runs:
            assert not marked(run_id)
            assert lab.status(f"run-{run_id[9:15]}-{run_id[-4:]}").phase == "absent"


def test_a_killed_server_reports_what_ran_and_runs_what_waited_once(service: Service) -> None:
    client = service.client
    where = set_up(client)
    before = service.run_labs()
    running, waiting, stopped = launch(client, where, 600), launch(client, where, 2), launch(client, where, 2)
    client.expect(204, "POST", f"/scenario_instance/{stopped}/")
    until(lambda: client.instance(running, quiet=False)["openbach_functions"][0]["status"] == "Finished", seconds=90)
    assert len(service.run_labs()) == len(before) + 1
    service.kill()
    service.start()
    client = service.client
    ended = client.instance(running, quiet=False)
    assert (ended["status"], ended["reason"]) == ("Finished Ko", "the server ended while it ran")
    assert ended["openbach_functions"][0]["job"]["status"] == "Unknown"
    assert lab.status(f"run-{ended['run_id'][9:15]}-{ended['run_id'][-4:]}").phase == "absent"
    assert not marked(ended["run_id"])
    assert client.await_status(waiting, OVER) == "Finished Ok"
    assert client.instance(stopped)["status"] == "Stopped"
    assert client.instance(stopped, quiet=False)["run_id"] is None
    assert service.run_labs() == before


def test_the_api_and_its_helper_die_together(service: Service) -> None:
    os.kill(service.api_pid(), signal.SIGKILL)
    assert service.process.wait(30) == 3
    service.start()


def test_200_launches_with_kills_in_between() -> None:
    """Real server, real helper, real worker processes that only pretend to run a lab."""
    with serving(standin=True) as service:
        where = set_up(service.client)
        launched: list[int] = []
        stopped: set[int] = set()
        for number in range(200):
            if number in (60, 130):
                service.kill()
                service.start()
            launched.append(launch(service.client, where, 7 if number % 10 == 0 else 1))
            if number % 3 == 0:
                stopped.add(launched[-1])
                service.client.expect(204, "POST", f"/scenario_instance/{launched[-1]}/")
        service.kill()
        service.start()
        path = "/project/trial/scenario_instance/?quiet"
        until(lambda: all(each["status"] in OVER for each in service.client.expect(200, "GET", path)), seconds=200)
        found = {each["scenario_instance_id"]: each for each in service.client.expect(200, "GET", path)}
        assert sorted(found) == launched
        ran = [int(line) for line in (service.state / "ran").read_text().split()]
        assert len(ran) == len(set(ran)), "an instance ran twice"
        lost = 0
        for number in launched:
            instance = service.client.instance(number, quiet=False)
            was_killed = instance["reason"] == "the server ended while it ran"
            lost += was_killed
            if instance["run_id"] is None:
                assert number in stopped
                assert number not in ran
            elif not was_killed and number not in stopped:
                good = instance["arguments"][-1]["value"] == "1"
                assert instance["status"] == ("Finished Ok" if good else "Finished Ko"), instance
                assert number in ran
        assert lost <= 3
