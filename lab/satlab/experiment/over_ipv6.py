# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios over IPv6 (`--ip 6`): addresses of the lab that they name become those of IPv6."""

from collections.abc import Mapping
from ipaddress import IPv4Address

from satlab.common import ipv6
from satlab.common.errors import ConfigError, Fault
from satlab.common.topology import NetworkKind, Topology
from satlab.openbach.model import BoundScenario, Scenario

JOBS = frozenset(
    {
        "satlab_await", "satlab_curl", "satlab_iperf3", "satlab_page_load", "satlab_pep", "satlab_ping",
        "satlab_satperf", "satlab_system_load", "satlab_tcp_conf", "satlab_web_server",
    }
)  # fmt: skip
"""Jobs that take addresses of IPv6, or none."""
_IPV4_ALONE = ("satlab_pep", "pepsal")
"""The job of proxies, and the engine, its first word, that has no IPv6."""


def settings(scenario: Scenario, given: Mapping[str, str], lab: Topology) -> dict[str, str]:
    """Return settings of a scenario in which each constant that is an address of the lab has that of IPv6.

    What was set by the caller stays.
    """
    known = {
        str(interface.address)
        for node in lab.nodes.values()
        for interface in node.interfaces.values()
        if lab.networks[interface.network].kind is not NetworkKind.EMULATION
    }
    chosen = {name: value for name, value in scenario.constants.items() if value in known and name not in given}
    return {**given, **{name: str(ipv6.address(IPv4Address(value))) for name, value in chosen.items()}}


def check(scenario: BoundScenario) -> None:
    """Refuse jobs that know IPv4 alone, and PEPsal.

    Raises:
        ConfigError: with each of them.
    """
    started = list(scenario.jobs())
    names = sorted({one.job.name for one in started} - JOBS)
    if any((one.job.name, *map(str, one.words[:1])) == _IPV4_ALONE for one in started):
        names.append(" ".join(_IPV4_ALONE))
    if names:
        faults = [Fault(name, "knows addresses of IPv4 alone", "--ip 4 or both") for name in names]
        raise ConfigError(f"{scenario.name} cannot run over IPv6", faults)
