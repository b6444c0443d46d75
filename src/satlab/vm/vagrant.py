# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of Vagrant: up, state, down; and the keys for ssh without Vagrant."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satlab.common import paths
from satlab.common.errors import HostError
from satlab.common.topology import Machines
from satlab.vm.provision import VmFolder

UP_DEADLINE_S = {"kvm": 1800.0, "qemu": 3600.0}
"""Longest time until all machines are up, s; the Vagrantfile has a shorter limit for each."""
COMMAND_DEADLINE_S = 300.0
CONSOLES = Path("/var/log/libvirt/qemu")
HOST_KEY = re.compile(r"\bssh-ed25519 [A-Za-z0-9+/]{60,}={0,2}")
_HINTS = {
    "does not match with network name": (
        "another network of libvirt has this address: virsh net-list --all, virsh net-dumpxml NAME;"
        " set LAB_MANAGEMENT_SUBNET to a free subnet, or LAB_MANAGEMENT_NETWORK to that network"
    ),
    "already in use by interface": (
        "an interface of this host has the address of a network of the lab: set"
        " LAB_MANAGEMENT_SUBNET to a free subnet"
    ),
    "Storage source conflict": (
        "another storage pool has the folder of the pool default: virsh pool-list --all; set"
        " LAB_POOL to its name"
    ),
    "No usable storage pool": "set LAB_POOL to one of: virsh pool-list --all",
    "Waiting for domain to get an IP address": (
        "the box does not boot: look at its console, {consoles}"
    ),
    "could not be found": (
        "the box is not there: vagrant box add, or make box and LAB_BOX=satlab/bookworm"
    ),
    "Permission denied": "are you in the groups libvirt and kvm? Log in again after adduser",
    "Call to virDomainCreate": (
        "libvirt refused a machine: memory, or LAB_DRIVER=qemu where KVM does not work"
    ),
    "Timed out": "a machine did not boot in time: look at its console, {consoles}",
}


