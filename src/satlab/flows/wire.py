# SPDX-License-Identifier: GPL-3.0-or-later
"""The link of a file of flows in a lab: a satellite link, or a plain wire. For a wire, the
satellite segment changes to plain lines of the wire's rates once the lab is up. The same code sends
their packets under the virtual clock.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from satlab.check import case_link
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, HostError
from satlab.common.processes import wait
from satlab.lab.lab import Lab
from satlab.link import control
from satlab.link.config import LinkConfig, LinkRequest, LinkSet, Timeline, TimelineStep, faults_of
from satlab.link.plan import LinkPlan, RttPlan
from satlab.run.lab_session import NetnsHost, metrics_of

Name = Literal["forward", "return"]
DIRECTIONS: tuple[Name, Name] = ("forward", "return")
METRICS_INTERVAL_MS = 50
"""Period of samples, as under the virtual clock."""
CHANGED_S = 5.0
"""Longest time until the changes are in the link's metrics, s."""
ECHO_BYTES, PACKET_BYTES, UDP_PAYLOAD_BYTES, TCP_PAYLOAD_BYTES = 84, 1500, 1472, 1448
"""Sizes of an echo, a full-size packet and its payload in a calibration, bytes."""


@dataclass(frozen=True)
class Half:
    """One direction of a wire: Mbit/s, ms, and the queue with its limit in bytes or packets.

    The rate counts `header_bytes` of each packet beyond IP.
    """

    rate_mbps: float
    delay_ms: float
    queue: Mapping[str, Any]
    header_bytes: int = 0

    def handover(self, waiting: str = "keep") -> dict[str, Any]:
        """Return the handover to this direction."""
        header = {"header_bytes": self.header_bytes} if self.header_bytes else {}
        new = {
            "waiting": waiting,
            "rate_mbps": self.rate_mbps,
            "delay_ms": self.delay_ms,
            "queue": dict(self.queue),
        }
        return {"handover": new | header}

    def time_ms(self, ip_bytes: int) -> float:
        """Return how long a packet takes to be sent, ms."""
        return (ip_bytes + self.header_bytes) * 8e-3 / self.rate_mbps


class WireChange(NamedTuple):
    """A change of one direction: its time, the wire after it, and the change for satlink."""

    at_s: float
    halves: dict[Name, Half]
    set: dict[str, Any]


@dataclass(frozen=True)
class Wire:
    """The field `wire` of a checked file of flows."""

    fields: Mapping[str, Any]

    @property
    def halves(self) -> dict[Name, Half]:
        """Return both directions at time 0."""
        rtt_ms = sum(self.fields[name]["delay_ms"] for name in DIRECTIONS)
        return {name: _half(self.fields[name], rtt_ms) for name in DIRECTIONS}

    @property
    def header_bytes(self) -> dict[Name, int]:
        """Return the header bytes for each packet that the rate of each direction includes beyond
        IP.
        """
        return {name: half.header_bytes for name, half in self.halves.items()}

    def at_first(self) -> list[LinkSet]:
        """Return the changes that make the link of a lab this wire, without losses and
        impairments.
        """
        return [
            LinkSet.model_validate({"direction": name} | half.handover())
            for name, half in self.halves.items()
        ]

    def steps(self) -> tuple[TimelineStep, ...]:
        """Return the changes from time 0 on. Losses and impairments begin then, since the lab is
        calibrated without them.
        """
        found: list[tuple[float, dict[str, Any]]] = [
            (0.0, {"direction": name, **given})
            for name in DIRECTIONS
            if (given := _of_packets(self.fields[name]))
        ]
        found += [(one.at_s, one.set) for one in self.changes()]
        return tuple(
            TimelineStep.model_validate({"at_s": at_s, "set": given}) for at_s, given in found
        )

    def rates(self, name: Name) -> list[tuple[float, float]]:
        """Return the rates of a direction, bit/s, each with its start, s."""
        found = [(0.0, self.halves[name].rate_mbps * 1e6)]
        for change in self.changes():
            rate_bps = change.halves[name].rate_mbps * 1e6
            if rate_bps != found[-1][1]:
                found.append((change.at_s, rate_bps))
        return found

    def plan(self, lab: LinkPlan) -> LinkPlan:
        """Return the plan of a lab with the figures of this wire, without losses and impairments."""
        halves = self.halves
        configured = sum(half.delay_ms for half in halves.values())
        echo_ms = configured + sum(half.time_ms(ECHO_BYTES) for half in halves.values())
        return lab.model_copy(
            update={
                "forward": lab.forward.model_copy(update=_planned(halves["forward"], configured)),
                "return_": lab.return_.model_copy(update=_planned(halves["return"], configured)),
                "rtt_ms": RttPlan(configured=configured, min=echo_ms, mean=echo_ms, max=echo_ms),
            }
        )

    def changes(self) -> Iterator[WireChange]:
        halves = self.halves
        for step in sorted(self.fields.get("timeline", ()), key=lambda step: float(step["at_s"])):
            meant = [name for name in DIRECTIONS if step["direction"] in (name, "both")]
            given = {name: value for name, value in step.items() if value is not None}
            delays = {
                name: given.get("delay_ms", half.delay_ms)
                for name, half in halves.items()
                if name in meant
            }
            rtt_ms = sum(delays.get(name, half.delay_ms) for name, half in halves.items())
            for name in meant:
                before = halves[name]
                halves[name] = _after(before, self.fields[name], given, rtt_ms)
                if change := _change(before, halves[name], given):
                    set_ = {"direction": name, **change}
                    yield WireChange(float(step["at_s"]), dict(halves), set_)


