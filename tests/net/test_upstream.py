# SPDX-License-Identifier: GPL-3.0-or-later
"""A job in the form of OpenBACH's own runs unchanged in a lab, with what the operator lets it do
and no more.
"""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.common.topology import load
from satlab.link.options import LinkOptions
from satlab.openbach.fixtures.executor_shapes import start
from satlab.openbach.fixtures.upstream_shapes import JOBS, write_job
from satlab.run.run_folder import RunResult
from satlab.run.scenario_run import RunRequest, entities_of, execute, prepare
from tests import json_lines

pytestmark = pytest.mark.net

PROGRAM = """
import pathlib, re, subprocess, sys
import collect_agent
here = pathlib.Path(__file__).parents[1] / "fping_rstats_filter.conf"
with collect_agent.use_configuration(str(here)):
    routes = subprocess.run(["ip", "route", "add", "192.0.2.0/24", "dev", "lo"], capture_output=True)
    collect_agent.send_stat(collect_agent.now(), may_route=int(routes.returncode == 0))
    collect_agent.send_stat(collect_agent.now(), sees_tun=int(pathlib.Path("/dev/net/tun").exists()))
    count = sys.argv[sys.argv.index("-c") + 1]
    done = subprocess.run(["ping", "-c", count, "-i", "0.2", sys.argv[1]], capture_output=True, text=True)
    for rtt in re.findall(r"time=([0-9.]+)", done.stdout):
        collect_agent.send_stat(collect_agent.now(), rtt=float(rtt))
    sys.exit(done.returncode)
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    write_job(tmp_path / "jobs/network", "fping", JOBS["fping"], PROGRAM)
    functions = [start(0, "ground", "fping", {"destination_ip": "198.18.4.2", "count": 3})]
    file = tmp_path / "my delay.json"
    file.write_text(
        json.dumps({"name": "my delay", "openbach_functions": functions, "owner": "nobody"})
    )
    return file


def run(scenario: Path, folder: Path, granted: list[str]) -> tuple[RunResult, list[dict[str, Any]]]:
    """Run the scenario; return its result and the statistics."""
    privileges = folder / "privileges.yml"
    privileges.write_text(json.dumps({"fping": granted}))
    request = RunRequest(
        scenario,
        LinkOptions(profile="leo"),
        runs=folder / "runs",
        report=False,
        entities=entities_of({"ground": "client"}, load()),
        jobs=(folder / "jobs",),
        privileges=privileges,
    )
    prepared = prepare(request)
    assert any("owner: unknown key" in str(warning) for warning in prepared.warnings)
    outcome = execute(prepared, ProgressLog(quiet=True), threading.Event())
    return outcome, json_lines.read(outcome.folder / "raw/stats.jsonl")


@pytest.mark.parametrize("granted", [[], ["net_admin", "net_raw"], ["net_admin", "net_raw", "tun"]])
@pytest.mark.promise("P49")
def test_a_core_job_runs_unchanged_and_may_do_what_is_granted(
    scenario: Path, tmp_path: Path, granted: list[str], satlink: Path
) -> None:
    del satlink
    outcome, sent = run(scenario, tmp_path, granted)
    assert len([record for record in sent if record.get("rtt", 0) > 30]) == (3 if granted else 0)
    assert [record["may_route"] for record in sent if "may_route" in record] == [
        int("net_admin" in granted)
    ]
    assert [record["sees_tun"] for record in sent if "sees_tun" in record] == [
        int("tun" in granted)
    ]
    assert {record["_metadata"]["job_name"] for record in sent} == {"fping"}
    good = (ExitStatus.OK, ExitStatus.UNCALIBRATED)  # a busy host
    assert (outcome.status in good) == bool(granted), outcome.reason


def test_t32_a_playbook_never_runs_and_no_tun_device_is_shown(
    scenario: Path, tmp_path: Path, satlink: Path
) -> None:
    del satlink
    (playbook,) = tmp_path.rglob("install_fping.yml")
    marks = [tmp_path / "by_command", tmp_path / "by_shell"]
    tasks = yaml.safe_load(playbook.read_text())
    tasks[0]["block"] += [
        {"command": f"touch {marks[0]}"},
        {"shell": f"touch {marks[1]}", "become": True},
    ]
    playbook.write_text(yaml.safe_dump(tasks))
    outcome, sent = run(scenario, tmp_path, ["net_admin", "net_raw"])
    assert outcome.status in (ExitStatus.OK, ExitStatus.UNCALIBRATED), outcome.reason
    assert [record["sees_tun"] for record in sent if "sees_tun" in record] == [0], (
        "that is for the jobs of tunnels, and for those that are granted it"
    )
    assert not [mark for mark in marks if mark.exists()]
