# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches of quinn under the virtual clock: a planted window, its suite, a signal, and what is
refused.
"""

import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from satlab.check import check_run
from satlab.check.check_run import CheckRequest
from satlab.check.endpoint import lockstep
from satlab.check.search import search_file, search_run
from satlab.check.search.search_run import SearchRequest
from satlab.cli import app
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus

QUIET = ProgressLog(quiet=True)
SUITE = {
    "schema": "satlab/suite/1",
    "name": "brief",
    "source": "the test",
    "link": {"rtt_ms": 650, "queue_bdp": 1.0},
    "marks_mb": [1.0],
    "cases": [{"id": "medium", "forward_mbps": 20, "return_mbps": 5, "targets_s": [None]}],
}
SMALL = {"stream_receive_window": 65_536}
"""A tenth of a MB a second at 650 ms: the case itself is slow."""


def request(tmp_path: Path, **fields: Any) -> SearchRequest:
    file = tmp_path / "brief.yml"
    file.write_text(yaml.safe_dump(SUITE))
    check = CheckRequest(str(file), out=tmp_path / "runs", jobs=2, **fields)
    return SearchRequest(check, wall_s=60, largest_mb=2, most_findings=1)


@pytest.mark.promise("P81")
def test_a_window_that_is_too_small_is_found_and_its_suite_fails_until_it_is_fixed(
    tmp_path: Path,
) -> None:
    asked = request(tmp_path, client=SMALL, seed=5)
    found = search_run.run(asked, QUIET)
    [slow] = found.record.findings
    assert slow.kind == "slow"
    assert slow.is_shrunk
    assert slow.changes == {}
    assert slow.trial == 0
    assert slow.repeats == slow.repeats_of == 4
    assert found.record.input.reference == "quinn" and found.record.trials == 1
    assert slow.suite is not None and not (found.folder / "work").exists()
    suite = found.folder / slow.suite
    assert found.command(slow) in "\n".join(found.lines())
    repeated = CliRunner().invoke(
        app, [*shlex.split(found.command(slow))[1:], "--out", str(tmp_path / "repeated")]
    )
    assert repeated.exit_code == ExitStatus.FAILED and "FAIL" in repeated.output
    check = CheckRequest(str(suite), out=tmp_path / "checks", client=SMALL)
    again = check_run.run(check, QUIET)
    [sample] = again.samples["medium"]
    assert (sample.seed, sample.times_s, again.status) == (5, (slow.time_s,), ExitStatus.FAILED)
    fixed = check_run.run(replace(check, client={}, out=tmp_path / "fixed"), QUIET)
    assert fixed.status == ExitStatus.OK
    assert fixed.samples["medium"][0].times_s == (slow.reference_s,)


def test_a_signal_ends_a_search_that_can_be_resumed(tmp_path: Path) -> None:
    request(tmp_path)
    argv = [
        *f"{sys.executable} -m satlab check --suite".split(),
        str(tmp_path / "brief.yml"),
        "--search",
        "--search-mb",
        "0.2",
        "--out",
        str(tmp_path / "runs"),
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": paths.PYTHONPATH}
    pipe = subprocess.PIPE
    child = subprocess.Popen(argv, env=environment, stdout=pipe, stderr=pipe, text=True)
    end = time.monotonic() + 60
    while not (trials_in(tmp_path) >= 2 or time.monotonic() > end):
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    output, messages = child.communicate(timeout=120)
    assert (child.returncode, output) == (ExitStatus.INTERRUPTED, "") and "--resume" in messages
    [folder] = (tmp_path / "runs").iterdir()
    before = trials_in(tmp_path)
    spent_s = math.ceil(json.loads((folder / search_file.FILE).read_text())["real_s"])
    for more_s in (3, 10, 60):  # a busy host may need more than seconds for a trial
        done = CliRunner().invoke(
            app, [*argv[3:], "--resume", str(folder), "--search-time", str(spent_s + more_s)]
        )
        assert done.exit_code in (ExitStatus.OK, ExitStatus.FAILED), done.output
        document = json.loads(done.stdout)
        if document["trials"] > before:
            break
    assert document["trials"] > before >= 2 and document["real_s"] > spent_s


def trials_in(tmp_path: Path) -> int:
    files = list((tmp_path / "runs").glob(f"*/{search_file.FILE}"))
    return int(json.loads(files[0].read_text())["trials"]) if files else 0


@pytest.mark.promise("P81")
def test_the_command_of_a_finding_names_programs_and_options(tmp_path: Path) -> None:
    script, data = tmp_path / "own" / "a b.py", tmp_path / "data"
    script.parent.mkdir()
    script.touch()
    data.mkdir()
    programs = lockstep.parse(f"python3 '{script}' --x '1 2'", "cat", [data], {})
    variables = {"client": {"A": "b c"}, "server": {}}
    check = CheckRequest(
        programs=programs,
        server={"initial_window": 2},
        environment=variables,
    )
    words = list(search_run.options_of(check))
    assert shlex.split(words[1]) == [programs.words["client"][0], str(script), "--x", "1 2"]
    assert words[0] == "--virtual-client" and words[2] == "--virtual-server"
    # Folders of the programs and files in the commands are readable without this option.
    assert words[4:] == [
        *("--allow-read", str(data)),
        *("--client-env", "A=b c"),
        *("--server", "initial-window=2"),
    ]
    again = lockstep.parse(words[1], words[3], [Path(words[5])], {})
    assert again.words == programs.words and set(again.allow_read) == set(programs.allow_read)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cases": ("large", "medium")}, "around one case"),
        ({"cases": ("no",)}, "suite etosat"),
        ({"suite": "interop", "cases": ("handshake",)}, "no payload to vary"),
        ({"resume": Path("/nowhere")}, "search.json"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    fields: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        search_run.run(SearchRequest(CheckRequest(**({"out": tmp_path} | fields))), QUIET)


@pytest.mark.parametrize(
    "options",
    [
        ["--search", "--runs", "3"],
        ["--search", "--junit", "x.xml"],
        ["--search", "--client-cmd", "cat", "--server-cmd", "cat"],
        ["--search-time", "5"],
        ["--search", "--search-share", "2"],
    ],
)
def test_options_that_do_not_fit_a_search_are_refused(options: list[str]) -> None:
    assert CliRunner().invoke(app, ["check", *options]).exit_code == ExitStatus.USAGE
