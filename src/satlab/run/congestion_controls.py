# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the needs of a scenario on this host's kernel, before a lab is up."""

import itertools
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from satlab.common.errors import ConfigError, Fault
from satlab.openbach.model import BoundScenario

CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
MODULES = Path("/lib/modules")
FLAGS = {
    "satlab_iperf3": ("-C",),
    "satlab_tcp_conf": (
        "-C",
        "--client-side-congestion-control",
        "--server-side-congestion-control",
    ),
    "satlab_web_server": ("-C",),
}
"""Options of jobs that name a congestion control of the kernel's TCP."""
DEFAULT = "default"


def check_congestion_controls(bound: BoundScenario) -> None:
    """Check that the kernel has, or can load, each congestion control of TCP that jobs are to use.

    Raises ConfigError: with each one that it lacks.
    """
    known = congestion_controls()
    lacking = sorted({(job, name) for job, name in _named(bound) if name not in (*known, DEFAULT)})
    if lacking:
        hint = f"this kernel has {', '.join(sorted(known))}"
        faults = [
            Fault(job, f"congestion control {name}: the kernel does not have it", hint)
            for job, name in lacking
        ]
        raise ConfigError(f"the scenario {bound.name} cannot run with these values", faults)


def congestion_controls() -> set[str]:
    """Return the congestion controls that are loaded, and those whose modules are installed."""
    found = set(CONTROLS.read_text().split())
    for name in ("modules.dep", "modules.builtin"):
        listed = MODULES / platform.release() / name
        if listed.is_file():
            found |= set(re.findall(r"/net/ipv4/tcp_(\w+)\.ko", listed.read_text()))
    return found


def _named(bound: BoundScenario) -> Iterator[tuple[str, str]]:
    for started in bound.jobs():
        words = [str(word) for word in started.words]
        for flag in FLAGS.get(started.job.name, ()):
            yield from (
                (started.job.name, after)
                for word, after in itertools.pairwise(words)
                if word == flag
            )
