# SPDX-License-Identifier: GPL-3.0-or-later
"""Queues and FIFOs of the link: how long packets waited, how many were dropped (raw/link.jsonl)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from collect.raw import Model
from collect.records import Record, failed

PERCENTILES = (50, 95, 99)
MOST_FIFOS = 64
"""Largest number of FIFOs of a terminal or gateway."""
LONGEST_US = 70_000_000
"""Longest time in a queue; the emulator counts longer times as this minute."""
_EXACT_BITS = 12
"""Times are rounded by a relative 2^-11 at most, so that the times of a file of any size take
bounded memory.
"""

Waits = Annotated[
    list[
        tuple[Annotated[int, Field(ge=0, le=LONGEST_US)], Annotated[int, Field(ge=0, le=1 << 40)]]
    ],
    Field(max_length=4096),
]
"""Times in a queue, us, and the packets with each."""


class OfFifo(Model):
    """One FIFO among several over one interval; queue figures are taken at the interval's end."""

    fifo: Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9_.-]+$")]
    queue_bytes: int
    queue_packets: int
    sent_packets: int
    dropped_packets: int
    queue_p50_ms: float | None
    queue_p95_ms: float | None
    queue_p99_ms: float | None
    waits_us: Waits = Field(default_factory=list)


@dataclass
class Times:
    """Times in a queue over several intervals: number of packets by time, us.

    `has_waited`: a packet was there, whether it left or not.
    """

    packets: Counter[int] = field(default_factory=Counter)
    has_waited: bool = False

    def add(self, waits_us: Waits, queue_bytes: int) -> None:
        """Add the times of an interval with so many bytes in the queue at its end."""
        self.has_waited = self.has_waited or queue_bytes > 0
        for time_us, packets in waits_us:
            dropped_bits = max(0, time_us.bit_length() - _EXACT_BITS)
            self.packets[time_us >> dropped_bits << dropped_bits] += packets

    def percentile_ms(self, percentile: int) -> float | None:
        """Return the shortest time that so many per cent of the packets did not exceed, ms; None
        without packets.
        """
        left = -(-percentile * sum(self.packets.values()) // 100)
        for time_us, count in sorted(self.packets.items()):
            left -= count
            if left <= 0 < count:
                return time_us / 1e3
        return None

    def records(self, metric: str, labels: Mapping[str, str]) -> list[Record]:
        """Return the percentiles (label `stat`): failed records if packets waited and none left, no
        records without packets.
        """
        found = []
        for percentile in PERCENTILES:
            own, value = {**labels, "stat": f"p{percentile}"}, self.percentile_ms(percentile)
            if value is not None:
                found.append(Record(metric, value, own))
            elif self.has_waited:
                found.append(
                    failed(
                        metric,
                        own,
                        "packets waited in the queue, and none left it while the jobs ran",
                    )
                )
        return found


@dataclass
class Fifo:
    """One FIFO inside the window."""

    sums: Counter[str] = field(default_factory=Counter)
    queue_max_bytes: int = 0
    times: Times = field(default_factory=Times)

    def add(self, counters: OfFifo) -> None:
        """Add the counts of an interval."""
        for name in ("sent_packets", "dropped_packets"):
            self.sums[name] += getattr(counters, name)
        self.queue_max_bytes = max(self.queue_max_bytes, counters.queue_bytes)
        self.times.add(counters.waits_us, counters.queue_bytes)

    def records(self, labels: Mapping[str, str]) -> list[Record]:
        """Return the FIFO's figures."""
        return [
            Record("fifo_sent_packets", self.sums["sent_packets"], labels),
            Record("fifo_dropped_packets", self.sums["dropped_packets"], labels),
            Record("fifo_queue_max_bytes", self.queue_max_bytes, labels),
            *self.times.records("fifo_queue_ms", labels),
        ]


@dataclass
class Fifos:
    """The FIFOs of a terminal or of a direction by their names, in the order in which they had
    packets.
    """

    by_name: dict[str, Fifo] = field(default_factory=dict)

    def add(self, counters: list[OfFifo]) -> None:
        """Add the FIFOs of an interval. Names beyond the possible number do not come from the
        emulator and are left out.
        """
        for one in counters:
            if one.fifo in self.by_name or len(self.by_name) < MOST_FIFOS:
                self.by_name.setdefault(one.fifo, Fifo()).add(one)

    def records(self, labels: Mapping[str, str]) -> list[Record]:
        """Return the figures of each FIFO, with its name as label `fifo`."""
        return [
            record
            for name, one in self.by_name.items()
            for record in one.records({**labels, "fifo": name})
        ]


def together(fifos: Iterable[OfFifo]) -> list[OfFifo]:
    """Merge the FIFOs of several terminals over one interval by name: sums of counts, all times
    together.
    """
    of_name: dict[str, list[OfFifo]] = {}
    for one in fifos:
        of_name.setdefault(one.fifo, []).append(one)
    counted = ("queue_bytes", "queue_packets", "sent_packets", "dropped_packets")
    return [
        # Not validated: many terminals together may exceed the bounds of one FIFO.
        OfFifo.model_construct(
            fifo=name,
            **{counter: sum(getattr(one, counter) for one in of) for counter in counted},
            waits_us=[waited for one in of for waited in one.waits_us],
        )
        for name, of in of_name.items()
    ]


def all_waits(waits_us: Waits, fifos: list[OfFifo]) -> Waits:
    """Return the times in the queue of a terminal or direction, or of all its FIFOs."""
    return [*waits_us, *(waited for one in fifos for waited in one.waits_us)]
