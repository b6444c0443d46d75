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
from satlab.vm import provision, vm_run
from satlab.vm.controller import Controller
from satlab.vm.provision import VmFolder
from satlab.vm.vm_hosts import VmLab
from tests.serving import PASSWORD, serving

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]


def test_a_run_folder_comes_out_of_a_controller_s_run(tmp_path: Path) -> None:
    here, folder = topology.load(), VmFolder(tmp_path / "lab")
    folder.make()
    config = provision.link_config(here, LinkOptions())
    folder.plan.write_text(plan_link(config).to_json())
    folder.link.write_text(config.to_json())
    with serving() as service:
        controller = Controller("127.0.0.1", service.port, "/openbach", "openbach", PASSWORD)
        settings = {"count": "3", "interval": "0.2"}
        prepared = vm_run.prepare(paths.SCENARIOS / "ping.json", settings, VmLab(folder, here), controller)
        outcome = vm_run.execute(prepared, tmp_path / "runs", ProgressLog(quiet=True), threading.Event(), 120)
    assert outcome.status is ExitStatus.UNCALIBRATED, outcome.reason  # its hosts are not ours to measure
    rtt = outcome.records.lazy().collect().filter(polars.col("metric") == "rtt_ms")
    assert set(rtt["status"]) == {"ok"}
    assert 579 < rtt["value"].min() < 700  # type: ignore[operator]
    about = json.loads((outcome.folder / "manifest.json").read_text())
    assert (about["lab"], about["emulator"]) == ("vm", "unknown")
    assert (outcome.folder / "report" / "index.html").is_file()
