# SPDX-License-Identifier: GPL-3.0-or-later
import dataclasses
import os
import signal
import sys
from pathlib import Path

from satlab.common.processes import read_process, wait
from satlab.openbach import job_process
from satlab.openbach.job_process import JobProcess

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.fork() or os.getpid(), flush=True)
time.sleep(60)
"""


def stopped(tmp_path: Path, *argv: str, moments: tuple[float, ...] = (0.0,)) -> tuple[int, str]:
    """Start a program, stop it once it has said something; return its status and its log.

    `moments`: the times at which the stop is continued; the last one stays.
    """
    log = tmp_path / "log"
    process = JobProcess(
        argv,
        stop_argv=["echo", "after"],
        environment={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        log=log,
    )
    assert wait(lambda: log.read_text().strip() != "", 120)
    process.stop()
    for now in moments:
        process.poll(now)
    assert wait(lambda: process.poll(moments[-1]) is not None, 120)
    status = process.poll(moments[-1])
    assert status is not None
    process.close()
    return status, log.read_text()


def test_a_job_is_asked_to_end_then_its_stop_command_runs(tmp_path: Path) -> None:
    said = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    assert stopped(tmp_path, "sh", "-c", said) == (3, "up\nbye\nafter\n")


def test_a_job_that_will_not_end_is_killed_with_its_session(tmp_path: Path) -> None:
    moments = (0.0, job_process.STOP_S)
    status, log = stopped(tmp_path, sys.executable, "-c", STUBBORN, moments=moments)
    assert status == -signal.SIGKILL
    pids = [int(line) for line in log.splitlines() if line.isdecimal()]
    processes = [process for pid in pids if (process := read_process(pid)) is not None]
    assert pids and not any(process.alive for process in processes)


def test_a_stop_command_that_does_not_end_has_time_to_end_in_order(tmp_path: Path) -> None:
    orderly = "trap 'echo in order; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    log = tmp_path / "log"
    process = JobProcess(
        ["sleep", "60"],
        stop_argv=["sh", "-c", orderly],
        environment=os.environ | {"HOME": str(tmp_path)},
        log=log,
    )
    process.stop()
    assert wait(lambda: process.poll(0.0) is None and "up" in log.read_text(), 120)
    process.poll(0.0)
    assert wait(lambda: process.poll(job_process._COMMAND_STOP_S) is not None, 120)
    process.close()
    assert log.read_text() == "up\nin order\n"


def test_a_recycled_pid_is_not_signalled() -> None:
    own = read_process(os.getpid())
    assert own is not None
    stranger = dataclasses.replace(own, start_ticks=own.start_ticks + 1)
    assert not stranger.alive
    stranger.send(signal.SIGKILL)
