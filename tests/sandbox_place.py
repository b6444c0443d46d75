# SPDX-License-Identifier: GPL-3.0-or-later
"""What a sandbox needs without a lab: the namespaces of a node, a lab in name alone, a run to its
end.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from satlab.check import sandboxed_program
from satlab.check.sandboxed_program import ExitReport
from satlab.common import paths, topology
from satlab.lab.privileges import FIRST_UID, UIDS
from satlab.lab.sandbox import ENVIRONMENT, Place, Sandbox


@contextmanager
def new_place(folder: Path) -> Iterator[Place]:
    """Make a network namespace that belongs to a user namespace, kept in a folder."""
    user, network = folder / "user-namespace", folder / "networks" / "network"
    argv = [paths.SATBOX, "namespaces", user, FIRST_UID, UIDS, network]
    subprocess.run(list(map(str, argv)), env=ENVIRONMENT, check=True)
    try:
        yield Place(network, user)
    finally:
        subprocess.run(["umount", "-l", user, network, network.parent], check=True)


def lab_in_name(place: Place = Place()) -> Any:  # noqa: B008 - it is frozen
    """Return what a host of jobs asks of a lab: its nodes all have the namespaces of one place."""
    config = SimpleNamespace(control=None)
    nodes = topology.load(paths.LAB_FILE)
    return SimpleNamespace(topology=nodes, config=config, place=lambda _: place)


def run_to_its_end(
    box: Sandbox, argv: Sequence[str], log: Path, deadline_s: float = 20
) -> ExitReport:
    """Run a program in a sandbox; stop it after the deadline."""
    running = sandboxed_program.start(box, argv, log)
    return running.poll(deadline_s) or running.stop()
