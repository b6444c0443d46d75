# SPDX-License-Identifier: GPL-3.0-or-later
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from satlab.common.processes import read_process
from satlab.openbach.job_process import JobProcess

# Each way in which a descendant can be related to its job, and only that way.
PROGRAM = """
import os, subprocess, sys, time
wait = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
if sys.argv[1] == "session":  # an orphan, since its parent ends, with an environment of its own
    command = ["sh", "-c", sys.executable + ' -c "' + wait + '" &']
    subprocess.Popen(command, env={})
elif sys.argv[1] == "parent":
    subprocess.Popen([sys.executable, "-c", wait], env={}, start_new_session=True)
else:  # an orphan in a session of its own
    subprocess.Popen(["setsid", "-f", sys.executable, "-c", wait])
time.sleep(60)
"""


@pytest.mark.parametrize("relation", ["session", "parent", "environment"])
def test_descendants_are_ended_however_they_are_related(tmp_path: Path, relation: str) -> None:
    marks = {"SATLAB_RAW": str(tmp_path), "JOB_INSTANCE_ID": "1"}
    log = tmp_path / "log"
    process = JobProcess(
        [sys.executable, "-c", PROGRAM, relation],
        stop_argv=[],
        environment={"PATH": os.environ["PATH"], **marks},
        folder=tmp_path,
        log=log,
        marks=marks,
    )
    deadline = time.monotonic() + 10
    while not log.read_text().strip() and time.monotonic() < deadline:
        time.sleep(0.02)
    descendant = read_process(int(log.read_text()))
    assert descendant is not None
    try:
        process.stop()
        while (status := process.poll(time.monotonic())) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert status == -signal.SIGTERM
        assert not descendant.alive
    finally:
        descendant.send(signal.SIGKILL)
        process.close()


def test_a_recycled_pid_is_not_signalled() -> None:
    own = read_process(os.getpid())
    assert own is not None
    stranger = type(own)(own.pid, own.parent, own.session, own.start_ticks + 1, dead=False)
    assert not stranger.alive
    stranger.send(signal.SIGKILL)
