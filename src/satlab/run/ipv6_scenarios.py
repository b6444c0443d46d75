# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios over IPv6 (`--ip 6`): addresses of the lab in them become those of IPv6."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address

from satlab.common import ipv6
from satlab.common.errors import ConfigError, Fault
from satlab.common.topology import NetworkKind, Topology
from satlab.openbach import scenario as scenarios
from satlab.openbach.model import BoundScenario, Scenario, StartJob

JOBS = frozenset(
    {
        "satlab_await",
        "satlab_capture",
        "satlab_curl",
        "satlab_iperf3",
        "satlab_page_load",
        "satlab_pep",
        "satlab_ping",
        "satlab_rrul",
        "satlab_satperf",
        "satlab_system_load",
        "satlab_tcp_conf",
        "satlab_web_server",
    }
)
"""Jobs that accept IPv6 addresses, or take no addresses."""
_IPV4_ALONE = ("satlab_pep", "pepsal")
"""The job of proxies, and the engine (its first argument) without IPv6."""
_SHIPPED = "satlab_"
"""Prefix of the names of jobs that this module knows; other jobs are not checked."""
_PREFIX = "2001:2:"
"""Prefix of the lab's IPv6 addresses (`ipv6.SPACE`), also within a URL."""


def bind(
    scenario: Scenario, given: Mapping[str, str], lab: Topology, ip: str | None
) -> BoundScenario:
    """Bind a scenario to its values; with `ip` 6, to the lab's addresses of IPv6.

    Raises:
        ConfigError: a value is wrong, or a job knows IPv4 alone.
    """
    if ip == "6":
        bound = scenarios.bind(scenario, settings(scenario, given, lab))
        check(bound)
    else:
        bound = scenarios.bind(scenario, given)
        check_chosen(bound, lab)
    return bound


def settings(scenario: Scenario, given: Mapping[str, str], lab: Topology) -> dict[str, str]:
    """Return the settings with the address of IPv6 for each constant that is an address of the lab.

    Values of the caller stay.
    """
    known = {
        str(interface.address)
        for node in lab.nodes.values()
        for interface in node.interfaces.values()
        if lab.networks[interface.network].kind is not NetworkKind.EMULATION
    }
    chosen = {
        name: value
        for name, value in scenario.constants.items()
        if value in known and name not in given
    }
    return {
        **given,
        **{name: str(ipv6.address(IPv4Address(value))) for name, value in chosen.items()},
    }


def check(scenario: BoundScenario) -> None:
    """Refuse jobs that support only IPv4, and PEPsal.

    Raises:
        ConfigError: with each of them.
    """
    _refuse(scenario, list(scenario.jobs()))


def check_chosen(scenario: BoundScenario, lab: Topology) -> None:
    """Check the addresses of IPv6 that a caller has set in a scenario over IPv4.

    Raises:
        ConfigError: the lab has no IPv6, or such an address is passed to a job that supports only
        IPv4; names each job.
    """
    given = [one for one in scenario.jobs() if any(_PREFIX in str(word) for word in one.words)]
    if given and not lab.ipv6:
        raise ConfigError(
            f"{scenario.name} has addresses of IPv6, and the lab has none", hint="add --ip both"
        )
    _refuse(scenario, [one for one in given if one.job.name.startswith(_SHIPPED)])


def _refuse(scenario: BoundScenario, started: Sequence[StartJob]) -> None:
    names = sorted({one.job.name for one in started} - JOBS)
    if any((one.job.name, *map(str, one.words[:1])) == _IPV4_ALONE for one in started):
        names.append(" ".join(_IPV4_ALONE))
    if names:
        faults = [Fault(name, "knows addresses of IPv4 alone", "--ip 4 or both") for name in names]
        raise ConfigError(f"{scenario.name} cannot run over IPv6", faults)
