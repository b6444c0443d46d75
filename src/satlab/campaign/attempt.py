# SPDX-License-Identifier: GPL-3.0-or-later
"""One attempt at a task on this host: runs the command of its request in a folder."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from satlab.campaign import task_record
from satlab.campaign import task_request as requests
from satlab.campaign.plan_file import Task
from satlab.campaign.task_record import Ended
from satlab.campaign.task_request import Request
from satlab.common import paths, processes
from satlab.common.errors import ExitStatus

STOP_S = 60.0
"""Time from SIGTERM to SIGKILL, s, in which a run takes its lab down."""
REASON_CHARACTERS = 400
VIRTUAL_BYTES = 4 << 30
"""Address space of flows on the virtual clock."""
Measure = Callable[[Task, Path, float, int, threading.Event], Ended | None]
"""Runs a task's command in a folder. Arguments: task, folder, deadline in s, descriptor of the
task's lock, stop. Returns how the command ended; None if `stop` was set first. Raises HostError if
the host was lost.
"""


def here(
    task: Task, place: Path, deadline_s: float, lock: int, stop: threading.Event
) -> Ended | None:
    """Run a task's command on this host (`Measure`). The command inherits the lock."""
    return run(task.request, place, deadline_s, lock, stop)


def run(
    request: Request, place: Path, deadline_s: float, lock: int, stop: threading.Event
) -> Ended | None:
    """Run the command of a request on this host.

    Raises ConfigError: this host lacks something that the request names.
    """
    argv = command(request)
    for name, content in requests.files(request).items():
        (place / name).write_text(json.dumps(content))
    host, began, before_s = task_record.this_host(), time.time(), processes.children_cpu_s()
    status = _run(argv, place, lock, deadline_s, stop)
    if stop.is_set():
        return None
    return Ended(
        host=host,
        began_unix_s=began,
        ended_unix_s=time.time(),
        cpu_s=processes.children_cpu_s() - before_s,
        exit_status=ExitStatus.FAILED if status is None else status,
        reason=""
        if status == ExitStatus.OK
        else _reason(status, place / task_record.LOG, deadline_s),
    )


def command(request: Request) -> list[str]:
    """Return the words of the command that runs a request with our programs. The command gets
    SIGTERM when its worker ends.
    """
    name, *words = request.words()
    # Of flows the virtual clock holds all packets: a link of others may have room for terabytes.
    program = {
        "satlab": [sys.executable, "-m", "satlab"],
        "satvirtual": ["prlimit", f"--as={VIRTUAL_BYTES}", str(paths.SATVIRTUAL)],
    }[name]
    return ["setpriv", "--pdeathsig", "TERM", "--", *program, *words]


def _run(
    argv: list[str], place: Path, lock: int, deadline_s: float, stop: threading.Event
) -> int | None:
    """Return the exit status of a command; None at its deadline."""
    with (
        (place / task_record.OUTPUT).open("wb") as output,
        (place / task_record.LOG).open("wb") as log,
    ):
        child = subprocess.Popen(
            argv, cwd=place, stdin=lock, stdout=output, stderr=log, start_new_session=True
        )
        ended = processes.wait(lambda: child.poll() is not None or stop.is_set(), deadline_s)
        if child.poll() is None:
            _end(child)
        return child.returncode if ended else None


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a command and all processes of its session."""
    for number, within_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(within_s)
            return


def _reason(status: int | None, log: Path, deadline_s: float) -> str:
    if status is None:
        return f"deadline: not ended within {deadline_s:g} s"
    text = processes.log_tail(log) or ""
    for folder in (log.parent, paths.ROOT):  # others read the reason: without folders of this host
        text = text.replace(f"{folder.resolve()}/", "")
    words = " | ".join(text.strip().splitlines())[-REASON_CHARACTERS:]
    return f"exit status {status}: {words}" if words else f"exit status {status}"
