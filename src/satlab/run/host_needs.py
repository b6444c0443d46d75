# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the needs of a scenario on this host, before a lab is up."""

import platform
import re
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from satlab.common.errors import ConfigError, Fault, HostError
from satlab.common.paths import DASHJS, STANDARD_PATH
from satlab.lab.job_host import OPEN_FILES
from satlab.openbach.model import BoundScenario
from satlab.run.scenario_value_checks import given

CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
MODULES = Path("/lib/modules")
STATUS = Path("/proc/self/status")
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
FIREFOX = ("firefox-esr", "certutil")
"""Programs of page loads in Firefox."""
PEP = "satlab_pep"


def check(bound: BoundScenario) -> None:
    """Check what jobs need of the kernel, and programs that not every host has.

    Raises:
        ConfigError: with each congestion control that the kernel lacks.
        HostError: Firefox, dash.js or PEPsal is not installed, or PEPsal cannot run on this host.
    """
    check_congestion_controls(bound)
    for started in bound.jobs():
        if "firefox" in given(started, "browser") and not all(map(_found, FIREFOX)):
            raise HostError(
                f"{' or '.join(FIREFOX)} is not installed", "./satlab --install firefox"
            )
        if "dashjs" in given(started, "player") and not (DASHJS / "node_modules").exists():
            raise HostError("dash.js is not installed", "./satlab --install dashjs, or player=own")
    jobs = [started for started in bound.jobs() if started.job.name == PEP]
    if any(str(started.words[0]) == "pepsal" for started in jobs):
        check_pepsal()


def check_pepsal() -> None:
    """Raise HostError if PEPsal is not installed, or ends at its start: it sets its limit of open
    files, and says nothing where it may not.
    """
    remedy = "use pep=haproxy"
    if not _found("pepsal"):
        raise HostError("pepsal is not installed", f"no Debian release has it: {remedy}")
    needed, allowed = OPEN_FILES[PEP], resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= allowed < needed and not _may_raise_limits():
        raise HostError(
            f"pepsal sets its limit of open files to {needed}, and this host allows {allowed}",
            f"start satlab with that limit (ulimit -Hn {needed}), or {remedy}",
        )


def _found(program: str) -> bool:
    return shutil.which(program, path=STANDARD_PATH) is not None


def _may_raise_limits() -> bool:
    """Return whether this process has CAP_SYS_RESOURCE (proc(5): CapEff; capabilities(7): 24)."""
    found = re.search(r"^CapEff:\s*(\w+)$", STATUS.read_text(), re.MULTILINE)
    return bool(found and int(found[1], 16) >> 24 & 1)


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
        for control in started.values(FLAGS.get(started.job.name, ())):
            yield started.job.name, control
