# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks and storage pools that libvirt has on the host, and those that the VM lab takes.

vagrant-libvirt looks up a network by its address, and refuses one of another name. So the lab's
management network keeps its address once it is there, and gets a free one before. Without a pool
`default` the plugin makes one, which fails where another pool has its folder.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from satlab.common.errors import Fault
from satlab.common.topology import Machines

NETWORK, SUBNET, POOL = "LAB_MANAGEMENT_NETWORK", "LAB_MANAGEMENT_SUBNET", "LAB_POOL"
"""Variables of the user; the Vagrantfile reads them, too."""
CONTROL = "satlab-control"
IMAGES = "/var/lib/libvirt/images"
"""Folder of the pool that vagrant-libvirt makes."""
FREE = tuple(
    IPv4Network(subnet)
    for subnet in ("192.168.126.0/24", "192.168.203.0/24", "172.31.126.0/24", "10.203.126.0/24")
)
"""Subnets that are tried when that of lab.yml is taken."""
_VIRSH = ("virsh", "--connect", "qemu:///system")
_ADDRESS = re.compile(r"<ip\b([^>]*)>")
_ATTRIBUTE = re.compile(r"""(\w+)=(?:'([^']*)'|"([^"]*)")""")
_PATH = re.compile(r"<path>([^<]*)</path>")
_ROUTE = re.compile(r"^(?:\S+ )?(\d+\.\d+\.\d+\.\d+(?:/\d+)?) ", re.MULTILINE)

Output = Callable[..., str | None]
"""Returns the output of a command, None if it fails."""


@dataclass(frozen=True)
class Choice:
    """What the lab takes of libvirt, and what is in the way."""

    network: str
    subnet: IPv4Network
    pool: str
    faults: tuple[Fault, ...] = ()

    def variables(self) -> dict[str, str]:
        """Return the choice as variables for the Vagrantfile."""
        return {NETWORK: self.network, SUBNET: str(self.subnet), POOL: self.pool}


def choose(machines: Machines, environment: Mapping[str, str], output: Output) -> Choice:
    """Return the management network and the storage pool, by the user's variables, lab.yml and what
    libvirt has.
    """
    present = dict(_networks(output))
    network = environment.get(NETWORK) or machines.management.network
    faults: list[Fault] = []
    wanted: IPv4Network | None = None
    if text := environment.get(SUBNET):
        try:
            wanted = IPv4Network(text)
        except ValueError:
            faults.append(
                Fault(f"{SUBNET}={text[:40]}", "is not a subnet", "such as 192.168.126.0/24")
            )
    subnet = wanted or machines.management.subnet
    if network in present:
        own = present[network]
        if not own:
            faults.append(
                Fault(
                    f"libvirt's network {network}",
                    "has no IPv4 address",
                    f"name another with {NETWORK}=NAME",
                )
            )
        elif wanted is None:
            subnet = own[0]
        elif wanted not in own:
            faults.append(
                Fault(
                    f"libvirt's network {network}",
                    f"has {own[0]}, and {SUBNET} says {wanted}",
                    f"unset {SUBNET}, or remove the network: virsh net-destroy {network}; virsh"
                    f" net-undefine {network}",
                )
            )
    elif wanted is not None:
        faults += _taken(wanted, present)
    else:
        used = [*_routes(output), *(one for subnets in present.values() for one in subnets)]
        free = [one for one in (subnet, *FREE) if not any(one.overlaps(other) for other in used)]
        if free:
            subnet = free[0]
        else:
            faults.append(
                Fault(
                    f"libvirt's network {network}",
                    "finds no free subnet: all that are tried are in use on this host",
                    f"name one with {SUBNET}=",
                )
            )
    pool, pool_faults = _pool(environment.get(POOL, ""), machines.pool, output)
    faults += [*_control(machines.control, present), *pool_faults]
    return Choice(network, subnet, pool, tuple(faults))


def _taken(wanted: IPv4Network, present: Mapping[str, Sequence[IPv4Network]]) -> Iterator[Fault]:
    """Yield what has a subnet that the user names."""
    for name, subnets in present.items():
        if any(wanted.overlaps(one) for one in subnets):
            yield Fault(
                f"{SUBNET}={wanted}",
                f"libvirt's network {name} has it",
                f"name another subnet, or take this network: {NETWORK}={name} without {SUBNET}",
            )


def _control(subnet: IPv4Network, present: Mapping[str, Sequence[IPv4Network]]) -> Iterator[Fault]:
    """Yield what is in the way of the control network, whose address is that of lab.yml."""
    for name, subnets in present.items():
        if name == CONTROL and subnet not in subnets:
            has = ", ".join(map(str, subnets)) or "no address"
            yield Fault(
                f"libvirt's network {name}",
                f"has {has}, and vagrant/lab.yml says {subnet}",
                f"remove it: virsh net-destroy {name}; virsh net-undefine {name}",
            )
        elif name != CONTROL and any(subnet.overlaps(one) for one in subnets):
            yield Fault(
                f"libvirt's network {name}",
                f"has {subnet}, the lab's control network",
                "change machines.control and the addresses of the hosts in vagrant/lab.yml",
            )


def _pool(named: str, usual: str, output: Output) -> tuple[str, list[Fault]]:
    """Return the pool to take: the user's, the usual one, else that of libvirt's folder of images."""
    wanted = named or usual
    said = output(*_VIRSH, "pool-list", "--all", "--name")
    present = [name.strip() for name in (said or "").splitlines() if name.strip()]
    if wanted in present:
        return wanted, list(_inactive(wanted, output))
    if named:
        names = ", ".join(present) or "none"
        return wanted, [Fault(f"{POOL}={wanted}", "libvirt has no such pool", f"there is: {names}")]
    for name in present:
        path = _PATH.search(output(*_VIRSH, "pool-dumpxml", name) or "")
        if path is not None and path[1].rstrip("/") == IMAGES:
            return name, list(_inactive(name, output))
    return wanted, []


def _inactive(pool: str, output: Output) -> Iterator[Fault]:
    said = output(*_VIRSH, "pool-list", "--name")
    if said is not None and pool not in (name.strip() for name in said.splitlines()):
        yield Fault(
            f"libvirt's storage pool {pool}",
            "is not active",
            f"sudo virsh pool-start {pool}, or name another with {POOL}=NAME",
        )


def _networks(output: Output) -> Iterator[tuple[str, list[IPv4Network]]]:
    """Yield the networks of libvirt with their IPv4 subnets."""
    said = output(*_VIRSH, "net-list", "--all", "--name")
    for name in (line.strip() for line in (said or "").splitlines()):
        if name:
            yield name, list(_subnets(output(*_VIRSH, "net-dumpxml", name) or ""))


def _subnets(xml: str) -> Iterator[IPv4Network]:
    for element in _ADDRESS.findall(xml):
        found = {name: one or other for name, one, other in _ATTRIBUTE.findall(element)}
        mask = found.get("netmask") or found.get("prefix")
        try:
            yield IPv4Network(f"{found.get('address', '')}/{mask}", strict=False)
        except ValueError:  # IPv6, or an address without a subnet
            continue


def _routes(output: Output) -> Iterator[IPv4Network]:
    """Yield the destinations of the host's routes, without those to everywhere."""
    for destination in _ROUTE.findall(output("ip", "-4", "route", "show", "table", "all") or ""):
        try:
            network = IPv4Network(destination, strict=False)
        except ValueError:
            continue
        if network.prefixlen >= 8:  # shorter: a VPN that leads everything into its tunnel
            yield network
