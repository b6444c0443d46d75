# SPDX-License-Identifier: GPL-3.0-or-later
"""The commonest mistakes: one clear message with place and remedy, the designed status, no
traceback, no data.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from satlab import cli
from satlab.common import paths

BULK = paths.SCENARIOS / "bulk_tcp.json"


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def satlab(*arguments: str | Path) -> Done:
    """Run a command in this process: a Python that is started anew takes longer than most commands."""
    found = CliRunner().invoke(
        cli.app, list(map(str, arguments)), prog_name="satlab", env={"COLUMNS": "200"}
    )
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return Done(found.exit_code, found.stdout, found.stderr)


def process(*arguments: str | Path) -> Done:
    environment = os.environ | {"PYTHONPATH": paths.PYTHONPATH, "COLUMNS": "200"}
    argv = [sys.executable, "-m", "satlab", *map(str, arguments)]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    return Done(done.returncode, done.stdout, done.stderr)


def expect(done: Done, status: int, *said: str) -> None:
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    for words in said:
        assert words in done.stderr, done.stderr


def profile(tmp_path: Path, file: str, change: Callable[[str], str]) -> Path:
    folder = tmp_path / "profile"
    shutil.copytree(paths.PROFILES / "geo", folder)
    target = folder / file
    target.write_text(change(target.read_text()))
    return folder


def scenario(tmp_path: Path, change: Callable[[str], str]) -> Path:
    path = tmp_path / "changed.json"
    text = change(BULK.read_text())
    path.write_text(text.replace('"bulk_tcp"', '"changed"'))
    return path


def dry_run(path: Path, *more: str | Path) -> Done:
    return satlab("run", path, "--set", "duration=1", "--dry-run", *more)


@pytest.fixture
def slip(tmp_path: Path) -> Path:
    """A profile with a value that OpenSAND rounds."""
    return profile(
        tmp_path, "topology.xml", lambda t: t.replace("<bandwidth>50000<", "<bandwidth>50000.7<")
    )


def test_what_opensand_takes_although_it_is_wrong(
    slip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slip is a fault. It is a warning with --lenient, and where OpenSAND itself is the emulator."""
    refused = ("topology.xml", "is not allowed, OpenSAND reads 50000")
    expect(satlab("validate", slip), 2, *refused)
    warned = ("warning: ", "topology.xml", "OpenSAND reads 50000", ": ok")
    expect(satlab("validate", "--lenient", slip), 0, *warned)
    monkeypatch.setenv("SATLAB_OPENSAND", "/bin/true")
    expect(dry_run(BULK, "--profile", slip), 2, *refused)
    for options in (("--lenient",), ("--emulator", "opensand")):
        done = dry_run(BULK, "--profile", slip, *options)
        assert done.returncode == 0, done.stderr
        assert "OpenSAND reads 50000" in done.stdout


XML: dict[str, tuple[str, Callable[[str], str], tuple[str, ...]]] = {
    "malformed": ("topology.xml", lambda t: t.replace("</model>", ""), ("topology.xml:", "error:")),
    "unknown MODCOD": (
        "topology.xml",
        lambda t: t.replace("<wave_form>1<", "<wave_form>99<"),
        ("topology.xml:", "wave_form", "99"),
    ),
    "three faults": (
        "profile_gw.xml",
        lambda t: (
            t.replace("ConstantDelay", "NoDelay")
            .replace(">20.0<", ">warm<", 1)
            .replace("Gate", "Door")
        ),
        ("NoDelay", "warm", "Door"),
    ),
}


@pytest.mark.parametrize(("file", "change", "said"), XML.values(), ids=XML)
@pytest.mark.promise("P28")
def test_all_faults_of_a_profile_are_reported_at_once(
    tmp_path: Path, file: str, change: Callable[[str], str], said: tuple[str, ...]
) -> None:
    expect(dry_run(BULK, "--profile", profile(tmp_path, file, change)), 2, *said)


@pytest.mark.parametrize(
    ("change", "said"),
    [(lambda t: t.replace('"$duration"', '"$length"'), "length"), (lambda t: t[: len(t) // 2], "")],
    ids=["undefined placeholder", "no JSON"],
)
def test_a_faulty_scenario(tmp_path: Path, change: Callable[[str], str], said: str) -> None:
    expect(dry_run(scenario(tmp_path, change)), 2, "changed.json", said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", BULK, "--dry-run", "--set", "speed=9"), ("speed", "duration")),
        (("run", BULK, "--set", "duration"), ("NAME=VALUE", "hint:")),
        (("run", BULK, "--loss", "2"), ("--loss",)),
        (("orbit",), ("orbit",)),
    ],
)
def test_a_wrong_command_line(arguments: tuple[str | Path, ...], said: tuple[str, ...]) -> None:
    expect(satlab(*arguments), 2, *said)


@pytest.mark.parametrize("run", [satlab, process])
def test_unknown_profile(run: Callable[..., Done]) -> None:
    expect(run("run", BULK, "--set", "duration=1", "--profile", "meo"), 2, "meo", "geo", "leo")


def test_page_manifest_that_does_not_sum_up(tmp_path: Path) -> None:
    shutil.copytree(paths.WEB_TARGETS / "kepler", tmp_path / "kepler")
    manifest = tmp_path / "kepler" / "manifest.csv"
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(lines[:-1]))
    expect(satlab("validate", tmp_path / "kepler"), 2, "kepler", "75")


@pytest.mark.parametrize("command", [["up"], ["down"], ["status"], ["shell", "client"]])
def test_not_root(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = satlab(*command)
    assert done.returncode == 3
    assert "error: not root" in done.stderr
    assert "hint: run the same command as root" in done.stderr


def test_report_of_something_else(tmp_path: Path) -> None:
    expect(satlab("report", tmp_path), 2, str(tmp_path), "manifest.json")


@pytest.mark.promise("P29")
def test_dry_run_prints_a_plan_and_touches_nothing(tmp_path: Path) -> None:
    done = dry_run(BULK, "--runs", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["arguments"]["duration"] == "1"
    assert plan["link"]["rtt_ms"]["configured"] == 580
    assert not (tmp_path / "runs").exists()


def test_help_names_units_and_defaults() -> None:
    done = satlab("run", "--help")
    assert done.returncode == 0
    for words in ("--loss", "0 to 1", "ms", "default: 1.2", "--dry-run"):
        assert words in done.stdout