def _half(fields: Mapping[str, Any], rtt_ms: float) -> Half:
    queue = _queue(fields["queue"], fields["rate_mbps"], rtt_ms)
    return Half(fields["rate_mbps"], fields["delay_ms"], queue, fields.get("header_bytes", 0))


def _queue(queue: Mapping[str, Any], rate_mbps: float, rtt_ms: float) -> dict[str, Any]:
    """Return a queue whose limit is in bytes, converted from bandwidth-delay products of this wire."""
    if "bdp" not in queue:
        return dict(queue)
    limit = max(1, round(queue["bdp"] * round(rate_mbps * 1e3 * rtt_ms / 8)))
    return {name: value for name, value in queue.items() if name != "bdp"} | {"bytes": limit}


def _after(half: Half, fields: Mapping[str, Any], step: Mapping[str, Any], rtt_ms: float) -> Half:
    """Return a direction after a step.

    A limit in bandwidth-delay products changes only with a queue or a handover.
    """
    rate_mbps, delay_ms = step.get("rate_mbps", half.rate_mbps), step.get("delay_ms", half.delay_ms)
    if "queue" not in step and "waiting" not in step:
        return replace(half, rate_mbps=rate_mbps, delay_ms=delay_ms)
    queue = _queue(step.get("queue", fields["queue"]), rate_mbps, rtt_ms)
    return replace(half, rate_mbps=rate_mbps, delay_ms=delay_ms, queue=queue)


