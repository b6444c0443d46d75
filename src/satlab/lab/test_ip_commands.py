# SPDX-License-Identifier: GPL-3.0-or-later
import re

from satlab.common.terminals import with_terminals
from satlab.common.topology import load, routes
from satlab.lab import ip_commands

HERE = with_terminals(load(), 3)


def of(node: str) -> list[str]:
    devices = ip_commands.devices_of_terminal(HERE, "x", node)
    plan = routes(HERE)[node]
    return [*devices, *ip_commands.addresses(HERE, node, plan, "cubic", emulation=False)]


def test_sts_come_before_the_clients_that_their_wires_lead_to() -> None:
    assert ip_commands.nodes_of_terminals(HERE) == ("st-2", "st-3", "client-2", "client-3")
    assert ip_commands.nodes_of_terminals(load()) == ()


def test_an_st_has_its_tun_and_one_end_of_a_wire() -> None:
    lines = of("st-2")
    assert lines[:3] == [
        "tuntap add dev sat0 mode tun",
        "link set dev sat0 mtu 1500 txqueuelen 10000",
        (
            "link add dev lan0 index 102 mtu 1500 type veth peer name lan0 mtu 1500 netns"
            " satlab-x.client-2"
        ),
    ]
    assert "addr add 198.18.63.3/24 dev sat0" in lines
    assert "route add 198.18.4.0/24 via 198.18.63.1 dev sat0 congctl cubic" in lines


def test_a_client_has_addresses_and_routes_alone_each_with_its_congestion_control() -> None:
    lines = of("client-3")
    assert not [line for line in lines if line.startswith(("link add", "tuntap"))]
    own = (
        "route replace 198.18.67.0/24 dev lan0 proto kernel scope link src 198.18.67.2 congctl"
        " cubic"
    )
    assert own in lines
    on_routes = [line for line in lines if line.startswith("route")]
    assert len(on_routes) == 1 + len(routes(HERE)["client-3"])
    assert all(line.endswith(" congctl cubic") for line in on_routes)


def test_lines_hold_no_character_that_ip_would_read_as_another_line() -> None:
    every = [line for node in HERE.nodes for line in of(node)]
    assert all(re.fullmatch(r"[a-z0-9 ./:-]+", line) for line in every)
