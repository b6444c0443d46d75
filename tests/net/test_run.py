# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole runs through the command line: real namespaces, real emulator, real iperf3.

Bounds are generous on purpose.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from satlab.common import paths
from satlab.common.errors import ExitStatus
from satlab.lab import lab, lab_owners
from satlab.link.options import LinkOptions
from satlab.run import link_probe, scenario_run
from tests.net.conftest import AsPlanned, executed
from tests.polling import until

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

ENVIRONMENT = os.environ | {"PYTHONPATH": f"{paths.ROOT / 'src'}:{paths.ROOT}"}
BULK = paths.SCENARIOS / "bulk_tcp.json"


def start(runs: Path, *arguments: str) -> subprocess.Popen[str]:
    argv = [*f"{sys.executable} -m satlab run {BULK} --runs {runs} --json".split(), *arguments]
    return subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


def finish(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=120)
    assert process.returncode in {0, 4}, err  # `as_planned` says what of 4 is excused
    assert "Traceback" not in err
    schema = json.loads((paths.SCHEMAS / "records.schema.json").read_text())
    rows = [json.loads(line) for line in out.splitlines()]
    for row in rows:
        jsonschema.validate(row, schema)
        assert row["t_s"] is None
    ok = [r for r in rows if r["metric"] == "calibration_ok"]
    assert [r["value"] for r in ok] == [1 if process.returncode == 0 else 0]
    return rows


def value(rows: list[dict[str, Any]], metric: str) -> float:
    return float(next(r["value"] for r in rows if r["metric"] == metric))


@pytest.mark.promise("P26")
def test_bulk_tcp_makes_records_and_a_run_folder(tmp_path: Path, as_planned: AsPlanned) -> None:
    rows = as_planned(lambda runs: finish(start(runs, "--set", "duration=8")))
    assert 4e6 < value(rows, "goodput_bps") < 19.7e6
    assert 579 < value(rows, "rtt_ms") < 640
    (folder,) = sorted(tmp_path.iterdir())[-1].iterdir()
    for name in (
        "manifest.json",
        "plan.json",
        "records.parquet",
        "report/index.html",
        "raw/link.jsonl",
    ):
        assert (folder / name).is_file(), name
    manifest = json.loads((folder / "manifest.json").read_text())
    jsonschema.validate(manifest, json.loads((paths.SCHEMAS / "manifest.schema.json").read_text()))
    assert manifest["files"]
    assert lab.status(scenario_run.lab_id(folder.name)).phase == "absent"


def test_leo_and_loss_and_constant_are_taken_over(as_planned: AsPlanned) -> None:
    more = "--profile leo --loss 0.01 --set duration=3 --set cong_control=reno --seed 7".split()
    rows = as_planned(lambda runs: finish(start(runs, *more)))
    assert 111 < value(rows, "rtt_ms") < 150
    assert any(r["labels"].get("congestion_control") == "reno" for r in rows)


def test_a_link_at_half_its_rate_passes_no_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_planned: AsPlanned
) -> None:
    """A probe that offers half of the rate makes the link look slower;

    `as_planned` must not excuse that.
    """
    monkeypatch.setattr(link_probe, "PROBE_OVERLOAD", 0.5)
    request = scenario_run.RunRequest(
        paths.SCENARIOS / "ping.json", LinkOptions(profile="leo"), {"count": "1"}, report=False
    )

    def attempt(runs: Path) -> ExitStatus:
        return executed(dataclasses.replace(request, runs=runs)).status

    with pytest.raises(AssertionError, match="forward_udp_goodput_bps") as caught:
        as_planned(attempt)
    assert len(list(tmp_path.glob("attempt-*/*"))) == 2
    assert "late_packet_ratio" not in str(caught.value)


def test_what_the_server_may_send_at_once_fits_in_the_proxy_s_socket(tmp_path: Path) -> None:
    link = LinkOptions(profile="leo", loss=0.02, loss_unit="frame")
    values = {"pep": "quic", "duration": "5"}
    scenario = paths.SCENARIOS / "quic.json"
    executed(scenario_run.RunRequest(scenario, link, values, runs=tmp_path, report=False))
    (folder,) = tmp_path.iterdir()
    checks = json.loads((folder / "raw" / "calibration.json").read_text())["checks"]
    (lost,) = [one for one in checks if one["name"] == "host_loss_ratio"]
    assert lost["ok"], lost["note"]


@pytest.mark.promise("P27")
def test_interrupt_keeps_what_was_measured_and_leaves_no_lab(tmp_path: Path) -> None:
    process = start(tmp_path, "--set", "duration=60")
    until(lambda: any(tmp_path.glob("*/raw/logs/satlab_iperf3-*.log")), seconds=60)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=40)
    assert process.returncode == 130, err
    manifest = json.loads(next(tmp_path.glob("*/manifest.json")).read_text())
    assert manifest["status"] == "interrupted"
    assert "raw/link.jsonl" in manifest["files"]
    assert set(manifest["enforced_by"]) == {"memory", "processes", "disk", "capabilities"}
    assert lab.status(scenario_run.lab_id(manifest["run_id"])).phase == "absent"


@pytest.mark.promise("P27")
def test_a_dead_emulator_ends_the_run_at_once(tmp_path: Path) -> None:
    process = start(tmp_path, "--set", "duration=300")
    until(lambda: any(tmp_path.glob("*/raw/logs/satlab_iperf3-2.log")), seconds=60)
    folder = next(tmp_path.iterdir())
    pid = lab.status(scenario_run.lab_id(folder.name)).satlink_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    _, err = process.communicate(timeout=40)
    assert process.returncode == 1, err
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert "satlink" in manifest["reason"]
    assert lab.status(scenario_run.lab_id(folder.name)).phase == "absent"


@pytest.mark.promise("P25")
def test_a_killed_run_is_swept_by_the_next(tmp_path: Path) -> None:
    process = start(tmp_path / "killed", "--set", "duration=60")
    until(lambda: any(tmp_path.glob("killed/*/raw/link.jsonl")), seconds=60)
    process.kill()
    process.communicate(timeout=10)
    folder = next(tmp_path.glob("killed/*"))
    left = scenario_run.lab_id(folder.name)
    assert lab.status(left).phase != "absent"
    assert left in lab_owners.sweep()
    assert lab.status(left).phase == "absent"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "running"  # the folder shows that it never ended
