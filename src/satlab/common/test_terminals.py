# SPDX-License-Identifier: GPL-3.0-or-later
"""Further terminals: their nodes, addresses and routes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from satlab.common import terminals
from satlab.common.errors import ConfigError
from satlab.common.topology import Role, Topology, load, routes
from tests import second_terminal

HERE = load()


def test_one_terminal_is_the_topology_of_the_file() -> None:
    assert terminals.with_terminals(HERE, 1) == HERE
    assert terminals.further(HERE) == ()
    assert terminals.clients(HERE) == ("client",)


def test_further_terminals_have_nodes_and_addresses_of_their_own() -> None:
    found = terminals.with_terminals(HERE, 3)
    assert list(found.nodes) == [*HERE.nodes, "st-2", "client-2", "st-3", "client-3"]
    assert found.nodes["client-3"].address == "198.18.67.2"
    assert str(found.nodes["st-2"].interfaces["sat0"].address) == "198.18.63.3"
    assert [found.node_of(role) for role in (Role.CLIENT, Role.ST)] == ["client", "st"]
    assert [one.number for one in terminals.further(found)] == [2, 3]
    assert Topology.model_validate_json(found.model_dump_json(by_alias=True)) == found


def test_every_address_of_64_terminals_occurs_once_and_is_a_benchmarking_address() -> None:
    found = terminals.with_terminals(HERE, terminals.MOST)
    ends = [
        i
        for node in found.nodes.values()
        for i in node.interfaces.values()
        if i.network != "emulation"
    ]
    assert len({end.address for end in ends}) == len(ends)
    assert all(str(end.address).startswith("198.18.") for end in ends)


def test_packets_to_a_client_go_over_its_own_terminal() -> None:
    plan = routes(terminals.with_terminals(HERE, 3))
    at_gateway = {str(route.destination): (str(route.via), route.interface) for route in plan["gw"]}
    assert at_gateway["198.18.66.0/24"] == ("198.18.63.3", "sat0")
    assert at_gateway["198.18.1.0/24"] == ("198.18.63.2", "sat0")
    # From LAN to LAN in a star: the satellite network is that of the gateway, whose kernel sends
    # the packet back.
    assert {str(route.via) for route in plan["client-2"]} == {"198.18.66.1"}
    assert {str(route.destination) for route in plan["server"]} >= {
        "198.18.66.0/24",
        "198.18.67.0/24",
    }


def test_routes_of_one_terminal_stay_what_they_were() -> None:
    one, many = routes(HERE), routes(terminals.with_terminals(HERE, 5))
    for node, expected in one.items():
        assert many[node][: len(expected)] == expected


def test_routes_of_64_terminals_take_little_time() -> None:
    found = terminals.with_terminals(HERE, terminals.MOST)
    begun = time.process_time()
    assert len(routes(found)) == len(found.nodes)
    assert time.process_time() - begun < 10


@pytest.mark.parametrize("count", [0, -1, 65])
def test_other_counts_are_refused(count: int) -> None:
    with pytest.raises(ConfigError, match="not possible"):
        terminals.with_terminals(HERE, count)


def test_addresses_that_lab_yml_uses_are_refused() -> None:
    networks = dict(HERE.networks)
    networks["gw-lan"] = networks["gw-lan"].model_copy(
        update={"subnet": terminals.Terminal.of(2).subnet}
    )
    with pytest.raises(ConfigError, match="terminal 2 needs"):
        terminals.with_terminals(HERE.model_copy(update={"networks": networks}), 2)


def test_a_file_that_names_a_second_terminal_has_the_one_of_the_embedded_lab(
    tmp_path: Path,
) -> None:
    found = terminals.named(second_terminal.write(tmp_path / "lab.yml"))
    assert terminals.clients(found) == ("client", "client-2")
    made = terminals.with_terminals(HERE, 2)
    assert found.nodes["client-2"] == made.nodes["client-2"]
    assert found.networks["client-lan-2"] == made.networks["client-lan-2"]
    assert routes(found)["gw"] == routes(made)["gw"]
    assert terminals.with_terminals(found.of_one_terminal(), 2) == made.model_copy(
        update={"machines": HERE.machines}
    )
    # Who asks for one terminal alone sees no other.
    assert load(tmp_path / "lab.yml") == HERE


@pytest.mark.parametrize(
    ("change", "place", "reason"),
    [
        (
            lambda d: (d["nodes"].pop("client-2"), d["machines"]["hosts"].pop("client-2")),
            "nodes.client-2",
            "missing",
        ),
        (lambda d: d["networks"]["client-lan-2"].update(mtu=1400), "networks.client-lan-2", "1400"),
        (
            lambda d: [
                of.update({"st-3": of.pop("st-2")}) for of in (d["nodes"], d["machines"]["hosts"])
            ],
            "nodes.st-2",
            "missing",
        ),
        (lambda d: d["nodes"]["st-2"].update(role="proxy"), "nodes.st-2", "proxy"),
        (
            lambda d: d["networks"].update(
                {"client-lan-4": {"kind": "lan", "subnet": "198.18.68.0/24"}}
            ),
            "networks.client-lan-4",
            "belongs to no terminal",
        ),
    ],
)
def test_other_further_terminals_are_refused_with_what_to_write(
    tmp_path: Path, change: Callable[[Any], Any], place: str, reason: str
) -> None:
    content = second_terminal.data()
    change(content)
    with pytest.raises(ConfigError) as caught:
        terminals.named(second_terminal.write(tmp_path / "lab.yml", content))
    assert any(
        fault.place.endswith(place) and reason in fault.reason for fault in caught.value.faults
    )


def test_p345_a_spot_has_a_gateway_and_a_satellite_network_of_its_own() -> None:
    profile = [
        terminals.ProfileTerminal(4),
        terminals.ProfileTerminal(5, 6),
        terminals.ProfileTerminal(7, 6),
    ]
    assert (terminals.gateways(profile), terminals.spots(profile)) == ((6,), (1, 2, 2))
    found = terminals.with_terminals(HERE, 4, terminals.spots(profile))
    assert [one.gateway for one in terminals.further_spots(found)] == ["gw-2"]
    on = {network: [end.node for end in found.ends(network)] for network in found.networks}
    assert on["satellite"] == ["st", "gw", "st-2"]
    assert on["satellite-2"] == ["gw-2", "st-3", "st-4"]
    assert on["gw-lan-2"] == ["proxy-gw", "gw-2"]
    ends = [i.address for node in found.nodes.values() for i in node.interfaces.values()]
    assert len(set(ends)) == len(ends)
    assert Topology.model_validate_json(found.model_dump_json(by_alias=True)) == found
    assert found.node_of(Role.GW) == "gw"


def test_p345_packets_between_spots_go_over_both_gateways() -> None:
    plan = routes(terminals.with_terminals(HERE, 2, (2,)))
    via = {node: {str(route.destination): route.interface for route in plan[node]} for node in plan}
    # Two hops over a satellite: each gateway's own, with the network behind them in between.
    assert via["st"]["198.18.66.0/24"] == "sat0"
    assert via["gw"]["198.18.66.0/24"] == "lan0"
    assert via["proxy-gw"]["198.18.66.0/24"] == "lan1"
    assert via["gw-2"]["198.18.66.0/24"] == "sat0"
    assert via["gw-2"]["198.18.1.0/24"] == via["gw-2"]["198.18.4.0/24"] == "lan0"
    assert via["proxy-gw"]["198.18.1.0/24"] == "lan0"


def test_p345_what_a_spot_needs_is_free_in_lab_yml() -> None:
    spot = terminals.with_terminals(HERE, 2, (2,))
    with pytest.raises(ConfigError, match=r"spot 2 needs 198\.18\.162\.0/24"):
        terminals.with_terminals(spot, 2, (2,))
