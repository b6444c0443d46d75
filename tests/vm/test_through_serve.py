# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab vm run` through a controller that really runs jobs: `satlab serve`, on its own lab."""

import json
import os
import threading
from pathlib import Path

import polars
import pytest

from satlab.common import paths, topology
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.link.options import LinkOptions
from satlab.link.plan import plan_link
from satlab.run.run_folder import RunResult
from satlab.vm import provision, vm_run
from satlab.vm.controller_client import Controller
from satlab.vm.provision import VmFolder
from satlab.vm.vm_lab import VmLab
from tests.serve_process import PASSWORD, serving

pytestmark = [
    pytest.mark.net,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


def through(tmp_path: Path, scenario: str, settings: dict[str, str]) -> RunResult:
    """Run a scenario as `satlab vm run --openbach` does."""
    here, folder = topology.load(), VmFolder(tmp_path / "lab")
    folder.make()
    config = provision.link_config(here, LinkOptions())
    folder.plan.write_text(plan_link(config).to_json())
    folder.link.write_text(config.to_json())
    with serving() as service:
        controller = Controller("127.0.0.1", service.port, "/openbach", "openbach", PASSWORD)
        lab = VmLab(folder, here)
        prepared = vm_run.prepare(paths.SCENARIOS / f"{scenario}.json", settings, lab, controller)
        outcome = vm_run.execute(
            prepared, tmp_path / "runs", ProgressLog(quiet=True), threading.Event(), 200
        )
    assert outcome.status is ExitStatus.UNCALIBRATED, (
        outcome.reason
    )  # its hosts are not ours to measure
    return outcome


def test_a_run_folder_comes_out_of_a_controller_s_run(tmp_path: Path) -> None:
    outcome = through(tmp_path, "ping", {"count": "3", "interval": "0.2"})
    rtt = outcome.records.lazy().collect().filter(polars.col("metric") == "rtt_ms")
    assert set(rtt["status"]) == {"ok"}
    assert 579 < rtt["value"].min() < 700  # type: ignore[operator]
    about = json.loads((outcome.folder / "manifest.json").read_text())
    assert (about["lab"], about["emulator"]) == ("vm", "unknown")
    assert (outcome.folder / "report" / "index.html").is_file()


def test_quic_through_proxies_is_launched_by_the_api(tmp_path: Path) -> None:
    outcome = through(tmp_path, "quic", {"pep": "quic", "duration": "6"})
    goodput = (
        outcome.records.lazy()
        .collect()
        .filter((polars.col("metric") == "goodput_bps") & polars.col("t_s").is_null())
    )
    assert set(goodput["status"]) == {"ok"}
    legs = outcome.records.lazy().collect().filter(polars.col("metric") == "quic_leg_ok")
    entities = {json.loads(labels)["entity"] for labels in legs["labels"]}
    assert {"proxy-st", "proxy-gw"} <= entities
    assert set(legs["status"]) == {"ok"}
