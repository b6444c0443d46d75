# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run prints at its end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import collect
from collect.fixtures import example_run
from satlab import cli
from satlab.cli import base
from satlab.common import paths
from satlab.common.errors import ExitStatus


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
    assert base.named_logs("out of calibration", tmp_path) == []


@pytest.mark.parametrize("words", [["run", "ping", "--runs", "5"], ["run", "ping", "--jobs", "4"]])
def test_a_number_is_no_folder(words: list[str]) -> None:
    result = CliRunner().invoke(cli.app, [*words, "--dry-run"])
    assert result.exit_code == 2
    assert "here it is a folder" in result.output


def test_quiet_prints_nothing_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = example_run.write(tmp_path, example_run.Example())
    frames = [collect.gather(folder).lazy().collect()]
    base.print_records([folder], frames, json_lines=False, csv=False, quiet=True)
    assert capsys.readouterr().out == ""
    base.print_records([folder], frames, json_lines=True, csv=False, quiet=True)
    assert "goodput_bps" in capsys.readouterr().out


def test_a_run_that_did_not_end_well_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base.print_reason(tmp_path / "r1", "out of calibration: other programs")
    assert capsys.readouterr().err == "r1: out of calibration: other programs\n"
    base.print_reason(tmp_path / "r1", "")
    assert capsys.readouterr().err == ""


HEAVY = {"pydantic", "rich", "jinja2", "polars", "pyarrow", "plotly", "urllib.request", "asyncio"}
"""Modules whose import takes longer than all that a short command does."""


@pytest.mark.parametrize("words", [["--help"], ["list"], ["--version"], ["rn"]])
def test_short_commands_import_nothing_heavy(words: list[str]) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules, file=sys.stderr));"
        "from satlab.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": paths.PYTHONPATH},
    )
    modules = set(done.stderr.splitlines()[-1].split())
    assert "satlab.cli.run" in modules, done.stderr
    assert not modules & HEAVY


def test_help_has_the_whole_sentence_of_a_command() -> None:
    output = " ".join(CliRunner().invoke(cli.app, ["--help"]).output.split())
    assert "compare the figures with the published ones." in output
    assert "..." not in output.replace("COMMAND [ARGS]...", "")


def test_an_argument_of_a_scenario_as_an_option_is_named_with_set() -> None:
    said = CliRunner().invoke(cli.app, ["run", "bulk_tcp", "--duration", "15"]).output
    assert "--set duration=VALUE" in said and "--deadline" not in said
    assert "--profile" in CliRunner().invoke(cli.app, ["run", "ping", "--profil", "geo"]).output
    said = CliRunner().invoke(cli.app, ["check", "--duration", "15"]).output
    assert "No such option" in said and "--set" not in said


def test_a_choice_that_does_not_exist_ends_with_one_full_stop() -> None:
    said = CliRunner().invoke(cli.app, ["check", "--stack", "aioquic"]).output
    assert "'tcp-pep-d'." in said and ".." not in said


def test_a_folder_that_does_not_exist_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write() -> int:
        (tmp_path / "no" / "plan.json").write_text("")
        return 0

    assert base.status_of(write) == ExitStatus.HOST
    assert capsys.readouterr().err == (
        f"error: {tmp_path / 'no'}: no such folder\nhint: make it, then run the same command again\n"
    )
