# SPDX-License-Identifier: GPL-3.0-or-later
"""README's first command, without a lab: what it runs, shows and ends with."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars
import pytest

import collect
from satlab import report
from satlab.common import needs, paths
from satlab.common.errors import ExitStatus
from satlab.experiment import run
from satlab.experiment.demo import Demo, gravest
from satlab.experiment.quiet_host import Patience
from satlab.experiment.run import RunRequest
from satlab.experiment.run_folder import RunResult
from satlab.experiment.session import QUIET

NOTHING = collect.Collected(polars.DataFrame({"metric": ["goodput_bps"]}), collect.Stored(loads=[], legs=[]))


@dataclass
class Runs:
    """Stand-in for runs: records what was prepared, and ends each with a given result."""

    statuses: list[ExitStatus]
    prepared: list[RunRequest] = field(default_factory=list)
    reports: list[tuple[list[Path], Path, str]] = field(default_factory=list)
    on_execute: Callable[[], None] = lambda: None

    def prepare(self, request: RunRequest) -> Any:
        self.prepared.append(request)
        return SimpleNamespace(request=request, number=len(self.prepared))

    def execute(self, prepared: Any, *_: object) -> RunResult:
        assert len(self.prepared) >= 3, "all runs are checked before the first one starts"
        folder = prepared.request.runs / f"run-{prepared.number}"
        folder.mkdir(parents=True)
        self.on_execute()
        status = self.statuses[prepared.number - 1]
        return RunResult(folder, status, "a reason" if status else "", NOTHING)

    def build(self, records: dict[Path, Any], page: Path, title: str) -> None:
        self.reports.append((list(records), page, title))
        page.write_text("<html>")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs([ExitStatus.OK] * 3)
    monkeypatch.setattr(run, "prepare", found.prepare)
    monkeypatch.setattr(run, "execute", found.execute)
    monkeypatch.setattr(report, "build", found.build)
    return found


def test_a_download_and_pages_over_both_protocols_are_shown_in_one_report(runs: Runs, tmp_path: Path) -> None:
    shown: list[tuple[list[Path], int]] = []
    status = Demo("leo", 15, 3, tmp_path).run(
        QUIET, threading.Event(), lambda pages, frames: shown.append((pages, len(frames)))
    )
    bulk, h1, h3 = runs.prepared
    assert (bulk.scenario, bulk.settings) == (paths.SCENARIOS / "bulk_tcp.json", {"duration": "15"})
    assert h1.scenario == h3.scenario == paths.SCENARIOS / "page_load.json"
    assert [one.settings for one in (h1, h3)] == [{"protocol": name, "runs": "3"} for name in ("h1", "h3")]
    assert all(one.link.profile == "leo" and one.runs == tmp_path and not one.report for one in runs.prepared)
    page = tmp_path / "run-1-demo.html"
    assert runs.reports == [([tmp_path / f"run-{n}" for n in (1, 2, 3)], page, "satlab demo over leo")]
    assert (shown, status) == ([([page], 3)], ExitStatus.OK)


def test_what_a_busy_host_spoilt_is_measured_once_more(runs: Runs, tmp_path: Path) -> None:
    runs.statuses = [ExitStatus.OK, ExitStatus.UNCALIBRATED, ExitStatus.OK, ExitStatus.OK]
    status = Demo("leo", 15, 3, tmp_path, Patience(retries=1)).run(QUIET, threading.Event(), lambda *_: None)
    assert runs.prepared[3] == runs.prepared[1]
    assert runs.reports[0][0] == [tmp_path / f"run-{n}" for n in (1, 4, 3)]
    assert status is ExitStatus.OK


def test_what_ran_before_a_stop_is_shown(runs: Runs, tmp_path: Path) -> None:
    stop = threading.Event()
    runs.on_execute, runs.statuses = stop.set, [ExitStatus.INTERRUPTED] * 3
    shown: list[int] = []
    status = Demo("geo", 15, 3, tmp_path).run(QUIET, stop, lambda _, frames: shown.append(len(frames)))
    assert (shown, status) == ([1], ExitStatus.INTERRUPTED)


def test_the_gravest_status_of_the_runs_counts() -> None:
    ok, marked, failed, stopped = (
        ExitStatus.OK, ExitStatus.UNCALIBRATED, ExitStatus.FAILED, ExitStatus.INTERRUPTED,
    )  # fmt: skip
    assert gravest([ok, ok]) is ok
    assert gravest([ok, marked, ok]) is marked
    assert gravest([marked, failed]) is failed
    assert gravest([failed, stopped, ok]) is stopped


@pytest.mark.parametrize(
    ("statuses", "exit_status"), [([0, 0, 0], 0), ([0, 4, 0, 0], 0), ([0, 4, 0, 4], 4), ([0, 4, 1, 4], 1)]
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
    monkeypatch.setattr(report, "terminal_tables", lambda frames: [f"{len(cast(list[Any], frames))} tables"])
    monkeypatch.chdir(tmp_path)
    runs.statuses = [ExitStatus(status) for status in statuses]
    with pytest.raises(SystemExit) as ended:
        cli.app(["demo"])
    assert ended.value.code == exit_status
    assert checked == [("lab",), (needs.NETNS,)]
    assert [dict(one.settings) for one in runs.prepared[:3]] == [
        {"duration": "15"}, {"protocol": "h1", "runs": "3"}, {"protocol": "h3", "runs": "3"},
    ]  # fmt: skip
    assert {one.link.profile for one in runs.prepared} == {"geo"}
    printed = capfd.readouterr().out
    assert "3 tables" in printed
    assert "runs/run-1-demo.html" in printed
