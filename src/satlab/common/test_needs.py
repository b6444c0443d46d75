# SPDX-License-Identifier: GPL-3.0-or-later
import os
import sys
from pathlib import Path

import pytest

from satlab.common import install, needs
from satlab.common.errors import HostError


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if ./satlab had started this process."""
    monkeypatch.setenv("SATLAB_LAUNCHER", "/satlab")
    monkeypatch.setattr(needs._Started, "by", None)
    needs.started_by_launcher()
    return Path("/satlab")


@pytest.mark.usefixtures("launcher")
def test_what_a_command_needs_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []
    monkeypatch.setattr(install, "install", lambda *groups: installed.extend(groups))
    needs.ensure("lab", "virtual")
    assert installed == ["lab", "virtual"]


@pytest.mark.usefixtures("launcher")
def test_children_do_not_install() -> None:
    assert "SATLAB_LAUNCHER" not in os.environ


def test_a_user_becomes_root_by_sudo(launcher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "execv", lambda _, argv: calls.append(argv))
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/sudo")
    monkeypatch.setattr(sys, "argv", ["satlab", "up", "--profile", "leo"])
    for name in [name for name in os.environ if name.startswith("SATLAB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SATLAB_INFLUX", "http://127.0.0.1:8086")
    needs.root("a lab")
    keep = "--preserve-env=SATLAB_INFLUX"
    assert calls == [
        ["/usr/bin/sudo", keep, str(launcher.with_name("satlab")), "up", "--profile", "leo"]
    ]


def test_without_sudo_the_remedy_is_named(launcher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(HostError, match="not root: a lab") as caught:
        needs.root("a lab")
    assert "as root" in str(caught.value.hint)
