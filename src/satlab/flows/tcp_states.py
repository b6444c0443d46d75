# SPDX-License-Identifier: GPL-3.0-or-later
"""State of the kernel's TCP connections over time: `ss` in the namespaces of both ends, once in a
bin.
"""

import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from satlab.lab.lab import Lab

DEADLINE_S = 2.0
_PAIR = re.compile(r"(\w+):(\S+)")
"""A field of `ss --info`; of rtt the first of two values is the smoothed round-trip time, ms
(ss(8)).
"""


@dataclass(frozen=True)
class TcpState:
    """A connection at `t_unix_s`; `port` is the server's, `peer` the client's. Amounts since its
    start.
    """

    t_unix_s: float
    port: int
    peer: int
    fields: Mapping[str, str]

    def number(self, name: str) -> float:
        """Return a field; 0 where it is missing, or not a number."""
        text = self.fields.get(name, "0").partition("/")[0]
        try:
            return float(text)
        except ValueError:
            return 0.0

    @property
    def retransmitted(self) -> float:
        """Return how many segments were retransmitted."""
        return float(self.fields.get("retrans", "0/0").rpartition("/")[2] or 0)


def parse(text: str, t_unix_s: float, side: str) -> Iterator[TcpState]:
    """Yield the connections in the output of `ss -tinHO` on a side. Lines that are not connections
    are ignored.
    """
    for line in text.splitlines():
        words = line.split(None, 5)
        if len(words) < 6:
            continue
        own, other = (word.rpartition(":")[2] for word in words[3:5])
        if not (own.isdecimal() and other.isdecimal()):
            continue
        port, peer = (own, other) if side == "server" else (other, own)
        yield TcpState(t_unix_s, int(port), int(peer), dict(_PAIR.findall(words[5])))


@dataclass
class TcpStates:
    """Samples of both sides, while the thread runs. `nodes`: each with its side."""

    lab: Lab
    nodes: Sequence[tuple[str, str]]
    interval_s: float
    found: dict[str, list[TcpState]]
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "TcpStates":
        self._thread = threading.Thread(target=self._sample, name="ss", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self) -> None:
        following = time.monotonic()
        while not self._over.is_set():
            for side, node in self.nodes:
                self.found[side] += self._look(side, node)
            following = max(following + self.interval_s, time.monotonic())
            self._over.wait(following - time.monotonic())

    def _look(self, side: str, node: str) -> list[TcpState]:
        argv = [*self.lab.enter_argv(node), "ss", "-tinHO"]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False
            )
        except subprocess.TimeoutExpired:
            return []
        return list(parse(done.stdout, time.time(), side))


def of_flow(
    states: Mapping[str, list[TcpState]], port: int, receiver: str
) -> dict[str, list[TcpState]]:
    """Return the samples of a flow's data connection by side: the connection to its port with the
    most bytes.
    """
    of_port = {side: [one for one in found if one.port == port] for side, found in states.items()}
    received: dict[int, float] = {}
    for one in of_port[receiver]:
        received[one.peer] = max(received.get(one.peer, 0.0), one.number("bytes_received"))
    if not received:
        return {side: [] for side in states}
    data = max(received, key=received.__getitem__)
    return {side: [one for one in found if one.peer == data] for side, found in of_port.items()}
