# SPDX-License-Identifier: GPL-3.0-or-later
"""One job on a guest, as a local process: `python -m satlab.vm.ssh_job SSH... -- COMMAND...`.

The runner starts it like any job; it runs the command on the guest through `run-job`, passes the output on, and brings
what the job recorded into the run folder. SIGTERM is passed on; its exit status is the job's, 255 when ssh fails.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from satlab import paths
from satlab.vm.dist import LIBRARY

SEPARATOR = "--"
RUN_JOB = ["sudo", "-n", f"/{LIBRARY}/run-job"]
FETCH_DEADLINE_S = 120.0
PASSED = (
    "LANG", "PATH", "PYTHONUNBUFFERED", "SATLAB_AGENT", "JOB_NAME", "JOB_INSTANCE_ID", "SCENARIO_INSTANCE_ID",
    "OWNER_SCENARIO_INSTANCE_ID",
)  # fmt: skip
"""Of the runner's environment; folders are the guest's own."""


def main(words: Sequence[str]) -> int:
    """Run one job on a guest."""
    split = words.index(SEPARATOR)
    ssh, argv = list(words[:split]), [there(word) for word in words[split + 1 :]]
    raw = Path(os.environ["SATLAB_RAW"])
    name = f"{raw.parent.name}-{os.environ['JOB_NAME']}-{os.environ['JOB_INSTANCE_ID']}"
    environment = {key: os.environ[key] for key in PASSED if key in os.environ}
    request = json.dumps({"id": name, "argv": argv, "environment": environment})
    process = subprocess.Popen([*ssh, *RUN_JOB], stdin=subprocess.PIPE)

    def stop(_number: int, _frame: FrameType | None) -> None:
        if process.stdin and not process.stdin.closed:
            process.stdin.close()

    # A job may be stopped before it has started: the handler waits for the request to be whole.
    mask = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, mask)
    for number in mask:
        signal.signal(number, stop)
    if process.stdin:
        process.stdin.write(request.encode() + b"\n")
        process.stdin.flush()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, mask)
    status = process.wait()
    fetch([*ssh, *RUN_JOB, "--fetch", name], raw)
    return status


def there(word: str) -> str:
    """Give a word of the command as the guest has it: its own interpreter, its own folder of jobs."""
    if word == sys.executable:
        return "/usr/bin/python3"
    jobs = f"{paths.JOBS}/"
    return f"/{LIBRARY}/jobs/{word.removeprefix(jobs)}" if word.startswith(jobs) else word


def fetch(argv: Sequence[str], raw: Path) -> None:
    """Bring what a job recorded into the run's raw folder; statistics of all jobs are in one file there."""
    with tempfile.TemporaryDirectory(prefix="satlab-fetch-") as folder:
        archive = Path(folder) / "raw.tar"
        with archive.open("wb") as file:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=file, timeout=FETCH_DEADLINE_S, check=False)
        if done.returncode:
            print("error: what the job recorded could not be fetched", file=sys.stderr)
            return
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
        statistics = Path(folder) / "stats.jsonl"
        if statistics.exists():
            _append(statistics.read_bytes(), raw / "stats.jsonl")
        if (Path(folder) / "files").is_dir():
            shutil.copytree(Path(folder) / "files", raw / "files", dirs_exist_ok=True)


def _append(lines: bytes, path: Path) -> None:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
