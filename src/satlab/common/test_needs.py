# SPDX-License-Identifier: GPL-3.0-or-later
import os
import subprocess
import sys
from pathlib import Path

import pytest

from satlab.common import needs, paths
from satlab.common.errors import HostError


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A launcher that notes its arguments and fails for the group quic."""
    script = tmp_path / "satlab"
    script.write_text(
        f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\ncase "$*" in *quic*) exit 3;; esac\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("SATLAB_LAUNCHER", str(script))
    monkeypatch.setattr(needs._Started, "by", None)
    needs.started_by_launcher()
    return tmp_path / "calls"


def test_the_launcher_installs_what_a_command_needs(launcher: Path) -> None:
    needs.ensure("lab", "virtual")
    assert launcher.read_text() == "--install lab virtual\n"
    with pytest.raises(SystemExit) as stopped:
        needs.ensure("quic")
    assert stopped.value.code == 3


def test_children_do_not_install(launcher: Path) -> None:
    child = "from satlab.common import needs; needs.started_by_launcher(); needs.ensure('lab')"
    subprocess.run(
        [sys.executable, "-c", child], check=True, env=os.environ | {"PYTHONPATH": paths.PYTHONPATH}
    )
    assert not launcher.exists()


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
