# SPDX-License-Identifier: GPL-3.0-or-later
"""The recipes of CONTRIBUTING.md, followed in copies of the tree."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from satlab.common import paths
from satlab.papers import paper, shipped_papers
from satlab.run import validate

TEXT = (paths.ROOT / "CONTRIBUTING.md").read_text()


def test_each_verb_of_make_that_is_named_exists() -> None:
    known = re.findall(r"^([a-z-]+):", (paths.ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"`make ([a-z-]+)", TEXT)
    assert len(named) > 5 and set(named) <= set(known)


def test_a_field_of_the_options_is_an_option_of_the_command_line(tmp_path: Path) -> None:
    shutil.copytree(paths.ROOT / "src", tmp_path / "src")
    for folder in ("schemas", "vagrant", "opensand-profiles", "collect"):
        (tmp_path / folder).symlink_to(paths.ROOT / folder)
    options = tmp_path / "src/satlab/link/options.py"
    field = (
        '    example_ms: Annotated[\n        float,\n        limits("forward.jitter.uniform_ms"),\n'
        '        Help("Example", "An example.", "Timing", unit="ms"),\n    ] = 0.0\n\n'
    )
    place = '    @field_validator("opensand_defects")\n'
    text = options.read_text()
    assert text.count(place) == 1
    options.write_text(text.replace(place, field + place))
    done = subprocess.run(
        [sys.executable, "-m", "satlab", "run", "--help"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}/src:{tmp_path}", "COLUMNS": "200"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "--example-ms" in done.stdout, done.stderr


def test_a_renamed_copy_of_a_job_is_a_job(tmp_path: Path) -> None:
    job = tmp_path / "satlab_example"
    shutil.copytree(paths.JOBS / "satlab_ping", job, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [path for path in job.rglob("*") if path.is_file()]:
        path.write_text(path.read_text().replace("satlab_ping", "satlab_example"))
        path.rename(path.with_name(path.name.replace("satlab_ping", "satlab_example")))
    assert validate.check(job) == []


def test_a_copy_of_a_scenario_is_a_scenario(tmp_path: Path) -> None:
    text = (paths.SCENARIOS / "bulk_tcp.json").read_text()
    scenario = tmp_path / "example.json"
    scenario.write_text(text.replace('"bulk_tcp"', '"example"'))
    assert validate.check(scenario) == []


def test_a_copy_of_a_paper_is_a_paper_and_a_row_a_published_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(paths.PAPERS / "seed-004", tmp_path / "example")
    for name in ("paper.yml", "published.csv"):
        path = tmp_path / "example" / name
        path.write_text(path.read_text().replace("seed-004", "example"))
    monkeypatch.setattr(paths, "PAPERS", tmp_path)
    monkeypatch.setitem(shipped_papers.CLOCKS, "example", ("virtual",))
    before = len(paper.load("example").published)
    with (tmp_path / "example" / "published.csv").open("a") as file:
        file.write("table2/0.0001,CUBIC,goodput_mbps,0,8.4,,2,\n")
    assert len(paper.load("example").published) == before + 1
