# SPDX-License-Identifier: GPL-3.0-or-later
"""lab.yml: what is accepted, what is refused and how, and the routes that follow."""

import copy
import json
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from satlab.common import paths
from satlab.common.errors import ConfigError, ExitStatus
from satlab.common.topology import NetworkKind, Role, Size, Topology, load, routes

TEXT = paths.LAB_FILE.read_text()
SHIPPED = yaml.safe_load(TEXT)
SCHEMA = json.loads((paths.SCHEMAS / "lab.schema.json").read_text())


def replaced(*pairs: tuple[str, str]) -> str:
    text = TEXT
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def load_text(folder: Path, text: str) -> None:
    file = folder / "lab.yml"
    file.write_text(text)
    load(file)


def faults_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(folder, text)
    assert caught.value.status is ExitStatus.USAGE
    return [str(fault).removeprefix(f"{folder}/") for fault in caught.value.faults]


def changed(folder: Path, change: Callable[[Any], Any]) -> str:
    """Change the shipped data and return all faults as one text."""
    data = copy.deepcopy(SHIPPED)
    change(data)
    return "\n".join(faults_of(folder, yaml.safe_dump(data, sort_keys=False)))


def line_of(text: str, part: str) -> int:
    (line,) = [number for number, line in enumerate(text.splitlines(), 1) if part in line]
    return line


def test_shipped_file_is_accepted_by_model_and_schema() -> None:
    topology = load()
    assert list(topology.nodes) == ["client", "proxy-st", "st", "sat", "gw", "proxy-gw", "server"]
    assert topology.node_of(Role.GW) == "gw"
    assert topology.network_of(NetworkKind.INTERNET) == "internet"
    jsonschema.validate(SHIPPED, SCHEMA)


def test_every_fault_is_reported_at_once_with_its_line(tmp_path: Path) -> None:
    text = replaced(
        (
            "address: 198.18.2.2",
            "address: 198.18.1.2",
        ),  # proxy-st takes the client's address, outside its subnet
        ("address: 198.18.2.1", "address: 198.18.2.255"),
        ("network: gw-lan, address: 198.18.3.1", "network: gw-lann, address: 198.18.3.1"),
        ("subnet: 198.18.3.0/24", "subnet: 198.18.2.0/23"),
        ("one_way_delay_ms: 40.0", "one_way_delay_ms: 40000"),
        (
            "emu0: {network: emulation, address: 10.77.0.3}",
            "emulation-to-sat: {network: emulation, address: 10.77.0.3}",
        ),
        ("role: server\n    interfaces:\n", "role: servant\n    interfaces:\n"),
    )
    proxy, gateway = line_of(text, "lan1:"), line_of(text, "gw-lann")
    assert sorted(line.split(" (")[0] for line in faults_of(tmp_path, text)) == sorted(
        [
            (
                f"lab.yml:{proxy}: nodes.proxy-st.interfaces.lan1.address: 198.18.1.2 is also the"
                " address of client.lan0"
            ),
            (
                f"lab.yml:{proxy}: nodes.proxy-st.interfaces.lan1.address: 198.18.1.2 is not a host"
                " address of st-lan, 198.18.2.0/24"
            ),
            (
                f"lab.yml:{line_of(text, '2.255')}: nodes.st.interfaces.lan0.address: 198.18.2.255"
                " is not a host address of st-lan, 198.18.2.0/24"
            ),
            f"lab.yml:{gateway}: nodes.gw.interfaces.lan0.network: unknown network 'gw-lann'",
            (
                f"lab.yml:{line_of(text, '2.0/23')}: networks.gw-lan.subnet: "
                "198.18.2.0/23 overlaps 198.18.2.0/24 of st-lan"
            ),
            (
                f"lab.yml:{line_of(text, '40000')}: networks.internet.one_way_delay_ms: "
                "Input should be less than or equal to 10000, got 40000"
            ),
            (
                f"lab.yml:{line_of(text, 'emulation-to-sat')}:"
                " nodes.st.interfaces.emulation-to-sat: String should match pattern"
                " '^[a-z][a-z0-9]{0,14}$', got 'emulation-to-sat'"
            ),
            (
                f"lab.yml:{line_of(text, 'servant')}: nodes.server.role: Input should be 'client',"
                " 'proxy', 'st', 'sat', 'gw' or 'server', got 'servant'"
            ),
        ]
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["nodes"].pop("st"), "0 nodes have the role st"),
        (lambda d: d["nodes"]["proxy-gw"].update(role="server"), "2 nodes have the role server"),
        (lambda d: d["nodes"].pop("proxy-st"), "networks.st-lan: st.lan0 is attached"),
        (
            lambda d: d["networks"].update({"spare": {"kind": "lan", "subnet": "198.18.77.0/24"}}),
            "nothing is attached",
        ),
        (
            lambda d: d["networks"]["gw-lan"].update(kind="satellite"),
            "2 networks are of kind satellite",
        ),
        (
            lambda d: d["networks"]["client-lan"].update(one_way_delay_ms=1),
            "belongs to internet networks",
        ),
        (
            lambda d: d["networks"]["internet"].pop("one_way_delay_ms"),
            "belongs to internet networks",
        ),
        (
            lambda d: d["networks"]["internet"].update(one_way_delay_ms=-1),
            "greater than or equal to 0",
        ),
        (lambda d: d["networks"]["internet"].update(subnet=10), "write it as text"),
        (
            lambda d: d["nodes"].update({"Client 2": copy.deepcopy(d["nodes"]["client"])}),
            "nodes.Client 2: String should match",
        ),
        (
            lambda d: d["nodes"]["st"].update(memory=1),
            "nodes.st.memory: Extra inputs are not permitted",
        ),
        (lambda d: d.pop("networks"), "networks: Field required"),
        (lambda d: d.update(schema="satlab/lab/9"), "schema: Input should be 'satlab/lab/1'"),
        (
            lambda d: d["nodes"]["gw"].update(role="st") or d["nodes"]["st"].update(role="gw"),
            "networks.satellite: joins st to gw",
        ),
    ],
)
def test_a_fault_is_named(tmp_path: Path, change: Callable[[Any], Any], says: str) -> None:
    assert says in changed(tmp_path, change)


