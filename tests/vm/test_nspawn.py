# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole VM lab in booted containers: every role, a second run that changes nothing, traffic,
threats.
"""

import functools
import json
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars
import pytest

from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus, HostError, RunError
from satlab.lab import netns
from satlab.run import influx
from satlab.run.run_folder import RunResult
from satlab.vm import vm_commands, vm_run
from satlab.vm.vm_lab import VmLab
from tests.calibration import calibrated
from tests.vm import nspawn
from tests.vm.provisioned import Provisioned

pytestmark = [pytest.mark.nspawn, pytest.mark.timeout(1800)]
CONTROL_PORTS = (22, 1112, 3000, 8000, 8086)


@pytest.fixture
def lab(provisioned: Provisioned) -> VmLab:
    containers = provisioned.containers
    return VmLab(containers.folder, provisioned.topology, enter=containers.enter)


def run(lab: VmLab, scenario: str, settings: dict[str, str], runs: Path) -> RunResult:
    prepared = vm_run.prepare(paths.SCENARIOS / f"{scenario}.json", settings, lab)
    return vm_run.execute(prepared, runs, ProgressLog(quiet=True), threading.Event(), 300)


def goodput_bps(outcome: RunResult) -> float:
    """Return the goodput of a run's only transfer."""
    figures = outcome.records.lazy().collect()
    chosen = (polars.col("metric") == "goodput_bps") & polars.col("t_s").is_null()
    (value,) = figures.filter(chosen)["value"].to_list()
    print(f"goodput {value / 1e6:.2f} Mbit/s")
    return float(value)


def only(role: str) -> list[str]:
    """Return the options of a play over an emulator's hosts with its role alone."""
    return ["--limit", "emulator", "--tags", f"always,{role}"]


# --- roles ----------------------------------------------------------------------------------------


def test_site_converges_on_every_host(provisioned: Provisioned) -> None:
    print(f"boot {provisioned.boot_s:.0f} s, site.yml {provisioned.play_s:.0f} s")
    assert set(provisioned.recap) == set(provisioned.containers.processes)
    assert all(r.failed == r.unreachable == 0 and r.changed > 0 for r in provisioned.recap.values())


def test_verify_is_green_and_changes_nothing(provisioned: Provisioned) -> None:
    assert all(
        r.changed == r.failed == r.unreachable == 0 for r in provisioned.play("verify.yml").values()
    )


