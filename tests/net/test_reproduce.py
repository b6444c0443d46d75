# SPDX-License-Identifier: GPL-3.0-or-later
"""A reproduction through the command line, killed in the middle and resumed.

One real run over the short link.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from satlab.campaign import engine
from satlab.common import paths
from satlab.common.errors import ExitStatus
from tests import campaigns
from tests.net.conftest import AsPlanned
from tests.polling import until

pytestmark = [
    pytest.mark.net,
    pytest.mark.skipif(
        os.geteuid() != 0 or not engine.is_installed(), reason="needs root and Snakemake"
    ),
]

ENVIRONMENT = os.environ | {"PYTHONPATH": f"{paths.ROOT / 'src'}:{paths.ROOT}"}
CELL = "leo/0/tcp-pep"
TASK = "leo-0-tcp-pep.1"


def start(*arguments: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "satlab", "reproduce", "seed-002", *arguments, "--json"]
    return subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


@pytest.mark.skipif(
    not shutil.which("haproxy", path="/usr/sbin:/usr/bin"), reason="haproxy is not installed"
)
@pytest.mark.promise("P89")
def test_a_killed_reproduction_is_resumed_and_its_half_run_repeated(as_planned: AsPlanned) -> None:
    document, folder = as_planned(kill_and_resume)
    line = {line["metric"]: line for line in document["figures"]}["reached_2mb_s"]
    is_judged = line["runs"] == 1  # a busy host may have spoilt the run
    assert (line["runs"], line["uncalibrated"], line["failed"]) == (
        (1, 0, 0) if is_judged else (0, 1, 0)
    )
    assert not is_judged or 0.3 < line["ours"] < 8
    assert (folder / "report" / "index.html").is_file()
    assert [place.name for place in (folder / "tasks" / "run" / TASK).glob("attempt-*")] == [
        "attempt-1"
    ], "the half run is removed"
    third = start("--resume", str(folder))
    _, err = third.communicate(timeout=200)
    assert f"{0 if is_judged else 1} of 1 tasks left" in err, "a marked run is repeated"


def kill_and_resume(out: Path) -> tuple[dict[str, Any], Path]:
    first = start("--runs", "1", "--cells", CELL, "--out", str(out))
    runs = f"seed-002-*/tasks/run/{TASK}/attempt-1/*/raw/link.jsonl"
    until(lambda: any(out.glob(runs)), seconds=60)
    (folder,) = out.glob("seed-002-*")
    assert campaigns.workers(folder), "a run goes on"
    for pid in campaigns.of_campaign(folder, ""):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    first.kill()
    first.communicate(timeout=10)
    second = start("--resume", str(folder))
    answer, err = second.communicate(timeout=200)
    assert second.returncode == ExitStatus.UNDECIDED, err
    assert "its lock is removed" in err
    return json.loads(answer), folder