def test_keys_that_occur_twice_are_refused(tmp_path: Path) -> None:
    text = replaced(("  sat:\n", "  st:\n"))
    with pytest.raises(ConfigError, match=r"lab.yml:\d+:3: is not YAML: the key 'st' stands twice"):
        load_text(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a",
        "a: [",
        "a: &a [*a]",
        "x" * 70000,
        "? [a]\n: b",
        "nodes: {st: 3}",
        "networks: 5",
        "\x00",
    ],
)
def test_nonsense_is_a_configuration_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "lab.yml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        load(file)


def test_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.yml")


def test_routes_lead_towards_every_subnet_and_nowhere_else() -> None:
    topology = load()
    plan = routes(topology)
    carried = {
        name: net.subnet
        for name, net in topology.networks.items()
        if net.kind is not NetworkKind.EMULATION
    }
    assert plan["sat"] == ()
    for node, found in plan.items():
        if node == "sat":
            continue
        own = {
            topology.networks[interface.network].subnet
            for interface in topology.nodes[node].interfaces.values()
        }
        assert {route.destination for route in found} == set(carried.values()) - own
    assert [(str(r.destination), str(r.via), r.interface) for r in plan["st"]] == [
        ("198.18.1.0/24", "198.18.2.2", "lan0"),
        ("198.18.3.0/24", "198.18.63.1", "sat0"),
        ("198.18.4.0/24", "198.18.63.1", "sat0"),
    ]


def test_following_the_routes_reaches_every_address() -> None:
    topology = load()
    plan = routes(topology)
    holder = {
        i.address: name for name, node in topology.nodes.items() for i in node.interfaces.values()
    }
    for source in set(topology.nodes) - {"sat"}:
        for target in (address for address in holder if str(address).startswith("198.18.")):
            assert _follow(topology, plan, holder, source, target) <= 5


def _follow(topology: Topology, plan: Any, holder: Any, node: str, target: IPv4Address) -> int:
    hops = 0
    while not any(
        target in _subnet(topology, i.network) for i in topology.nodes[node].interfaces.values()
    ):
        (route,) = [r for r in plan[node] if target in r.destination]
        node, hops = holder[route.via], hops + 1
        assert hops < 10, "routes go in circles"
    return hops


def _subnet(topology: Topology, network: str) -> IPv4Network:
    return topology.networks[network].subnet


def test_a_dumbbell_has_a_second_client_and_server() -> None:
    small, dumbbell = load(), load(size=Size.DUMBBELL)
    assert set(dumbbell.nodes) - set(small.nodes) == {"client2", "server2"}
    assert (dumbbell.node_of(Role.CLIENT), dumbbell.node_of(Role.SERVER)) == ("client", "server")
    assert set(small.nodes["proxy-st"].interfaces) == {"lan0", "lan1"}
    # Both ends reach each other over the satellite, and without a dumbbell nobody has a route
    # there.
    ways = {
        node: {str(one.destination): str(one.via) for one in found}
        for node, found in routes(dumbbell).items()
    }
    assert ways["client2"]["198.18.6.0/24"] == "198.18.5.1"
    assert ways["st"]["198.18.6.0/24"] == "198.18.63.1"
    assert ways["server2"]["198.18.5.0/24"] == "198.18.6.1"
    assert ways["proxy-gw"]["198.18.6.0/24"] == "198.18.4.2"
    assert not any(
        str(one.destination) == "198.18.5.0/24" for found in routes(small).values() for one in found
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["nodes"].pop("client2"), "no client2 on a network of size dumbbell"),
        (lambda d: d["nodes"]["server2"].update(role="proxy"), "nodes.server2.role: is proxy"),
        (
            lambda d: d["nodes"]["proxy-st"]["interfaces"].pop("lan2"),
            "networks.client2-lan: client2.lan0 is attached",
        ),
        (lambda d: d["networks"]["client2-lan"].update(size="full"), "networks.client2-lan.size"),
        (
            lambda d: d["nodes"].update(
                server3=d["nodes"]["server2"]
                | {"interfaces": {"lan1": {"network": "server2-lan", "address": "198.18.6.3"}}}
            ),
            "nodes.server3: is on networks of size dumbbell alone",
        ),
        (
            lambda d: d["nodes"]["proxy-gw"]["interfaces"].update(
                lan2=d["nodes"]["server"]["interfaces"].pop("lan0")
            ),
            "does not cross the internet network",
        ),
    ],
)
def test_what_a_dumbbell_lacks_is_named(
    tmp_path: Path, change: Callable[[Any], Any], says: str
) -> None:
    assert says in changed(tmp_path, change)
