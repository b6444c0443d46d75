#!/usr/bin/python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launcher of one job on a guest, started over ssh: `run-job`, with a request as the first line of
stdin.

The request is `{"run": NAME, "job": NAME, "argv": [...], "environment": {...}, "capabilities":
[NAME, ...] or null}`. The job runs as the user of jobs with these capabilities and no way to more;
null: as root. Its output is ours. A further line, or the end of stdin (the connection has gone),
stops it as OpenBACH's agent does: SIGTERM, after 2 s SIGKILL. `run-job --fetch RUN` waits for the
run's jobs to end, writes their records to stdout (tar), and removes them. Needs the standard
library alone. Exit status: the job's, 128 + N after signal N; 64 for an invalid request.
"""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HOME = Path("/var/lib/satlab/jobs")
LIBRARY = Path("/usr/lib/satlab")
USER = "satlab-jobs"
GRACE_S = 2.0
POLL_S = 0.1
FETCH_DEADLINE_S = 15.0
RUNNING = "running"
"""Mark of a job that has not ended."""
NAME = re.compile(r"(?!\.)[A-Za-z0-9_.-]{1,128}", re.ASCII)


def main() -> int:
    """Run or fetch one job."""
    os.umask(0o077)
    if sys.argv[1:2] == ["--fetch"] and len(sys.argv) == 3:
        return fetch(HOME / _name(sys.argv[2]))
    try:
        request = json.loads(sys.stdin.buffer.readline(1 << 20))
        folder = HOME / _name(request["run"]) / _name(request["job"])
        argv = [str(word) for word in request["argv"]]
        environment = {str(name): str(value) for name, value in request["environment"].items()}
        granted = request["capabilities"]
        capabilities = None if granted is None else [str(each) for each in granted]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"error: not a request: {error}", file=sys.stderr)
        return 64
    return run(folder, argv, environment, capabilities)


def _name(name: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise SystemExit(f"error: {name!r} is not the name of a run or a job")
    return name


def run(
    folder: Path, argv: list[str], environment: dict[str, str], capabilities: list[str] | None
) -> int:
    """Run a job to its end, or until it is stopped."""
    raw, mark = folder / "raw", folder / RUNNING
    raw.mkdir(parents=True)
    mark.touch()
    home = Path(
        tempfile.mkdtemp(prefix="satlab-")
    )  # short: a browser's socket in it has at most 107 bytes of path
    if capabilities is not None and os.geteuid() == 0:
        argv = dropped(argv, capabilities)
        for each in (raw, home):
            shutil.chown(each, USER, USER)
        for each in (HOME.parent, HOME, folder.parent, folder):
            each.chmod(0o711)  # the user may pass through, and list nothing
    own = {
        "HOME": str(home),
        "TMPDIR": str(home),
        "SATLAB_RAW": str(raw),
        "PYTHONPATH": str(LIBRARY / "python"),
    }
    child = subprocess.Popen(
        argv, env=environment | own, cwd=home, stdin=subprocess.DEVNULL, start_new_session=True
    )
    stopped_at: float | None = None
    while child.poll() is None:
        if stopped_at is None and select.select([sys.stdin], [], [], POLL_S)[0]:
            stopped_at = time.monotonic()
            child.terminate()
        elif stopped_at is not None:
            try:
                child.wait(POLL_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() - stopped_at > GRACE_S:
                    child.kill()
    _end_session(child.pid)
    _remove(home)
    mark.unlink()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def dropped(argv: list[str], capabilities: list[str]) -> list[str]:
    """Return the argv that runs a command as the user of jobs, with these capabilities and no
    others, for ever.
    """
    caps = ",".join(("-all", *(f"+{each}" for each in capabilities)))
    sets = (f"--bounding-set={caps}", f"--inh-caps={caps}", f"--ambient-caps={caps}")
    user = (f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs")
    return ["setpriv", *user, *sets, "--", *argv]


def _end_session(leader: int) -> None:
    """End the processes that a job has left in its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(leader, number)
        except ProcessLookupError:
            return
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            try:
                os.killpg(leader, 0)
            except ProcessLookupError:
                return
            time.sleep(POLL_S)


def _remove(folder: Path) -> None:
    """Remove what jobs have written, however deep it is."""
    subprocess.run(
        ["rm", "-rf", "--one-file-system", "--", str(folder)], stdin=subprocess.DEVNULL, check=False
    )


def fetch(folder: Path) -> int:
    """Write the records of a run's jobs to stdout, as a tar archive with a folder per job, and
    remove them.
    """
    end = time.monotonic() + FETCH_DEADLINE_S
    while any(folder.glob(f"*/{RUNNING}")) and time.monotonic() < end:
        time.sleep(POLL_S)
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for raw in sorted(folder.glob("*/raw")):
            archive.add(raw, arcname=raw.parent.name)
    _remove(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
