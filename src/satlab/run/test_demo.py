# SPDX-License-Identifier: GPL-3.0-or-later
"""README's first command, without a lab: what it runs, shows and ends with."""

import json
import threading
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars
import pytest

import collect
from satlab import report
from satlab.common import console, needs, paths
from satlab.common.errors import ExitStatus
from satlab.run import scenario_run
from satlab.run.demo import Demo
from satlab.run.lab_session import QUIET
from satlab.run.run_folder import RunResult
from satlab.run.scenario_run import RunRequest

NOTHING = collect.Collected(
    polars.DataFrame({"metric": ["goodput_bps"]}), collect.Stored(loads=[], legs=[])
)


@dataclass
class Runs:
    """Stand-in for runs: records what was prepared, and ends each attempt with the next of the
    given statuses.
    """

    statuses: list[ExitStatus]
    prepared: list[RunRequest] = field(default_factory=list)
    reports: list[tuple[list[Path], Path, str]] = field(default_factory=list)

    def prepare(self, request: RunRequest) -> Any:
        self.prepared.append(request)
        return SimpleNamespace(request=request, number=len(self.prepared))

    def execute(self, prepared: Any, *_: object) -> RunResult:
        folder = prepared.request.runs / f"run-{prepared.number}"
        folder.mkdir(parents=True)
        status = self.statuses[prepared.number - 1]
        return RunResult(folder, status, "a reason" if status else "", NOTHING)

    def build(self, records: dict[Path, Any], page: Path, title: str) -> None:
        self.reports.append((list(records), page, title))
        page.write_text("<html>")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs([ExitStatus.OK])
    monkeypatch.setattr(scenario_run, "prepare", found.prepare)
    monkeypatch.setattr(scenario_run, "execute", found.execute)
    monkeypatch.setattr(report, "build", found.build)
    return found


def test_a_download_and_pages_over_both_protocols_are_one_run_with_one_report(
    runs: Runs, tmp_path: Path
) -> None:
    shown: list[tuple[list[Path], int]] = []
    status = Demo("leo", 15, 3, tmp_path).run(
        QUIET, threading.Event(), lambda pages, frames: shown.append((pages, len(frames)))
    )
    (request,) = runs.prepared
    assert (request.scenario, request.settings) == (
        paths.SCENARIOS / "demo.json",
        {"duration": "15", "runs": "3"},
    )
    assert (request.link.profile, request.runs, request.report) == ("leo", tmp_path, False)
    page = tmp_path / "run-1-demo.html"
    assert runs.reports == [([tmp_path / "run-1"], page, "satlab demo over leo")]
    assert (shown, status) == ([([page], 1)], ExitStatus.OK)


def test_what_ran_before_a_stop_is_shown(runs: Runs, tmp_path: Path) -> None:
    runs.statuses = [ExitStatus.INTERRUPTED]
    shown: list[int] = []
    status = Demo("geo", 15, 3, tmp_path).run(
        QUIET, threading.Event(), lambda _, frames: shown.append(len(frames))
    )
    assert (shown, status) == ([1], ExitStatus.INTERRUPTED)


def test_one_measurement_follows_the_other() -> None:
    """Whoever measures waits, by one function or several, for the one that measured before."""
    functions = {
        one["id"]: one
        for one in json.loads((paths.SCENARIOS / "demo.json").read_text())["openbach_functions"]
    }

    def before(number: int) -> set[int]:
        wait = functions[number].get("wait", {})
        direct = {*wait.get("finished_ids", ()), *wait.get("launched_ids", ())}
        return direct.union(*(before(one) for one in direct))

    measuring = [
        number
        for number, one in functions.items()
        if "client" in str(one.get("start_job_instance", {}))[:40]
    ]
    assert len(measuring) == 3
    for earlier, later in pairwise(measuring):
        assert earlier in before(later)


@pytest.mark.parametrize(
    ("statuses", "exit_status"), [([0], 0), ([4, 0], 0), ([4, 4], 4), ([4, 1], 1)]
)
def test_the_command_as_it_stands_in_the_readme(
    statuses: list[int],
    exit_status: int,
    runs: Runs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from satlab import cli

    checked: list[tuple[str, ...]] = []
    monkeypatch.setattr(needs, "ensure", lambda *groups: checked.append(groups))
    monkeypatch.setattr(needs, "root", lambda why: checked.append((why,)))
    monkeypatch.setattr(
        report,
        "terminal_tables",
        lambda frames, _: [
            console.table(f"{len(cast(list[Any], frames))} tables", ("what there is",), ())
        ],
    )
    monkeypatch.chdir(tmp_path)
    runs.statuses = [ExitStatus(status) for status in statuses]
    with pytest.raises(SystemExit) as ended:
        cli.app(["demo"])
    assert ended.value.code == exit_status
    assert checked == [("lab",), (needs.NETNS,)]
    assert {tuple(one.settings.items()) for one in runs.prepared} == {
        (("duration", "15"), ("runs", "1"))
    }
    assert {one.link.profile for one in runs.prepared} == {"geo"}
    printed = capfd.readouterr().out
    assert "1 tables" in printed
    assert f"runs/run-{len(statuses)}-demo.html" in printed
