# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run prints at its end."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import collect
from collect.fixtures import example_run
from satlab.cli import base


def test_a_run_ends_with_the_path_of_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = example_run.write(tmp_path, example_run.Example())
    frames = [collect.gather(folder).lazy().collect()]
    base.print_records([folder], frames, json_lines=False, csv=False)
    assert capsys.readouterr().out.splitlines()[-1] == str(folder)  # it has none
    (folder / "report").mkdir()
    (folder / "report" / "index.html").touch()
    base.print_records([folder], frames, json_lines=False, csv=False)
    assert capsys.readouterr().out.splitlines()[-1] == str(folder / "report" / "index.html")


def test_a_folder_of_jobs_is_absolute_for_their_sandboxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = typer.Typer()

    @app.command()
    def show(jobs: base.Jobs = None) -> None:
        print(jobs)

    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["--jobs", "mine"]).output == f"{tmp_path / 'mine'}\n"


def test_the_log_of_a_job_that_failed_has_its_whole_path(tmp_path: Path) -> None:
    reason = (
        "failed: job j of function 1 (a) ended with Error: exit status 1, see logs/j-1.log: it is"
        " broken"
    )
    assert base.named_logs(reason, tmp_path) == [tmp_path / "raw" / "logs" / "j-1.log"]
    assert base.named_logs("out of tolerance", tmp_path) == []
