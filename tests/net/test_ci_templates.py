# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of docs/ci run as they are: green on no change, red on a slowdown, with the cause
that grew.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from satlab.check.trace.causes import CAUSES
from satlab.common import paths
from satlab.common.errors import ExitStatus
from tools import try_ci_templates
from tools.try_ci_templates import Template

pytestmark = pytest.mark.net

SUITE = """
schema: satlab/suite/1
name: ci
source: the test
link: {rtt_ms: 650, queue_bdp: 1.0}
runs: 10
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
GIT = "git -c user.name=test -c user.email=test@example.org -c init.defaultBranch=main".split()


def repository(tmp_path: Path, fault: str, template: Template) -> Path:
    """A repository of a QUIC stack, and satlab's, which the template fetches."""
    place, origin = tmp_path / "stack", tmp_path / "origin"
    if not origin.is_dir():
        origin.mkdir()
        suite = tmp_path / "brief.yml"
        suite.write_text(SUITE)
        launcher = origin / "satlab"
        launcher.write_text(
            LAUNCHER.format(python=sys.executable, suite=suite, path=paths.PYTHONPATH)
        )
        launcher.chmod(0o755)
        (origin / "docs" / "ci").mkdir(parents=True)
        shutil.copy(try_ci_templates.TEMPLATES / "action.sh", origin / "docs" / "ci")
        for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "satlab")):
            subprocess.run([*GIT, *words], cwd=origin, check=True)
        if template.has_checkout:
            subprocess.run([*GIT, "clone", "-q", str(origin), str(place / "satlab")], check=True)
    shutil.rmtree(place / "stack", ignore_errors=True)
    try_ci_templates.put_stack(place, fault, str(Path(sys.executable).resolve()))
    return place


def shell(place: Path, script: str, **variables: str) -> int:
    environment = os.environ | variables
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=place, env=environment, check=False
    ).returncode


def job(template: Template, place: Path, *, is_main: bool) -> int:
    """Run a job as `try_ci_templates` does, without its container; caches stay where they are."""
    branch = (
        {template.branch_variable: "main" if is_main else "change"}
        if template.branch_variable
        else {}
    )
    variables = {**template.variables, **branch}
    status = shell(place, template.script, **variables)
    if is_main and status == 0:
        assert shell(place, template.keeps, **variables) == 0
    assert shell(place, template.after, **variables) == 0  # without a token nothing is sent
    return status


@pytest.mark.parametrize("service", ["github-actions", "gitlab-ci", "github-action"])
@pytest.mark.promise("P83")
def test_a_template_is_green_without_a_change_and_red_on_a_slowdown_with_its_cause(
    service: str, tmp_path: Path
) -> None:
    origin = str(tmp_path / "origin")
    every = (
        try_ci_templates.github(),
        try_ci_templates.gitlab(origin),
        try_ci_templates.action(origin),
    )
    [template] = [one for one in every if one.service == service]
    place = repository(tmp_path, "none", template)
    assert (
        job(template, place, is_main=True) == ExitStatus.OK
        and (place / "baseline" / "check.json").is_file()
    )
    assert job(template, place, is_main=False) == ExitStatus.OK
    repository(tmp_path, "static", template)
    assert job(template, place, is_main=False) == ExitStatus.FAILED
    results = place / template.results
    [compared] = json.loads((results / "check.json").read_text())["compared"]
    assert compared["is_slower"] and compared["grew"] in CAUSES
    comment = (results / "check.md").read_text()
    assert (
        "grew most" in comment and compared["grew"] in comment and (results / "check.xml").is_file()
    )
    built = (
        set() if service == "github-action" else {"satlab/target", "satlab/.venv", "satlab/.satlab"}
    )
    assert {"baseline"} | built == set(template.cached)
    assert all((place / name).exists() for name in template.artifacts)
