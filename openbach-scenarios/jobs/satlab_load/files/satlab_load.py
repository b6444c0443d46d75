#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: UDP load whose packet sizes and gaps follow named distributions; `receive` on one
node, then `send` on another.

One sender can send several flows. The same seed gives the same packets at the same times. The
receiver reports one-way delay, jitter (RFC 3550, section 6.4.1), losses and rate. One-way delays
need clocks that agree: the nodes of the embedded lab share one. Exit statuses: 0 done, 1 nothing
came or the file was not stored, 2 arguments, 3 the host cannot do it.
"""

import argparse
import contextlib
import heapq
import math
import random
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import collect_agent
from jobkit import Stopped, argument_parser, ignore_stops, real, run_job, store_json, whole
from udp_stream import add_sides, receiving, run_side, send_delays, send_ends, sending

HEADER = struct.Struct("!4sBBHQQ")
"""Mark, kind, flows of the load, flow, number of the packet (in an end: packets of the flow), time
of sending, ns.
"""
MARK, DATA, END = b"SLLD", 0, 1
MIN_BYTES, MAX_BYTES = HEADER.size, 1472
MAX_PACKETS, MAX_FLOWS = 2_000_000, 64


# --- distributions --------------------------------------------------------------------------------

Draw = Callable[[random.Random, float, float], float]
"""Returns one value from generator, mean and shape."""


def _pareto(source: random.Random, mean: float, shape: float) -> float:
    return mean * (shape - 1) / shape * source.paretovariate(shape)


def _weibull(source: random.Random, mean: float, shape: float) -> float:
    return source.weibullvariate(mean / math.gamma(1 + 1 / shape), shape)


@dataclass(frozen=True)
class Distribution:
    """A distribution of a given mean: how to draw from it; default and bounds of its second
    parameter.
    """

    draw: Draw
    shape: float = 0.0
    least: float = 0.0
    most: float = 0.0


DISTRIBUTIONS: Mapping[str, Distribution] = {
    "constant": Distribution(lambda _source, mean, _shape: mean),
    # Shape: half the width, as a share of the mean.
    "uniform": Distribution(
        lambda source, mean, shape: mean * source.uniform(1 - shape, 1 + shape), 0.5, 0.0, 1.0
    ),
    "exponential": Distribution(lambda source, mean, _shape: source.expovariate(1 / mean)),
    # Shape: standard deviation, as a share of the mean.
    "normal": Distribution(
        lambda source, mean, shape: source.gauss(mean, shape * mean), 0.25, 0.0, 1.0
    ),
    "gamma": Distribution(
        lambda source, mean, shape: source.gammavariate(shape, mean / shape), 2.0, 0.1, 100.0
    ),
    "pareto": Distribution(_pareto, 1.5, 1.05, 100.0),
    "weibull": Distribution(_weibull, 0.7, 0.2, 100.0),
}
"""By name; a shape of 0 to 0 is not used."""


@dataclass(frozen=True)
class Quantity:
    """A random quantity: a distribution's name, mean and shape."""

    name: str
    mean: float
    shape: float

    def draw(self, source: random.Random) -> float:
        """Return one value, at least 0."""
        return max(0.0, DISTRIBUTIONS[self.name].draw(source, self.mean, self.shape))

    def described(self) -> dict[str, object]:
        """Return it as the sender's file has it."""
        return {"distribution": self.name, "mean": self.mean, "shape": self.shape}


def quantity(name: str, mean: float, shape: float | None) -> Quantity:
    """Return what to draw. Raises ValueError: the shape is out of the distribution's bounds."""
    known = DISTRIBUTIONS[name]
    if shape is None:
        return Quantity(name, mean, known.shape)
    if not known.least <= shape <= known.most or not known.most:
        bounds = f"{known.least:g} to {known.most:g}" if known.most else "left out"
        raise ValueError(f"the shape of {name} must be {bounds}")
    return Quantity(name, mean, shape)


@dataclass(frozen=True)
class Packet:
    """One packet: when it is due (s since the start), its flow, its number there, its UDP payload
    in bytes.
    """

    due_s: float
    flow: int
    number: int
    size: int


def flow_packets(
    flow: int, seed: int, gap_ms: Quantity, size: Quantity, duration_s: float
) -> Iterator[Packet]:
    """Yield the packets of one flow; the first one is due after a gap, so that flows do not begin
    together.
    """
    gaps, sizes = (random.Random(f"{seed}/{flow}/{what}") for what in ("gap", "size"))  # noqa: S311 - a seeded model
    due_s, number = gap_ms.draw(gaps) / 1000, 0
    while due_s < duration_s:
        yield Packet(due_s, flow, number, min(MAX_BYTES, max(MIN_BYTES, round(size.draw(sizes)))))
        due_s, number = due_s + gap_ms.draw(gaps) / 1000, number + 1


