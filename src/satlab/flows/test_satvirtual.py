# SPDX-License-Identifier: GPL-3.0-or-later
import os
from pathlib import Path

import pytest

from satlab.common import paths
from satlab.flows import satvirtual


def test_ctrl_c_reaches_no_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "satvirtual"
    # proc_pid_stat(5): process group and session. A terminal sends SIGINT to one group.
    program.write_text("#!/bin/sh\ncut -d' ' -f5,6 /proc/self/stat\n")
    program.chmod(0o755)
    monkeypatch.setattr(paths, "SATVIRTUAL", program)
    group, session = map(int, satvirtual.simulated(tmp_path / "flows.json").split())
    assert group not in (0, os.getpgid(0)) and session not in (0, os.getsid(0))
