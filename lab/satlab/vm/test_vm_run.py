# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario on the VM lab: what is refused before anything is touched, and how a host is asked."""

import shlex
from pathlib import Path

import pytest

from satlab.common import paths, topology
from satlab.common.errors import ConfigError, HostError
from satlab.common.topology import Size
from satlab.link import linkplan
from satlab.link.linkplan import Emulator
from satlab.link.options import LinkOptions
from satlab.vm import inventory, provision, vm_commands, vm_run
from satlab.vm.emulator_units import VmLink
from satlab.vm.inventory import VmOptions
from satlab.vm.provision import VmFolder
from satlab.vm.vm_hosts import VmLab

SCENARIO = paths.SCENARIOS / "ping.json"


def lab(tmp_path: Path, enter: tuple[str, ...] = ()) -> VmLab:
    folder = VmFolder(tmp_path / "lab")
    folder.make()
    return VmLab(folder, topology.load(), enter=enter)


def test_a_lab_that_was_never_provisioned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="never provisioned") as caught:
        vm_run.prepare(SCENARIO, {}, lab(tmp_path))
    assert caught.value.hint == "bring it up: satlab vm up"


def test_words_arrive_on_a_host_as_they_are(tmp_path: Path) -> None:
    """ssh joins its words for the shell there; this ssh prints what such a shell would run."""
    script = tmp_path / "ssh"
    script.write_text('#!/bin/sh\nfor last; do :; done\neval "set -- $last"\nprintf "%s|" "$@"\n')
    script.chmod(0o755)
    words = ("a b", "$HOME", "it's", "${Package} ${Version}\\n", "--")
    found = lab(tmp_path, ("env", f"PATH={tmp_path}:/usr/bin:/bin"))
    assert found.output("st", *words).decode() == "|".join(("sudo", "-n", *words)) + "|"
    assert shlex.split(found.argv("st", *words)[-1]) == ["sudo", "-n", *words]


def test_t07_ssh_takes_pinned_hosts_and_the_lab_s_key_alone(tmp_path: Path) -> None:
    argv = lab(tmp_path).ssh("gw")
    assert "StrictHostKeyChecking=yes" in argv
    assert f"UserKnownHostsFile={tmp_path}/lab/known_hosts" in argv
    assert argv[-2:] == ["vagrant@198.19.0.15", "--"]


def test_a_host_that_fails_reports_its_last_words(tmp_path: Path) -> None:
    script = tmp_path / "ssh"
    script.write_text("#!/bin/sh\necho first >&2; echo no such unit >&2; exit 4\n")
    script.chmod(0o755)
    found = lab(tmp_path, ("env", f"PATH={tmp_path}:/usr/bin:/bin"))
    with pytest.raises(HostError, match="sat: systemctl: no such unit"):
        found.output("sat", "systemctl", "restart", "satlink")
    with pytest.raises(ConfigError, match="no host 'nobody'"):
        found.ssh("nobody")


def test_the_lab_s_own_controller_and_collector_are_found_with_their_passwords(tmp_path: Path) -> None:
    found, here = lab(tmp_path), topology.load()
    assert vm_commands.controller_of(found.folder) is None
    inventory.write(found.folder.inventory, inventory.inventory(here, VmOptions(Size.SMALL), {}))
    assert (vm_commands.controller_of(found.folder), vm_commands.collector_of(found.folder)) == (None, None)
    inventory.write(found.folder.inventory, inventory.inventory(here, VmOptions(Size.FULL), {}))
    assert vm_commands.collector_of(found.folder) is None  # its role has not run
    with pytest.raises(ConfigError, match="no password yet"):
        vm_commands.controller_of(found.folder)
    for name in ("openbach-admin", "influxdb-admin"):
        (found.folder.secrets / name).write_text("secret\n")
    controller = vm_commands.controller_of(found.folder)
    assert controller
    assert (str(controller), controller.login, controller.password) == ("http://198.19.0.20:8000", "openbach", "secret")
    assert vm_commands.collector_of(found.folder) == "http://admin:secret@198.19.0.20:8086"


@pytest.mark.parametrize(
    ("emulator", "restarted"),
    [("satlink", ["198.19.0.14"]), ("opensand", ["198.19.0.14", "198.19.0.15", "198.19.0.13"])],
)
def test_a_run_starts_its_emulator_afresh(tmp_path: Path, emulator: Emulator, restarted: list[str]) -> None:
    """OpenSAND's satellite comes first, its terminal last."""
    script, log = tmp_path / "ssh", tmp_path / "log"
    script.write_text(f'#!/bin/sh\nfor last; do before=$host; host=$at; at=$last; done\necho "$before $last" >>{log}\n')
    script.chmod(0o755)
    found = lab(tmp_path, ("env", f"PATH={tmp_path}:/usr/bin:/bin"))
    config = provision.link_config(topology.load(), LinkOptions(emulator=emulator))
    emulated = VmLink(found, linkplan.plan(config), emulator, tmp_path / "link.jsonl")
    emulated.restart()
    *restarts, echo = log.read_text().splitlines()
    assert restarts == [f"vagrant@{address} sudo -n systemctl restart {emulator}" for address in restarted]
    assert "vagrant@198.19.0.11 sudo -n ping" in echo
    if emulator == "opensand":
        assert emulated.during(0.0) == []


def test_the_link_of_the_guest_joins_its_tunnels(tmp_path: Path) -> None:
    config = provision.link_config(topology.load(), LinkOptions(loss=0.01))
    assert config.st
    assert config.gw
    assert (config.st.tun, config.gw.tun, config.emulator) == ("tun-st", "tun-gw", "satlink")
    assert provision.link_config(topology.load(), LinkOptions(emulator="opensand")).emulator == "opensand"


def test_without_netem_the_terrestrial_segment_adds_nothing() -> None:
    here = provision.without_terrestrial_delay(topology.load())
    assert provision.link_config(here, LinkOptions()).terrestrial_one_way_delay_ms == 0
