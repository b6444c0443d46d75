# SPDX-License-Identifier: GPL-3.0-or-later
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Started = Callable[[str], Any]

# What OpenSAND 8.2 writes to stderr with -v, shortened.
READY = "[2026-01-01 00:00:00.000][EVENT][Dvb][status] Blocks initialized"
LOGON = "[2026-01-01 00:00:00.500][EVENT][Dvb][login] Login complete with MAC 1"
BROKEN = "[2026-01-01 00:00:00.000][ERROR][init] cannot load the topology"
FAKE = """#!/bin/bash
printf '%s\\n' "$@" > "{note}"
{lines}
{then}
"""
RUN_ON = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


def fake(folder: Path, *lines: str, then: str = RUN_ON) -> str:
    program = folder / "opensand"
    said = "\n".join(f"echo '{line}' >&2" for line in lines)
    program.write_text(FAKE.format(note=folder / "argv", lines=said, then=then))
    program.chmod(0o755)
    return str(program)


def stopped_when(job: Any, statistic: str, *arguments: str) -> tuple[int, str]:
    process = job.start(*arguments)
    deadline = time.monotonic() + 120
    while not any(statistic in record for record in job.records()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.terminate()
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


@pytest.mark.parametrize(
    ("entity", "last", "files"),
    [
        (
            "sat",
            "initialized_s",
            ["-i", "/p/infrastructure_sat.xml", "-t", "/p/topology.xml", "-v"],
        ),
        (
            "st",
            "logged_on_s",
            [
                "-i",
                "/p/infrastructure_st.xml",
                "-t",
                "/p/topology.xml",
                "-p",
                "/p/profile_st.xml",
                "-v",
            ],
        ),
    ],
)
def test_it_runs_until_it_is_stopped(
    trial: Started, tmp_path: Path, entity: str, last: str, files: list[str]
) -> None:
    job = trial("satlab_opensand")
    status, said = stopped_when(job, last, entity, "-d", "/p", "-b", fake(tmp_path, READY, LOGON))
    assert status == 0, said
    assert (tmp_path / "argv").read_text().splitlines() == files
    assert {record["_metadata"]["suffix"] for record in job.records()} == {entity}
    assert READY in said


@pytest.mark.parametrize(
    ("entity", "lines", "then", "said"),
    [
        ("st", [READY], RUN_ON, "not ready after 1 s (reached: initialized_s)"),
        ("gw", [BROKEN], "exit 14", f"it ended before it was ready; its last error: {BROKEN}"),
        ("gw", [], "exit 0", "it ended before it was ready"),
        ("gw", [READY], "kill -SEGV $$", "it ended with -11"),
    ],
)
def test_what_is_not_ready_or_crashes_fails(
    trial: Started, tmp_path: Path, entity: str, lines: list[str], then: str, said: str
) -> None:
    status, output = trial("satlab_opensand").run(
        entity, "-r", "1", "-b", fake(tmp_path, *lines, then=then)
    )
    assert status == 1
    assert said in output


def test_an_agent_that_ends_opensand_first_has_stopped_the_job(
    trial: Started, tmp_path: Path
) -> None:
    assert (
        trial("satlab_opensand").run("gw", "-b", fake(tmp_path, READY, then="sleep 0.3; exit 0"))[0]
        == 0
    )


def test_without_opensand_it_fails(trial: Started) -> None:
    status, said = trial("satlab_opensand").run("gw", "-b", "/nowhere/opensand")
    assert status == 1
    assert "cannot be started" in said
