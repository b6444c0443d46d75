# SPDX-License-Identifier: GPL-3.0-or-later
"""Network namespaces of the embedded lab. The only Python module with privileged network calls.

A lab is a set of namespaces `satlab-<lab id>.<node>`, which belong to a user namespace of the lab:
a capability that a job holds there counts in no other namespace. They are joined by veth pairs
(plain networks) and by TUN interfaces that `satlink` serves (satellite and internet networks).
Links are made inside the namespaces: nothing shows up in the host's own namespace, and no namespace
has a default route or a link to it.

With OpenSAND as emulator the satellite interfaces are bridges over the TAPs that it serves, and the
emulation network is built: a bridge in the SAT's namespace. satlink carries both in one process and
needs neither.

Work inside a namespace is done by a short-lived thread that enters it (`setns(2)` acts on the
calling thread).
"""

import contextlib
import fcntl
import os
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from itertools import permutations
from pathlib import Path
from socket import AF_INET
from typing import Any, ParamSpec, TypeVar

from pyroute2 import IPRoute, netns
from pyroute2.netlink.exceptions import NetlinkError

from satlab.common import ipv6, paths
from satlab.common.errors import HostError
from satlab.common.netns_names import PREFIX, RUN_NETNS, name, path, user_path
from satlab.common.topology import InterfaceEnd, NetworkKind, Role, Topology, routes
from satlab.lab import ip_commands, sandbox, vlan_priority
from satlab.lab.ip_commands import VETH_INDEX
from satlab.lab.privileges import FIRST_UID, UIDS
from satlab.link.opensand import Tap

TUN_DEVICE, TUN_MODE = Path("/dev/net/tun"), 0o666
DEFAULT_CONGCTL = "cubic"
"""Set on every route. The host's default may be another one, and a namespace's sysctl refuses
algorithms that the host restricts.
"""
HOST_NODE, CONTROL_INTERFACE = "host", "ctl0"
"""Names in labs whose nodes are machines: the node of this host, and each machine's card on the
control network.
"""
CONTROL_MTU = 1500
MAIN_TABLE, DIVERSION_TABLE = 254, 10
TUNSETIFF, _IFF_TUN_NO_PI = 0x400454CA, 0x1001
"""<linux/if_tun.h>: a TUN without packet information."""
_EGRESS, _ANY_PROTOCOL = 0xFFFFFFF3, 3
"""TC_H_CLSACT with TC_H_MIN_EGRESS (<linux/pkt_sched.h>); ETH_P_ALL (<linux/if_ether.h>)."""
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_NO_USER_NAMESPACES = 5
"""Exit status of `satbox namespaces` where the kernel allows none."""
_NEEDED_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}

_SYSCTLS = {
    # Defaults come first: interfaces made later inherit them.
    "ipv6/conf/default/disable_ipv6": "1",
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv4/conf/default/rp_filter": "0",
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/ip_forward": "1",
    # 64 MiB: the bandwidth-delay product of 250 Mbit/s at 0.7 s is 22 MB, and the kernel counts
    # overhead on top.
    "ipv4/tcp_rmem": "4096 131072 67108864",
    "ipv4/tcp_wmem": "4096 16384 67108864",
    # A run must not start from metrics that an earlier run learnt.
    "ipv4/tcp_no_metrics_save": "1",
    "ipv4/ping_group_range": "0 0",
    "ipv4/ip_unprivileged_port_start": "0",
}


@dataclass(frozen=True)
class KernelRoute:
    """A route of a namespace's main table as the kernel reports it; `initcwnd` in segments, None =
    kernel default.
    """

    destination: IPv4Network
    via: str | None
    interface: str
    congctl: str | None
    initcwnd: int | None


def present(lab_id: str) -> list[str]:
    """Return the nodes of a lab that have a namespace, even one that a killed process left
    unfinished.
    """
    return [node for lab, node in _all() if lab == lab_id]


def lab_ids() -> set[str]:
    """Return every lab that has at least one namespace on this host."""
    return {lab for lab, _ in _all()}


