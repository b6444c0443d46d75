# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's place among the networks and storage pools of other users of libvirt."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from satlab.common import topology
from satlab.common.topology import Machines
from satlab.vm import libvirt_host
from satlab.vm.libvirt_host import NETWORK, POOL, SUBNET, Choice

IMAGES = "/var/lib/libvirt/images"
ROUTES = """\
default via 192.168.1.1 dev eth0 proto dhcp metric 100
0.0.0.0/1 via 10.8.0.1 dev tun0
192.168.1.0/24 dev eth0 proto kernel scope link src 192.168.1.2
local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1
broadcast 192.168.1.255 dev eth0 table local proto kernel scope link src 192.168.1.2
"""


@dataclass(frozen=True)
class Libvirt:
    """What virsh and ip say: networks with their `<ip>`, pools with their folder."""

    networks: Mapping[str, str] = field(default_factory=dict)
    pools: Mapping[str, str] = field(default_factory=lambda: {"default": IMAGES})
    inactive: str = ""
    routes: str = ROUTES

    def output(self, *argv: str) -> str | None:
        if argv[0] == "ip":
            return self.routes
        command = argv[3:]
        if command[0] == "net-list":
            return "".join(f"{name}\n" for name in self.networks) + "\n"
        if command[0] == "net-dumpxml":
            return f"<network><name>{command[1]}</name>{self.networks[command[1]]}</network>"
        if command[0] == "pool-dumpxml":
            path = self.pools[command[1]]
            return f"<pool type='dir'>\n<target>\n<path>{path}</path>\n</target></pool>"
        active = [name for name in self.pools if "--all" in command or name != self.inactive]
        return "".join(f"{name}\n" for name in active)


def machines() -> Machines:
    found = topology.load().machines
    assert found
    return found


def choose(host: Libvirt, **variables: str) -> Choice:
    return libvirt_host.choose(machines(), variables, host.output)


def plain(address: str) -> str:
    return f"<ip address='{address}' netmask='255.255.255.0'><dhcp><range start='x'/></dhcp></ip>"


DEFAULT = {"default": plain("192.168.122.1")}
VAGRANT = DEFAULT | {"vagrant-libvirt": plain("192.168.121.1")}


@pytest.mark.promise("P96")
@pytest.mark.parametrize(
    ("host", "subnet"),
    [
        (Libvirt(), "192.168.125.0/24"),
        # vagrant-libvirt's own network is left alone.
        (Libvirt(VAGRANT), "192.168.125.0/24"),
        # A lab of an earlier version keeps its subnet.
        (Libvirt({"satlab-management": plain("192.168.121.1")}), "192.168.121.0/24"),
        (
            Libvirt({"satlab-management": '<ip address="10.9.0.1" prefix="25"/>'}),
            "10.9.0.0/25",
        ),
        (Libvirt({"other": plain("192.168.125.1")}), "192.168.126.0/24"),
        # Inside a machine of another Vagrant: its own interface has the subnet.
        (Libvirt(routes="192.168.125.0/24 dev eth0 proto kernel\n"), "192.168.126.0/24"),
        (Libvirt(routes="192.168.0.0/16 via 10.8.0.1 dev tun0\n"), "172.31.126.0/24"),
        (
            Libvirt({"v6": "<ip family='ipv6' address='fd00::1' prefix='64'/>", "none": ""}),
            "192.168.125.0/24",
        ),
    ],
)
def test_the_management_network_has_a_subnet_of_its_own(host: Libvirt, subnet: str) -> None:
    found = choose(host)
    assert not found.faults
    assert found.variables() == {NETWORK: "satlab-management", SUBNET: subnet, POOL: "default"}


@pytest.mark.parametrize(
    ("variables", "network", "subnet"),
    [
        ({SUBNET: "10.1.2.0/24"}, "satlab-management", "10.1.2.0/24"),
        ({NETWORK: "vagrant-libvirt"}, "vagrant-libvirt", "192.168.121.0/24"),
        ({NETWORK: "mine"}, "mine", "192.168.125.0/24"),
        (
            {NETWORK: "vagrant-libvirt", SUBNET: "192.168.121.0/24"},
            "vagrant-libvirt",
            "192.168.121.0/24",
        ),
        ({NETWORK: "", SUBNET: "", POOL: ""}, "satlab-management", "192.168.125.0/24"),
    ],
)
def test_the_user_may_name_network_and_subnet(
    variables: dict[str, str], network: str, subnet: str
) -> None:
    found = choose(Libvirt(VAGRANT), **variables)
    assert (found.network, str(found.subnet), found.faults) == (network, subnet, ())


@pytest.mark.parametrize(
    ("host", "variables", "said", "remedy"),
    [
        (
            Libvirt(VAGRANT),
            {SUBNET: "192.168.121.0/24"},
            "libvirt's network vagrant-libvirt has it",
            f"{NETWORK}=vagrant-libvirt without {SUBNET}",
        ),
        (Libvirt(), {SUBNET: "192.168.121.7/24"}, "is not a subnet", "such as"),
        (Libvirt(), {SUBNET: "any"}, "is not a subnet", "such as"),
        (
            Libvirt({"satlab-management": plain("192.168.121.1")}),
            {SUBNET: "10.1.2.0/24"},
            "has 192.168.121.0/24, and",
            "net-undefine satlab-management",
        ),
        (Libvirt({"none": ""}), {NETWORK: "none"}, "has no IPv4 address", "name another"),
        (
            Libvirt(routes="192.0.0.0/8 dev a\n172.16.0.0/12 dev b\n10.0.0.0/8 dev c\n"),
            {},
            "finds no free subnet",
            SUBNET,
        ),
        (Libvirt({"other": plain("198.19.0.1")}), {}, "has 198.19.0.0/24, the lab's", "lab.yml"),
        (
            Libvirt({"satlab-control": plain("10.3.0.1")}),
            {},
            "has 10.3.0.0/24, and vagrant/lab.yml says 198.19.0.0/24",
            "net-undefine satlab-control",
        ),
        (Libvirt(), {POOL: "fast"}, "libvirt has no such pool", "there is: default"),
        (Libvirt(inactive="default"), {}, "is not active", "pool-start default"),
    ],
)
def test_what_is_in_the_way_is_named_with_a_remedy(
    host: Libvirt, variables: dict[str, str], said: str, remedy: str
) -> None:
    (fault,) = choose(host, **variables).faults
    assert said in fault.reason
    assert remedy in fault.remedy


@pytest.mark.parametrize(
    ("pools", "variables", "pool"),
    [
        ({"default": "/a", "images": IMAGES}, {}, "default"),
        # The plugin would make `default` with the folder of this pool, which libvirt refuses.
        ({"virtimages": IMAGES}, {}, "virtimages"),
        ({"a": "/a", "b": f"{IMAGES}/"}, {}, "b"),
        ({"a": "/a"}, {}, "default"),
        ({}, {}, "default"),
        ({"default": IMAGES, "fast": "/fast"}, {POOL: "fast"}, "fast"),
    ],
)
def test_the_storage_pool_is_found_or_named(
    pools: dict[str, str], variables: dict[str, str], pool: str
) -> None:
    found = choose(Libvirt(pools=pools), **variables)
    assert (found.pool, found.faults) == (pool, ())


def test_a_host_without_libvirt_has_the_choice_of_lab_yml() -> None:
    found = libvirt_host.choose(machines(), {}, lambda *_: None)
    assert found == Choice("satlab-management", machines().management.subnet, "default")
