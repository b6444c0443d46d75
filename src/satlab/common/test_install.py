# SPDX-License-Identifier: GPL-3.0-or-later
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from satlab.common import install
from satlab.common.errors import ConfigError, HostError
from satlab.common.paths import ROOT


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with an environment and without programs."""
    for folder in ("crates", ".satlab", ".venv/bin", "target/release", "src/satlab/report/plots"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("Cargo.toml", "Cargo.lock", "uv.lock", ".venv/bin/python"):
        (tmp_path / file).write_text("content\n")
    for name in ("ROOT", "STATE", "LOG", "VENV", "UV", "LAUNCHER", "LOCK"):
        place = tmp_path / getattr(install, name).relative_to(ROOT)
        monkeypatch.setattr(install, name, place)
    return tmp_path


def work(*groups: str) -> install._Installation:
    return install._Installation(groups, "release")


def test_an_unknown_group_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="no group lap") as caught:
        install.install("lab", "lap")
    assert "lockstep" in caught.value.hint


def test_a_group_has_what_it_includes_once() -> None:
    lab = install._flatten(("lab", "virtual"))
    assert lab.programs == ("satlink", "satbox", "satvirtual")
    assert lab.packages.count("gcc") == 1


def test_a_newer_checkout_of_the_same_sources_is_not_built_again(clone: Path) -> None:
    """CI restores programs from a cache into a fresh checkout, whose files are newer."""
    program, source = clone / "target/release/satlink", clone / "crates/main.rs"
    assert not work().is_fresh("satlink")
    source.write_text("fn main() {}\n")
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    os.utime(program, (0, 0))
    (clone / ".satlab/release-satlink.sources").write_text(install.sources_sum(clone))
    assert work().is_fresh("satlink")
    source.write_text("fn main() { changed() }\n")
    assert not work().is_fresh("satlink")
    os.utime(program)
    assert work().is_fresh("satlink"), "cargo has built it"


def test_groups_of_python_packages_add_up(clone: Path) -> None:
    locked = install._environment_sum()
    assert work().missing_python(()) == ["build"], "the environment is an older satlab's"
    (clone / ".satlab/python").write_text(f"{locked} build vm\n")
    assert work().missing_python(()) == work().missing_python(("vm",)) == []
    assert work().missing_python(("campaign",)) == ["build", "campaign", "vm"]
    (clone / "uv.lock").write_text("changed\n")
    assert work().missing_python(()) == ["build", "vm"]


def test_packages_are_installed_by_sudo_or_named(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def run(argv: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        calls.append(argv)
        return subprocess.CompletedProcess(argv, 3)

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(install, "_installed", lambda: {"gcc"})
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/sudo")
    monkeypatch.setattr(subprocess, "run", run)
    assert not work("fec").debian_packages(["gcc"])
    with pytest.raises(SystemExit) as stopped:
        work("fec").debian_packages(["gcc", "make"])
    assert stopped.value.code == 3
    assert calls == [["/usr/bin/sudo", str(clone / "satlab"), "--install", "fec"]]
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(HostError, match="missing: make") as caught:
        work("fec").debian_packages(["gcc", "make"])
    assert "--install fec" in caught.value.hint


def test_only_its_owner_installs_into_a_clone(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: clone.stat().st_uid + 12345)
    with pytest.raises(HostError, match="belongs to") as caught:
        work("lab").python_environment(["build"])
    assert "satlab --install lab" in caught.value.hint


@pytest.mark.parametrize("status", [0, 1])
def test_without_npm_s_plots_all_else_is_installed(
    status: int, clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone / "npm").write_text(f'#!/bin/sh\necho "$@" >>{clone}/calls\nexit {status}\n')
    (clone / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{clone}:{os.environ['PATH']}")
    for name in ("package.json", "package-lock.json"):
        (clone / "src/satlab/report/plots" / name).write_text("{}")
    (clone / ".satlab/install.log").touch()
    work().plots()
    work().plots()
    calls = (clone / "calls").read_text().splitlines()
    assert len(calls) == 1 + status, "what is there is not installed again"
    assert ("reports have 2 MB" in capsys.readouterr().err) == bool(status)


def test_versions_are_compared_by_their_numbers() -> None:
    assert install._numbers("1.85.0+dfsg3-1") == (1, 85, 0) > (1, 85)
    assert install._numbers("1.9.1") < (1, 85)
    assert install._numbers("") < (1, 85)
