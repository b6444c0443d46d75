# SPDX-License-Identifier: GPL-3.0-or-later
"""The VM lab with two terminals (SATLAB_VM_TERMINALS=2): the second client reaches the server over
its own ST.
"""

import json
import re
import threading
from pathlib import Path

import pytest

from satlab.common import paths, terminals
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.common.processes import wait
from satlab.common.topology import Role
from satlab.vm import vm_run
from satlab.vm.provision import METRICS_THERE
from satlab.vm.vm_lab import VmLab
from tests.vm.provisioned import Provisioned

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(1800)]
ECHOES = 5


@pytest.fixture
def lab(provisioned: Provisioned) -> VmLab:
    containers = provisioned.containers
    return VmLab(containers.folder, provisioned.topology, enter=containers.enter)


def packets_of_terminals(lab: VmLab) -> list[int]:
    """Return the packets that satlink has released to each terminal so far."""
    lines = map(json.loads, lab.output("sat", "cat", METRICS_THERE).decode().splitlines())
    samples = [line["forward"]["terminals"] for line in lines if line["type"] == "sample"]
    return [sum(one[number]["out_packets"] for one in samples) for number in range(2)]


def test_p293_each_host_is_provisioned_and_a_second_run_changes_nothing(
    provisioned: Provisioned,
) -> None:
    print(f"boot {provisioned.boot_s:.0f} s, site.yml {provisioned.play_s:.0f} s")
    assert {"st-2", "client-2"} < set(provisioned.recap)
    assert all(r.failed == r.unreachable == 0 and r.changed > 0 for r in provisioned.recap.values())
    assert all(
        r.changed == r.failed == r.unreachable == 0 for r in provisioned.play("verify.yml").values()
    )
    changed = {name: recap.changed for name, recap in provisioned.play("site.yml").items()}
    assert changed == dict.fromkeys(changed, 0)


def test_p293_echoes_of_the_second_client_cross_the_link_as_packets_of_its_terminal(
    lab: VmLab,
) -> None:
    before = packets_of_terminals(lab)
    server = lab.topology.address_of(Role.SERVER)
    said = lab.output(
        "client-2", "ping", "-n", "-c", str(ECHOES), "-i", "0.5", "-W", "5", server
    ).decode()
    found = [float(value) for value in re.findall(r"time=([0-9.]+)", said)]
    print(f"echoes of client-2: {found} ms")
    assert len(found) == ECHOES
    assert min(found) > 500, "twice 250 ms"
    assert "via 198.18.66.1" in lab.output("client-2", "ip", "route", "get", server).decode()
    assert wait(lambda: packets_of_terminals(lab)[1] - before[1] >= ECHOES, 30)


def test_p293_both_clients_transfer_at_the_same_time(lab: VmLab, tmp_path: Path) -> None:
    prepared = vm_run.prepare(paths.SCENARIOS / "fairness.json", {"duration": "8"}, lab)
    outcome = vm_run.execute(prepared, tmp_path, ProgressLog(quiet=True), threading.Event(), 300)
    assert outcome.status in (ExitStatus.OK, ExitStatus.UNCALIBRATED), outcome.reason
    jobs = [
        json.loads(line)
        for line in (outcome.folder / "raw" / "jobs.jsonl").read_text().splitlines()
    ]
    entities = {job.get("entity") for job in jobs}
    assert set(terminals.clients(lab.topology)) <= entities


def test_p293_opensand_has_a_process_on_each_st(provisioned: Provisioned, lab: VmLab) -> None:
    own = ("--limit", "emulator", "--tags", "always,opensand")
    provisioned.inventory("opensand")
    provisioned.play("site.yml", *own)
    provisioned.play("verify.yml", *own)
    assert all(r.changed == 0 for r in provisioned.play("site.yml", *own).values())
    started = lab.output("st-2", "systemctl", "show", "-P", "ExecStart", "opensand").decode()
    assert "infrastructure_st4.xml" in started
    assert "profile_st4.xml" in started
