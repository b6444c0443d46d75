# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses and routes that flows add to the nodes of a lab. They end with the lab."""

import subprocess

from satlab.common.errors import HostError
from satlab.lab.lab import Lab

COMMAND_S = 10.0


def ip(lab: Lab, node: str, *words: str) -> None:
    """Run ip(8) in a node. Raises HostError if it fails or does not end."""
    argv = [*lab.enter_argv(node), "ip", *words]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise HostError(f"ip {' '.join(words)}: no end after {error.timeout:g} s") from error
    if done.returncode:
        raise HostError(f"ip {' '.join(words)}: {done.stderr.strip()}")