@dataclass(frozen=True)
class Vagrant:
    """Vagrant over this tree's Vagrantfile.

    `enter` is put before it if libvirt is in another namespace.
    """

    driver: str = "kvm"
    enter: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def up(self, folder: VmFolder, names: Sequence[str], on_line: Callable[[str], None]) -> None:
        """Bring machines up; running ones are not changed.

        Raises:
            HostError: a machine does not come up, with what to look at.
        """
        argv = ["vagrant", "up", *names, "--provider=libvirt", "--no-provision", "--no-color"]
        if self.driver == "qemu" and len(names) > (os.cpu_count() or 1) + 1:
            argv.append(
                "--no-parallel"
            )  # interpreted machines that boot all at once starve each other
        self._run(argv, folder.path / "vagrant.log", UP_DEADLINE_S[self.driver], on_line)

    def down(self, folder: VmFolder, on_line: Callable[[str], None]) -> None:
        """Destroy every machine."""
        argv = ["vagrant", "destroy", "--force", "--no-color"]
        self._run(argv, folder.path / "vagrant.log", COMMAND_DEADLINE_S, on_line)

    def states(self) -> dict[str, str]:
        """Return the state of each machine as Vagrant calls it: running, shutoff, not_created."""
        text = self._output("vagrant", "status", "--machine-readable")
        found = re.findall(r"^\d+,([^,]+),state,([^,\r\n]+)", text, re.MULTILINE)
        return dict(found)

    def keys(self, names: Sequence[str]) -> dict[str, Path]:
        """Return the key that Vagrant made for each machine to replace the well-known one.

        Raises:
            HostError: a machine has none: it was never brought up.
        """
        root = Path(self.environment.get("VAGRANT_DOTFILE_PATH", paths.ROOT / ".vagrant"))
        found = {name: root / "machines" / name / "libvirt" / "private_key" for name in names}
        missing = [name for name, key in found.items() if not key.is_file()]
        if missing:
            raise HostError(
                f"{', '.join(missing)}: has no key of its own",
                "bring the lab up first: satlab vm up",
            )
        return found

    def host_key(self, name: str) -> str:
        """Return a machine's host key from its console; where that cannot be read, over Vagrant's
        own way in.

        The latter is the host's internal bridge, before anybody else knows the machine.
        """
        with contextlib.suppress(
            HostError
        ):  # not every user may read it, and not every box prints its key there
            said = HOST_KEY.findall(self._output("cat", str(CONSOLES / f"satlab-{name}.console")))
            if said:
                return str(said[-1])
        text = self._output(
            "vagrant", "ssh", name, "--no-tty", "-c", "cat /etc/ssh/ssh_host_ed25519_key.pub"
        )
        said = HOST_KEY.findall(text)
        if not said:
            raise HostError(
                f"{name}: has no host key on its console or disk", "is it up? satlab vm status"
            )
        return str(said[-1])

    def _variables(self) -> dict[str, str]:
        """Return the variables of a command; what it says is in English, also that of libvirt."""
        return os.environ | {"LC_ALL": "C.UTF-8"} | dict(self.environment)

    def _output(self, *argv: str) -> str:
        try:
            done = subprocess.run(
                [*self.enter, *argv],
                cwd=paths.ROOT,
                env=self._variables(),
                capture_output=True,
                text=True,
                timeout=COMMAND_DEADLINE_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except FileNotFoundError as error:
            raise HostError(
                f"{argv[0]} is missing", "apt-get install vagrant vagrant-libvirt"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise HostError(
                f"{' '.join(argv[:2])} does not end", "does libvirt answer? virsh list"
            ) from error
        if done.returncode:
            raise HostError(_why(done.stderr or done.stdout), _hint(done.stderr))
        return done.stdout

    def _run(
        self, argv: Sequence[str], log: Path, deadline_s: float, on_line: Callable[[str], None]
    ) -> None:
        """Run a long command in a new session, so that all its processes can be ended; its output
        goes to `log`.
        """
        began = time.monotonic()
        with log.open("ab") as file, tempfile.TemporaryFile() as own:
            process = subprocess.Popen(
                [*self.enter, *argv],
                cwd=paths.ROOT,
                env=self._variables(),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=own,
                stderr=subprocess.STDOUT,
            )
            try:
                status = self._wait(process, own, began + deadline_s, on_line)
            finally:
                _end(process)
                own.seek(0)
                text = own.read()
                file.write(text)
        said = text.decode(errors="replace")
        if status is None:
            raise HostError(
                f"{' '.join(argv[:2])} did not end within {deadline_s:g} s: {_why(said)}",
                _hint(said),
            )
        if status:
            raise HostError(
                f"{' '.join(argv[:2])}: {_why(said)}", f"{_hint(said)}; all of it: {log}"
            )

    def _wait(
        self,
        process: "subprocess.Popen[bytes]",
        output: Any,
        end: float,
        on_line: Callable[[str], None],
    ) -> int | None:
        while time.monotonic() < end:
            try:
                return process.wait(1.0)
            except subprocess.TimeoutExpired:
                output.seek(0)
                lines = output.read().decode(errors="replace").splitlines()
                on_line(
                    next(
                        (
                            line.removeprefix("==> ")
                            for line in reversed(lines)
                            if line.startswith("==> ")
                        ),
                        "",
                    )
                )
        return None


def connection(names: Sequence[str], keys: Mapping[str, Path], folder: VmFolder) -> dict[str, Any]:
    """Return Ansible's variables for reaching each machine with its own key and the lab's list of
    host keys.
    """
    return {
        name: {
            "ansible_user": "vagrant",
            "ansible_become": True,
            "ansible_ssh_private_key_file": str(keys[name]),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={folder.known_hosts}",
        }
        for name in names
    }


def pin(folder: VmFolder, found: Machines, host_keys: Mapping[str, str]) -> None:
    """Write the list of hosts that ssh takes."""
    lines = [f"{found.hosts[name].address} {key}\n" for name, key in host_keys.items()]
    folder.known_hosts.touch(mode=0o600)
    folder.known_hosts.write_text("".join(lines))


def _end(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)


def _why(text: str) -> str:
    """Return the last lines that are not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-3:])[:600] or "it said nothing"


def _hint(text: str) -> str:
    for part, hint in _HINTS.items():
        if part in text:
            return hint.format(consoles=CONSOLES / "satlab-*.console")
    return "the message says what Vagrant or libvirt lacks; satlab vm down removes what was made"
