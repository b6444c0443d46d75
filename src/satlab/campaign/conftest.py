# SPDX-License-Identifier: GPL-3.0-or-later
import sys
from pathlib import Path

import pytest

from satlab.campaign import attempt


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a Python program that takes the place of a task's command."""
    program = tmp_path / "command.py"
    monkeypatch.setattr(attempt, "command", lambda _: [sys.executable, str(program)])
    return program
