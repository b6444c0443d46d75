# SPDX-License-Identifier: GPL-3.0-or-later
"""A provisioned VM lab: its hosts, reached over ssh."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from satlab.common.errors import ConfigError, HostError
from satlab.common.topology import Topology
from satlab.vm.inventory import machines
from satlab.vm.provision import VmFolder, ssh_options

COMMAND_DEADLINE_S = 60.0


@dataclass(frozen=True)
class VmLab:
    """A provisioned lab: its hosts by ssh.

    `enter` is put before ssh if the control network is not the host's.
    """

    folder: VmFolder
    topology: Topology
    user: str = "vagrant"
    enter: Sequence[str] = ()
    keys: Mapping[str, Path] = field(default_factory=dict)

    @property
    def is_up(self) -> bool:
        """Return whether the keys of its hosts are known; the hosts of a controller elsewhere are
        not.
        """
        return self.folder.known_hosts.exists()

    def ssh(self, node: str) -> list[str]:
        """Return the argv prefix that runs a command on a host.

        Raises:
            ConfigError: the lab has no such host.
        """
        hosts = machines(self.topology).hosts
        if node not in hosts:
            raise ConfigError(f"the VM lab has no host {node!r}", hint=f"one of {', '.join(hosts)}")
        key = self.keys.get(node, self.folder.key)
        target = f"{self.user}@{hosts[node].address}"
        return [*self.enter, "ssh", *ssh_options(self.folder), "-i", str(key), target, "--"]

    def argv(self, node: str, *words: str) -> list[str]:
        """Return the argv that runs a command on a host as root; its words arrive there as they
        are.
        """
        return [*self.ssh(node), shlex.join(["sudo", "-n", *words])]

    def output(self, node: str, *argv: str) -> bytes:
        """Return the output of a command on a host.

        Raises:
            HostError: the host does not answer, or the command fails.
        """
        try:
            done = subprocess.run(
                self.argv(node, *argv),
                capture_output=True,
                timeout=COMMAND_DEADLINE_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise HostError(f"{node} does not answer", "look at it: satlab vm status") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise HostError(
                f"{node}: {argv[0]}: {said[-1] if said else done.returncode}",
                "look at it: satlab vm status",
            )
        return done.stdout