def test_a_play_with_ansible_s_own_strategies_changes_nothing(
    provisioned: Provisioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_STRATEGY", "linear")
    recap = provisioned.play("site.yml", "--limit", "proxy-st")
    assert (recap["proxy-st"].changed, recap["proxy-st"].failed, recap["proxy-st"].unreachable) == (
        0,
        0,
        0,
    )


@pytest.mark.promise("P97")
def test_a_second_run_changes_nothing(provisioned: Provisioned) -> None:
    changed = {name: recap.changed for name, recap in provisioned.play("site.yml").items()}
    assert changed == dict.fromkeys(changed, 0)


def test_the_controller_is_found_with_the_password_that_its_role_made(lab: VmLab) -> None:
    controller = vm_commands.controller_of(lab.folder)
    assert controller
    netns.inside(nspawn.LAB_ID, netns.HOST_NODE, controller.enter)
    controller.password = "openbach"  # noqa: S105 - the one that everybody knows
    with pytest.raises(HostError, match="Wrong Credentials"):
        netns.inside(nspawn.LAB_ID, netns.HOST_NODE, controller.enter)


# --- threats --------------------------------------------------------------------------------------


def test_t06_control_ports_are_not_reached_from_the_measured_networks(lab: VmLab) -> None:
    """Each is tried from the neighbour; ssh on the control network shows that the same try finds an
    open port.
    """

    def is_open(node: str, address: str, port: int) -> bool:
        words = "timeout", "3", "bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"
        done = subprocess.run(lab.argv(node, *words), capture_output=True, check=False)
        return done.returncode == 0

    assert is_open("client", "198.19.0.12", 22)
    for node, address in {
        "client": "198.18.1.1",
        "st": "198.18.2.2",
        "proxy-gw": "198.18.4.2",
        "sat": "10.77.0.3",
    }.items():
        with ThreadPoolExecutor(len(CONTROL_PORTS)) as pool:
            found = pool.map(functools.partial(is_open, node, address), CONTROL_PORTS)
        assert list(found) == [False] * len(CONTROL_PORTS), (node, CONTROL_PORTS)


def test_t07_a_changed_host_key_stops_the_play(provisioned: Provisioned) -> None:
    known = provisioned.containers.folder.known_hosts
    good = known.read_text()
    keys = re.findall(r"ssh-ed25519 \S+", good)
    new_connection = (
        "--ssh-extra-args=-o ControlPath=none"  # one that an earlier play left open checks no key
    )
    try:
        known.write_text(good.replace(keys[0], keys[1]))
        with pytest.raises(RunError, match=r"client: .*mismatching host key"):
            provisioned.play(
                "verify.yml", "--limit", "client", "--tags", "always,base", new_connection
            )
    finally:
        known.write_text(good)


def test_t07_no_secret_is_in_the_log_and_all_are_private(provisioned: Provisioned) -> None:
    folder = provisioned.containers.folder
    log = (folder.path / "ansible.log").read_text()
    secrets = [folder.key, folder.pki / "server.key", *folder.secrets.iterdir()]
    assert len(secrets) >= 3
    for secret in secrets:
        assert secret.stat().st_mode & 0o077 == 0, secret
        for line in secret.read_text().splitlines():
            assert line.startswith("-----") or line not in log, secret


def test_t10_no_packet_of_the_lab_leaves_by_the_control_network(lab: VmLab) -> None:
    """Without the rule such a packet would go to the host; the rule's counter shows that it was
    tried.
    """
    table = ("nft", "list", "chain", "inet", "satlab_closed", "output")
    before = lab.output("controller", *table).decode()
    lab.output("controller", "ip", "route", "add", "198.18.4.0/24", "via", "198.19.0.1")
    try:
        subprocess.run(
            lab.argv("controller", "ping", "-c1", "-W1", "198.18.4.2"),
            capture_output=True,
            check=False,
        )
    finally:
        lab.output("controller", "ip", "route", "delete", "198.18.4.0/24")
    packets = [
        int(re.findall(r"counter packets (\d+)", text)[0])
        for text in (before, lab.output("controller", *table).decode())
    ]
    assert packets[1] > packets[0]


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.promise("P97")
def test_a_missing_repository_is_reported_and_the_next_run_recovers(
    provisioned: Provisioned, lab: VmLab
) -> None:
    lab.output("proxy-st", "apt-get", "purge", "-y", "haproxy")
    lab.output("proxy-st", "apt-get", "clean")
    away = ["-e", "base_apt_proxy=http://198.19.0.1:9"]
    with pytest.raises(RunError, match="proxy-st: "):
        provisioned.play(
            *"site.yml --limit proxy-st --tags always,base,pep -e base_apt_cache_valid_s=0".split(),
            *away,
        )
    recap = provisioned.play("site.yml", "--limit", "proxy-st", "--tags", "always,base,pep")
    assert recap["proxy-st"].changed > 0
    provisioned.play("verify.yml", "--limit", "proxy-st")


def test_a_half_provisioned_emulator_is_found_by_verify_and_fixed(
    provisioned: Provisioned, lab: VmLab
) -> None:
    lab.output("sat", "systemctl", "disable", "--now", "satlink")
    with pytest.raises(RunError, match="satlink"):
        provisioned.play("verify.yml", *only("satlink"))
    provisioned.play("site.yml", *only("satlink"))
    provisioned.play("verify.yml", *only("satlink"))


# --- the other emulator ---------------------------------------------------------------------------


@pytest.mark.promise("P98")
def test_opensand_replaces_satlink_and_satlink_returns(
    provisioned: Provisioned, lab: VmLab, tmp_path: Path
) -> None:
    provisioned.inventory("opensand")
    provisioned.play("site.yml", *only("opensand"))
    provisioned.play("verify.yml", *only("opensand"))
    assert all(r.changed == 0 for r in provisioned.play("site.yml", *only("opensand")).values())
    outcome = run(lab, "bulk_tcp", {"duration": "10"}, tmp_path)
    assert outcome.status in (ExitStatus.OK, ExitStatus.UNCALIBRATED), outcome.reason
    assert 5e5 < goodput_bps(outcome) < 19.6e6
    about = json.loads((outcome.folder / "manifest.json").read_text())
    assert (about["lab"], about["emulator"]) == ("vm", "opensand")
    assert about["versions"]["sat:opensand"] == "8.2.0"
    logs = {
        file.stem: file.read_text()
        for file in (outcome.folder / "raw" / "logs").glob("opensand-*.log")
    }
    assert logs.keys() == {"opensand-gw", "opensand-sat", "opensand-st"}
    assert all(log.count("Blocks initialized") == 1 for log in logs.values()), (
        "logs since the last start"
    )
    checks = json.loads((outcome.folder / "raw" / "calibration.json").read_text())["checks"]
    assert "opensand_losses.gse_encapsulation" in {check["name"] for check in checks}
    provisioned.inventory("satlink")
    provisioned.play("site.yml", *only("satlink"))
    provisioned.play("verify.yml", *only("satlink"))


# --- traffic, last --------------------------------------------------------------------------------


def run_as_planned(lab: VmLab, scenario: str, settings: dict[str, str], runs: Path) -> RunResult:
    results: list[RunResult] = []

    def attempt() -> Path:
        results.append(run(lab, scenario, settings, runs / str(len(results))))
        return results[-1].folder

    calibrated(attempt)
    return results[-1]


@pytest.mark.timing
@pytest.mark.promise("P98")
def test_a_bulk_transfer_makes_a_run_folder_marked_with_its_lab(lab: VmLab, tmp_path: Path) -> None:
    outcome = run_as_planned(lab, "bulk_tcp", {"duration": "5"}, tmp_path)
    assert outcome.status in (ExitStatus.OK, ExitStatus.UNCALIBRATED), outcome.reason
    about = json.loads((outcome.folder / "manifest.json").read_text())
    assert (about["lab"], about["emulator"], about["profile"]) == ("vm", "satlink", "geo")
    assert "client:satlab-jobs" in about["versions"]
    assert set(about["files"]) >= {
        "raw/jobs.jsonl",
        "raw/stats.jsonl",
        "raw/link.jsonl",
        "raw/calibration.json",
    }
    assert 1e6 < goodput_bps(outcome) < 19.6e6
    rtt = (
        outcome.records.lazy().collect().filter(polars.col("metric") == "rtt_ms")["value"].to_list()
    )
    print(f"rtt {rtt}")
    assert all(495 < each < 560 for each in rtt)
    assert (outcome.folder / "report" / "index.html").is_file()
    collector = vm_commands.collector_of(lab.folder)
    assert collector
    sent = netns.inside(nspawn.LAB_ID, netns.HOST_NODE, influx.send, [outcome.folder], collector)
    statistics, link = (
        len((outcome.folder / "raw" / f"{name}.jsonl").read_text().splitlines())
        for name in ("stats", "link")
    )
    assert sent > statistics + link, "all statistics, and several points of each line of the link's"


@pytest.mark.timing
def test_a_page_loads_over_http3(lab: VmLab, tmp_path: Path) -> None:
    outcome = run_as_planned(lab, "page_load", {"protocol": "h3", "runs": "1"}, tmp_path)
    loads = outcome.records.lazy().collect().filter(polars.col("metric") == "page_load_time_ms")
    print(loads.select("value", "status", "reason"))
    assert set(loads["status"]) == {"ok"}
    assert outcome.status in (ExitStatus.OK, ExitStatus.UNCALIBRATED), outcome.reason


@pytest.mark.timing
def test_quic_passes_the_proxies_with_the_consent_of_their_provisioning(
    lab: VmLab, tmp_path: Path
) -> None:
    """The consent is a file of the role `pep`; nothing in the request stands for it."""
    outcome = run_as_planned(lab, "quic", {"pep": "quic", "duration": "5"}, tmp_path)
    assert outcome.status in (ExitStatus.OK, ExitStatus.UNCALIBRATED), outcome.reason
    legs = outcome.records.lazy().collect().filter(polars.col("metric") == "quic_leg_ok")
    assert {json.loads(labels)["entity"] for labels in legs["labels"]} >= {"proxy-st", "proxy-gw"}
    assert set(legs["status"]) == {"ok"}
