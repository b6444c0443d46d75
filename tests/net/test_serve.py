# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab serve` as a whole: a client that follows OpenBACH's contract, privileges, and what a kill
leaves behind.
"""

import contextlib
import csv
import http.client
import io
import ipaddress
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from satlab.common.errors import ExitStatus
from satlab.lab import lab, pki, privileges
from satlab.service.root_process import helper_socket
from tests import process_search
from tests.archives import descriptor
from tests.polling import until
from tests.serve_process import (
    ENTITIES,
    ENVIRONMENT,
    OVER,
    Client,
    Service,
    free_port,
    launch,
    serving,
    set_up,
)

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

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

UPLOADED = {
    "files/extra.yml": descriptor(
        b"required: [{name: word, type: str, count: 1, description: A word}]"
    ),
    "files/extra.py": b"import sys, word; sys.exit(sys.argv[1] != word.WORD)",
    "files/word.py": b"WORD = '1'",
}
RUNS_UPLOADED = {
    "name": "uploaded",
    "arguments": {"count": "What it is called with"},
    "openbach_functions": [
        {"id": 1, "start_job_instance": {"entity_name": "sender", "extra": {"word": "$count"}}}
    ],
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """The server."""
    with serving() as running:
        yield running


@pytest.mark.promise("P53")
def test_a_client_that_follows_the_contract(service: Service) -> None:
    client = service.client
    assert client.expect(200, "GET", "/openbach/version/") == {"openbach_version": "2.7.0"}
    assert client.expect(200, "GET", "/logs/?level=4&delay=10000") == []
    where = set_up(client)
    assert {agent["address"] for agent in client.expect(200, "GET", "/agent/")} >= set(
        ENTITIES.values()
    )

    first, second, third = (launch(client, where, count) for count in (3, 600, 3))
    assert client.await_status(first, OVER) == "Finished Ok"
    found = client.instance(first, quiet=False)
    (function,) = found["openbach_functions"]
    assert (function["status"], function["job"]["status"]) == ("Finished", "Not Running")
    assert function["job"]["agent_name"] == "client"

    job = function["job"]["id"]
    assert "rtt_ms" in client.expect(200, "GET", f"/statistic/{job}/")["statistics"]
    assert len(client.expect(200, "GET", f"/statistic/{job}/?name=rtt_ms")["rtt_ms"]) == 3
    rows = list(
        csv.DictReader(io.StringIO(client.expect(200, "GET", f"/scenario_instance/{first}/csv/")))
    )
    rtts = [float(row["rtt_ms"]) for row in rows if row["rtt_ms"]]
    assert len(rtts) == 3
    assert all(111 < rtt < 200 for rtt in rtts)
    assert {row["@job_instance_id"] for row in rows} == {str(job)}

    client.await_status(second, ("Running",))
    client.expect(204, "POST", f"/scenario_instance/{third}/")
    assert client.instance(third)["status"] == "Stopped"
    until(
        lambda: client.expect(202, "GET", "/job_instance/?address=198.18.1.2")["instances"],
        seconds=60,
    )
    client.expect(204, "POST", f"/scenario_instance/{second}/")
    assert client.await_status(second, OVER) == "Stopped"
    client.expect(204, "DELETE", f"/scenario_instance/{second}/")
    client.expect(404, "GET", f"/scenario_instance/{second}/")
    client.expect(204, "DELETE", "/login/")
    client.expect(403, "GET", "/agent/")
    client.log_in()


def test_t02_an_uploaded_job_runs_from_root_s_copy_of_it(service: Service) -> None:
    where = set_up(service.client).replace("echo", "uploaded")
    assert service.client.upload("extra", UPLOADED) == 200
    service.client.expect(200, "POST", "/project/trial/scenario/", RUNS_UPLOADED)
    copied = service.client.await_status(launch(service.client, where, 1), OVER)
    (service.state / "api" / "jobs" / "extra" / "files" / "word.py").unlink()
    missing = launch(service.client, where, 1)
    assert (copied, service.client.await_status(missing, OVER)) == ("Finished Ok", "Finished Ko")
    (service.state / "api" / "jobs" / "extra" / "files" / "word.py").symlink_to("/etc/hostname")
    linked = launch(service.client, where, 1)
    assert service.client.await_status(linked, OVER) == "Finished Ko"
    assert "word.py: is a link" in service.client.instance(linked, quiet=False)["reason"]
    service.client.expect(204, "DELETE", "/job/extra/")


def test_t02_the_api_process_has_no_privilege(service: Service) -> None:
    lines = Path(f"/proc/{service.api_pid()}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert set(status["Uid"].split()) == {str(privileges.API_UID)}
    assert {status[key].strip() for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
        "0" * 16
    }
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
    done = subprocess.run(
        [*argv, "/usr/bin/python3", "-c", connect], capture_output=True, text=True, check=False
    )
    assert "PermissionError" in done.stderr


def test_t01_only_the_asked_port_listens(service: Service) -> None:
    table = (
        Path("/proc/net/tcp").read_text()
        + Path("/proc/net/tcp6").read_text()
        + Path("/proc/net/udp").read_text()
    )
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
            service.port,
            pki.create(tmp_path / "other", ["localhost"], addresses, datetime.now(UTC)).ca_cert,
        )
        with pytest.raises(ssl.SSLCertVerificationError):
            anonymous.request("GET", "/version/")
        with pytest.raises(
            (http.client.HTTPException, ConnectionError)
        ):  # the server does not answer in clear
            Client(service.port).request("GET", "/version/")
        assert not Path(f"/proc/{service.api_pid()}/environ").read_bytes().count(b"server.key")
    tls.server_key.chmod(0o644)
    state = str(tmp_path / "state")
    argv = f"{sys.executable} -m satlab serve --state {state}".split()
    argv += f"--listen 127.0.0.1:{free_port()} --tls-cert {tls.server_cert}".split()
    argv += ["--tls-key", str(tls.server_key)]
    done = subprocess.run(
        argv, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == ExitStatus.USAGE
    assert f"hint: chmod 600 {tls.server_key}" in done.stderr


@pytest.mark.promise("P58")
def test_six_launches_in_real_labs_with_a_kill_in_between() -> None:
    """One fails, one runs when the server is killed, one is stopped before it runs; none is lost,
    repeated or left.
    """
    with serving() as service:
        where = set_up(service.client)
        service.client.expect(200, "POST", "/job/", {"name": "satlab_iperf3", "path": "ignored"})
        service.client.expect(200, "POST", "/project/trial/scenario/", NOBODY_LISTENS)
        fails = where.replace("echo", "nobody_listens")
        first, failing, killed, stopped, fifth, sixth = launched = [
            launch(service.client, place, count)
            for place, count in (
                (where, 2),
                (fails, 1),
                (where, 600),
                (where, 2),
                (where, 2),
                (where, 2),
            )
        ]
        service.client.expect(204, "POST", f"/scenario_instance/{stopped}/")
        assert service.client.await_status(failing, OVER) == "Finished Ko"
        until(
            lambda: (
                service.client.instance(killed, quiet=False)["openbach_functions"][0]["status"]
                == "Finished"
            ),
            seconds=90,
        )
        assert len(service.run_labs()) == 1
        service.kill()
        service.start()
        ended = service.client.instance(killed, quiet=False)
        assert ended["reason"] == "the server ended while it ran"
        assert ended["openbach_functions"][0]["job"]["status"] == "Unknown"
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
            assert not process_search.having(run_id, "environ")
            assert lab.status(f"run-{run_id[9:15]}-{run_id[-4:]}").phase == "absent"


def test_the_api_and_its_helper_die_together(service: Service) -> None:
    os.kill(service.api_pid(), signal.SIGKILL)
    assert service.process.wait(30) == 3
    service.start()


@pytest.mark.promise("P58")
def test_200_launches_with_kills_in_between() -> None:
    """Real server, real helper, real worker processes that only pretend to run a lab."""
    with serving(standin=True) as service:
        where = set_up(service.client)
        launched: list[int] = []
        stopped: set[int] = set()
        path = "/project/trial/scenario_instance/?quiet"

        def waiting() -> int:
            listed = service.client.expect(200, "GET", path)
            return sum(each["status"] not in OVER for each in listed)

        for number in range(200):
            if number % 50 == 0:  # the server refuses more than 125 that wait
                until(lambda: waiting() < 60, seconds=200)
            if number in (60, 130):
                service.kill()
                service.start()
            launched.append(launch(service.client, where, 7 if number % 10 == 0 else 1))
            if number % 3 == 0:
                stopped.add(launched[-1])
                service.client.expect(204, "POST", f"/scenario_instance/{launched[-1]}/")
        service.kill()
        service.start()
        until(lambda: waiting() == 0, seconds=200)
        found = {
            each["scenario_instance_id"]: each for each in service.client.expect(200, "GET", path)
        }
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
