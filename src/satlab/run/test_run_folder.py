# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run folder says of runs that end in every way."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars
import pytest

import collect
from satlab.common import paths
from satlab.common.errors import ExitStatus, HostError
from satlab.openbach.runner import JobProgress, Outcome, ScenarioResult
from satlab.run import run_folder, sandboxed_reader
from satlab.run.lab_session import QUIET
from satlab.run.run_folder import RunFolder, RunPlan, RunResult
from satlab.run.test_lab_session import GOOD, LATE, FakeHost

LINK: Any = SimpleNamespace(profile_sha256="0" * 64, model_dump=lambda **_: {})
PLAN = RunPlan(
    run_id="r1",
    scenario=cast(Any, SimpleNamespace(name="ping", values={"count": "3"})),
    file=paths.SCENARIOS / "ping.json",
    link=LINK,
    profile="geo",
    emulator="satlink",
    seed=7,
)


class Host(FakeHost):
    """A lab whose release errors are fine, unless `late`."""

    late = False

    def release_errors(self, *_: object) -> list[Any]:
        return [LATE if self.late else GOOD]


def one_record(metric: str, status: str) -> collect.Collected:
    return collect.Collected(records(metric, None, status), collect.Stored(loads=[], legs=[]))


def records(metric: str, t_s: float | None, status: str) -> polars.DataFrame:
    columns = {"metric": [metric], "t_s": [t_s], "status": [status], "reason": [""]}
    return polars.DataFrame(columns, schema_overrides={"t_s": polars.Float64})


@pytest.fixture(autouse=True)
def collected(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders whose records were made, which are as good as the manifest says: there are no raw
    files.
    """
    folders: list[Path] = []

    def collect_records(folder: Path) -> collect.Collected:
        assert json.loads((folder / "manifest.json").read_text())["status"] != "running"
        folders.append(folder)
        return one_record("goodput_bps", "ok")

    monkeypatch.setattr(sandboxed_reader, "collected", collect_records)
    return folders


def ended(outcome: Outcome, reason: str = "") -> ScenarioResult:
    return ScenarioResult(outcome, "Finished", reason, 0.0, 1.0, ())


def record(
    tmp_path: Path, host: Host, scenario: Callable[..., ScenarioResult]
) -> tuple[RunResult, dict[str, Any]]:
    folder = RunFolder(tmp_path / "runs" / "r1")
    stop = threading.Event()
    result = folder.record(
        PLAN, {"satlink": "1"}, host, lambda *given: scenario(*given, stop), QUIET, stop, None
    )
    return result, manifest(tmp_path)


def manifest(tmp_path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((tmp_path / "runs" / "r1" / "manifest.json").read_text())
    collect.Manifest.model_validate(document)
    return document


def test_a_run_that_went_well_leaves_all_its_files(tmp_path: Path, collected: list[Path]) -> None:
    seen = []

    def scenario(
        lab: str, on_event: Callable[[JobProgress], None], halt: threading.Event, _: object
    ) -> ScenarioResult:
        about = manifest(tmp_path)
        seen.append((lab, about["status"], about["exit_status"], halt.is_set()))
        on_event(JobProgress(0.0, 1, "echo", "satlab_ping", "client", "Running"))
        return ended("ok")

    result, about = record(tmp_path, Host(), scenario)
    assert seen == [("the lab", "running", None, False)]
    assert (result.status, result.reason) == (ExitStatus.OK, "")
    assert (about["status"], about["exit_status"], about["seed"]) == ("ok", 0, 7)
    assert "raw/calibration.json" in about["files"]
    calibration = json.loads((result.folder / "raw" / "calibration.json").read_text())
    assert (calibration["run_id"], calibration["ok"], len(calibration["checks"])) == ("r1", True, 2)
    assert json.loads((result.folder / "plan.json").read_text())["arguments"] == {"count": "3"}
    assert collected == [result.folder]
    assert not (result.folder / "report").exists()


@pytest.mark.parametrize(
    ("outcome", "late", "status", "reason", "word"),
    [
        (
            ended("ok"),
            True,
            4,
            "out of calibration: forward packets released late 50 % (at most 1 %); repeat the"
            " measurement on a quiet host, for example with --wait-quiet 600",
            "ok",
        ),
        (ended("failed", "a job failed"), True, 1, "a job failed", "failed"),
        (
            ended("interrupted"),
            False,
            130,
            "interrupted",
            "interrupted",
        ),  # by somebody at the controller
    ],
)
def test_the_gravest_of_what_happened_is_the_status(
    outcome: ScenarioResult, late: bool, status: int, reason: str, word: str, tmp_path: Path
) -> None:
    host = Host()
    host.late = late
    result, about = record(tmp_path, host, lambda *_: outcome)
    assert (result.status, result.reason) == (status, reason)
    assert (about["exit_status"], about["status"], about["reason"]) == (status, word, reason)


def test_a_lab_that_broke_fails_the_run_whatever_the_scenario_says(tmp_path: Path) -> None:
    host = Host()

    def scenario(*_: object) -> ScenarioResult:
        host.breaks.set()
        return ended("ok")

    result, about = record(tmp_path, host, scenario)
    assert (result.status, about["reason"]) == (ExitStatus.FAILED, "satlink has ended")


def test_a_run_that_is_stopped_is_interrupted_however_its_scenario_ends(tmp_path: Path) -> None:
    def scenario(*given: Any) -> ScenarioResult:
        given[-1].set()
        return ended("failed", "a job was stopped")

    result, about = record(tmp_path, Host(), scenario)
    assert (result.status, about["status"]) == (ExitStatus.INTERRUPTED, "interrupted")


def test_an_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    def scenario(*_: object) -> ScenarioResult:
        raise KeyboardInterrupt

    result, about = record(tmp_path, Host(), scenario)
    assert (result.status, about["status"], about["exit_status"]) == (
        ExitStatus.INTERRUPTED,
        "interrupted",
        130,
    )


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (HostError("no TUN"), 3, "no TUN"),
        (ValueError("a defect"), 1, "the program ended unexpectedly"),
    ],
)
def test_the_folder_of_a_run_that_could_not_be_done_says_why(
    error: Exception, status: int, reason: str, tmp_path: Path
) -> None:
    def scenario(*_: object) -> ScenarioResult:
        raise error

    with pytest.raises(type(error)):
        record(tmp_path, Host(), scenario)
    about = manifest(tmp_path)
    assert (about["status"], about["exit_status"], about["reason"]) == ("failed", status, reason)


def test_the_records_decide_with_the_scenario_unless_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sandboxed_reader, "collected", lambda _: one_record("page_load_ms", "failed")
    )
    result = record(tmp_path, Host(), lambda *_: ended("ok"))[0]
    assert result.status is ExitStatus.FAILED
    assert result.reason.startswith("page_load_ms: ")
    about = manifest(tmp_path)
    assert (about["status"], about["exit_status"], about["reason"]) == ("failed", 1, result.reason)
    stopped = record(tmp_path / "stopped", Host(), lambda *_: ended("interrupted"))[0]
    assert stopped.status is ExitStatus.INTERRUPTED


def test_only_samples_of_the_scenario_fail_a_run() -> None:
    assert run_folder.failed_samples(records("page_load_ms", None, "failed"))
    for harmless in (
        records("calibration_check_ok", None, "failed"),
        records("page_load_ms", None, "ok"),
        records("goodput_bps", 1.0, "failed"),
    ):
        assert run_folder.failed_samples(harmless) == ""
