# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of the VM lab as booted systemd-nspawn containers: real systemd, apt and ssh, on the
kernel of this host.

Each is a copy-on-write layer over one Debian root, in a network namespace of its own with the wires
of `lab.yml` (`satlab.netns.build_machines`). Nothing is registered with a systemd of the host, so
none is needed there.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satlab.common import netns_names, paths
from satlab.common.errors import HostError
from satlab.common.processes import TrackedProcess, start, wait
from satlab.common.topology import Size, Topology, control_address
from satlab.lab import netns
from satlab.vm import box, inventory
from satlab.vm.provision import VmFolder, ssh_options
from tests.vm import stage_lock

TERMINALS = int(os.environ.get("SATLAB_VM_TERMINALS", "1"))
"""Terminals of the stage: 1, the full lab; or 2, the small lab with an ST and a client more."""
LAB_ID = "nspawn" if TERMINALS == 1 else "nspawn2"
STATE = paths.ROOT / ".satlab" / "nspawn"
LAYERS = STATE / "layers"
ROOT_AGE_S = 7 * 86400
BOOT_DEADLINE_S = 120.0
_GROUP = f"satlab-{LAB_ID}-"
END_DEADLINE_S = 30.0


@dataclass(frozen=True)
class Containers:
    """The lab's hosts as containers; `folder` is private to this lab."""

    topology: Topology
    size: Size
    folder: VmFolder
    processes: dict[str, TrackedProcess]

    @property
    def enter(self) -> list[str]:
        """Return the argv prefix that runs a command where the lab's control network is."""
        return ["nsenter", f"--net={netns_names.path(LAB_ID, netns.HOST_NODE)}", "--"]

    def connection(self) -> dict[str, dict[str, Any]]:
        """Return Ansible's variables for reaching each host."""
        return {
            name: {
                "ansible_user": "vagrant",
                "ansible_become": True,
                "ansible_ssh_private_key_file": str(self.folder.key),
                "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.folder.known_hosts}",
            }
            for name in self.processes
        }


def _root() -> Path:
    """Return the unpacked root of all containers, made anew once a week.

    It has what each host would otherwise unpack for itself: large packages of several roles, and
    apt's lists.
    """
    root, archive = STATE / "root", STATE / "root.tar"
    packages = [*box.BASE_PACKAGES, "python3-venv", "chrony", "iperf3"]
    stamp = STATE / "root.packages"
    listed = " ".join(packages)
    fresh = (
        stamp.exists()
        and stamp.read_text() == listed
        and time.time() - stamp.stat().st_mtime < ROOT_AGE_S
    )
    if fresh and root.is_dir():
        return root
    STATE.mkdir(parents=True, exist_ok=True)
    subprocess.run(["rm", "-rf", str(root)], check=True)
    root.mkdir()
    box.make_root(archive, packages, has_lists=True)
    box.unpack(archive, root)
    box.run(["chroot", str(root), "apt-cache", "gencaches"])
    archive.unlink()
    stamp.write_text(listed)
    return root


@contextlib.contextmanager
def booted(topology: Topology, size: Size, folder: VmFolder) -> Iterator[Containers]:
    """Boot every host of a lab and yield them when ssh answers on all; nothing is left afterwards."""
    with stage_lock.owned(LAB_ID, LAYERS) as left:
        for layers in {left or LAYERS, LAYERS}:
            clean_up(layers)
        processes: dict[str, TrackedProcess] = {}
        try:
            # In memory, 3 GB at the end: what is thrown away needs no disk, for which dpkg waits at
            # each file.
            LAYERS.mkdir(parents=True)
            box.run(
                ["mount", "-t", "tmpfs", "-o", "mode=0755,size=8g", "satlab-layers", str(LAYERS)],
                deadline_s=10,
            )
            yield _boot_all(topology, size, folder, _root(), processes)
        finally:
            with stage_lock.unhurried():
                _end(processes)
                clean_up(LAYERS)


