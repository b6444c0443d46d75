# SPDX-License-Identifier: GPL-3.0-or-later
"""A provisioned lab as the tests of a stage see it."""

from dataclasses import dataclass

from satlab.common.topology import Topology
from satlab.link.config import Emulator
from satlab.link.options import LinkOptions
from satlab.vm import provision
from satlab.vm.inventory import VmOptions
from satlab.vm.provision import PlayRecap
from tests.vm.nspawn import TERMINALS, Containers


@dataclass(frozen=True)
class Provisioned:
    """The containers after site.yml: what it did on each host, and how long boot and play took, s."""

    containers: Containers
    topology: Topology
    choices: VmOptions
    recap: dict[str, PlayRecap]
    boot_s: float
    play_s: float

    def play(self, playbook: str, *extra: str) -> dict[str, PlayRecap]:
        """Run a playbook over the containers."""
        return provision.play(self.containers.folder, playbook, *extra, enter=self.containers.enter)

    def inventory(self, emulator: Emulator) -> None:
        """Write the inventory anew, for another emulator."""
        choices = VmOptions(self.choices.size, emulator, self.choices.variables)
        folder, connection = self.containers.folder, self.containers.connection()
        # OpenSAND has the terminals of its profile.
        profile = "geo-dama" if emulator == "opensand" and TERMINALS == 2 else "geo"
        options = LinkOptions(emulator=emulator, profile=profile)
        provision.prepare(folder, self.topology, choices, options, connection)
