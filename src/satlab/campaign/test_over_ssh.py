# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts over ssh, with a stand-in of ssh that runs the other end on this host, or answers
nonsense.
"""

import sys
import threading
from pathlib import Path

import pytest

from satlab.campaign import attempt, hosts, remote
from satlab.campaign.folder import CampaignFolder, locked
from satlab.campaign.over_ssh import OverSsh
from satlab.campaign.plan import Cell, Plan, Task, digest
from satlab.campaign.worker import Worker
from satlab.common import paths
from satlab.common.errors import ConfigError, ExitStatus, HostError

HOSTS = """\
known_hosts: keys
identity: key
hosts:
  - {name: a, address: 192.0.2.1, satlab: /opt/satlab/satlab}
  - {name: b, address: 192.0.2.2, satlab: /opt/satlab/satlab}
"""
OTHER_END = """\
import signal, sys, threading
from satlab.campaign import attempt, remote
signal.signal(signal.SIGTERM, lambda *_: None)  # what ends ssh does not reach the other host
attempt.command = lambda _: [sys.executable, {command!r}]
sys.exit(remote.serve(sys.stdin.buffer, sys.stdout.buffer, threading.Event()))
"""
TAR = """\
import io, sys, tarfile
archive = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
member = tarfile.TarInfo({name!r})
member.type, member.linkname = {kind!r}, "/etc/passwd"
archive.addfile(member)
archive.close()
"""


class Bench:
    """A campaign of one task, and a program in the place of ssh for each host."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        for name, text in (("keys", ""), ("key", ""), ("hosts.yml", HOSTS)):
            (folder / name).write_text(text)
        self.scripts = {name: folder / f"ssh-{name}.py" for name in ("a", "b")}
        self.known = hosts.load(folder / "hosts.yml")
        monkeypatch.setattr(
            hosts.HostsFile,
            "command",
            lambda _, host: [sys.executable, str(self.scripts[host.name])],
        )
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setenv("PYTHONPATH", paths.PYTHONPATH)
        task = Task(
            id="geo.1",
            cell="geo",
            number=1,
            rule="run",
            lab="netns",
            seed=1,
            argv=("satlab", "run", "bulk_tcp"),
            estimate_s=1,
            cores=1,
        )
        self.plan = Plan(
            name="short", deadline_s=30, cells=(Cell(id="geo", factors={}),), tasks=(task,)
        )
        self.where = CampaignFolder(folder / "c")
        self.digest = self.where.begin(self.plan)

    def works(self, name: str, command: str) -> None:
        """Let a host do attempts with a Python program as every task's command."""
        program = self.folder / f"command-{name}.py"
        program.write_text(command)
        self.scripts[name].write_text(OTHER_END.format(command=str(program)))

    def work(self, stop: threading.Event | None = None, retries: int = 0) -> ExitStatus:
        measure = OverSsh(self.known, self.where, self.digest)
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
    assert bench.work(retries=1) == ExitStatus.UNCALIBRATED
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
    thread.join(30)
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
        remote.serve(stdin, stdout, threading.Event())
    assert not (tmp_path / "out").read_bytes()


def test_t40_a_plan_of_another_hash_or_version_is_refused(bench: Bench, tmp_path: Path) -> None:
    text = bench.plan.model_copy(update={"satlab_version": "0"}).text().encode()
    for sha256, words in ((bench.digest, "not the plan"), (digest(text.decode()), "satlab 0")):
        request = remote.Request(plan_sha256=sha256, plan_bytes=len(text), task="geo.1", slot=0)
        (tmp_path / "in").write_bytes(request.line() + text)
        with (tmp_path / "in").open("rb") as stdin, pytest.raises(ConfigError, match=words):
            remote.serve(stdin, sys.stdout.buffer, threading.Event())


def test_faults_of_a_file_of_hosts_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        "known_hosts: keys\nidentity: key\npassword: x\nhosts:\n"
        "  - {name: a, address: '-oProxyCommand=x', satlab: satlab, user: 'root;id'}\n"
    )
    with pytest.raises(ConfigError) as caught:
        hosts.load(tmp_path / "hosts.yml")
    places = {fault.place.rsplit(": ", 1)[1] for fault in caught.value.faults}
    assert places - {"hosts"} == {"password", "hosts.0.address", "hosts.0.satlab", "hosts.0.user"}
    assert attempt.STOP_S > 0
