# SPDX-License-Identifier: GPL-3.0-or-later
"""A campaign over two nodes of Debian's Slurm on this host.

With labs and a lost node: `python tests/slurm.py`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from satlab.campaign import engine
from satlab.common import paths
from tests import campaigns, slurm

pytestmark = [
    pytest.mark.net,
    pytest.mark.skipif(
        not engine.is_installed() or not paths.SATVIRTUAL.exists() or not slurm.is_unpacked(),
        reason="needs Snakemake, satvirtual and Slurm's packages",
    ),
]
COUNT = 2


@pytest.mark.promise("P95")
def test_p260_a_campaign_runs_on_the_nodes_of_slurm_and_leaves_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, slurm.__file__, str(tmp_path / "s"), str(COUNT), "--jobs", "2"]
    variables = {"PYTHONPATH": paths.PYTHONPATH, paths.PROGRAMS_VARIABLE: str(paths.PROGRAMS)}
    done = subprocess.run(
        argv, env=os.environ | variables, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["rows_of_task"] == {"1": COUNT}
    assert found["by_status"] == {"ok": COUNT}
    assert set(found["by_node"]) == set(slurm.NODES)
    assert not campaigns.of_campaign(tmp_path / "s", "")
