# SPDX-License-Identifier: GPL-3.0-or-later
"""A libvirt of its own for the stage "vm": in a network and a mount namespace, so the host's stays
as it is.

`python -m tests.vm.libvirt FOLDER` is started inside the network namespace; it puts its folders in
place of libvirt's and becomes libvirtd.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from satlab.common import netns_names, paths
from satlab.common.errors import HostError
from satlab.common.processes import TrackedProcess, start, wait
from satlab.lab import netns
from tests.vm import stage_lock

LAB_ID = "vmstage"
FOLDERS = {
    "etc": "/etc/libvirt",
    "lib": "/var/lib/libvirt",
    "log": "/var/log/libvirt",
    "run": "/run/libvirt",
}
QEMU_CONF = """\
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = [ ]
remember_owner = 0
stdio_handler = "file"
"""
"""What libvirt needs on a host without systemd; a probe of KVM for each machine takes a minute
otherwise.
"""
READY_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Libvirt:
    """A libvirtd that runs; `enter` runs a command where it is."""

    process: TrackedProcess
    folder: Path

    @property
    def enter(self) -> list[str]:
        """Return the argv prefix that runs a command in its namespaces."""
        there = ["nsenter", f"--target={self.process.pid}", "--net", "--mount", "--"]
        return [*there, "env", f"--chdir={paths.ROOT}"]

    @property
    def environment(self) -> Mapping[str, str]:
        """Return Vagrant's folders: nothing of the user's."""
        return {
            "VAGRANT_HOME": str(self.folder / "vagrant"),
            "VAGRANT_DOTFILE_PATH": str(self.folder / "dot"),
        }

    def run(self, argv: Sequence[str], deadline_s: float) -> str:
        """Run a command there and return its output."""
        environment = os.environ | dict(self.environment)
        done = subprocess.run(
            [*self.enter, *argv],
            env=environment,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise HostError(f"{' '.join(argv)}: {done.stderr or done.stdout}")
        return done.stdout


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Libvirt]:
    """Run libvirtd as long as the block lasts; machines that are left are ended with their
    namespace.
    """
    with stage_lock.owned(LAB_ID, folder):
        stage_lock.end_processes(LAB_ID)
        netns.build_host(LAB_ID)
        for name in FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "etc/qemu.conf").write_text(QEMU_CONF)
        argv = [
            "nsenter",
            f"--net={netns_names.path(LAB_ID, netns.HOST_NODE)}",
            "--",
            "unshare",
            "--mount",
            "--",
        ]
        log = folder / "libvirtd.log"
        process = start(
            [*argv, sys.executable, "-m", "tests.vm.libvirt", str(folder)], out=log, log=log
        )
        found = Libvirt(process, folder)
        try:
            if not wait(lambda: _answers(found), READY_DEADLINE_S):
                raise HostError(f"libvirtd does not answer: {process.last_words()}")
            yield found
        finally:
            with stage_lock.unhurried():
                _end(process)


def _answers(found: Libvirt) -> bool:
    if not found.process.is_alive():
        raise HostError(f"libvirtd ended: {found.process.last_words()}")
    argv = [*found.enter, "virsh", "--connect", "qemu:///system", "list"]
    return subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 0


def _end(process: TrackedProcess) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    wait(process.is_reaped, 15)
    stage_lock.end_processes(LAB_ID)


def main(folder: Path) -> None:
    """Put the folders in place and become libvirtd."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for name, place in FOLDERS.items():
        Path(place).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", str(folder / name), place], check=True)
    os.execvp("libvirtd", ["libvirtd"])  # noqa: S606


if __name__ == "__main__":
    main(Path(sys.argv[1]))
