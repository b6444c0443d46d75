# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario on the VM lab: what is refused before anything is touched, and how a host is asked."""

import json
import shlex
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from collect import opensand
from collect.calibration import CalibrationCheck
from collect.records import Record
from satlab.common import paths, topology
from satlab.common.errors import ConfigError, HostError
from satlab.common.topology import Size
from satlab.link.config import Emulator
from satlab.link.options import LinkOptions
from satlab.link.plan import plan_link
from satlab.run import link_probe, metrics_file
from satlab.run.lab_session import QUIET, run_session
from satlab.vm import inventory, provision, vm_commands, vm_run
from satlab.vm.controller_client import Controller
from satlab.vm.inventory import VmOptions
from satlab.vm.provision import VmFolder
from satlab.vm.vm_lab import VmLab
from satlab.vm.vm_session import UnreachedHost, VmHost

SCENARIO = paths.SCENARIOS / "ping.json"


@pytest.fixture(autouse=True)
def _short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a program of this name in place of the probe's text."""
    monkeypatch.setattr(link_probe, "PROGRAM", ("probe",))


def lab(tmp_path: Path, ssh: str = "") -> VmLab:
    """Return a lab; its ssh is this shell script."""
    folder = VmFolder(tmp_path / "lab")
    folder.make()
    if not ssh:
        return VmLab(folder, topology.load())
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\n{ssh}")
    program.chmod(0o755)
    return VmLab(folder, topology.load(), enter=("env", f"PATH={tmp_path}:/usr/bin:/bin"))


HOST = "for last; do before=$host; host=$at; at=$last; done\n"
"""Words of ssh: `$before` the host, `$last` the command."""


def test_a_lab_that_was_never_provisioned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="never provisioned") as caught:
        vm_run.prepare(SCENARIO, {}, lab(tmp_path))
    assert caught.value.hint == "bring it up: satlab vm up"


def test_a_controller_elsewhere_needs_no_machines_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no link is described") as caught:
        vm_run.prepare(SCENARIO, {}, lab(tmp_path), Controller("198.51.100.1"))
    assert caught.value.hint == "describe it once: satlab vm inventory --profile NAME"


def test_words_arrive_on_a_host_as_they_are(tmp_path: Path) -> None:
    """ssh joins its words for the shell there; this ssh prints what such a shell would run."""
    words = ("a b", "$HOME", "it's", "${Package} ${Version}\\n", "--")
    found = lab(tmp_path, 'for last; do :; done\neval "set -- $last"\nprintf "%s|" "$@"\n')
    assert found.output("st", *words).decode() == "|".join(("sudo", "-n", *words)) + "|"
    assert shlex.split(found.argv("st", *words)[-1]) == ["sudo", "-n", *words]


def test_t07_ssh_takes_pinned_hosts_and_the_lab_s_key_alone(tmp_path: Path) -> None:
    argv = lab(tmp_path).ssh("gw")
    assert "StrictHostKeyChecking=yes" in argv
    assert f"UserKnownHostsFile={tmp_path}/lab/known_hosts" in argv
    assert argv[-2:] == ["vagrant@198.19.0.15", "--"]


def test_a_host_that_fails_reports_its_last_words(tmp_path: Path) -> None:
    found = lab(tmp_path, "echo first >&2; echo no such unit >&2; exit 4")
    with pytest.raises(HostError, match="sat: systemctl: no such unit"):
        found.output("sat", "systemctl", "restart", "satlink")
    with pytest.raises(ConfigError, match="no host 'nobody'"):
        found.ssh("nobody")


def test_the_lab_s_own_controller_and_collector_are_found_with_their_passwords(
    tmp_path: Path,
) -> None:
    found, here = lab(tmp_path), topology.load()
    assert vm_commands.controller_of(found.folder) is None
    inventory.write(found.folder.inventory, inventory.inventory(here, VmOptions(Size.SMALL), {}))
    assert (vm_commands.controller_of(found.folder), vm_commands.collector_of(found.folder)) == (
        None,
        None,
    )
    inventory.write(found.folder.inventory, inventory.inventory(here, VmOptions(Size.FULL), {}))
    assert vm_commands.collector_of(found.folder) is None  # its role has not run
    with pytest.raises(ConfigError, match="no password yet"):
        vm_commands.controller_of(found.folder)
    for name in ("openbach-admin", "influxdb-admin"):
        (found.folder.secrets / name).write_text("secret\n")
    controller = vm_commands.controller_of(found.folder)
    assert controller
    assert (str(controller), controller.login, controller.password) == (
        "http://198.19.0.20:8000",
        "openbach",
        "secret",
    )
    assert vm_commands.collector_of(found.folder) == "http://admin:secret@198.19.0.20:8086"


