# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the VM lab's requirements on the host before anything is started, and reports all that are
missing.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from satlab.common.errors import HostError
from satlab.common.topology import Size, Topology
from satlab.vm import box, inventory, libvirt_host

Driver = Literal["kvm", "qemu"]
PROGRAMS = {
    "vagrant": "vagrant",
    "virsh": "libvirt-clients",
    "qemu-system-x86_64": "qemu-system-x86",
    "dnsmasq": "dnsmasq-base",
}
"""Program: the Debian or Ubuntu package that has it."""
SPARE_MIB = 1024
"""Memory for the host itself."""
DISK_MIB_PER_HOST = 3072
"""Space that a guest writes beyond its box, mostly the browser's."""
_COMMAND_DEADLINE_S = 60.0
_BOX = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class MissingRequirement:
    """A missing requirement and its remedy."""

    what: str
    remedy: str


@dataclass(frozen=True)
class Host:
    """The host as the checks see it; tests replace it."""

    which: Callable[[str], str | None] = shutil.which
    kvm: Path = Path("/dev/kvm")
    meminfo: Path = Path("/proc/meminfo")
    free_disk_mib: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free >> 20
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def output(self, *argv: str) -> str | None:
        """Return the output of a command; None when it fails, is missing or does not end."""
        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                timeout=_COMMAND_DEADLINE_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None


def check(
    topology: Topology, size: Size, driver: Driver, box_name: str | None, folder: Path, host: Host
) -> list[str]:
    """Check programs, libvirt, KVM, memory, disk and box; return warnings of slow operation.

    Raises:
        HostError: something is missing; its text names everything that is.
    """
    faults = list(_missing(topology, size, driver, box_name, folder, host))
    if faults:
        raise HostError(
            "the host cannot carry the VM lab: " + "; ".join(fault.what for fault in faults),
            "; ".join(fault.remedy for fault in faults),
        )
    slow = (
        "software emulation: ten times slower than KVM; right for checks, not for comparing"
        " congestion controls"
    )
    return [slow] if driver == "qemu" else []


def _missing(
    topology: Topology, size: Size, driver: Driver, box_name: str | None, folder: Path, host: Host
) -> Iterator[MissingRequirement]:
    machines = inventory.machines(topology)
    names = inventory.hosts(topology, size)

    missing = [package for program, package in PROGRAMS.items() if host.which(program) is None]
    plugins = host.output("vagrant", "plugin", "list") if host.which("vagrant") else None
    if host.which("vagrant") and "vagrant-libvirt" not in (plugins or ""):
        missing.append("vagrant-libvirt")
    if missing:
        packages = " ".join([*missing, "libvirt-daemon-system"])
        yield MissingRequirement(
            f"missing: {', '.join(missing)}", f"sudo apt-get install {packages}"
        )
    else:
        if host.output("virsh", "--connect", "qemu:///system", "list", "--name") is None:
            yield MissingRequirement(
                "libvirt does not answer to this user",
                "sudo systemctl start libvirtd; sudo adduser $USER libvirt, then log in again",
            )
        for fault in libvirt_host.choose(machines, host.environment, host.output).faults:
            yield MissingRequirement(f"{fault.place}: {fault.reason}", fault.remedy)
        if box_name == box.NAME and box.NAME not in (host.output("vagrant", "box", "list") or ""):
            added = f"vagrant box add --name {box.NAME} dist/{box.SUITE}.box"
            yield MissingRequirement(
                f"the box {box.NAME} is not there", f"sudo make box, then {added}"
            )
        elif box_name not in (None, box.NAME) and not _BOX.fullmatch(box_name or ""):
            yield MissingRequirement(
                f"LAB_BOX={box_name}: is not the name of a box",
                f"OWNER/NAME, such as {machines.box.name}",
            )

    if driver == "kvm" and not os.access(host.kvm, os.R_OK | os.W_OK):
        why = "is not there" if not host.kvm.exists() else "is not open to this user"
        yield MissingRequirement(
            f"{host.kvm} {why}",
            "turn virtualisation on, or adduser $USER kvm, or LAB_DRIVER=qemu (slow)",
        )

    needed = sum(machines.hosts[name].memory_mib for name in names) + SPARE_MIB
    found = re.search(r"^MemAvailable:\s+(\d+) kB", host.meminfo.read_text(), re.MULTILINE)
    available = int(found[1]) >> 10 if found else 0
    if available < needed:
        yield MissingRequirement(
            f"{available} MiB of memory are free, {needed} are needed",
            "LAB_SIZE=small, or less memory_mib in vagrant/lab.yml",
        )

    needed, free = len(names) * DISK_MIB_PER_HOST, host.free_disk_mib(folder)
    if free < needed:
        yield MissingRequirement(
            f"{free} MiB of disk are free at {folder}, {needed} are needed", "free some space"
        )


def settings(environment: Mapping[str, str]) -> tuple[Size, Driver, str | None]:
    """Read LAB_SIZE, LAB_DRIVER and LAB_BOX.

    Raises:
        HostError: an invalid value.
    """
    size, driver = environment.get("LAB_SIZE", "small"), environment.get("LAB_DRIVER", "kvm")
    sizes = [one.value for one in Size]
    if size not in sizes or driver not in ("kvm", "qemu"):
        raise HostError(
            f"LAB_SIZE={size} LAB_DRIVER={driver}: not usable", f"{', '.join(sizes)}; kvm or qemu"
        )
    return Size(size), "kvm" if driver == "kvm" else "qemu", environment.get("LAB_BOX")
