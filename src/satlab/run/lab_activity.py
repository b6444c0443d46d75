# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of the programs of a lab, and congestion windows of its connections, while it is up.

Sources: proc(5), pid/stat; for TCP the kernel's sock_diag(7) with struct tcp_info of <linux/tcp.h>;
for QUIC the output of satperf and satpep (`quic_flows`). Users name their programs and open
connections, so both are bounded. A sample takes about 5 ms of CPU time, once in INTERVAL_S: 2 ms
for 150 processes of the host, 0.03 ms for each of the lab, 0.4 ms for each node with processes.
"""

import contextlib
import os
import re
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path, PurePath
from typing import Annotated

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from satlab.common.errors import HostError
from satlab.common.processes import read_process
from satlab.lab import netns
from satlab.run.quic_flows import KERNEL, Flow, ReportedFlows

INTERVAL_S = 2.0
MOST_PROGRAMS = 40
MOST_FLOWS = 24
MOST_NODES = 16
"""Limits of a sample: programs, connections, and nodes whose connections are read. The most active
ones are kept.
"""
MOST_READ = 4 << 20
"""Largest part of the kernel's answer about a node's connections that is read, bytes.
"""
_NAME = re.compile(r"[^A-Za-z0-9_.+-]")
_LONGEST_NAME = 24
_ANSWER_S = 1.0

Percent = Annotated[float, Field(ge=0, description="100: one core")]


# --- CPU time -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    """A process on a node: the name of its program, and the CPU time that it has used itself,
    ticks.
    """

    node: str
    program: str
    ticks: int


Processes = Mapping[tuple[int, int], Running]
"""By pid and start in ticks since boot, because two processes may have had the same pid."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class ProgramLoad:
    """All processes of one name on a node, and their share of a core, %."""

    node: str
    program: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]{1,24}$")]
    processes: Annotated[int, Field(ge=1)]
    cpu_percent: Percent


def read_running(nodes: Mapping[int, str]) -> Processes:
    """Read the processes of a lab; `nodes` has the node of each by pid. A process that has just
    ended is left out.
    """
    found = {}
    for pid, node in nodes.items():
        process = read_process(pid)
        if process is None:
            continue
        with contextlib.suppress(OSError):
            name = process.name
            if name.startswith("python"):
                with Path(f"/proc/{pid}/cmdline").open("rb") as file:
                    name = script_of(file.read(4096)) or name
            found[pid, process.start_ticks] = Running(node, clean(name), process.own_ticks)
    return found


def script_of(command_line: bytes) -> str:
    """Return the name of the Python script that a command line starts, without its ending; '' if
    there is none.
    """
    words = command_line.decode("utf-8", "replace").split("\0")[1:]
    return next((PurePath(word).stem for word in words if word.endswith(".py")), "")


def clean(name: str) -> str:
    """Return a program's name with only characters that can be shown everywhere, and of bounded
    length.
    """
    return _NAME.sub("_", name)[:_LONGEST_NAME] or "_"


def loads(before: Processes, after: Processes, seconds: float) -> list[ProgramLoad]:
    """Return the CPU time of each program of each node between two readings, the largest first.
    Programs that used none are left out.

    A process that is only in the second reading has used all its time since the first one.
    """
    ticks: dict[tuple[str, str], list[int]] = defaultdict(list)
    for key, now in after.items():
        then = before.get(key)
        ticks[now.node, now.program].append(now.ticks - (then.ticks if then else 0))
    a_tick = 100 / os.sysconf("SC_CLK_TCK") / seconds
    found = [
        ProgramLoad(*key, len(each), round(sum(each) * a_tick, 1))
        for key, each in ticks.items()
        if sum(each) > 0
    ]
    return sorted(found, key=lambda load: (-load.cpu_percent, load.node, load.program))


# --- TCP connections ------------------------------------------------------------------------------

_SOCK_DIAG = 4
_BY_FAMILY, _DONE, _ERROR = 20, 3, 2
_REQUEST_DUMP = 0x301
_ESTABLISHED = 1 << 1
_INFO, _CONGESTION = 2, 4
"""<linux/netlink.h>, <linux/sock_diag.h>, <linux/inet_diag.h>: protocol, types, flags, TCP state,
attributes.
"""
_HEADER = struct.Struct("=IHHII")
_ABOUT = struct.Struct("=4xHH16s16s")
_ABOUT_BYTES = 72
"""struct inet_diag_msg: of interest are ports, source, destination."""
_MSS_AT, _UNACKED_AT, _RTT_AT, _CWND_AT, _ACKED_AT = 16, 24, 68, 80, 120
"""Places of fields in struct tcp_info, which only grows at its end."""


def read_flows(node: str) -> list[Flow]:
    """Return the connections that have sent data in this thread's namespace, which is that of
    `node`; without those to the node itself.

    Raises:
        OSError: the kernel does not answer.
    """
    return [
        flow
        for family in (socket.AF_INET, socket.AF_INET6)
        for flow in parse_flows(_asked(family), family, node)
    ]


