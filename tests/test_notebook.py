# SPDX-License-Identifier: GPL-3.0-or-later
"""The notebook of the documentation runs as it is, over the table that `satlab export` writes."""

import json
from pathlib import Path

import pytest

import collect
from collect.fixtures import example_run
from collect.fixtures.example_run import Example
from satlab import report
from satlab.common import paths

NOTEBOOK = paths.ROOT / "docs" / "notebooks" / "records.ipynb"


def test_p351_the_notebook_runs_over_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = example_run.write(tmp_path, Example(loads={"h1": 4, "h3": 4}, duration_s=6.0))
    report.export({run: collect.gather(run)}, tmp_path / "records.parquet", has_series=True)
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), (
                "results of an example are not in it"
            )
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)  # noqa: S102 - our own file
    assert "Page Load Time over HTTP/3 less that over HTTP/1.1: -" in capsys.readouterr().out, (
        "HTTP/3 is faster there"
    )
    assert len(names["figure"].data) == 1  # type: ignore[attr-defined]
    assert {row["loads"] for row in names["times"].to_dicts()} == {4}  # type: ignore[attr-defined]