def _all() -> list[tuple[str, str]]:
    names = sorted(entry for entry in netns.listnetns(str(RUN_NETNS)) if entry.startswith(PREFIX))
    parts = [entry.removeprefix(PREFIX).partition(".") for entry in names]
    return [(lab, node) for lab, dot, node in parts if dot]


def check_host() -> None:
    """Check what the lab needs of the host, changing nothing.

    Raises:
        HostError: not root, capabilities missing (a container), or no TUN device.
    """
    if os.geteuid() != 0:
        raise HostError(
            "the lab needs root: it makes network namespaces", "run the same command as root"
        )
    status = dict(
        line.split(":\t", 1)
        for line in Path("/proc/self/status").read_text().splitlines()
        if ":\t" in line
    )
    effective = int(status["CapEff"], 16)
    missing = [
        capability for capability, bit in _NEEDED_CAPABILITIES.items() if not effective >> bit & 1
    ]
    if missing:
        hint = (
            "run on the host or in a virtual machine, or start the container with these"
            " capabilities"
        )
        raise HostError(
            f"root lacks {' and '.join(missing)}: no network namespaces can be made", hint
        )
    try:
        os.close(os.open(TUN_DEVICE, os.O_RDWR))
    except OSError as error:
        hint = "load the module: modprobe tun; in a container, pass the device in"
        raise HostError(
            f"{TUN_DEVICE}: {error.strerror}: no TUN interfaces can be made", hint
        ) from error


def open_tun_to_jobs() -> Path:
    """Let every user open the TUN device, as udev does (50-udev-default.rules), and return its
    path.

    In containers and on hosts without udev only root may open it. Making a network interface still
    needs CAP_NET_ADMIN.

    Raises:
        HostError: its mode cannot be changed.
    """
    try:
        if stat.S_IMODE(TUN_DEVICE.stat().st_mode) & TUN_MODE != TUN_MODE:
            TUN_DEVICE.chmod(TUN_MODE)
    except OSError as error:
        hint = f"run: chmod {TUN_MODE:o} {TUN_DEVICE}"
        raise HostError(f"{TUN_DEVICE}: {error.strerror}: jobs cannot open it", hint) from error
    return TUN_DEVICE


def build(
    topology: Topology,
    lab_id: str,
    taps: Mapping[str, Tap] | None = None,
    carried: str | None = None,
) -> None:
    """Make every namespace with its links, addresses and routes, in a user namespace of the lab if
    the kernel allows one. After a failure, the namespaces made so far remain.

    `taps`: OpenSAND's TAPs by node; None: satlink carries the satellite network. `carried`: the LAN
    that satlink carries as well.

    Raises:
        HostError: the kernel refused a step.
    """
    with _host_errors(f"lab {lab_id}: network namespaces"):
        _create(lab_id, list(topology.nodes))
        for node in topology.nodes:
            inside(lab_id, node, _set_sysctls, topology.ipv6)
        of_terminals = ip_commands.nodes_of_terminals(topology)
        for number, (network, config) in enumerate(topology.networks.items()):
            ends = [end for end in topology.ends(network) if end.node not in of_terminals]
            if not ends:
                continue
            if config.kind is NetworkKind.LAN and network != carried:
                _join(lab_id, ends[0], ends[1], config.mtu, VETH_INDEX + number)
            elif config.kind is NetworkKind.SATELLITE and taps:
                for end in ends:
                    tap = taps[end.node]
                    _ip(lab_id, end.node, ip_commands.bridged_tap(end.interface, config.mtu, tap))
                    inside(lab_id, end.node, _tag_priorities, tap.name)
            elif config.kind is not NetworkKind.EMULATION:
                for end in ends:
                    _ip(lab_id, end.node, ip_commands.tun(end.interface, config.mtu))
            elif taps:
                _join_at_sat(lab_id, topology, network)
        _add_addresses(lab_id, topology, emulation=taps is not None)
        if taps:
            _add_neighbours(lab_id, topology, taps)


