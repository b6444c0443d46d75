# SPDX-License-Identifier: GPL-3.0-or-later
"""A real `vagrant up` under software emulation, with the box built here, and traffic through the
chain.

`SATLAB_VM_STAGE=link` brings up the hosts of the satellite link alone (st, sat, gw): three machines
in place of seven, for busy or small hosts.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from satlab.common import paths, topology
from satlab.common.topology import Size
from satlab.lab import netns
from satlab.link.options import LinkOptions
from satlab.run import link_probe
from satlab.run.link_probe import Echoes, ProbePath
from satlab.vm import box, inventory, provision, vagrant
from satlab.vm.inventory import VmOptions
from satlab.vm.provision import VmFolder
from satlab.vm.vagrant import Vagrant
from satlab.vm.vm_lab import VmLab
from tests.vm import libvirt, package_proxy

pytestmark = [pytest.mark.vm, pytest.mark.timeout(7200)]
STATE = paths.ROOT / ".satlab" / "vmstage"
ROLES = (
    "always,base,satlink"
    if os.environ.get("SATLAB_VM_STAGE") == "link"
    else "always,base,time_sync,satlink"
)
"""Under software emulation a browser is of no use: the roles of the link alone."""
LINK_ONLY = os.environ.get("SATLAB_VM_STAGE") == "link"
PATH = (
    ProbePath("st", "198.18.63.2", "gw", "198.18.63.1")
    if LINK_ONLY
    else ProbePath("client", "198.18.1.2", "server", "198.18.4.2")
)
PROFILE_RTT_MS = 500.0 if LINK_ONLY else 580.0
"""geo: 500 ms over the satellite, 80 ms over the terrestrial segment; frames add up to 20 ms."""
EMULATION_MS = 120.0
"""What a loaded host that interprets seven machines on two cores may add."""


@dataclass(frozen=True)
class Machines:
    """The lab that is up, and how long its parts took, s."""

    lab: VmLab
    tool: Vagrant
    virt: libvirt.Libvirt
    times: dict[str, float]


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    here, folder = topology.load(), VmFolder(STATE / "lab")
    times: dict[str, float] = {}
    STATE.mkdir(parents=True, exist_ok=True)
    boxed = paths.ROOT / "dist" / f"{box.SUITE}.box"
    if not boxed.exists():
        with timed(times, "box"):
            box.build(boxed.parent)
    folder.make()
    with libvirt.running(STATE) as virt:
        environment = dict(virt.environment) | {
            "LAB_DRIVER": "qemu",
            "LAB_BOX": box.NAME,
            "LAB_SIZE": "small",
        }
        tool = Vagrant("qemu", virt.enter, environment)
        virt.run(["vagrant", "box", "add", "--force", "--name", box.NAME, str(boxed)], 600)
        names = ["st", "sat", "gw"] if LINK_ONLY else inventory.hosts(here, Size.SMALL)
        found = inventory.machines(here)
        try:
            with timed(times, "vagrant up"):
                tool.up(folder, names, Said())
            vagrant.pin(folder, found, {name: tool.host_key(name) for name in names})
            keys = tool.keys(names)
            sources = package_proxy.Sources(
                frozenset({"deb.debian.org", "security.debian.org"}),
                {},
                paths.ROOT / ".satlab/nspawn/packages",
            )
            address = topology.control_address(found)
            # The box has what the link's roles need; reading package lists takes an interpreted
            # machine minutes.
            variables = {
                "base_apt_proxy": f"http://{address}:{package_proxy.PORT}",
                "base_apt_update": not LINK_ONLY,
            }
            choices = VmOptions(Size.SMALL, "satlink", variables)
            provision.prepare(
                folder, here, choices, LinkOptions(), vagrant.connection(names, keys, folder)
            )
            with package_proxy.serving(package_proxy.listen(libvirt.LAB_ID, "0.0.0.0"), sources):  # noqa: S104 - in a namespace
                with timed(times, "site.yml"):
                    provision.play(
                        folder, "site.yml", *limits(names), enter=virt.enter, on_task=Said()
                    )
                yield Machines(VmLab(folder, here, enter=virt.enter, keys=keys), tool, virt, times)
        finally:
            with timed(times, "destroy"):
                tool.down(folder, lambda _: None)
        assert set(tool.states().values()) == {"not_created"}
        assert (
            virt.run(
                ["virsh", "--connect", "qemu:///system", "list", "--all", "--name"], 60
            ).split()
            == []
        )
    print(f"times, s: { {what: round(s) for what, s in times.items()} }")
    assert not netns.present(libvirt.LAB_ID)
    assert not netns.occupants(libvirt.LAB_ID)


@dataclass
class Said:
    """Prints what a long step says, once for each line: `pytest -s` shows how far it is."""

    last: str = ""

    def __call__(self, line: str) -> None:
        """Take a line."""
        if line and line != self.last:
            self.last = line
            print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def limits(names: Iterable[str]) -> list[str]:
    """Return the options of a play over these hosts."""
    return ["--tags", ROLES, "--limit", ",".join(names)]


@contextmanager
def timed(times: dict[str, float], what: str) -> Iterator[None]:
    """Note how long something took."""
    began = time.monotonic()
    yield
    times[what] = time.monotonic() - began
    print(f"{what}: {times[what]:.0f} s", flush=True)


def test_every_machine_runs_and_none_takes_vagrants_well_known_key(machines: Machines) -> None:
    states = machines.tool.states()
    assert [name for name, state in states.items() if state == "running"] == [
        n for n in states if n in machines.lab.keys
    ]
    for name in machines.lab.keys:
        keys = machines.lab.output(name, "cat", "/home/vagrant/.ssh/authorized_keys").decode()
        assert "vagrant insecure public key" not in keys
        assert keys.split()[1] != box.INSECURE_KEY.split()[1]


def test_echoes_and_a_train_cross_the_chain_in_the_time_of_the_profile(machines: Machines) -> None:
    offered_bps, seconds = 5_000_000, 10
    found = link_probe.measure(machines.lab.argv, PATH, offered_bps, seconds, 20)
    rtt = Echoes.of(found.rtts_ms)
    print(f"{rtt}; {found.received} of {found.sent} datagrams, {found.rate_bps} bit/s")
    assert rtt is not None and rtt.received == 20
    assert rtt.min_ms >= PROFILE_RTT_MS
    assert rtt.mean_ms <= PROFILE_RTT_MS + 20 + EMULATION_MS
    assert found.received > 0.9 * found.sent


def test_a_second_run_changes_nothing_and_verify_is_green(machines: Machines) -> None:
    folder, enter = machines.lab.folder, machines.virt.enter
    with timed(machines.times, "second site.yml"):
        recap = provision.play(folder, "site.yml", *limits(machines.lab.keys), enter=enter)
    assert {name: each.changed for name, each in recap.items()} == dict.fromkeys(recap, 0)
    provision.play(folder, "verify.yml", *limits(machines.lab.keys), enter=enter)


def test_status_reports_a_machine_that_is_away(machines: Machines) -> None:
    machines.virt.run(["virsh", "--connect", "qemu:///system", "destroy", "satlab-gw"], 60)
    assert machines.tool.states()["gw"] == "shutoff"
