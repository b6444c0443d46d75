#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: set TCP parameters of one node until it is stopped, and check that its connections
use them.

The job sets congestion control and initial windows on the routes of the measured interfaces, for
IPv4 and IPv6 (ip-route(8): congctl, initcwnd, initrwnd), and buffers by tcp_rmem and tcp_wmem. `ss
-ti` shows what the connections there use. Routes and connections of other interfaces (ssh on the
control network) are neither changed nor checked. When the job ends, it restores all values. Exit statuses: 0
stopped, 1 a connection has another congestion control or window than requested, 2 arguments, 3 the
host cannot do it.
"""

import argparse
import contextlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_interface, ip_network
from pathlib import Path

from jobkit import (
    JobError,
    argument_parser,
    congestion_control,
    must_store_json,
    ready,
    run,
    run_job,
    stop_event,
    whole,
)

SAMPLE_S = 0.2
HINT = "see ip-route(8); the job needs iproute2 and root"
MAX_CONNECTIONS = 1000
MB = 1_000_000
SYSCTL = Path("/proc/sys/net/ipv4")
FLAGS = {"ts", "sack", "ecn", "ecnseen", "fastopen"}
"""Words of `ss -i` before the name of the congestion control."""
MEASURED = (IPv4Network("198.18.0.0/16"), IPv6Network("2001:2::/48"))
"""The measured networks of vagrant/lab.yml: half of the range of RFC 2544, whose other half has its
control network, and that of RFC 5180.
"""
LINK_LOCAL = "fe80:"
"""Begins the routes of IPv6 that are left alone: neighbours use them, not connections."""
HANDSHAKE_BYTES = 1
"""A SYN counts as one acknowledged byte: up to there the window is still the initial one."""


@dataclass(frozen=True)
class Preset:
    """Largest send and receive buffer in bytes, initial window in segments."""

    wmem_max: int
    rmem_max: int
    initial_window: int


# Kuhn et al., "QUIC: Opportunities and threats in SATCOM", Int. J. Satell. Commun. Netw. 2021,
# table 3. Its core buffers (net.core.*mem_max) are the host's and bound only what a program asks
# for by SO_*BUF: no proxy here does.
PRESETS = {
    "A": Preset(4 * MB, 6 * MB, 10),
    "B": Preset(4 * MB, 6 * MB, 100),
    "C": Preset(33 * MB, 33 * MB, 10),
    "D": Preset(33 * MB, 33 * MB, 100),
}


@dataclass(frozen=True)
class Side:
    """The parameters of the routes of one side; windows in segments.

    None: the kernel's choice, which is then not checked.
    """

    congestion_control: str | None = None
    initial_window: int | None = None
    initial_receive_window: int | None = None

    def words(self) -> list[str]:
        """Return the words of a route."""
        pairs = (
            ("congctl", self.congestion_control),
            ("initcwnd", self.initial_window),
            ("initrwnd", self.initial_receive_window),
        )
        return [str(word) for name, value in pairs if value is not None for word in (name, value)]


@dataclass
class Connection:
    """One TCP connection over its life.

    Windows in segments; `initial_window` None: never seen before data flowed.
    """

    local: str
    peer: str
    interface: str
    side: str
    congestion_control: str = ""
    initial_window: int | None = None
    cwnd_max: int = 0
    rtt_min_ms: float | None = None
    bytes_acked: int = 0
    bytes_received: int = 0
    retransmits: int = 0
    samples: int = 0

    def take(self, algorithm: str, values: dict[str, str]) -> None:
        """Take one sample of `ss -ti`."""
        self.samples += 1
        self.congestion_control = algorithm
        cwnd = int(values.get("cwnd", 0))
        self.cwnd_max = max(self.cwnd_max, cwnd)
        self.bytes_acked = int(values.get("bytes_acked", 0))
        self.bytes_received = int(values.get("bytes_received", 0))
        self.retransmits = int(values.get("retrans", "0/0").partition("/")[2])
        if "minrtt" in values:
            self.rtt_min_ms = float(values["minrtt"])
        # A lost SYN leaves a window of 1 (RFC 6298, section 5.7 and RFC 5681, section 3.1): no
        # fault of the route.
        if self.bytes_acked <= HANDSHAKE_BYTES and not self.retransmits:
            self.initial_window = cwnd

    def fault(self, requested: Side) -> str:
        """Return how the connection differs from the request; '' if it does not."""
        where = f"{self.local} to {self.peer} (side {self.side})"
        if requested.congestion_control not in (None, self.congestion_control):
            return f"{where} uses {self.congestion_control}, not {requested.congestion_control}"
        if (
            None not in (requested.initial_window, self.initial_window)
            and requested.initial_window != self.initial_window
        ):
            return (
                f"{where} starts with a window of {self.initial_window}, not"
                f" {requested.initial_window}"
            )
        return ""


@dataclass
class Watch:
    """The connections of the measured interfaces.

    `sides` has the side of each interface, `requested` the parameters of each side.
    """

    measured: frozenset[str]
    sides: dict[str, str]
    requested: dict[str, Side]
    interface_of: dict[str, str] = field(default_factory=dict)
    connections: dict[tuple[str, str], Connection] = field(default_factory=dict)
    samples: int = 0

    def take(self, listing: str) -> None:
        """Take the output of `ss -tinOH state established`.

        Connections of the host with itself are left out, and those through interfaces that are not
        measured.
        """
        self.samples += 1
        for line in listing.splitlines():
            words = line.split()
            local, peer = words[2], words[3]
            interface = self._interface(host(peer))
            if host(local) == host(peer) or interface not in self.measured:
                continue
            key = local, peer
            if key not in self.connections:
                if len(self.connections) >= MAX_CONNECTIONS:
                    continue
                self.connections[key] = Connection(
                    local, peer, interface, self.sides.get(interface, "server")
                )
            values = dict(word.split(":", 1) for word in words[4:] if ":" in word)
            names = [word for word in words[4:] if ":" not in word and word not in FLAGS]
            self.connections[key].take(names[0] if names else "", values)

    def fault(self) -> str:
        """Return the first fault of any connection."""
        found = (c.fault(self.requested[c.side]) for c in self.connections.values())
        return next(filter(None, found), "")

    def _interface(self, address: str) -> str:
        if address not in self.interface_of:
            self.interface_of[address] = interface_towards(address)
        return self.interface_of[address]


def host(end: str) -> str:
    """Return the address of one end of a connection in the output of ss, such as 198.18.4.2:80 or
    [2001:2::2]:80.

    A socket of IPv6 shows addresses of IPv4 as [::ffff:198.18.4.2].
    """
    return end.rpartition(":")[0].strip("[]").removeprefix("::ffff:")


# --- the kernel -----------------------------------------------------------------------------------


def interface_towards(address: str) -> str:
    """Return the interface that packets for `address` leave through."""
    found = re.search(r" dev (\S+)", run("ip", "-o", "route", "get", address, hint=HINT))
    return found[1] if found else ""


def measured_interfaces(networks: Sequence[IPv4Network | IPv6Network]) -> frozenset[str]:
    """Return the interfaces with an address in one of the networks.

    Raises JobError: there is none.
    """
    lines = [line.split() for line in run("ip", "-o", "address", hint=HINT).splitlines()]
    found = {
        words[1]
        for words in lines
        if any(ip_interface(words[3]).ip in network for network in networks)
    }
    if not found:
        names = ", ".join(map(str, networks))
        raise JobError(
            f"no interface has an address in {names}", "name the measured networks with --network"
        )
    return frozenset(found)


def routes(measured: frozenset[str]) -> list[str]:
    """Return the routes of the main table through these interfaces, one line each, without the link
    state.

    Includes the routes of IPv6 if the kernel has it.
    """
    shown = run("ip", "-o", "route", hint=HINT)
    if Path("/proc/net/if_inet6").exists():
        shown += run("ip", "-6", "-o", "route", hint=HINT)
    every = [re.sub(r" (linkdown|dead)\b", "", line).strip() for line in shown.splitlines()]
    return [
        route for route in every if device(route) in measured and not route.startswith(LINK_LOCAL)
    ]


def family(route: str) -> str:
    """Return the option of ip for a route; routes of IPv6 show a preference (RFC 4191)."""
    return "-6" if re.search(r" pref \w", route) else "-4"


def with_parameters(route: str, side: Side) -> str:
    """Return a route with the parameters that a side sets; the others stay."""
    words = side.words()
    for name in words[::2]:
        route = re.sub(rf" {name} (lock )?\S+", "", route)
    return " ".join([route, *words])


def set_routes(lines: Sequence[str], measured: frozenset[str]) -> None:
    """Replace routes, and check that the kernel shows them."""
    for route in lines:
        run("ip", family(route), "route", "replace", *route.split(), hint=HINT)
    shown = [sorted(route.split()) for route in routes(measured)]
    for route in lines:
        if sorted(route.split()) not in shown:
            raise JobError(f"the kernel does not show the route {route}", "see: ip route", status=1)


@contextlib.contextmanager
def parameters(watch: Watch, buffers: Preset | None) -> Iterator[None]:
    """Set the routes of the measured interfaces, and buffers, for the time of the block."""
    before = routes(watch.measured)
    memory = {name: (SYSCTL / name).read_text() for name in ("tcp_rmem", "tcp_wmem")}
    try:
        requested = {
            route: watch.requested[watch.sides.get(device(route), "server")] for route in before
        }
        set_routes(
            [with_parameters(route, side) for route, side in requested.items()], watch.measured
        )
        if buffers:
            for name, largest in (("tcp_rmem", buffers.rmem_max), ("tcp_wmem", buffers.wmem_max)):
                low, middle, _ = memory[name].split()
                (SYSCTL / name).write_text(f"{low} {middle} {largest}")
        yield
    finally:
        for name, text in memory.items():
            (SYSCTL / name).write_text(text)
        set_routes(before, watch.measured)


def device(route: str) -> str:
    """Return the interface of a route."""
    found = re.search(r" dev (\S+)", route)
    return found[1] if found else ""


# --- the job --------------------------------------------------------------------------------------


def serve(options: argparse.Namespace, stop: threading.Event) -> None:
    """Set the parameters, sample until `stop`, and leave `tcp_conf.json`."""
    requested = requested_sides(options)
    client = interface_towards(str(options.client_ip)) if options.client_ip else ""
    sides = {client: "client"} if client else {}
    watch = Watch(measured_interfaces(options.network or MEASURED), sides, requested)
    with parameters(watch, PRESETS.get(options.preset)), ready("satlab_tcp_conf"):
        in_force = {
            "routes": routes(watch.measured),
            "tcp_rmem": read("tcp_rmem"),
            "tcp_wmem": read("tcp_wmem"),
        }
        fault = ""
        try:
            while not fault and not stop.wait(SAMPLE_S):
                watch.take(run("ss", "-tinOH", "state", "established", hint=HINT))
                fault = watch.fault()
        finally:
            store(options, watch, in_force)
    if fault:
        raise JobError(
            fault, "see what else sets it: a program's own socket option, or the host", status=1
        )


def requested_sides(options: argparse.Namespace) -> dict[str, Side]:
    """Return the request of each side. --initial-window overrides the window of a preset."""
    preset = PRESETS.get(options.preset)
    window = options.initial_window or (preset.initial_window if preset else None)
    server = Side(options.congestion_control, window, options.initial_receive_window or None)
    client = Side(
        options.client_side_congestion_control or server.congestion_control,
        options.client_side_initial_window or server.initial_window,
        options.client_side_initial_receive_window or server.initial_receive_window,
    )
    return {"server": server, "client": client}


def read(name: str) -> list[int]:
    """Read a sysctl of three numbers."""
    return [int(word) for word in (SYSCTL / name).read_text().split()]


def store(options: argparse.Namespace, watch: Watch, in_force: Mapping[str, object]) -> None:
    """Store what was requested, what the kernel shows, and what the connections used."""
    document = {
        "schema": "satlab/tcp-conf/1",
        "preset": options.preset,
        "asked": {name: asdict(side) for name, side in watch.requested.items()},
        **in_force,
        "samples": watch.samples,
        "connections": [
            asdict(c) | {"fault": c.fault(watch.requested[c.side])}
            for c in watch.connections.values()
        ],
    }
    must_store_json("tcp_conf_json", document)


def algorithm(text: str) -> str | None:
    """Return the name of a congestion control; None for `default`, which changes no route."""
    name = congestion_control(text)
    return None if name == "default" else name


def parser() -> argparse.ArgumentParser:
    options = argument_parser(__doc__)
    options.add_argument(
        "-C",
        "--congestion-control",
        type=algorithm,
        help="of every measured route; unchanged without this option, or with the word default",
    )
    options.add_argument(
        "-w",
        "--initial-window",
        type=whole(0, 10_000),
        help="of every measured route, segments; unchanged without this option, or with 0",
    )
    options.add_argument(
        "-r",
        "--initial-receive-window",
        type=whole(0, 10_000),
        help="of every measured route, segments",
    )
    options.add_argument(
        "-p",
        "--preset",
        choices=("none", *PRESETS),
        default="none",
        help="largest buffers, and window",
    )
    options.add_argument(
        "-c", "--client-ip", type=ip_address, help="routes towards it use --client-side-*"
    )
    networks = ", ".join(map(str, MEASURED))
    options.add_argument(
        "-n", "--network", type=ip_network, action="append", help=f"default: {networks}"
    )
    options.add_argument("--client-side-congestion-control", type=algorithm)
    options.add_argument("--client-side-initial-window", type=whole(0, 10_000))
    options.add_argument("--client-side-initial-receive-window", type=whole(0, 10_000))
    return options


def main() -> None:
    """Hold the parameters until SIGTERM or SIGINT."""
    options = parser().parse_args()
    serve(options, stop_event())


if __name__ == "__main__":
    run_job(__file__, main)
