# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of docs/ci run as they are: green on no change, red on a slowdown, with the cause that grew."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from satlab.check.trace.causes import CAUSES
from satlab.common import paths
from satlab.common.errors import ExitStatus

pytestmark = pytest.mark.net

TEMPLATES = paths.ROOT / "docs" / "ci"
PLANTED = paths.ROOT / "tests/endpoints/planted/lockstep.py"
SUITE = """
schema: satlab/suite/1
name: ci
source: the test
link: {rtt_ms: 650, queue_bdp: 1.0}
marks_mb: [0.1]
cases:
  - {id: medium, forward_mbps: 50, return_mbps: 10, targets_s: [null], timeout_s: 120}
"""
LAUNCHER = """#!{python}
import os, sys
words = ["{suite}" if word == "ci" else word for word in sys.argv[1:]]
os.environ["PYTHONPATH"] = "{path}"
os.execv("{python}", ["{python}", "-m", "satlab", *words])
"""
"""Stands in for ./satlab, which would install packages; its suite ci has one short case."""
Run = Callable[[Path, bool], int]


def repository(tmp_path: Path) -> Path:
    """A repository of a QUIC stack, with satlab next to it as the templates fetch it."""
    for folder in ("satlab", "build"):
        (tmp_path / folder).mkdir()
    suite = tmp_path / "brief.yml"
    suite.write_text(SUITE)
    shutil.copy(PLANTED, tmp_path / "build" / "planted.py")
    launcher = tmp_path / "satlab" / "satlab"
    launcher.write_text(LAUNCHER.format(python=sys.executable, suite=suite, path=paths.PYTHONPATH))
    launcher.chmod(0o755)
    return tmp_path


def build(place: Path, fault: str) -> None:
    """Build the stack's adapter."""
    program = place / "build" / "lockstep"
    program.write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} "$(dirname "$0")/planted.py" {fault}\n')
    program.chmod(0o755)


def shell(place: Path, script: str, **variables: str) -> int:
    environment = os.environ | variables
    return subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=place, env=environment, check=False).returncode


def github(place: Path, is_main: bool) -> int:
    [job] = yaml.safe_load((TEMPLATES / "github-actions.yml").read_text())["jobs"].values()
    [check] = [step["run"] for step in job["steps"] if step.get("name") == "satellite suite"]
    [keep] = [step["run"] for step in job["steps"] if step.get("if") == "github.event_name == 'push'" and "run" in step]
    summary = [step["run"] for step in job["steps"] if "GITHUB_STEP_SUMMARY" in step.get("run", "")]
    status = shell(place, check)
    assert len(summary) == 1 and shell(place, summary[0], GITHUB_STEP_SUMMARY=str(place / "summary.md")) == 0
    if is_main:
        assert shell(place, keep) == 0
    return status


def gitlab(place: Path, is_main: bool) -> int:
    job = yaml.safe_load((TEMPLATES / "gitlab-ci.yml").read_text())["satellite"]
    lines = [line for line in job["script"] if "git " not in line and "make lockstep" not in line]
    assert len(lines) == 2
    branch = "main" if is_main else "change"
    status = shell(place, "\n".join(lines), CI_COMMIT_BRANCH=branch, CI_DEFAULT_BRANCH="main")
    assert shell(place, "\n".join(job["after_script"])) == 0  # without a token nothing is sent
    return status


@pytest.mark.parametrize("run", [github, gitlab])
def test_a_template_is_green_without_a_change_and_red_on_a_slowdown_with_its_cause(run: Run, tmp_path: Path) -> None:
    place = repository(tmp_path)
    build(place, "none")
    assert run(place, True) == ExitStatus.OK and (place / "baseline" / "check.json").is_file()
    assert run(place, False) == ExitStatus.OK
    build(place, "static")
    assert run(place, False) == ExitStatus.FAILED
    [compared] = json.loads((place / "check.json").read_text())["compared"]
    assert compared["is_slower"] and compared["grew"] in CAUSES
    comment = (place / "check.md").read_text()
    assert "grew most" in comment and compared["grew"] in comment and (place / "check.xml").is_file()
