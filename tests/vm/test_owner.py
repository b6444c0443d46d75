# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage that receives SIGTERM, one that was killed, two at a time."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from satlab.common import paths
from satlab.common.errors import HostError
from tests.vm import owner

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.vm import owner
owner.RUN = Path(sys.argv[1])
with owner.owned("a", owner.RUN / "mounts") as left:
    assert left is None
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_stage_left_is_known_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = os.environ | {"PYTHONPATH": paths.PYTHONPATH}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], cwd=paths.ROOT, env=environment, check=False
    )
    assert done.returncode == -signal.SIGKILL
    monkeypatch.setattr(owner, "RUN", tmp_path)
    with owner.owned("a", tmp_path / "other") as left:
        assert left == tmp_path / "mounts"
    with owner.owned("a", tmp_path / "other") as left:
        assert left is None


def test_one_stage_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "RUN", tmp_path)
    with (
        owner.owned("a", tmp_path / "mounts"),
        owner.owned("b", tmp_path),
        pytest.raises(HostError, match=f"runs already, in {tmp_path}/mounts"),
        owner.owned("a", tmp_path),
    ):
        pass


@pytest.mark.parametrize("number", owner.SIGNALS)
def test_a_signal_ends_the_stage_but_not_its_clean_up(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "RUN", tmp_path)
    before = signal.getsignal(number)
    clean = False
    with pytest.raises(KeyboardInterrupt), owner.owned("a", tmp_path):
        try:
            signal.raise_signal(number)
        finally:
            with owner.unhurried():
                signal.raise_signal(number)
                clean = True
    assert clean
    assert signal.getsignal(number) == before
