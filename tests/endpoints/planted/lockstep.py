# SPDX-License-Identifier: GPL-3.0-or-later
"""A small reliable transport in lock-step with satlab's virtual time, with faults to plant; no
QUIC, for tests alone.

Start: `python3 lockstep.py [FAULT]`; file descriptor 0 is the socket to satlab. A sender doubles
its window each round trip, halves it after losses, and retransmits what acknowledgements skip.
Faults:

- window: the receiver grants 1 MB beyond what has arrived in order.
- losses: the sender retransmits nothing after its 5th loss.
- static: the window never grows.
- gaps: the receiver fails when it has seen more than 1,000 gaps.
- constant: the window grows to 100 packets and no further.
- threshold: the sender takes a packet as lost when the next one has arrived.
- early: the sender takes a packet as lost 20 ms after the shortest round-trip time.
- late: the receiver acknowledges 200 ms after the arrival.
- stall: the sender sends nothing from 60 s to 70 s after its start.

Two words are no faults, but what a fault is compared with:

- paced: the sender spreads its packets over half a round trip; without a word it sends bursts.
- swapped: the receiver takes each two packets in reverse order, as with threshold.
"""

import hashlib
import json
import os
import socket
import struct
import sys
from collections import deque
from typing import Any

INTERFACE = "satlab/virtual-interface/1"
PART = 1200
HEAD = struct.Struct("!cQQ")
"""Kind, number of the packet, part of the payload; of an acknowledgement: the packet's number,
parts in order.
"""
AHEAD = 3
"""A packet is lost when one with so much larger a number has arrived (RFC 9002, section 6.1.1)."""
MS = 1_000_000
CREDIT = {"window": 1_000_000 // PART}
MOST_GAPS = 1000
CONSTANT = 100
SWAPPED = ("swapped", "threshold")
HOLD_NS = 20 * MS
"""Longest time that a packet is held to be swapped with the next one."""
EARLY_NS = 20 * MS
LATE_NS = 200 * MS
STALL_NS, STALL_END_NS = 60_000 * MS, 70_000 * MS
MOST_DATAGRAMS = 512
PERIOD = bytes(index % 251 for index in range(251 + PART))


class Sender:
    def __init__(self, total: int, fault: str) -> None:
        self.total, self.fault = total, fault
        self.parts = -(-total // PART)
        self.credit = CREDIT.get(fault, 1 << 40)
        self.window, self.threshold = 10.0, float("inf")
        self.flight: dict[int, tuple[int, int]] = {}  # by number, ascending: part, when
        self.lost: deque[int] = deque()
        self.in_order = self.next_part = self.number = self.losses = self.backoff = self.reduced = 0
        self.rtt_ns, self.heard_ns, self.started = 650 * MS, 0, False
        self.ahead = 0 if fault == "threshold" else AHEAD
        self.shortest_ns, self.start_ns, self.next_ns = 1 << 62, 0, 0

    def start(self, now: int) -> None:
        self.start_ns = self.start_ns if self.started else now
        self.started, self.heard_ns = True, self.heard_ns or now

    def acknowledged(self, number: int, in_order: int, now: int) -> None:
        self.heard_ns, self.backoff = now, 0
        self.in_order = max(self.in_order, in_order)
        if number in self.flight:
            self.rtt_ns = now - self.arrived(number)
            self.shortest_ns = min(self.shortest_ns, self.rtt_ns)
        while self.flight:
            oldest, (part, _) = next(iter(self.flight.items()))
            if part < self.in_order:
                self.arrived(oldest)
            elif oldest + self.ahead < number:
                self.lose(oldest)
            else:
                break

    def arrived(self, number: int) -> int:
        if self.fault != "static":
            self.window += 1 if self.window < self.threshold else 1 / self.window
        if self.fault == "constant":
            self.window = min(self.window, CONSTANT)
        return self.flight.pop(number)[1]

    def lose(self, number: int) -> None:
        part, _ = self.flight.pop(number)
        self.losses += 1
        if number >= self.reduced:
            self.reduced, self.window = self.number, max(2.0, self.window / 2)
            self.threshold = self.window
        if self.fault != "losses" or self.losses <= 5:
            self.lost.append(part)

    def send(self, now: int) -> list[bytes]:
        if not self.started or self.is_stalled(now):
            return []
        for number, (_, sent_ns) in list(self.flight.items() if self.fault == "early" else ()):
            if now >= sent_ns + self.patience_ns():
                self.lose(number)
        if self.flight and now >= self.due():
            self.backoff, self.heard_ns = self.backoff + 1, now
            for number in list(self.flight):
                self.lose(number)
        out: list[bytes] = []
        while len(self.flight) < self.window and len(out) < MOST_DATAGRAMS:
            if self.fault == "paced" and now < self.next_ns:
                break
            if self.lost:
                part = self.lost.popleft()
                if part < self.in_order:
                    continue
            elif self.next_part < min(self.parts, self.in_order + self.credit):
                part, self.next_part = self.next_part, self.next_part + 1
            else:
                break
            self.flight[self.number] = (part, now)
            offset = part * PART
            skip = offset % 251
            out.append(
                HEAD.pack(b"D", self.number, part)
                + PERIOD[skip : skip + min(PART, self.total - offset)]
            )
            self.number += 1
            self.next_ns = max(self.next_ns, now) + int(self.rtt_ns / 2 / self.window)
        return out

    def is_stalled(self, now: int) -> bool:
        return self.fault == "stall" and STALL_NS <= now - self.start_ns < STALL_END_NS

    def patience_ns(self) -> int:
        return self.shortest_ns + EARLY_NS

    def due(self) -> int:
        return self.heard_ns + (3 * self.rtt_ns << min(self.backoff, 6))

    def timer(self, now: int) -> int | None:
        if self.is_stalled(now):
            return self.start_ns + STALL_END_NS
        timers = [self.due()] if self.flight else []
        if self.fault == "early" and self.flight:
            timers.append(next(iter(self.flight.values()))[1] + self.patience_ns())
        has_data = self.lost or self.next_part < self.parts
        if self.fault == "paced" and self.started and has_data and len(self.flight) < self.window:
            timers.append(self.next_ns)
        return min(timers, default=None)

    def report(self) -> dict[str, Any]:
        is_done = self.next_part == self.parts
        state = {
            "cwnd_bytes": int(self.window * PART),
            "in_flight_bytes": len(self.flight) * PART,
            "slow_start": self.window < self.threshold,
            "rtt_ms": self.rtt_ns / MS,
            "lost_packets": self.losses,
            "supply": "done"
            if is_done
            else "blocked"
            if self.next_part >= self.in_order + self.credit
            else "slow",
        }
        return {"connected": self.started, "requested": self.started, "sender": state}


class Receiver:
    def __init__(self, total: int, fault: str) -> None:
        self.total, self.fault = total, fault
        self.parts = -(-total // PART)
        self.kept: dict[int, bytes] = {}
        self.in_order = self.received = self.gaps = self.expected = 0
        self.hash = hashlib.sha256()
        self.error: str | None = None

    def take(self, number: int, part: int, data: bytes) -> bytes:
        self.gaps += number > self.expected
        self.expected = max(self.expected, number + 1)
        if self.fault == "gaps" and self.gaps > MOST_GAPS:
            self.error = f"more than {MOST_GAPS} gaps"
        if part >= self.in_order and part not in self.kept:
            self.kept[part] = data
            self.received += len(data)
        while self.in_order in self.kept:
            self.hash.update(self.kept.pop(self.in_order))
            self.in_order += 1
        return HEAD.pack(b"A", number, self.in_order)

    def report(self) -> dict[str, Any]:
        is_complete = self.in_order == self.parts
        return {
            "connected": self.expected > 0,
            "requested": True,
            "received_bytes": self.received,
            "sha256": self.hash.hexdigest() if is_complete else None,
            "error": self.error,
        }


class Endpoint:
    """A connection at a time.

    The client knocks (K) until an answer (W), then requests (R) until there is data.
    """

    def __init__(self, setup: dict[str, Any], fault: str) -> None:
        self.setup, self.fault = setup, fault
        self.is_client = setup["role"] == "client"
        self.sends = self.is_client == (setup["direction"] == "upload")
        self.begin(0)

    def begin(self, now: int) -> None:
        made = Sender if self.sends else Receiver
        self.side: Any = made(self.setup["bytes"], self.fault)
        self.asks, self.ask_ns = b"K" if self.is_client else b"", now
        self.held: bytes | None = None
        self.held_ns = now
        self.late: deque[tuple[int, bytes]] = deque()
        """Acknowledgements that wait, and until when."""

    def step(
        self, message: dict[str, Any], arrived: list[bytes]
    ) -> tuple[dict[str, Any], list[bytes]]:
        now, out = message["now_ns"], []
        if message["start"]:
            self.begin(now)
        for data in self.in_order_of_taking(arrived, now):
            out += self.take(data, now)
        while self.late and self.late[0][0] <= now:
            out.append(self.late.popleft()[1])
        if self.asks and now >= self.ask_ns:
            out.append(HEAD.pack(self.asks, 0, 0))
            self.ask_ns = now + 1000 * MS
        if self.sends:
            out += self.side.send(now)
        timers = [
            self.side.timer(now) if self.sends else None,
            self.ask_ns if self.asks else None,
            self.held_ns if self.held else None,
            self.late[0][0] if self.late else None,
        ]
        due = min((one for one in timers if one is not None), default=None)
        return {"timer_ns": due, "report": self.side.report()}, out

    def in_order_of_taking(self, arrived: list[bytes], now: int) -> list[bytes]:
        """Swap each two packets of payload, as a link does that changes their order."""
        taken: list[bytes] = []
        for data in arrived:
            if self.fault not in SWAPPED or data[:1] != b"D":
                taken.append(data)
            elif self.held is None:
                self.held, self.held_ns = data, now + HOLD_NS
            else:
                taken += [data, self.held]
                self.held = None
        if self.held is not None and now >= self.held_ns:
            taken.append(self.held)
            self.held = None
        return taken

    def take(self, data: bytes, now: int) -> list[bytes]:
        kind, number, part = HEAD.unpack_from(data)
        if kind == b"K" and not self.is_client:
            return [HEAD.pack(b"W", 0, 0)]
        if kind == b"W" and self.asks == b"K":
            self.asks, self.ask_ns = b"" if self.sends else b"R", now
        if self.sends and kind in (b"W", b"R"):
            self.side.start(now)
        elif self.sends and kind == b"A":
            self.side.acknowledged(number, part, now)
        elif not self.sends and kind == b"D":
            self.asks = b""
            acknowledgement = self.side.take(number, part, data[HEAD.size :])
            if self.fault != "late":
                return [acknowledgement]
            self.late.append((now + LATE_NS, acknowledgement))
        return []


def main() -> None:
    fault = sys.argv[1] if len(sys.argv) > 1 else ""
    with socket.socket(fileno=os.dup(0)).makefile("rwb", buffering=1 << 20) as pipe:
        endpoint = Endpoint(json.loads(pipe.readline()), fault)
        write(pipe, {"interface": INTERFACE, "name": "planted 1"}, [])
        while line := pipe.readline():
            message = json.loads(line)
            answer, sent = endpoint.step(
                message, [pipe.read(head["bytes"]) for head in message["datagrams"]]
            )
            write(pipe, answer | {"datagrams": [{"bytes": len(data)} for data in sent]}, sent)


def write(pipe: Any, message: dict[str, Any], datagrams: list[bytes]) -> None:
    pipe.write(json.dumps(message).encode() + b"\n" + b"".join(datagrams))
    pipe.flush()


if __name__ == "__main__":
    main()