@pytest.mark.parametrize(
    ("emulator", "restarted"),
    [("satlink", ["198.19.0.14"]), ("opensand", ["198.19.0.14", "198.19.0.15", "198.19.0.13"])],
)
def test_a_run_starts_its_emulator_afresh(
    tmp_path: Path, emulator: Emulator, restarted: list[str]
) -> None:
    """OpenSAND's satellite comes first, its terminal last."""
    log = tmp_path / "log"
    found = lab(tmp_path, f'{HOST}echo "$before $last" >>{log}\n')
    config = provision.link_config(topology.load(), LinkOptions(emulator=emulator))
    host = VmHost(found, plan_link(config), emulator, tmp_path / "link.jsonl")
    host.restart()
    *restarts, echo = log.read_text().splitlines()
    assert restarts == [
        f"vagrant@{address} sudo -n systemctl restart {emulator}" for address in restarted
    ]
    assert "vagrant@198.19.0.11 sudo -n ping" in echo


def test_losses_in_opensand_s_logs_are_fetched_and_judged(tmp_path: Path) -> None:
    """Each entity's journal since its start is in the run folder; what the scenario lost marks the
    run.
    """
    lost = "error during encapsulation : EncapErrorSizeBuffer\n"
    script = f"""{HOST}case "$before $last" in
*InvocationID*) echo "of-$before" ;;
*198.19.0.15*journalctl*of-vagrant@198.19.0.15) cat {tmp_path}/journal ;;
*journalctl*) echo quiet ;;
{PROBE}
esac
"""
    found = lab(tmp_path, script)
    config = provision.link_config(topology.load(), LinkOptions(emulator="opensand"))
    raw = tmp_path / "raw"
    host = VmHost(found, plan_link(config), "opensand", raw / "link.jsonl")
    (tmp_path / "journal").write_text(f"Blocks initialized\n{lost * 2}")
    host.calibrate(found)
    assert {cause: lost for cause, lost in host.probed.items() if lost} == {"gse_encapsulation": 2}
    (tmp_path / "journal").write_text(f"Blocks initialized\n{lost * 5}")
    judged = {check.name: (check.measured, check.ok) for check in host.release_errors(found, 0.0)}
    assert judged["opensand_losses.gse_encapsulation"] == (3, False)
    assert judged["opensand_losses.socket"] == (0, True)
    records = [r for r in opensand.records(raw, 0.0, 0.0) if isinstance(r, Record) and r.value]
    assert [(r.labels["entity"], r.labels["cause"], r.value) for r in records] == [
        ("gw", "gse_encapsulation", 5)
    ]
    lab(tmp_path, "exit 255")
    assert {check.measured for check in host.release_errors(found, 0.0)} == {None}


PROBE = f"""
*" send "*) read go; echo '{json.dumps({"rtts_ms": [581.5] * 23, "sent": 4000})}' ;;
*" answer "*) echo '{{"ready": true}}'; echo '{json.dumps({"received": 3800, "rate_bps": None})}' ;;
""".strip()
COUNTERS = {
    "in_packets": 100,
    "dropped_packets": 3,
    "queue_packets": 0,
    "out_packets": 100,
    "late_packets": 0,
    "late_max_us": 1.0,
}
SAMPLE = {"type": "sample", "t_unix_s": 2.0, "forward": COUNTERS, "return": COUNTERS}


def answering(tmp_path: Path, metrics: str = "") -> tuple[VmHost, Path]:
    """A lab whose hosts answer what a good link's would, and the log of the commands on each host."""
    (tmp_path / "metrics").write_text(metrics)
    log = tmp_path / "log"
    script = f"""{HOST}echo "$before $last" >>{log}
case "$last" in
{PROBE}
*" cat "*) cat {tmp_path}/metrics ;;
esac
"""
    machines = lab(tmp_path, script)
    plan = plan_link(provision.link_config(topology.load(), LinkOptions()))
    return VmHost(machines, plan, "satlink", tmp_path / "link.jsonl"), log