def packets(
    flows: int, seed: int, gap_ms: Quantity, size: Quantity, duration_s: float
) -> Iterator[Packet]:
    """Yield the packets of all flows in the order of their times."""
    each = (flow_packets(flow, seed, gap_ms, size, duration_s) for flow in range(flows))
    return heapq.merge(*each, key=lambda packet: packet.due_s)


# --- received packets -----------------------------------------------------------------------------


@dataclass
class Flow:
    """The packets received of one flow, and the jitter of RFC 3550 so far."""

    seen: set[int] = field(default_factory=set)
    announced: int | None = None
    jitter_ms: float = 0.0
    transit_ms: float | None = None

    @property
    def sent(self) -> int:
        """Packets that were sent: as the end of the flow says, or the highest number that came."""
        return max(self.announced or 0, max(self.seen, default=-1) + 1)


@dataclass
class Reception:
    """The packets received of a load, in the order of arrival; times in ns."""

    flows: dict[int, Flow] = field(default_factory=dict)
    owd_ms: list[float] = field(default_factory=list)
    received_ns: list[int] = field(default_factory=list)
    size: int = 0
    first_ns: int = 0
    last_ns: int = 0
    duplicates: int = 0
    expected: int = 0

    def take(self, content: bytes, received_ns: int) -> bool:
        """Take a datagram; return whether the load is over. Foreign ones are passed over."""
        if len(content) < HEADER.size:
            return False
        mark, kind, flows, number, count, sent_ns = HEADER.unpack_from(content)
        is_ours = mark == MARK and number < flows <= MAX_FLOWS and count <= MAX_PACKETS
        if not is_ours or (self.expected and flows != self.expected):
            return False
        self.expected = flows
        flow = self.flows.setdefault(number, Flow())
        if kind == END:
            flow.announced = count
        elif count in flow.seen:
            self.duplicates += 1
        else:
            flow.seen.add(count)
            self._count(flow, (received_ns - sent_ns) / 1e6, len(content), received_ns)
        return len(self.flows) == flows and all(
            each.announced is not None for each in self.flows.values()
        )

    def _count(self, flow: Flow, transit_ms: float, size: int, received_ns: int) -> None:
        if flow.transit_ms is not None:
            flow.jitter_ms += (abs(transit_ms - flow.transit_ms) - flow.jitter_ms) / 16
        flow.transit_ms = transit_ms
        self.first_ns = self.first_ns or received_ns
        self.last_ns = received_ns
        self.size += size
        self.owd_ms.append(transit_ms)
        self.received_ns.append(received_ns)

    @property
    def sent(self) -> int:
        """Packets that were sent."""
        return sum(flow.sent for flow in self.flows.values())

    @property
    def jitter_ms(self) -> float:
        """Mean over the flows that came."""
        came = [flow.jitter_ms for flow in self.flows.values() if flow.seen]
        return sum(came) / len(came) if came else 0.0

    @property
    def active_s(self) -> float:
        """From the first to the last packet."""
        return (self.last_ns - self.first_ns) / 1e9

    def burst_ratio(self) -> float:
        """Return mean length of the bursts of losses over that of random losses (ITU-T G.107,
        BurstR); at least 1.
        """
        lost = bursts = total = 0
        for flow in self.flows.values():
            previous = False
            for number in range(flow.sent):
                missing = number not in flow.seen
                lost, bursts, total = lost + missing, bursts + (missing and not previous), total + 1
                previous = missing
        return max(1.0, lost / bursts * (1 - lost / total)) if 0 < lost < total else 1.0

    def document(self, start_unix_s: float) -> dict[str, object]:
        """Return the receiver's file (schemas/stream.schema.json)."""
        return {
            "schema": "satlab/stream/1",
            "role": "receiver",
            "start_unix_s": start_unix_s,
            "sent": self.sent,
            "received": len(self.owd_ms),
            "duplicates": self.duplicates,
            "burst_ratio": self.burst_ratio(),
            "jitter_ms": self.jitter_ms,
            "owd_ms": self.owd_ms,
            "load": {"flows": self.expected, "bytes": self.size, "active_s": self.active_s},
        }


# --- the two sides --------------------------------------------------------------------------------


