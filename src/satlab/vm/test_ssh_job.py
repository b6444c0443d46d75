# SPDX-License-Identifier: GPL-3.0-or-later
"""A job on a guest behaves as a job here: output, status, stop, and what it recorded; ssh is a
script here.
"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from satlab.common import paths
from satlab.common.errors import HostError
from satlab.vm import guest_launcher, ssh_job

LAUNCHER = Path(guest_launcher.__file__)


USER = 65534
"""Of nobody and of his group. Who is not root runs the jobs as himself."""


@pytest.fixture
def guest() -> Iterator[Path]:
    """Yield a folder for guests' files that other users may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="satlab-guest-") as folder:
        yield Path(folder)


@pytest.fixture
def ssh(tmp_path: Path, guest: Path) -> list[str]:
    """Return an ssh that runs the launcher on this host, with a folder of the test's."""
    script = tmp_path / "ssh"
    code = (
        f"import sys; sys.path.insert(0, {str(LAUNCHER.parent)!r}); import guest_launcher; from pathlib"
        " import Path; "
    )
    code += f"guest_launcher.HOME = Path({str(guest / 'jobs')!r}); guest_launcher.USER = {USER!r}; "
    code += "sys.argv[0:1] = ['run-job']; sys.exit(guest_launcher.main())"
    script.write_text(f'#!/bin/sh\nshift 5\nexec {sys.executable} -c "{code}" "$@"\n')
    script.chmod(0o755)
    return [str(script), "host", "--"]  # then come: sudo -n /usr/lib/satlab/run-job


def start(
    ssh: list[str], raw: Path, *argv: str, instance: int = 1, name: str = "satlab_try"
) -> "subprocess.Popen[str]":
    raw.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(paths.ROOT / "src"), str(paths.ROOT)]),
        "SATLAB_RAW": str(raw),
        "JOB_NAME": name,
        "JOB_INSTANCE_ID": str(instance),
        "SATLAB_AGENT": "client",
    }
    words = [sys.executable, "-m", "satlab.vm.ssh_job", *ssh, ssh_job.SEPARATOR, *argv]
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_output_status_and_records_come_back(ssh: list[str], tmp_path: Path, guest: Path) -> None:
    raw = tmp_path / "run" / "raw"
    raw.mkdir(parents=True)
    (raw / "stats.jsonl").write_text('{"earlier": 1}\n')
    script = (
        'echo "$SATLAB_AGENT"; echo "{}" >"$SATLAB_RAW/stats.jsonl"; mkdir -p'
        ' "$SATLAB_RAW/files/try-1"; '
    )
    script += 'echo data >"$SATLAB_RAW/files/try-1/f.json"; echo oops >&2; exit 7'
    job = start(ssh, raw, "/bin/sh", "-c", script)
    out, error = job.communicate(timeout=120)
    assert (job.returncode, out.strip(), error.strip()) == (7, "client", "oops")
    ssh_job.fetch(ssh, "run", raw)
    assert (raw / "stats.jsonl").read_text() == '{"earlier": 1}\n{}\n'
    assert (raw / "files/try-1/f.json").read_text() == "data\n"
    assert not any((guest / "jobs").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("name", "uid", "capabilities"),
    [
        ("satlab_ping", USER, 1 << 13),
        ("satlab_curl", USER, 0),
        ("satlab_link", 0, None),
    ],  # capability.h: CAP_NET_RAW
)
def test_t02_a_job_on_a_guest_has_what_its_name_is_granted(
    ssh: list[str], tmp_path: Path, name: str, uid: int, capabilities: int | None
) -> None:
    job = start(ssh, tmp_path / "run" / "raw", "/bin/cat", "/proc/self/status", name=name)
    out, error = job.communicate(timeout=120)
    assert job.returncode == 0, error
    status = dict(line.split(":\t", 1) for line in out.splitlines() if ":\t" in line)
    assert set(status["Uid"].split()) == {str(uid)}
    if capabilities is not None:
        assert {
            int(status[key], 16) for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
        } == {capabilities}
        assert status["NoNewPrivs"] == "1"


