# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts over ssh, with a stand-in of ssh that runs the other end on this host, or answers
nonsense.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from satlab.campaign import attempt, hosts_file, ssh_attempt
from satlab.campaign.campaign_folder import CampaignFolder, locked
from satlab.campaign.plan_file import Plan
from satlab.campaign.ssh_dispatch import OverSsh
from satlab.campaign.task_request import Run
from satlab.campaign.test_worker import run_task
from satlab.campaign.worker import Worker
from satlab.common import paths
from satlab.common.errors import ConfigError, ExitStatus, HostError
from satlab.service.root_helper.protocol import RunLink

HOSTS = """\
known_hosts: keys
identity: key
hosts:
  - {name: a, address: 192.0.2.1, satlab: /opt/satlab/satlab}
  - {name: b, address: 192.0.2.2, satlab: /opt/satlab/satlab}
"""
OTHER_END = """\
import signal, sys, threading
from satlab.campaign import attempt, ssh_attempt
signal.signal(signal.SIGTERM, lambda *_: None)  # what ends ssh does not reach the other host
attempt.command = lambda _: [sys.executable, {command!r}]
sys.exit(ssh_attempt.serve(sys.stdin.fileno(), sys.stdout.buffer, threading.Event()))
"""
TAR = """\
import io, sys, tarfile
archive = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
member = tarfile.TarInfo({name!r})
member.type, member.linkname = {kind!r}, "/etc/passwd"
archive.addfile(member)
archive.close()
"""
HEADER = """\
import sys, tarfile
member = tarfile.TarInfo("x")
member.type, member.size = tarfile.XHDTYPE, 1 << 30
sys.stdout.buffer.write(member.tobuf(tarfile.USTAR_FORMAT) + bytes(1 << 20))
"""


class Bench:
    """A campaign of one task, and a program in the place of ssh for each host."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        for name, text in (("keys", ""), ("key", ""), ("hosts.yml", HOSTS)):
            (folder / name).write_text(text)
        self.scripts = {name: folder / f"ssh-{name}.py" for name in ("a", "b")}
        self.known = hosts_file.load(folder / "hosts.yml")
        monkeypatch.setattr(
            hosts_file.HostsFile,
            "command",
            lambda _, host: [sys.executable, str(self.scripts[host.name])],
        )
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setenv("PYTHONPATH", paths.PYTHONPATH)
        task = run_task()
        self.plan = Plan(name="short", deadline_s=30, cells={"geo": {}}, tasks=(task,))
        self.where = CampaignFolder(folder / "c")
        self.digest = self.where.begin(self.plan)

    def works(self, name: str, command: str) -> None:
        """Let a host do attempts with a Python program as every task's command."""
        program = self.folder / f"command-{name}.py"
        program.write_text(command)
        self.scripts[name].write_text(OTHER_END.format(command=str(program)))

    def work(self, stop: threading.Event | None = None, retries: int = 0) -> ExitStatus:
        measure = OverSsh(self.known, self.where)
        return Worker(self.where, self.digest, retries, measure).work(
            "geo.1", stop or threading.Event()
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_p263_files_and_end_of_an_attempt_come_back(bench: Bench) -> None:
    bench.works(
        "a",
        "import os; print('{\"metric\": \"m\"}'); os.mkdir('runs'); open('runs/raw',"
        " 'w').write('7')",
    )
    assert bench.work() == ExitStatus.OK
    found = bench.where.read(bench.plan.tasks[0])
    assert found is not None
    assert (found.status, found.last.host.name) == ("ok", "a")
    assert set(found.files) == {"attempt.json", "output.json", "log", "runs/raw"}
    assert not [
        path
        for path in (bench.folder / "state").rglob("*")
        if path.is_file() and path.suffix != ".lock"
    ]


def test_p263_a_repeated_attempt_goes_to_another_host(bench: Bench) -> None:
    bench.works("a", "import sys; sys.exit(4)")
    bench.works("b", "print('{}')")
    assert bench.work(retries=1) == ExitStatus.OK
    assert [at.host.name for at in bench.where.attempts(bench.plan.tasks[0])] == ["a", "b"]


def test_p263_a_lost_host_costs_no_attempt_and_the_next_one_is_elsewhere(bench: Bench) -> None:
    bench.scripts["a"].write_text("import sys; sys.stderr.write('No route to host'); sys.exit(255)")
    bench.works("b", "print('{}')")
    with pytest.raises(
        HostError, match=r"a: geo\.1 was not finished \(ssh: 255\).*No route to host"
    ):
        bench.work()
    assert bench.work() == ExitStatus.OK
    assert [at.host.name for at in bench.where.attempts(bench.plan.tasks[0])] == ["b"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("link", b"2"), ("../up", b"0"), ("/tmp/satlab-planted", b"0"), ("fifo", b"6")],
)
def test_t40_an_answer_writes_plain_files_below_its_folder_alone(
    bench: Bench, name: str, kind: bytes
) -> None:
    bench.scripts["a"].write_text(TAR.format(name=name, kind=kind))
    with pytest.raises(HostError, match="was not finished"):
        bench.work()
    assert not Path("/tmp/satlab-planted").exists()
    assert [path.name for path in bench.where.of(bench.plan.tasks[0]).iterdir()] == [".lock"]


