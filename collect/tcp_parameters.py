# SPDX-License-Identifier: GPL-3.0-or-later
"""TCP parameters of a node: requested, and used by its connections (schemas/tcp-conf.schema.json)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import Field

from collect.raw import Model
from collect.records import Record, failed

STAT = "tcp_conf_json"
MAIN_METRICS = ("tcp_leg_ok",)


class Side(Model):
    """Requested parameters. Windows are in segments; null leaves the choice to the kernel."""

    congestion_control: str | None
    initial_window: int | None
    initial_receive_window: int | None


class Connection(Model):
    """One TCP connection; windows in segments."""

    local: str
    peer: str
    interface: str
    side: Literal["client", "server"]
    congestion_control: str
    initial_window: int | None = Field(
        description="null if the window was not sampled before data flowed"
    )
    cwnd_max: int
    rtt_min_ms: float | None
    bytes_acked: int
    bytes_received: int
    retransmits: int
    samples: int
    fault: str


class TcpConf(Model):
    """TCP parameters of one node (job satlab_tcp_conf): requested, in force in the kernel, and used
    by each connection. Buffers are (minimum, default, maximum) in bytes.
    """

    schema_: Literal["satlab/tcp-conf/1"] = Field(alias="schema")
    preset: str
    asked: dict[Literal["client", "server"], Side]
    routes: list[str]
    tcp_rmem: tuple[int, int, int]
    tcp_wmem: tuple[int, int, int]
    samples: int
    connections: list[Connection]


def records(conf: TcpConf, labels: Mapping[str, str]) -> list[Record]:
    """Return `tcp_leg_ok` and `tcp_leg_cwnd_max_packets` of each interface that carried
    connections.
    """
    buffers = {
        "preset": conf.preset,
        "rmem_max": str(conf.tcp_rmem[2]),
        "wmem_max": str(conf.tcp_wmem[2]),
    }
    legs: dict[str, list[Connection]] = {}
    for connection in conf.connections:
        legs.setdefault(connection.interface, []).append(connection)
    return [
        record
        for leg in legs.values()
        for record in _leg(leg, conf.asked[leg[0].side], {**labels, **buffers})
    ]


def _leg(leg: Sequence[Connection], asked: Side, labels: Mapping[str, str]) -> Iterator[Record]:
    own = {
        **labels,
        "interface": leg[0].interface,
        "connections": str(len(leg)),
        "congestion_control": _distinct(c.congestion_control for c in leg),
        "congestion_control_asked": asked.congestion_control or "",
        "initial_window": _distinct(
            str(c.initial_window) for c in leg if c.initial_window is not None
        ),
        "initial_window_asked": "" if asked.initial_window is None else str(asked.initial_window),
    }
    faults = [c.fault for c in leg if c.fault]
    yield failed("tcp_leg_ok", own, faults[0]) if faults else Record("tcp_leg_ok", 1.0, own)
    yield Record("tcp_leg_cwnd_max_packets", max(c.cwnd_max for c in leg), own)


def _distinct(values: Iterator[str]) -> str:
    return ", ".join(sorted(set(values)))