def receive(options: argparse.Namespace) -> int:
    """Receive one load, to its end or until none of its packets has come for a while."""
    reception, start_unix_s = Reception(), time.time()
    with (
        contextlib.suppress(Stopped, TimeoutError),
        receiving("satlab_load", options) as next_packet,
    ):
        while not reception.take(next_packet(), time.time_ns()):
            continue
    ignore_stops()
    if not reception.owd_ms:
        print("error: no packet of a load has come", file=sys.stderr)
        return 1
    send_delays(reception.received_ns, reception.owd_ms)
    summary = {
        "jitter_ms": reception.jitter_ms,
        "loss_ratio": 1 - len(reception.owd_ms) / reception.sent,
    }
    summary |= rate(reception.size, reception.active_s)
    collect_agent.send_stat(collect_agent.now(), **summary)
    return store(reception.document(start_unix_s))


def rate(size: int, active_s: float) -> dict[str, float]:
    """Return the rate as a statistic; a single packet has none."""
    return {"rate_bps": 8 * size / active_s} if active_s > 0 else {}


def send(options: argparse.Namespace) -> int:
    """Send the load, then the end of each flow."""
    gap, size = (getattr(options, f"{name}_quantity") for name in ("gap", "size"))
    counts, sent, total, late_s, last_s = [0] * options.flows, 0, 0, 0.0, 0.0
    start_unix_s, began = time.time(), time.monotonic()
    first_s: float | None = None
    with sending(options) as send_packet:
        with contextlib.suppress(Stopped):
            for packet in packets(options.flows, options.seed, gap, size, options.duration_s):
                time.sleep(max(0.0, began + packet.due_s - time.monotonic()))
                send_packet(datagram(DATA, options.flows, packet.flow, packet.number, packet.size))
                last_s = time.monotonic() - began
                first_s = last_s if first_s is None else first_s
                late_s = max(late_s, last_s - packet.due_s)
                counts[packet.flow], sent, total = packet.number + 1, sent + 1, total + packet.size
                if sent >= MAX_PACKETS:
                    break
        send_ends(
            send_packet,
            lambda: (
                datagram(END, options.flows, flow, count, HEADER.size)
                for flow, count in enumerate(counts)
            ),
        )
    active_s = last_s - (first_s or 0.0)
    collect_agent.send_stat(collect_agent.now(), late_ms=1000 * late_s, **rate(total, active_s))
    load = {"flows": options.flows, "bytes": total, "active_s": active_s, "seed": options.seed}
    load |= {"late_ms": 1000 * late_s, "gap_ms": gap.described(), "size_bytes": size.described()}
    about = {
        "schema": "satlab/stream/1",
        "role": "sender",
        "start_unix_s": start_unix_s,
        "sent": sent,
    }
    return store(about | {"load": load})


def datagram(kind: int, flows: int, flow: int, number: int, size: int) -> bytes:
    """Return a datagram of `size` bytes with the time of now."""
    return HEADER.pack(MARK, kind, flows, flow, number, time.time_ns()).ljust(size, b"\0")


def store(made: dict[str, object]) -> int:
    """Store the file of this side."""
    answer = store_json("stream_json", made)
    return 0 if answer == "OK" else 1


# --- arguments ------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    _, sender = add_sides(options, default_port=5010)
    sender.add_argument("-f", "--flows", type=whole(1, MAX_FLOWS), default=1)
    sender.add_argument("--gap", choices=tuple(DISTRIBUTIONS), default="constant")
    sender.add_argument("--gap-ms", type=real(0.1, 60000), default=20.0)
    sender.add_argument("--gap-shape", type=float)
    sender.add_argument("--size", choices=tuple(DISTRIBUTIONS), default="constant")
    sender.add_argument("--size-bytes", type=real(MIN_BYTES, MAX_BYTES), default=512.0)
    sender.add_argument("--size-shape", type=float)
    sender.add_argument("--seed", type=int, default=1)
    return options


def parsed(words: list[str]) -> argparse.Namespace:
    """Read the arguments; ends with status 2 if they do not fit."""
    reader = parser()
    options = reader.parse_args(words)
    if options.role == "send":
        try:
            options.gap_quantity = quantity(options.gap, options.gap_ms, options.gap_shape)
            options.size_quantity = quantity(options.size, options.size_bytes, options.size_shape)
        except ValueError as error:
            reader.error(str(error))
    return options


def main() -> int:
    """Run one side."""
    return run_side(parsed(sys.argv[1:]), receive, send)


if __name__ == "__main__":
    run_job(__file__, main)
