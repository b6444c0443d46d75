# SPDX-License-Identifier: GPL-3.0-or-later
"""A reproduction through the command line, killed in the middle and resumed.

One real run over the short link.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from satlab.common import paths
from tests.net.conftest import AsPlanned
from tests.polling import until

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

ENVIRONMENT = os.environ | {"PYTHONPATH": f"{paths.ROOT / 'src'}:{paths.ROOT}"}
CELL = "leo/0/tcp-pep"


def start(*arguments: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "satlab", "reproduce", "seed-002", *arguments, "--json"]
    return subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(
    not shutil.which("haproxy", path="/usr/sbin:/usr/bin"), reason="haproxy is not installed"
)
@pytest.mark.promise("P89")
def test_a_killed_reproduction_is_resumed_and_its_half_run_repeated(as_planned: AsPlanned) -> None:
    document, folder = as_planned(kill_and_resume)
    assert document["half_runs_count"] == 1
    line = {line["metric"]: line for line in document["bulk"]}["reached_2mb_s"]
    is_judged = line["n"] == 1  # a busy host may have spoilt the run
    assert (line["n"], line["uncalibrated_count"], line["failed_count"]) == (
        (1, 0, 0) if is_judged else (0, 1, 0)
    )
    assert not is_judged or 0.3 < line["median"] < 8
    assert (folder / "report" / "index.html").is_file()
    third = start("--resume", str(folder))
    _, err = third.communicate(timeout=60)
    assert "0 runs left" in err


def kill_and_resume(out: Path) -> tuple[dict[str, Any], Path]:
    first = start("--runs", "1", "--cells", CELL, "--out", str(out))
    runs = f"seed-002-*/runs/{CELL}/*/raw/link.jsonl"
    until(lambda: any(out.glob(runs)), seconds=60)
    below = children(first.pid)
    assert below, "a run goes on"
    for pid in (first.pid, *below):
        os.kill(pid, signal.SIGKILL)
    first.communicate(timeout=10)
    (folder,) = out.glob("seed-002-*")
    second = start("--resume", str(folder))
    answer, err = second.communicate(timeout=200)
    assert second.returncode in (0, 4), err
    return json.loads(answer), folder