def _add_addresses(lab_id: str, topology: Topology, *, emulation: bool) -> None:
    """Add addresses and routes, those of IPv6 after those of IPv4."""
    plan, last = routes(topology), ip_commands.nodes_of_terminals(topology)
    for node in (*(node for node in topology.nodes if node not in last), *last):
        lines = ip_commands.addresses(
            topology, node, plan[node], DEFAULT_CONGCTL, emulation=emulation
        )
        _ip(lab_id, node, [*ip_commands.devices_of_terminal(topology, lab_id, node), *lines])
    for node in topology.nodes if topology.ipv6 else ():
        _ip(lab_id, node, ipv6.lines(topology, node, plan[node], DEFAULT_CONGCTL), "-6")


def _create(lab_id: str, nodes: list[str]) -> None:
    """Make a user namespace, and network namespaces that belong to it; without user namespaces
    plain ones.
    """
    user = user_path(lab_id)
    user.parent.mkdir(mode=0o700, exist_ok=True)
    files = [str(path(lab_id, node)) for node in nodes]
    argv = [str(paths.SATBOX), "namespaces", str(user), str(FIRST_UID), str(UIDS), *files]
    try:
        done = subprocess.run(
            argv,
            env=sandbox.ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise HostError(f"{paths.SATBOX} is missing", "build it: ./satlab --install lab") from error
    if done.returncode == _NO_USER_NAMESPACES:
        for node in nodes:
            netns.create(name(lab_id, node))
    elif done.returncode != 0:
        raise HostError(f"lab {lab_id}: namespaces: {done.stderr.strip().removeprefix('error: ')}")


def build_machines(topology: Topology, lab_id: str, control: Mapping[str, str], host: str) -> None:
    """Make a namespace with the network cards of each machine. The machines emulate the satellite
    network themselves. After a failure, the namespaces made so far remain.

    `control` has each machine's address on the control network, with its prefix; other networks get
    no addresses. `host` is our address, on a bridge in the namespace `HOST_NODE`.

    Raises:
        HostError: the kernel refused a step.
    """
    with _host_errors(f"lab {lab_id}: network namespaces"):
        build_host(lab_id)
        for node in control:
            _make_plain(lab_id, node)
        _ip(lab_id, HOST_NODE, [ip_commands.bridge(CONTROL_INTERFACE, CONTROL_MTU)])
        _set_address(lab_id, HOST_NODE, host)
        for number, (node, address) in enumerate(control.items()):
            port = InterfaceEnd(HOST_NODE, f"port{number}", "", IPv4Address(0))
            card = InterfaceEnd(node, CONTROL_INTERFACE, "", IPv4Address(0))
            _join(lab_id, port, card, CONTROL_MTU, 2 * VETH_INDEX + number)
            _ip(lab_id, HOST_NODE, [ip_commands.port(port.interface, CONTROL_INTERFACE)])
            _set_address(lab_id, node, address)
        for number, (network, config) in enumerate(topology.networks.items()):
            ends = topology.ends(network)
            if config.kind in (NetworkKind.LAN, NetworkKind.INTERNET):
                _join(lab_id, ends[0], ends[1], config.mtu, VETH_INDEX + number)
            elif config.kind is NetworkKind.EMULATION:
                _join_at_sat(lab_id, topology, network)


def build_host(lab_id: str) -> None:
    """Make only the namespace `HOST_NODE`, for a program that makes its own networks."""
    _make_plain(lab_id, HOST_NODE)


def _make_plain(lab_id: str, node: str) -> None:
    """Make a namespace that belongs to the host's users."""
    netns.create(name(lab_id, node))
    inside(lab_id, node, _set_sysctls)
    _ip(lab_id, node, [ip_commands.LOOPBACK])


def _set_address(lab_id: str, node: str, address: str) -> None:
    """Give a machine its address on the control network."""
    on = f"dev {CONTROL_INTERFACE}"
    _ip(lab_id, node, [f"addr add {address} {on}", f"link set {on} up"])


def _join_at_sat(lab_id: str, topology: Topology, network: str) -> None:
    """Make an emulation network: the SAT's end is a bridge, joined to every other end by a veth
    pair.
    """
    mtu = topology.networks[network].mtu
    hub = next(end for end in topology.ends(network) if topology.nodes[end.node].role is Role.SAT)
    _ip(lab_id, hub.node, [ip_commands.bridge(hub.interface, mtu)])
    for number, end in enumerate(end for end in topology.ends(network) if end != hub):
        port = replace(hub, interface=f"port{number}")
        _join(lab_id, port, end, mtu, 2 * VETH_INDEX + number)
        _ip(lab_id, hub.node, [ip_commands.port(port.interface, hub.interface)])


def _add_neighbours(lab_id: str, topology: Topology, taps: Mapping[str, Tap]) -> None:
    """Let each end of the satellite network know the other's MAC: OpenSAND loses packets before its
    logon.
    """
    ends = topology.ends(topology.network_of(NetworkKind.SATELLITE))
    for own, other in permutations(ends, 2):
        mac = taps[other.node].mac
        line = f"neigh replace {other.address} lladdr {mac} dev {own.interface} nud permanent"
        _ip(lab_id, own.node, [line])


WIRE_NETWORK, WIRE_INTERFACE = "198.18.7.0/30", "wire0"
WIRE_SERVER = "198.18.7.2"


@contextlib.contextmanager
def bare_wire(lab_id: str, client: str, server: str) -> Iterator[None]:
    """Join two nodes by a wire that bypasses the link: no delay, loss or limit of its rate. It is
    taken away at the end.

    Raises:
        HostError: the kernel refused a step.
    """
    ends = {client: "198.18.7.1", server: WIRE_SERVER}
    first, second = (InterfaceEnd(node, WIRE_INTERFACE, "", IPv4Address(0)) for node in ends)
    with _host_errors(f"lab {lab_id}: {WIRE_INTERFACE}"):
        _join(lab_id, first, second, CONTROL_MTU, 3 * VETH_INDEX)
        try:
            for node, address in ends.items():
                on = f"dev {WIRE_INTERFACE}"
                route = f"{WIRE_NETWORK} {on} proto kernel scope link src {address}"
                _ip(
                    lab_id,
                    node,
                    [
                        f"addr add {address}/30 {on}",
                        f"link set {on} up",
                        f"route replace {route} congctl {DEFAULT_CONGCTL}",
                    ],
                )
            yield
        finally:
            _ip(lab_id, client, [f"link del dev {WIRE_INTERFACE}"])


def open_diversion(lab_id: str, node: str, interface: str, arriving: Sequence[str]) -> int:
    """Lead all packets that a node would forward from its interfaces `arriving` into a new TUN, and
    return its open file. What is written there is forwarded as usual. Closing the file undoes all
    but the rules, which then match no route.

    Raises:
        HostError: the kernel refused a step.
    """
    with _host_errors(f"{name(lab_id, node)}: {interface}"):
        device = inside(lab_id, node, _open_tun, interface)
        lines = [
            f"link set dev {interface} txqueuelen {ip_commands.TUN_QUEUE_PACKETS} up",
            f"route add default dev {interface} table {DIVERSION_TABLE}",
            *(f"rule add iif {one} lookup {DIVERSION_TABLE}" for one in arriving),
        ]
        try:
            _ip(lab_id, node, lines)
        except HostError:
            os.close(device)
            raise
    return device


def set_congestion_control(
    lab_id: str, node: str, congctl: str, initcwnd: int | None = None
) -> None:
    """Let TCP of a node use `congctl` and an initial window of `initcwnd` segments (None: the
    kernel's) on all routes.

    Open connections keep their algorithm and window.

    Raises:
        HostError: the kernel has no such algorithm, or does not show it on a route afterwards.
    """
    metrics = {"cc_algo": congctl} | ({} if initcwnd is None else {"initcwnd": initcwnd})
    with _host_errors(f"{name(lab_id, node)}: congestion control {congctl!r}"):
        inside(lab_id, node, _set_metrics, metrics)
    for route in read_routes(lab_id, node):
        if (route.congctl, route.initcwnd) != (congctl, initcwnd):
            raise HostError(
                f"{name(lab_id, node)}: route to {route.destination} does not take {congctl!r}"
            )


def set_tcp_buffers(lab_id: str, node: str, receive_max: int, send_max: int) -> None:
    """Set the largest buffers of a node's new TCP connections, bytes (tcp(7): tcp_rmem, tcp_wmem).
    The least and the usual size are lowered to it if they are larger.

    Raises:
        HostError: the kernel refuses, or has another value afterwards.
    """
    with _host_errors(f"{name(lab_id, node)}: TCP buffers"):
        for file, largest in (("tcp_rmem", receive_max), ("tcp_wmem", send_max)):
            if (
                inside(lab_id, node, _set_largest, Path("/proc/sys/net/ipv4") / file, largest)
                != largest
            ):
                raise HostError(f"{name(lab_id, node)}: {file} does not take {largest}")


def read_routes(lab_id: str, node: str) -> list[KernelRoute]:
    """Read a node's main routing table back from the kernel."""
    with _host_errors(f"{name(lab_id, node)}: routes"):
        return inside(lab_id, node, _read_routes)


def bound_ports(lab_id: str, node: str, protocol: str) -> set[int]:
    """Return the ports that a node's programs have bound (udp) or listen on (tcp)."""
    with _host_errors(f"{name(lab_id, node)}: sockets"):
        return inside(lab_id, node, _read_ports, protocol)


def links_without_carrier(lab_id: str) -> list[str]:
    """Return the interfaces `node.interface` of a lab that would drop packets: they have no
    carrier, or no process serves them.
    """
    with _host_errors(f"lab {lab_id}: links"):
        return [
            f"{node}.{link}"
            for node in present(lab_id)
            for link in inside(lab_id, node, _read_down_links)
        ]


def remove(lab_id: str) -> None:
    """Delete every namespace of a lab with its content, and the lab's user namespace. It is no
    error if there are none.
    """
    user = user_path(lab_id)
    if user.exists():
        with _host_errors(f"{user}: removal"), contextlib.suppress(FileNotFoundError):
            netns.remove(str(user))
        with contextlib.suppress(OSError):  # other labs are in it
            user.parent.rmdir()
    for node in present(lab_id):
        with _host_errors(f"{name(lab_id, node)}: removal"), contextlib.suppress(FileNotFoundError):
            netns.remove(name(lab_id, node))


def occupants(lab_id: str) -> set[int]:
    """Return the processes inside the lab's namespaces, found by the namespaces' inodes."""
    return set(node_of_each_process(lab_id))


def node_of_each_process(lab_id: str) -> dict[int, str]:
    """Return the node of each process inside the lab's namespaces, by pid."""
    nodes = {}
    for node in present(lab_id):
        with contextlib.suppress(FileNotFoundError):
            status = path(lab_id, node).stat()
            nodes[status.st_dev, status.st_ino] = node
    return {pid: nodes[inode] for pid, inode in _network_of_each_process() if inode in nodes}


def _network_of_each_process() -> Iterator[tuple[int, tuple[int, int]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended, or has no namespace (a zombie)
                status = (entry / "ns" / "net").stat()
                yield int(entry.name), (status.st_dev, status.st_ino)


def inside(
    lab_id: str,
    node: str,
    work: Callable[Arguments, Result],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Result:
    """Run `work` in a thread that has entered the node's namespace, and return its result."""

    def enter() -> Result:
        netns.setns(str(path(lab_id, node)), flags=0)
        return work(*args, **kwargs)

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(enter).result()


def _ip(lab_id: str, node: str, lines: Sequence[str], *options: str) -> None:
    """Run commands of ip(8) in a node's namespace, all in one process."""

    def batch() -> "subprocess.CompletedProcess[str]":
        argv, text = ["ip", *options, "-batch", "-"], "\n".join(lines) + "\n"
        return subprocess.run(argv, input=text, capture_output=True, text=True, check=False)

    done = inside(lab_id, node, batch)
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:200]
        raise HostError(
            f"{name(lab_id, node)}: ip -batch: {said}",
            "is another program changing this namespace? Try again",
        )


def _join(lab_id: str, a: InterfaceEnd, b: InterfaceEnd, mtu: int, index: int) -> None:
    """Make a veth pair with one end in each namespace; `index` is the interface index of end `a`."""
    peer = name(lab_id, b.node)
    _ip(lab_id, a.node, [ip_commands.veth(a.interface, b.interface, peer, mtu, index)])


@contextlib.contextmanager
def _host_errors(what: str) -> Iterator[None]:
    """Turn the kernel's refusal into a HostError that names the step."""
    try:
        yield
    except NetlinkError as error:
        raise HostError(f"{what}: the kernel refused: {os.strerror(error.code)}") from error
    except OSError as error:
        raise HostError(f"{what}: {error}") from error


# --- steps that run inside a namespace ------------------------------------------------------------


def _open_tun(interface: str) -> int:
    device = os.open(TUN_DEVICE, os.O_RDWR)
    try:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", interface.encode(), _IFF_TUN_NO_PI))
    except OSError:
        os.close(device)
        raise
    return device


def _tag_priorities(interface: str) -> None:
    """Tag the packets that leave by an interface with the priority of their DSCP."""
    program = vlan_priority.load()
    try:
        with IPRoute() as ip:
            (index,) = ip.link_lookup(ifname=interface)
            ip.tc("add", "clsact", index)
            ip.tc(
                "add-filter",
                "bpf",
                index,
                parent=_EGRESS,
                protocol=_ANY_PROTOCOL,
                prio=1,
                fd=program,
                name="vlan_priority",
                classid=1,
                direct_action=True,
            )
    finally:
        os.close(program)


def _set_sysctls(has_ipv6: bool = False) -> None:
    for key, value in (_SYSCTLS | (ipv6.SYSCTLS if has_ipv6 else {})).items():
        file = Path("/proc/sys/net") / key
        if file.exists():  # a kernel without IPv6 has nothing to turn off
            file.write_text(value)


def _set_metrics(metrics: dict[str, Any]) -> None:
    """Write each route of the main table again with metrics, including the kernel's own subnet
    routes.
    """
    with IPRoute() as ip:
        for route in _main_table(ip):
            fields = {
                key: route.get(key)
                for key in ("dst", "dst_len", "gateway", "oif", "prefsrc", "priority")
            }
            kept = {key: value for key, value in fields.items() if value is not None}
            ip.route("replace", **kept, proto=route["proto"], scope=route["scope"], metrics=metrics)


def _set_largest(file: Path, largest: int) -> int:
    """Write the largest of a file's three sizes, and return the value that the kernel then has. The
    other two are limited to it.
    """
    least, usual, _ = map(int, file.read_text().split())
    file.write_text(f"{min(least, largest)} {min(usual, largest)} {largest}\n")
    return int(file.read_text().split()[2])


def _read_routes() -> list[KernelRoute]:
    with IPRoute() as ip:
        names = {link["index"]: link.get("ifname") for link in ip.get_links()}
        return [
            KernelRoute(
                destination=IPv4Network(f"{route.get('dst') or '0.0.0.0'}/{route['dst_len']}"),  # noqa: S104
                via=route.get("gateway"),
                interface=names[route.get("oif")],
                congctl=metrics.get_attr("RTAX_CC_ALGO") if metrics else None,
                initcwnd=metrics.get_attr("RTAX_INITCWND") if metrics else None,
            )
            for route in _main_table(ip)
            for metrics in [route.get("metrics")]
        ]


def _read_ports(protocol: str) -> set[int]:
    """Read the sockets of this thread's namespace (proc(5))."""
    found = set[int]()
    for table in (protocol, f"{protocol}6"):
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            lines = Path(f"/proc/thread-self/net/{table}").read_text().splitlines()[1:]
            rows = [line.split() for line in lines]
            is_udp = protocol == "udp"
            found |= {int(row[1][-4:], 16) for row in rows if is_udp or row[3] == "0A"}
    return found


def _read_down_links() -> list[str]:
    with IPRoute() as ip:
        return [
            str(link.get("ifname")) for link in ip.get_links() if link.get("operstate") == "DOWN"
        ]


def _main_table(ip: Any) -> list[Any]:
    return list(ip.get_routes(family=AF_INET, table=MAIN_TABLE))
