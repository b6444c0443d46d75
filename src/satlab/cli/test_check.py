# SPDX-License-Identifier: GPL-3.0-or-later
"""What `satlab check` installs before it starts."""

import pytest

from satlab.check.check_run import CheckRequest
from satlab.check.endpoint import lockstep
from satlab.cli import check
from satlab.common import needs


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is installed, instead of installing it; sandboxes need no root."""
    asked: list[str] = []
    monkeypatch.setattr(needs, "ensure", lambda *names: asked.extend(names))
    monkeypatch.setattr(lockstep, "needs_root", lambda: False)
    return asked


def test_programs_under_the_virtual_clock_need_no_lab(groups: list[str]) -> None:
    """A CI runner compiles two programs; it installs no browser and no web servers."""
    check._prepared(CheckRequest("ci"), [lockstep.parse("true", "true")])
    assert groups == ["lockstep"]


def test_the_library_under_the_virtual_clock_needs_no_sandbox(groups: list[str]) -> None:
    check._prepared(CheckRequest("ci"), [])
    assert groups == ["virtual"]
