# SPDX-License-Identifier: GPL-3.0-or-later
"""HyStart of the host is as before in the end, whatever ends the run."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from satlab.common.errors import HostError
from satlab.common.processes import wait
from satlab.flows import hystart

RUN = """
import sys, time
from pathlib import Path
from satlab.flows import hystart
hystart.PARAMETER, hystart.LOCK = map(Path, sys.argv[1:])
with hystart.setting(False):
    print("set", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "hystart"
    file.write_text("1\n")
    monkeypatch.setattr(hystart, "PARAMETER", file)
    monkeypatch.setattr(hystart, "LOCK", tmp_path / "lock")
    return file


def test_p273_it_is_set_and_restored(parameter: Path) -> None:
    with hystart.setting(False):
        assert parameter.read_text() == "0\n"
        with pytest.raises(HostError, match="another run has set HyStart"), hystart.setting(True):
            pass
        assert parameter.read_text() == "0\n"
    assert parameter.read_text() == "1\n"
    with pytest.raises(KeyboardInterrupt), hystart.setting(False):
        raise KeyboardInterrupt
    assert parameter.read_text() == "1\n"


def test_p273_blocks_of_one_process_share_a_setting(parameter: Path) -> None:
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(hystart.setting(False))
        second.enter_context(hystart.setting(False))
        first.close()
        assert parameter.read_text() == "0\n", "the other one needs it"
    assert parameter.read_text() == "1\n"
    with hystart.setting(True):
        assert parameter.read_text() == "1\n"


def test_p273_nothing_changes_if_it_is_not_given(parameter: Path) -> None:
    parameter.unlink()
    with hystart.setting(None):
        assert not parameter.exists()


def test_p273_a_host_without_it_is_named(parameter: Path) -> None:
    parameter.unlink()
    with pytest.raises(HostError, match="hystart: No such file"), hystart.setting(True):
        pass


def test_p273_it_is_restored_after_sigkill(parameter: Path) -> None:
    argv = [sys.executable, "-c", RUN, str(parameter), str(hystart.LOCK)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "set\n"
        assert parameter.read_text() == "0\n"
        os.kill(run.pid, signal.SIGKILL)
    assert wait(lambda: parameter.read_text() == "1\n", 120)

    def is_free() -> bool:
        try:
            with hystart.setting(False):
                return True
        except HostError:
            return False

    assert wait(is_free, 120), "the lock is held until the setting is restored, and no longer"