def test_p263_a_stop_ends_the_command_elsewhere(bench: Bench) -> None:
    bench.works(
        "a", f"import time; open({str(bench.folder / 'began')!r}, 'w').close(); time.sleep(60)"
    )
    stop = threading.Event()
    done: list[ExitStatus] = []
    thread = threading.Thread(target=lambda: done.append(bench.work(stop)))
    thread.start()
    while not (bench.folder / "began").exists():
        stop.wait(0.05)
    stop.set()
    thread.join(120)
    assert done == [ExitStatus.INTERRUPTED]
    # Its slot is free again: nothing of it runs.
    with locked(bench.folder / "state" / "satlab" / "attempts" / "slot-0.lock", 20):
        pass


@pytest.mark.parametrize(
    ("line", "words"),
    [(b"{}\n", "no request"), (b"x" * 20_000, "no request"), (b"", "no request")],
)
def test_t40_other_input_than_a_request_is_refused(line: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(line)
    with (
        (tmp_path / "in").open("rb") as stdin,
        (tmp_path / "out").open("wb") as stdout,
        pytest.raises(ConfigError, match=words),
    ):
        ssh_attempt.serve(stdin.fileno(), stdout, threading.Event())
    assert not (tmp_path / "out").read_bytes()


def test_t40_a_request_of_another_version_is_refused(tmp_path: Path) -> None:
    asked = Run(verb="run", scenario="bulk_tcp", link=RunLink())
    request = ssh_attempt.AttemptRequest(satlab_version="0", deadline_s=1, slot=0, request=asked)
    (tmp_path / "in").write_bytes(request.line())
    with (tmp_path / "in").open("rb") as stdin, pytest.raises(ConfigError, match="another satlab"):
        ssh_attempt.serve(stdin.fileno(), sys.stdout.buffer, threading.Event())


RUN = {"verb": "run", "scenario": "bulk_tcp", "link": {}}
CHECK = {"verb": "check", "suite": "etosat", "case": "medium", "seed": 1}
FLOW = {"id": "f", "from": "server1", "to": "client1", "stack": "quinn", "start_s": 0}
HALF = {"rate_mbps": 10, "delay_ms": 50, "queue": {"bdp": 1}}
FILE = {
    "schema": "satlab/virtual-flows/1",
    "seed": 1,
    "duration_s": 1,
    "flows": [FLOW],
    "wire": {"forward": HALF, "return": HALF},
}


def _lossy(loss: Any) -> dict[str, Any]:
    return FILE | {"wire": {"forward": HALF, "return": HALF | {"loss": loss}}}


TRACE = {"model": "trace", "file": "/etc/shadow"}
HOSTILE = {
    "words": RUN | {"argv": ["satlab", "check", "--markdown", "/etc/cron.d/x"]},
    "words alone": {"argv": ["satlab", "run", "x"]},
    "an output of a check": CHECK | {"markdown": "/etc/cron.d/x"},
    "a program": CHECK | {"client_cmd": "/bin/sh"},
    "an endpoint": CHECK | {"endpoint": "/tmp/image.tar"},
    "an option as a case": CHECK | {"case": "--markdown=/etc/cron.d/x"},
    "cases": CHECK | {"case": "medium,--junit"},
    "a file as a suite": CHECK | {"suite": "/tmp/suite.yml"},
    "a parent's file as a suite": CHECK | {"suite": "../../tmp/suite"},
    "a suite that does not ship": CHECK | {"suite": "mine"},
    "a case that is not there": CHECK | {"case": "giant"},
    "a file as a scenario": RUN | {"scenario": "/tmp/scenario.json"},
    "an option as a scenario": RUN | {"scenario": "--jobs"},
    "a scenario that does not ship": RUN | {"scenario": "mine"},
    "a timeline": RUN | {"link": {"timeline": "/etc/shadow"}},
    "probes": RUN | {"link": {"probes": "192.0.2.1:22"}},
    "influx": RUN | {"influx": "http://192.0.2.1:8086/x"},
    "a profile's folder": RUN | {"link": {"profile": "/tmp/profile"}},
    "a profile that does not ship": RUN | {"link": {"profile": "mine"}},
    "a trace": RUN | {"link": {"loss_model": "trace:/etc/shadow"}},
    "an option as a value": RUN | {"values": {"x=1 --jobs": "y"}},
    "an address as a value": RUN | {"values": {"duration": "192.0.2.1"}},
    "a host as a value": RUN | {"values": {"duration": "evil.example"}},
    "a path as a value": RUN | {"values": {"duration": "../x"}},
    "a URL as a value": RUN | {"values": {"duration": "http://x"}},
    "the address of the server": RUN | {"values": {"server_ip": "localhost"}},
    "an unknown value": RUN | {"values": {"invented": "1"}},
    "a local run": RUN | {"verb": "run-here", "names": ["x"], "link": {"timeline": "/etc/shadow"}},
    "an unknown verb": RUN | {"verb": "up"},
    "a link's file of flows": {"verb": "flows", "flows": FILE | {"link": "/etc/x"}},
    "a trace of flows": {"verb": "flows", "flows": _lossy(TRACE)},
    "traces of flows": {"verb": "flows", "flows": _lossy([TRACE])},
    "an unknown field of flows": {"verb": "flows", "flows": FILE | {"qlog": "/etc/x"}},
    "a path as a flow": {"verb": "flows", "flows": FILE | {"flows": [FLOW | {"id": "../../x"}]}},
    "a path as a group": {"verb": "flows", "flows": FILE | {"flows": [FLOW | {"group": "/x"}]}},
    "other files": {"verb": "flows", "flows": FILE, "files": {"/etc/x": {}}},
}


@pytest.mark.parametrize("asked", HOSTILE.values(), ids=HOSTILE)
def test_t55_a_host_takes_no_words_files_programs_or_addresses(
    asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(attempt, "run", lambda *_: pytest.fail("it was run"))
    line = {"schema": "satlab/campaign-attempt/2", "deadline_s": 1, "slot": 0, "request": asked}
    (tmp_path / "in").write_text(json.dumps(line) + "\n")
    with (
        (tmp_path / "in").open("rb") as stdin,
        (tmp_path / "out").open("wb") as stdout,
        pytest.raises(ConfigError) as caught,
    ):
        ssh_attempt.serve(stdin.fileno(), stdout, threading.Event())
    assert "root:" not in " ".join([str(caught.value), *map(str, caught.value.faults)])


@pytest.mark.parametrize(
    "asked", [RUN, CHECK, {"verb": "flows", "flows": FILE}], ids=["run", "check", "flows"]
)
def test_t55_a_host_makes_the_command_itself(
    asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ran: list[list[str]] = []
    monkeypatch.setattr(attempt, "run", lambda request, *_: ran.append(request.words()))
    line = {"deadline_s": 1, "slot": 0, "request": asked}
    (tmp_path / "in").write_text(json.dumps(line) + "\n")
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        assert (
            ssh_attempt.serve(stdin.fileno(), stdout, threading.Event()) == ExitStatus.INTERRUPTED
        )
    assert [words[1] for words in ran] == [asked["verb"]]


def test_t55_a_request_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b" " * (ssh_attempt.MAX_REQUEST + 2 * ssh_attempt.CHUNK))
    with (tmp_path / "in").open("rb") as stdin, pytest.raises(ConfigError, match="no request"):
        ssh_attempt.serve(stdin.fileno(), sys.stdout.buffer, threading.Event())


def test_an_attempt_ends_though_its_stdin_stays_open(tmp_path: Path) -> None:
    """A thread in a buffered reader aborted the interpreter.

    It said `could not acquire lock for BufferedReader`.
    """
    code = (
        "import sys, threading\nfrom satlab.campaign import attempt, ssh_attempt\n"
        "attempt.run = lambda *_: None\n"
        "sys.exit(ssh_attempt.serve(sys.stdin.fileno(), sys.stdout.buffer, threading.Event()))"
    )
    variables = {
        "PYTHONPATH": paths.PYTHONPATH,
        "XDG_STATE_HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
    }
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables
    ) as child:
        assert child.stdin is not None and child.stderr is not None
        child.stdin.write(json.dumps({"deadline_s": 1, "slot": 0, "request": RUN}).encode() + b"\n")
        child.stdin.flush()
        assert child.wait(60) == ExitStatus.INTERRUPTED
        assert b"Fatal" not in child.stderr.read()


def test_t54_an_answer_is_bounded(bench: Bench) -> None:
    bench.works("a", "open('large', 'w').write('x' * 5_000_000)")
    measure = OverSsh(bench.known, bench.where, answer_bytes=4 << 20)
    with pytest.raises(HostError, match="more than 4194304 bytes"):
        Worker(bench.where, bench.digest, 0, measure).work("geo.1", threading.Event())
    bench.scripts["b"].write_text(HEADER)
    with pytest.raises(HostError, match="too large headers"):
        bench.work()


def test_faults_of_a_file_of_hosts_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        "known_hosts: keys\nidentity: key\npassword: x\nhosts:\n"
        "  - {name: a, address: '-oProxyCommand=x', satlab: satlab, user: 'root;id'}\n"
    )
    with pytest.raises(ConfigError) as caught:
        hosts_file.load(tmp_path / "hosts.yml")
    places = {fault.place.rsplit(": ", 1)[1] for fault in caught.value.faults}
    assert places - {"hosts"} == {"password", "hosts.0.address", "hosts.0.satlab", "hosts.0.user"}
    assert attempt.STOP_S > 0
