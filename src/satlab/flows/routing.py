# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses and routes of a lab's nodes that its flows need. The lab ends with all of them."""

import subprocess

from satlab.common.errors import HostError
from satlab.lab.lab import Lab

COMMAND_S = 10.0


def ip(lab: Lab, node: str, *words: str) -> None:
    """Run `ip` in a node (ip(8)). Raises HostError where it refuses, or does not end."""
    argv = [*lab.enter_argv(node), "ip", *words]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise HostError(f"ip {' '.join(words)}: no end after {error.timeout:g} s") from error
    if done.returncode:
        raise HostError(f"ip {' '.join(words)}: {done.stderr.strip()}")
