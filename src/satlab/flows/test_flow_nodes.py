# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of flows: those of the lab that the file needs."""

from typing import Any

from satlab.common import paths, topology
from satlab.common.topology import Size
from satlab.flows import flow_nodes


def flow(source: str, target: str) -> dict[str, Any]:
    return {"from": source, "to": target}


def test_second_nodes_are_those_of_a_dumbbell() -> None:
    request = {
        "flows": [
            flow("server1", "client1"),
            flow("client2", "server1"),
            flow("server2", "client2"),
        ]
    }
    assert flow_nodes.size(request) is Size.DUMBBELL
    here = topology.load(paths.LAB_FILE, size=Size.DUMBBELL)
    ends = [flow_nodes.of_flow(here, one) for one in request["flows"]]
    assert ends == [
        {"server": "server", "client": "client"},
        {"client": "client2", "server": "server"},
        {"server": "server2", "client": "client2"},
    ]
    assert flow_nodes.used(ends) == [
        ("server", "server"),
        ("client", "client"),
        ("client", "client2"),
        ("server", "server2"),
    ]


def test_a_tunnel_has_one_node_a_side() -> None:
    second = flow("server2", "client2")
    assert (
        flow_nodes.size({"flows": [second], "fec": {"code": "2,100", "hold_ms": 0}}) is Size.SMALL
    )
    here = topology.load(paths.LAB_FILE)
    assert flow_nodes.of_flow(here, second) == {"server": "server", "client": "client"}


def test_first_nodes_need_no_dumbbell() -> None:
    assert (
        flow_nodes.size({"flows": [flow("server1", "client1"), flow("client1", "server1")]})
        is Size.SMALL
    )