def _boot_all(
    topology: Topology,
    size: Size,
    folder: VmFolder,
    root: Path,
    processes: dict[str, TrackedProcess],
) -> Containers:
    """Boot every host and wait for its ssh; each is in `processes` from its start on."""
    names, machines = inventory.hosts(topology, size), inventory.machines(topology)
    prefix = machines.control.prefixlen
    control = {name: f"{machines.hosts[name].address}/{prefix}" for name in names}
    folder.make()
    netns.build_machines(topology, LAB_ID, control, f"{control_address(machines)}/{prefix}")
    _keygen(folder.key)
    keys = []
    for name in names:
        tree = _layer(LAYERS / name, root, name, folder.key.with_suffix(".pub").read_text())
        key = (tree / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
        keys.append(f"{machines.hosts[name].address} {key[0]} {key[1]}\n")
        processes[name] = _boot(name, tree, folder.path / f"{name}.console")
    folder.known_hosts.write_text("".join(keys))
    containers = Containers(topology, size, folder, processes)
    _await_ssh(containers, machines.hosts)
    return containers


def clean_up(layers: Path) -> None:
    """Remove what a lab, or a killed one, has left: containers, namespaces, mounts and the trees
    below `layers`.
    """
    stage_lock.end_processes(LAB_ID)
    for place in (*layers.glob("*/tree"), layers):
        if place.is_mount():
            box.run(["umount", "-l", str(place)], deadline_s=10)
    box.run(["rm", "-rf", "--one-file-system", str(layers)], deadline_s=120)
    _remove_groups()


def _own_groups() -> Iterator[Path]:
    """Yield our control group in each hierarchy that systemd manages: the unified one, and its own
    with older hosts.
    """
    places = {"": ("", "unified"), "name=systemd": ("systemd",)}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kind, path = line.split(":", 2)
        for place in places.get(kind, ()):
            group = Path("/sys/fs/cgroup") / place / path.strip("/")
            if (group / "cgroup.procs").exists():
                yield group


def _remove_groups() -> None:
    """Remove the control groups of containers."""
    for place in [group for own in _own_groups() for group in own.glob(f"{_GROUP}*")]:
        for group in (*sorted(place.rglob("*/"), reverse=True), place):
            with contextlib.suppress(OSError):  # it is still in use
                group.rmdir()


def _keygen(path: Path) -> None:
    for each in (path, path.with_suffix(".pub")):
        each.unlink(missing_ok=True)
    box.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "satlab", "-f", str(path)],
        deadline_s=10,
    )


def _layer(folder: Path, root: Path, name: str, public_key: str) -> Path:
    """Make a container's tree: a layer over the root with name, keys of its own, and no other way
    in.
    """
    upper, work, tree = (folder / part for part in ("upper", "work", "tree"))
    for each in (upper, work, tree):
        each.mkdir(parents=True)
    options = f"lowerdir={root},upperdir={upper},workdir={work}"
    box.run(["mount", "-t", "overlay", f"satlab-{name}", "-o", options, str(tree)], deadline_s=10)
    (tree / "etc/hostname").write_text(f"{name}\n")
    (tree / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
    _keygen(tree / "etc/ssh/ssh_host_ed25519_key")
    authorized = tree / "home/vagrant/.ssh/authorized_keys"
    authorized.write_text(public_key)
    authorized.chmod(0o600)
    os.chown(authorized, 1000, 1000)
    return tree


def _boot(name: str, tree: Path, console: Path) -> TrackedProcess:
    argv = [
        "env",
        "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network",
        f"PYTHONPATH={paths.PYTHONPATH}",
        sys.executable,
        "-m",
        "tests.vm.nspawn",
        f"{_GROUP}{name}",
        "systemd-nspawn",
        "--quiet",
        "--boot",
        f"--directory={tree}",
        f"--machine={name}",
        "--register=no",
        "--keep-unit",
        f"--network-namespace-path={netns_names.path(LAB_ID, name)}",
        "--capability=CAP_NET_ADMIN,CAP_IPC_LOCK",
        "--bind=/dev/net/tun",
        "--resolv-conf=off",
        "--link-journal=no",
        "--console=pipe",
        "--kill-signal=SIGRTMIN+3",
    ]
    return start(argv, out=console, log=console)


def _await_ssh(containers: Containers, hosts: Any) -> None:
    """Wait until each host lets us in: its ssh answers before systemd lets users log in."""
    options = [*ssh_options(containers.folder), "-i", str(containers.folder.key)]

    def answers(name: str) -> bool:
        if not containers.processes[name].is_alive():
            raise HostError(f"container {name} ended: {containers.processes[name].last_words()}")
        argv = [*containers.enter, "ssh", *options, f"vagrant@{hosts[name].address}", "true"]
        return (
            subprocess.run(
                argv, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL
            ).returncode
            == 0
        )

    for name in containers.processes:
        if not wait(lambda name=name: answers(name), BOOT_DEADLINE_S):  # type: ignore[misc]
            words = containers.processes[name].last_words()
            raise HostError(
                f"container {name} lets nobody in by ssh after {BOOT_DEADLINE_S:g} s: {words}"
            )


def _end(processes: dict[str, TrackedProcess]) -> None:
    for process in processes.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
    for process in processes.values():
        if not wait(process.is_reaped, END_DEADLINE_S):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            wait(process.is_reaped, END_DEADLINE_S)


def main(group: str, argv: list[str]) -> None:
    """Become a program in a control group of its own: systemds that share one end each other's
    services.
    """
    for own in list(_own_groups()):
        (own / group).mkdir(exist_ok=True)
        (own / group / "cgroup.procs").write_text(str(os.getpid()))
    os.execvp(argv[0], argv)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
