# SPDX-License-Identifier: GPL-3.0-or-later
"""One job on a guest, as a local process: `python -m satlab.vm.ssh_job SSH... @job COMMAND...`.

The runner starts and stops it like any job. It runs the command on the guest through `run-job` and
passes the output on; when it, or its ssh, is ended, the job on the guest is stopped. Its exit
status is the job's, 255 when ssh fails. What jobs recorded is brought into the run folder by
`fetch`, once all of them have ended.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from satlab.common import archive, paths
from satlab.common.archive import ArchiveError, Limits
from satlab.common.errors import HostError
from satlab.lab import privileges
from satlab.vm.debian_packages import LIBRARY

SEPARATOR = "@job"
"""Separates ssh's words, which may contain `--`, from the job's."""
RUN_JOB = ("sudo", "-n", f"/{LIBRARY}/run-job")
FETCH_DEADLINE_S = 120.0
LIMITS = Limits(total_bytes=4 << 30, files=100_000)
"""Limits of the records of one guest's jobs: captures, and a browser's files."""
PASSED = (
    "LANG",
    "PATH",
    "PYTHONUNBUFFERED",
    "SATLAB_AGENT",
    "JOB_NAME",
    "JOB_INSTANCE_ID",
    "SCENARIO_INSTANCE_ID",
    "OWNER_SCENARIO_INSTANCE_ID",
    "SATLAB_CONTROL",
)
"""Variables of the runner that a job gets; folders are the guest's."""


def main(words: Sequence[str]) -> int:
    """Run one job on a guest."""
    split = words.index(SEPARATOR)
    ssh, argv = words[:split], [there(word) for word in words[split + 1 :]]
    job = os.environ["JOB_NAME"]
    request = {
        "run": Path(os.environ["SATLAB_RAW"]).parent.name,
        "job": f"{job}-{os.environ['JOB_INSTANCE_ID']}",
        "argv": argv,
        # The link's control socket is root's.
        "capabilities": None
        if job in privileges.LINK_CONTROLLERS
        else privileges.CAPABILITIES.get(job, ()),
        "environment": {key: os.environ[key] for key in PASSED if key in os.environ},
    }
    # A job may be stopped before it has started: the handler waits for the request to be whole.
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    process = subprocess.Popen([*ssh, *RUN_JOB], stdin=subprocess.PIPE, preexec_fn=_unblock)  # noqa: PLW1509

    def stop(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BrokenPipeError):
            if process.stdin:
                process.stdin.close()

    for number in signals:
        signal.signal(number, stop)
    with contextlib.suppress(BrokenPipeError):  # then ssh has failed, and its status shows it
        if process.stdin:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    return process.wait()


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})


def there(word: str) -> str:
    """Return a word of the command with the paths of the guest: its interpreter and its folder of
    jobs.
    """
    if word == sys.executable:
        return "/usr/bin/python3"
    jobs = f"{paths.JOBS}/"
    return f"/{LIBRARY}/jobs/{word.removeprefix(jobs)}" if word.startswith(jobs) else word


def fetch(ssh: Sequence[str], run: str, raw: Path) -> None:
    """Copy the records of a run's jobs from one guest into the run's raw folder; statistics share
    one file there.

    Raises:
        HostError: the guest does not send it.
    """
    with tempfile.TemporaryDirectory(prefix="satlab-fetch-") as folder:
        jobs = Path(folder) / "jobs"
        jobs.mkdir()
        _receive([*ssh, *RUN_JOB, "--fetch", run], jobs)
        for job in sorted(jobs.glob("*")):
            statistics = job / "stats.jsonl"
            if statistics.is_file():
                with statistics.open("rb") as source, (raw / "stats.jsonl").open("ab") as file:
                    shutil.copyfileobj(source, file)
            if (job / "files").is_dir():
                shutil.copytree(job / "files", raw / "files", dirs_exist_ok=True)


def _receive(argv: Sequence[str], folder: Path) -> None:
    """Write the files that a guest sends. Raises HostError."""
    hint = "look at satlab vm status"
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    late = threading.Timer(FETCH_DEADLINE_S, child.kill)
    late.start()
    try:
        assert child.stdout is not None  # noqa: S101 - PIPE
        archive.unpack(child.stdout, folder, LIMITS)
        while child.stdout.read(archive.CHUNK):
            pass  # blocks of zeros fill the archive's last record
    except (ArchiveError, OSError) as error:
        child.kill()
        raise HostError(
            f"a guest sends something other than files of its jobs: {error}", hint
        ) from error
    finally:
        status = child.wait()
        late.cancel()
    if status != 0:
        raise HostError(
            f"what jobs recorded cannot be fetched: ssh ended with status {status}", hint
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