@pytest.mark.parametrize("ends", ["the job", "its ssh"])
def test_a_stop_reaches_the_job_and_its_last_records_come(
    ssh: list[str], tmp_path: Path, ends: str
) -> None:
    """The runner ends descendants, ssh among them, before the job itself."""
    raw = tmp_path / "run" / "raw"
    script = (
        'trap \'sleep 1; echo "{}" >"$SATLAB_RAW/stats.jsonl"; exit 0\' TERM; echo ready; while :;'
        " do sleep 0.1; done"
    )
    job = start(ssh, raw, "/bin/sh", "-c", script)
    assert job.stdout
    assert job.stdout.readline() == "ready\n"
    if ends == "the job":
        job.terminate()
        assert job.wait(120) == 0
    else:
        job.kill()
        job.wait(120)
    ssh_job.fetch(ssh, "run", raw)
    assert (raw / "stats.jsonl").read_text() == "{}\n"


def test_a_guest_that_sends_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot be fetched"):
        ssh_job.fetch(["false"], "run", tmp_path)


def test_a_job_that_does_not_end_is_killed_and_so_is_what_it_started(
    ssh: list[str], tmp_path: Path
) -> None:
    script = 'trap "" TERM; sleep 300 & echo $!; while :; do sleep 0.1; done'
    job = start(ssh, tmp_path / "run" / "raw", "/bin/sh", "-c", script)
    assert job.stdout
    child = int(job.stdout.readline())
    began = time.monotonic()
    job.terminate()
    assert job.wait(120) == 128 + signal.SIGKILL
    assert time.monotonic() - began >= guest_launcher.GRACE_S
    assert (
        not Path(f"/proc/{child}").exists()
        or "Z" in Path(f"/proc/{child}/stat").read_text().rpartition(")")[2][:3]
    )


def test_a_lost_connection_ends_the_job(tmp_path: Path) -> None:
    request = (
        '{"run": "r", "job": "x", "argv": ["/bin/sleep", "300"], "environment": {}, "capabilities":'
        " null}\n"
    )
    code = (
        "import guest_launcher, sys; from pathlib import Path; guest_launcher.HOME = Path(sys.argv.pop());"
        " sys.exit(guest_launcher.main())"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, cwd=LAUNCHER.parent, stdin=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdin
        launcher.stdin.write(request)
        launcher.stdin.close()
        assert launcher.wait(120) == 128 + signal.SIGTERM


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b", "x" * 200])
def test_t04_names_of_jobs_are_checked(name: str) -> None:
    line = json.dumps({"run": name, "job": "x", "argv": [], "environment": {}}) + "\n"
    argv = [sys.executable, str(LAUNCHER)]
    done = subprocess.run(
        argv, input=line, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert "is not the name of a run or a job" in done.stderr


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"run": "x"}', "not json"])
def test_an_invalid_request_is_refused(line: str) -> None:
    argv = [sys.executable, str(LAUNCHER)]
    done = subprocess.run(
        argv, input=line + "\n", capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 64
    assert "not a request" in done.stderr


def test_words_of_a_command_become_the_guest_s() -> None:
    job = str(paths.JOBS / "satlab_ping" / "files" / "satlab_ping.py")
    assert ssh_job.there(sys.executable) == "/usr/bin/python3"
    assert ssh_job.there(job) == "/usr/lib/satlab/jobs/satlab_ping/files/satlab_ping.py"
    assert ssh_job.there("--count") == "--count"


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "link"])
def test_t04_a_guest_s_archive_cannot_lead_elsewhere(name: str, tmp_path: Path) -> None:
    member = tarfile.TarInfo(name)
    if name == "link":
        member.type, member.linkname = tarfile.SYMTYPE, "/etc"
    archive = tmp_path / "sent.tar"
    with tarfile.open(archive, "w") as content:
        content.addfile(member)
    with pytest.raises(HostError, match="a guest sends"):
        ssh_job.fetch(["sh", "-c", 'cat "$0"', str(archive)], "run", tmp_path / "raw")
    assert not (tmp_path / "out").exists()


def test_t54_what_a_guest_sends_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    large = tarfile.TarInfo("job/files/x")
    large.size = 1 << 40
    for member, words in ((header, "too large headers"), (large, "holds more than")):
        (tmp_path / "sent.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 16))
        with pytest.raises(HostError, match=words):
            ssh_job.fetch(
                ["sh", "-c", 'cat "$0"', str(tmp_path / "sent.tar")], "run", tmp_path / "raw"
            )
    monkeypatch.setattr(ssh_job, "FETCH_DEADLINE_S", 0.1)
    with pytest.raises(HostError, match="cannot be fetched"):
        ssh_job.fetch(["sh", "-c", "exec sleep 60"], "run", tmp_path / "raw")
