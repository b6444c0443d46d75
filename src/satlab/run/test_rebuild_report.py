# SPDX-License-Identifier: GPL-3.0-or-later
import json
from pathlib import Path

import pytest

import collect
from collect.fixtures import example_run
from collect.fixtures.example_run import Example
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError
from satlab.run import rebuild_report, sandboxed_reader


@pytest.fixture(autouse=True)
def read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read runs in this process: what is under test comes after it."""

    def read(folder: Path) -> collect.Collected:
        return collect.Collected(collect.gather(folder), collect.stored(folder))

    monkeypatch.setattr(sandboxed_reader, "without_writing", read)


def test_requests_of_observed_loads_are_exported_as_har(tmp_path: Path) -> None:
    names = ("20261121-120000-one", "20261121-120000-two")
    examples = [
        Example(run_id=name, duration_s=0, loads={"h1": 1, "h3": 1}, observed=1) for name in names
    ]
    runs = [example_run.write(tmp_path, example) for example in examples]
    out = tmp_path / "loads.har"
    assert rebuild_report.export(runs, out, has_series=False) == 4 * 75
    log = json.loads(out.read_text())["log"]
    kinds = ("HTTP/1.1", "HTTP/3")
    assert [page["id"] for page in log["pages"]] == [
        f"{name} {kind} 0" for name in names for kind in kinds
    ]


def test_a_har_without_observed_loads_is_refused_with_the_way_to_get_some(tmp_path: Path) -> None:
    run = example_run.write(tmp_path, Example(duration_s=0, loads={"h1": 1}))
    with pytest.raises(ConfigError) as caught:
        rebuild_report.export([run], tmp_path / "loads.har", has_series=False)
    assert [fault.remedy for fault in caught.value.faults] == ["run with --set observed=1"]
    assert not (tmp_path / "loads.har").exists()


def test_a_run_that_is_still_written_is_named_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files have no digests yet, which is no fault of theirs."""
    monkeypatch.setattr(sandboxed_reader, "collected", sandboxed_reader.without_writing)
    run = example_run.write(tmp_path, Example(duration_s=2))
    about = json.loads((run / "manifest.json").read_text())
    open_ended = about | {"ended_unix_s": None, "status": "running", "files": {}}
    (run / "manifest.json").write_text(json.dumps(open_ended))
    said: list[str] = []
    monkeypatch.setattr(ProgressLog, "line", lambda _, text: said.append(text))
    rebuild_report.rebuild([run], tmp_path / "page.html", ProgressLog(quiet=True))
    (warning,) = said
    assert warning.startswith(f"warning: {run}: the run has not ended")