def _change(before: Half, after: Half, step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change of a direction in a step; empty if nothing changes."""
    if "waiting" in step:
        change = after.handover(step["waiting"])
    elif after.rate_mbps != before.rate_mbps:
        change = after.handover()
    else:
        change = {"delay_ms": after.delay_ms} if after.delay_ms != before.delay_ms else {}
        change |= {"queue": dict(after.queue)} if "queue" in step else {}
    return change | _of_packets(step) | ({"outage": step["outage_s"]} if "outage_s" in step else {})


def _of_packets(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that single packets meet, as far as they are given."""
    names = ("loss", "reorder", "duplicate", "corrupt")
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _planned(half: Half, rtt_ms: float) -> dict[str, Any]:
    rate_bps = half.rate_mbps * 1e6
    limit = half.queue.get("bytes", half.queue.get("packets", 0) * PACKET_BYTES)
    packets_per_s = 1000 / half.time_ms(PACKET_BYTES)
    return {
        "rate_bps": rate_bps,
        "one_way_delay_ms": half.delay_ms,
        "queue_bytes": limit,
        "queue_discipline": half.queue.get("aqm", "drop-tail"),
        "queue_ecn": half.queue.get("ecn", False),
        "bdp_bytes": round(rate_bps * rtt_ms / 8e3),
        "udp_goodput_bps": packets_per_s * UDP_PAYLOAD_BYTES * 8,
        "tcp_goodput_bps": packets_per_s * TCP_PAYLOAD_BYTES * 8,
    }


def plain_profile(folder: Path) -> Path:
    """Make the profile of a lab whose link becomes a wire. It has no adaptive coding."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(paths.PROFILES / "leo", folder)
    case_link.edit(folder / "topology.xml", ("<wave_form>3-12<", "<wave_form>8<"))
    return folder


def link_request(
    request: Mapping[str, Any], folder: Path, metrics: Path, profile: Path = paths.PROFILES / "leo"
) -> LinkRequest:
    """Return the request for the lab of a file in `folder`. A wire replaces the link of `profile`.

    Raises ConfigError.
    """
    if "wire" in request:
        steps = Wire(request["wire"]).steps()
        return LinkRequest(
            profile,
            seed=request["seed"],
            terrestrial_one_way_delay_ms=0,
            run_id="flows",
            metrics=metrics,
            metrics_interval_ms=METRICS_INTERVAL_MS,
            timeline=Timeline(starts="on-request", steps=steps) if steps else None,
        )
    file = folder / request["link"]
    try:
        given = LinkConfig.model_validate(json.loads(file.read_text()))
    except (OSError, ValueError) as error:
        faults = faults_of(error, str(file)) if isinstance(error, ValidationError) else ()
        raise ConfigError(
            f"{file}: not a link", faults, "fields: schemas/link-config.schema.json"
        ) from error
    steps = given.timeline.steps if given.timeline else ()
    return LinkRequest(
        Path(given.profile),
        seed=request["seed"],
        timing=given.timing,
        forward=given.forward,
        return_=given.return_,
        terrestrial_one_way_delay_ms=given.terrestrial_one_way_delay_ms,
        run_id="flows",
        metrics=metrics,
        metrics_interval_ms=METRICS_INTERVAL_MS,
        timeline=Timeline(starts="on-request", steps=steps) if steps else None,
        lenient=given.lenient,
    )


@dataclass(frozen=True)
class FlowHost(NetnsHost):
    """A lab whose satellite segment may become a plain wire."""

    wire: Wire | None = field(default=None)

    @contextlib.contextmanager
    def opened(self, log: ProgressLog) -> Iterator[Lab]:
        with super().opened(log) as lab:
            if self.wire is None or lab.config.control is None:
                yield lab
                return
            for change in self.wire.at_first():
                control.change(Path(lab.config.control), change)
            check_changes(lab)
            yield replace(lab, plan=self.wire.plan(lab.plan))


def check_changes(lab: Lab) -> None:
    """Wait until both directions have changed. Raises HostError if the link refuses a change."""
    found: list[Mapping[str, Any]] = []

    def all_made() -> bool:
        found[:] = [line for line in metrics_of(lab).each() if line["type"] == "change"]
        return len(found) >= len(DIRECTIONS)

    is_made = wait(all_made, CHANGED_S)
    refused = [f"{line['direction']}: {line['error']}" for line in found if line["error"]]
    if refused or not is_made:
        raise HostError(f"the link does not become the wire: {'; '.join(refused) or 'no answer'}")


def queue_samples(
    samples: Sequence[Mapping[str, Any]],
    rates: Mapping[Name, Sequence[tuple[float, float]]],
    length_s: float,
    header_bytes: Mapping[Name, int] | None = None,
) -> list[list[dict[str, float]]]:
    """Return both queues every 50 ms up to `length_s`, from samples of the link with their times
    `t_s`.

    `rates`: the rates of each direction, bit/s, each with its start. They include `header_bytes`
    for each packet beyond IP.
    """
    count = round(length_s * 1000 / METRICS_INTERVAL_MS)
    found: list[list[dict[str, float]]] = []
    for name in DIRECTIONS:
        header = (header_bytes or {}).get(name, 0)
        waiting = {
            round(one["t_s"] * 1000 / METRICS_INTERVAL_MS): (
                one[name]["queue_bytes"] + header * one[name]["queue_packets"]
            )
            for one in samples
        }
        series, last = [], 0
        for tick in range(1, count + 1):
            last = waiting.get(tick, last)
            rate_bps = next(
                rate
                for at_s, rate in reversed(rates[name])
                if at_s <= tick * METRICS_INTERVAL_MS / 1000
            )
            series.append({"delay_ms": last * 8e3 / rate_bps, "rate_bps": rate_bps})
        found.append(series)
    return found


def totals(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the counts of each direction by the names of the virtual clock's outcome."""
    names = (
        "in_packets",
        "in_bytes",
        "out_packets",
        "out_bytes",
        "dropped_packets",
        "lost_packets",
    )
    return [
        {"name": d, **{n: sum(one[d][n] for one in samples if one[d]) for n in names}}
        for d in DIRECTIONS
    ]


def most_in_flight(request: Mapping[str, Any]) -> int:
    """Return the most that a sender of satperf keeps for retransmission, bytes, as under the
    virtual clock: four times the largest amount on the way and in the queue, divided by the number
    of flows, but at least once that amount.
    """
    largest, least = 96 << 20, 1 << 20
    times = max(1, 4 // len(request["flows"]))
    if "wire" not in request:
        return max(least, largest * times // 4)
    wire = Wire(request["wire"])
    states = [wire.halves, *(change.halves for change in wire.changes())]
    rtt_ms = max(sum(half.delay_ms for half in state.values()) for state in states)
    amounts = [
        half.queue.get("bytes", half.queue.get("packets", 0) * PACKET_BYTES)
        + half.rate_mbps * rtt_ms * 125
        for state in states
        for half in state.values()
    ]
    return int(min(largest, max(least, times * max(amounts))))