def commands(log: Path) -> list[str]:
    """Return the host's last byte and the first words of each command."""
    lines = [line.partition(" sudo -n ") for line in log.read_text().splitlines()]
    return [
        f"{target.rpartition('.')[2]} {' '.join(words.split()[:3])}" for target, _, words in lines
    ]


def test_a_session_on_the_machines_ends_with_the_emulator_s_last_line(tmp_path: Path) -> None:
    lines = [{"type": "header", "late_limit_us": 1000}, SAMPLE, {"type": "end"}]
    host, log = answering(tmp_path, "".join(json.dumps(line) + "\n" for line in lines))
    with host.opened(QUIET) as machines:
        assert commands(log) == ["14 systemctl restart satlink", "11 ping -n -q"]
    assert commands(log)[2:] == [
        "14 systemctl stop satlink",
        f"14 cat {provision.METRICS_THERE}",
        "14 systemctl start satlink",
    ]
    checks = host.release_errors(machines, 1.0)
    assert [(check.name, check.ok) for check in checks] == [
        ("late_packet_ratio.forward", True),
        ("late_packet_ratio.return", True),
    ]
    with pytest.raises(KeyboardInterrupt), host.opened(QUIET):
        raise KeyboardInterrupt
    assert not [line for line in commands(log)[5:] if "stop" in line], (
        "hosts may be gone: no further command"
    )


def sampled(
    host: VmHost, machine: Path, sample: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> list[CalibrationCheck]:
    """Calibrate; satlink, on `machine`, writes one more sample while its metrics are polled."""
    with machine.open("a") as append:

        def wait(_: float) -> None:
            append.write(json.dumps(sample) + "\n")
            append.flush()

        monkeypatch.setattr(
            metrics_file, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait)
        )
        return host.calibrate(host.lab)


def test_the_machines_link_is_measured_from_client_to_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, log = answering(tmp_path)
    checks = {
        check.name: check for check in sampled(host, tmp_path / "metrics", SAMPLE, monkeypatch)
    }
    assert checks["rtt_ms"].measured == 581.5
    assert checks["forward_udp_goodput_bps"].measured is None
    assert checks["forward_loss_ratio"].measured == (200 - 6) / (4000 - 6)
    assert sorted(line for line in commands(log) if "cat" not in line) == [
        "11 probe answer 198.18.1.2",
        "17 probe send 198.18.4.2",
    ]


def test_the_machines_link_is_measured_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, log = answering(tmp_path)
    paused = SAMPLE | {"t_unix_s": time.time() + 60, "forward": COUNTERS | {"late_max_us": 8e4}}
    checks = sampled(host, tmp_path / "metrics", paused, monkeypatch)
    assert "probed 3 times" in checks[0].note
    assert "(the host paused for 80 ms)" in checks[0].note
    assert sorted(line for line in commands(log) if "probe" in line) == [
        *["11 probe answer 198.18.1.2"] * 3,
        *["17 probe send 198.18.4.2"] * 3,
    ]


def test_hosts_that_do_not_answer_fail_a_probe_and_say_why(tmp_path: Path) -> None:
    plan = plan_link(provision.link_config(topology.load(), LinkOptions(emulator="opensand")))
    gone = VmHost(
        lab(tmp_path, "echo gone >&2; exit 255"), plan, "opensand", tmp_path / "raw" / "link.jsonl"
    )
    assert {check.note for check in gone.calibrate(gone.lab)} == {"the probe failed: gone"}


def test_hosts_that_are_not_reached_leave_a_run_uncalibrated(tmp_path: Path) -> None:
    machines = lab(tmp_path)
    result = run_session(UnreachedHost(machines), lambda opened, _: opened is machines)
    assert result.outcome is True
    assert [(check.name, check.measured, check.ok) for check in result.checks] == [
        ("rtt_ms", None, False)
    ]


def test_the_link_of_the_guest_joins_its_tunnels(tmp_path: Path) -> None:
    config = provision.link_config(topology.load(), LinkOptions(loss=0.01))
    assert config.st
    assert config.gw
    assert (config.st.tun, config.gw.tun, config.emulator) == ("tun-st", "tun-gw", "satlink")
    assert (
        provision.link_config(topology.load(), LinkOptions(emulator="opensand")).emulator
        == "opensand"
    )


def test_without_netem_the_terrestrial_segment_adds_nothing() -> None:
    here = provision.without_terrestrial_delay(topology.load())
    assert provision.link_config(here, LinkOptions()).terrestrial_one_way_delay_ms == 0