def _asked(family: int) -> bytes:
    """Return the kernel's messages about all established connections of a family."""
    extensions = 1 << (_INFO - 1) | 1 << (_CONGESTION - 1)
    request = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, extensions, _ESTABLISHED)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_S)
        kernel.send(
            _HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + request
        )
        answer = b""
        while len(answer) < MOST_READ:
            part = kernel.recv(1 << 16)
            answer += part
            if not part or any(kind in (_DONE, _ERROR) for kind, _ in messages(part)):
                break
    return answer


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of each netlink message; one that is cut off ends them."""
    while len(data) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(data)
        if not _HEADER.size <= length <= len(data):
            return
        yield kind, data[_HEADER.size : length]
        data = data[(length + 3) & ~3 :]


def parse_flows(data: bytes, family: int, node: str) -> Iterator[Flow]:
    """Yield the connections in the kernel's messages; those without struct tcp_info or sent data
    are left out.
    """
    size = 4 if family == socket.AF_INET else 16
    for kind, content in messages(data):
        if kind != _BY_FAMILY or len(content) < _ABOUT_BYTES:
            continue
        source_port, target_port, source, target = _ABOUT.unpack_from(content)
        local, peer = (ip_address(each[:size]) for each in (source, target))
        known = dict(attributes(content[_ABOUT_BYTES:]))
        info = known.get(_INFO, b"")
        if len(info) < _ACKED_AT + 8 or local.is_loopback or local == peer:
            continue
        (acked,) = struct.unpack_from("=Q", info, _ACKED_AT)
        mss, unacked, rtt_us, cwnd = (
            struct.unpack_from("=I", info, at)[0]
            for at in (_MSS_AT, _UNACKED_AT, _RTT_AT, _CWND_AT)
        )
        if acked or unacked:
            algorithm = known.get(_CONGESTION, b"").rstrip(b"\0").decode("ascii", "replace")
            yield Flow(
                source=KERNEL,
                local=_place(local, source_port),
                peer=_place(peer, target_port),
                algorithm=clean(algorithm),
                cwnd_bytes=cwnd * mss,
                rtt_ms=round(rtt_us / 1000, 1),
                in_flight_bytes=unacked * mss,
                acked_bytes=acked,
                node=node,
            )


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of each attribute (struct rtattr)."""
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if not 4 <= length <= len(data):
            return
        yield kind, data[4:length]
        data = data[(length + 3) & ~3 :]


def _place(address: object, port: int) -> str:
    text = f"[{address}]" if ":" in str(address) else str(address)
    return f"{text}:{socket.ntohs(port)}"


# --- samples --------------------------------------------------------------------------------------


@with_config(ConfigDict(extra="forbid"))
class NodeLoad(TypedDict):
    """CPU time of all programs of a node, %."""

    node: str
    cpu_percent: Percent


@with_config(ConfigDict(extra="forbid"))
class Activity(TypedDict):
    """Activity of a lab's nodes over the last interval: the most active programs and flows."""

    t_unix_s: float
    nodes: list[NodeLoad]
    programs: Annotated[list[ProgramLoad], Field(max_length=MOST_PROGRAMS)]
    flows: Annotated[list[Flow], Field(max_length=MOST_FLOWS)]


def activity(unix_s: float, programs: list[ProgramLoad], flows: list[Flow]) -> Activity:
    """Return a sample: nodes with the CPU time of all their programs, and the most active programs
    and flows.
    """
    nodes: dict[str, float] = defaultdict(float)
    for load in programs:
        nodes[load.node] += load.cpu_percent
    flows = sorted(flows, key=lambda flow: (-(flow.in_flight_bytes or 0), -(flow.acked_bytes or 0)))
    return {
        "t_unix_s": round(unix_s, 3),
        "nodes": [
            {"node": node, "cpu_percent": round(percent, 1)}
            for node, percent in sorted(nodes.items())
        ],
        "programs": programs[:MOST_PROGRAMS],
        "flows": flows[:MOST_FLOWS],
    }


class Sampler:
    """Takes samples of a lab. The first call has nothing to compare with, and returns None."""

    def __init__(self, lab_id: str) -> None:
        self._lab_id = lab_id
        self._before: tuple[float, Processes] | None = None
        self._reported = ReportedFlows()

    def sample(self) -> Activity | None:
        """Return the activity since the last call.

        Raises:
            HostError, OSError: the lab is being taken down.
        """
        nodes = netns.node_of_each_process(self._lab_id)
        now, running = time.monotonic(), read_running(nodes)
        before, self._before = self._before, (now, running)
        if before is None or now <= before[0]:
            return None
        programs = loads(before[1], running, now - before[0])
        unix_s = time.time()
        reported = self._reported.read(
            {key: (each.node, each.program) for key, each in running.items()}, unix_s
        )
        flows = [
            flow
            for node in sorted(set(nodes.values()))[:MOST_NODES]
            for flow in netns.inside(self._lab_id, node, partial(read_flows, node))
        ]
        return activity(unix_s, programs, flows + reported)


class Sampling:
    """A thread that takes samples from `begin` on until the block ends; `publish` gets each."""

    def __init__(
        self, lab_id: str, publish: Callable[[Activity], None], interval_s: float = INTERVAL_S
    ) -> None:
        self._sampler, self._publish, self._interval_s = Sampler(lab_id), publish, interval_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="activity", daemon=True)

    def __enter__(self) -> "Sampling":
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def begin(self) -> None:
        """Start; further calls do nothing."""
        if self._thread.ident is None and not self._over.is_set():
            self._thread.start()

    def _run(self) -> None:
        while True:
            with contextlib.suppress(HostError, OSError):  # the lab is being taken down
                if found := self._sampler.sample():
                    self._publish(found)
            if self._over.wait(self._interval_s):
                return
