# SPDX-License-Identifier: GPL-3.0-or-later
"""Terminals that share a link: counts of each (raw/link.jsonl), and Jain's index of transfers."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from collect import link_plan
from collect.jobs import Job
from collect.queues import MOST_FIFOS, Fifos, OfFifo, Times, Waits, all_waits
from collect.raw import Model
from collect.records import Record, failed

PACKET_BYTES, UDP_PAYLOAD_BYTES, TCP_PAYLOAD_BYTES = 1500, 1472, 1448
"""A full IPv4 packet, and its payload; TCP with timestamps."""
_CLIENT = re.compile(r"client(-[0-9]+)?")


class OfTerminal(Model):
    """One terminal of a shared direction over one interval; queue figures are taken at the
    interval's end.
    """

    terminal: int
    queue_bytes: int
    queue_packets: int
    in_packets: int
    in_bytes: int
    out_packets: int
    out_bytes: int
    rate_bps: float
    sent_bps: float
    dropped_packets: int
    lost_packets: int
    frames: int
    lost_frames: int
    modcod_id: int | None
    es_n0_db: float | None
    slots_assigned: int | None
    requests: int | None
    slots_requested: int | None
    plans_lost: int | None
    queue_p50_ms: float | None
    queue_p95_ms: float | None
    queue_p99_ms: float | None
    waits_us: Waits = Field(default_factory=list)
    fifos: list[OfFifo] = Field(default_factory=list, max_length=MOST_FIFOS)


@dataclass
class Terminal:
    """One terminal of a shared direction: the sums of its counters inside the window."""

    sums: Counter[str] = field(default_factory=Counter)
    queue_max_bytes: int = 0
    modcods: Counter[int] = field(default_factory=Counter)
    times: Times = field(default_factory=Times)
    fifos: Fifos = field(default_factory=Fifos)
    is_on_demand: bool = False

    def add(self, counters: OfTerminal, superframes: int) -> None:
        """Add the counts of an interval with so many superframes."""
        for name in (
            "in_packets",
            "out_packets",
            "out_bytes",
            "dropped_packets",
            "lost_packets",
            "frames",
        ):
            self.sums[name] += getattr(counters, name)
        self.queue_max_bytes = max(self.queue_max_bytes, counters.queue_bytes)
        if counters.modcod_id is not None and counters.frames:
            self.modcods[counters.modcod_id] += counters.frames
        self.times.add(all_waits(counters.waits_us, counters.fifos), counters.queue_bytes)
        self.fifos.add(counters.fifos)
        if counters.slots_assigned is not None:
            self.is_on_demand = True
            self.sums["superframes"] += superframes
            self.sums["slots_assigned"] += counters.slots_assigned
            self.sums["slots_requested"] += counters.slots_requested or 0
            self.sums["requests"] += counters.requests or 0
            self.sums["plans_lost"] += counters.plans_lost or 0

    def records(self, number: int, labels: Mapping[str, str]) -> list[Record]:
        """Return the terminal's figures, with its number as a label."""
        own = {**labels, "terminal": str(number)}
        counted = ("in_packets", "out_bytes", "dropped_packets", "lost_packets", "frames")
        found = [Record(f"terminal_{name}", self.sums[name], own) for name in counted]
        found.append(Record("terminal_queue_max_bytes", self.queue_max_bytes, own))
        found += self.times.records("terminal_queue_ms", own)
        found += self.fifos.records(own)
        found += [
            Record("terminal_modcod_frames", frames, {**own, "modcod": str(modcod)})
            for modcod, frames in sorted(self.modcods.items())
        ]
        if self.is_on_demand:
            found += [
                Record(f"terminal_{name}", self.sums[name], own)
                for name in ("requests", "plans_lost")
            ]
        if superframes := self.sums["superframes"]:
            slots = {"requested": "slots_requested", "assigned": "slots_assigned", "used": "frames"}
            found += [
                Record(f"terminal_slots_{name}_mean", self.sums[counter] / superframes, own)
                for name, counter in slots.items()
            ]
        return found


# --- fairness -------------------------------------------------------------------------------------


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of values: 1 if all are equal, 1/n if one has everything.

    Source: Jain, Chiu and Hawe, DEC-TR-301, 1984, section 3. All zero counts as equal.
    """
    squares = len(values) * sum(value * value for value in values)
    return sum(values) ** 2 / squares if squares else 1.0


def fairness(run_dir: Path, transfers: Iterable[Record], jobs: Iterable[Job]) -> list[Record]:
    """Return how evenly clients shared the link in transfers at the same time, by direction and
    transport.

    `fairness_jain_ratio` is Jain's index of the clients' goodputs; failed if one goodput is failed.
    `goodput_share_bps` is the equal share of that many terminals by the frame arithmetic, if all
    terminals are equal. None if only one client had transfers.
    """
    ran = {str(job.job_instance_id): job for job in jobs}
    groups: dict[tuple[str, str], dict[str, Record]] = {}
    broken: list[Record] = []
    for record in transfers:
        labels = record.labels
        if (
            record.metric != "goodput_bps"
            or record.t_s is not None
            or not _CLIENT.fullmatch(labels.get("entity", ""))
        ):
            continue
        if "direction" in labels:
            groups.setdefault((labels["direction"], labels["transport"]), {})[labels["entity"]] = (
                record
            )
        else:  # it left no result from which to tell its direction
            broken.append(record)
    found: list[Record] = []
    for (direction, transport), by_client in groups.items():
        own = [ran[record.labels["instance"]] for record in by_client.values()]
        at_once = max(job.start_unix_s for job in own) < min(job.stop_unix_s for job in own)
        begin, end = min(job.start_unix_s for job in own), max(job.stop_unix_s for job in own)
        for record in broken:
            job = ran[record.labels["instance"]]
            if job.start_unix_s < end and job.stop_unix_s > begin:
                by_client.setdefault(record.labels["entity"], record)
        if len(by_client) > 1 and at_once:
            labels = {
                "direction": direction,
                "transport": transport,
                "terminals": str(len(by_client)),
            }
            found += [_index(by_client, labels), *_share(run_dir, labels)]
    return found


def _index(by_client: Mapping[str, Record], labels: Mapping[str, str]) -> Record:
    bad = sorted(
        client
        for client, record in by_client.items()
        if record.value is None or record.status != "ok"
    )
    if bad:
        return failed("fairness_jain_ratio", labels, f"no goodput of {', '.join(bad)}")
    return Record(
        "fairness_jain_ratio", jain([record.value or 0.0 for record in by_client.values()]), labels
    )


def _share(run_dir: Path, labels: Mapping[str, str]) -> list[Record]:
    """Return the equal share of a saturated carrier, bit/s.

    A return link on demand divides all its slots, but a terminal never gets more than it could
    request alone. The share is an upper bound, because the plan does not foresee how packets fill
    the slots.
    """
    link = link_plan.of_run(run_dir)
    if link is None or link.terminals:
        return []
    count = int(labels["terminals"])
    side = link.forward if labels["direction"] == "download" else link.return_
    is_udp = labels["transport"] == "UDP"
    bps = side.udp_goodput_bps if is_udp else side.tcp_goodput_bps
    if labels["direction"] == "download":
        bps /= count
    elif side.demand is not None and side.slots_per_superframe:
        payload_bytes = UDP_PAYLOAD_BYTES if is_udp else TCP_PAYLOAD_BYTES
        carrier_bps = side.rate_bps * side.demand.carrier_slots / side.slots_per_superframe
        bps = min(bps, carrier_bps / count * payload_bytes / PACKET_BYTES)
    return [Record("goodput_share_bps", bps, labels)]
