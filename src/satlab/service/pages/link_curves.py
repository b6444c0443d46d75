# SPDX-License-Identifier: GPL-3.0-or-later
"""The link of an active run: `raw/link.jsonl` is read as it grows, into a limited number of time
bins.
"""

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satlab.link.jsonl_tail import GrowingFile
from satlab.service.pages.live_queues import Queues

LINK = Path("raw") / "link.jsonl"
MAX_BINS = 240
FIRST_BIN_S = 0.5
MAX_RUNS = 32
"""Bins of a curve, initial width of a bin, runs that are followed at once."""

SATELLITE = ("forward", "return")
TERRESTRIAL = ("terrestrial_down", "terrestrial_up")
DIRECTIONS = (*SATELLITE, *TERRESTRIAL)

Points = list[tuple[float, float]]


@dataclass
class Counts:
    """Counts of a direction over a time: IP bytes out, largest queue in bytes, packets in, lost,
    dropped.

    `modcod_id`, `es_n0_db`, `threshold_db`: at its end; None where the direction has none.
    """

    bytes: int = 0
    queue: int = 0
    packets: int = 0
    lost: int = 0
    dropped: int = 0
    modcod_id: int | None = None
    es_n0_db: float | None = None
    threshold_db: float | None = None

    def add(self, later: "Counts") -> None:
        """Add the counts of the time directly after."""
        self.bytes += later.bytes
        self.queue = max(self.queue, later.queue)
        self.packets += later.packets
        self.lost += later.lost
        self.dropped += later.dropped
        if later.modcod_id is not None:
            self.modcod_id = later.modcod_id
        if later.es_n0_db is not None:
            self.es_n0_db, self.threshold_db = later.es_n0_db, later.threshold_db


_Bin = dict[str, Counts]


def _counts(figures: dict[str, Any] | None) -> Counts:
    if figures is None:  # another emulator carries the link
        return Counts()
    return Counts(
        figures["out_bytes"],
        figures["queue_bytes"],
        figures.get("in_packets", 0),
        figures.get("lost_packets", 0),
        figures.get("dropped_packets", 0),
        figures.get("modcod_id"),
        figures.get("es_n0_db"),
        figures.get("threshold_db"),
    )


@dataclass
class Curves:
    """Samples in bins of `width_s`; when there are too many bins, each two are merged.

    `terminals`: how many share the satellite link; `measured`: directions that satlink carries;
    `queues`: those of terminals and FIFOs.
    """

    start_unix_s: float | None = None
    width_s: float = FIRST_BIN_S
    terminals: int = 1
    measured: set[str] = field(default_factory=set)
    queues: Queues = field(default_factory=Queues)
    _bins: dict[int, _Bin] = field(default_factory=dict)

    def add(self, sample: dict[str, Any]) -> None:
        """Add one line of the metrics (schemas/link-metrics.schema.json)."""
        if sample.get("type") != "sample":
            return
        if self.start_unix_s is None:
            self.start_unix_s = sample["t_unix_s"]
        self.queues.add(sample)
        number = int(max(0.0, sample["t_unix_s"] - self.start_unix_s) / self.width_s)
        self._put(number, {direction: _counts(sample.get(direction)) for direction in DIRECTIONS})
        self.measured.update(
            direction for direction in DIRECTIONS if sample.get(direction) is not None
        )
        self.terminals = max(1, len((sample.get("forward") or {}).get("terminals") or ()))
        while number >= MAX_BINS:
            self._halve()
            number //= 2

    def _put(self, number: int, new: _Bin) -> None:
        current = self._bins.setdefault(number, {direction: Counts() for direction in DIRECTIONS})
        for direction in DIRECTIONS:
            current[direction].add(new[direction])

    def rate_mbps(self, direction: str) -> Points:
        """Return (s since the first sample, Mbit/s of delivered IP packets), without the last,
        incomplete bin.
        """
        return self.points(direction, lambda counts: counts.bytes * 8e-6 / self.width_s)

    def queue_kb(self, direction: str = "forward") -> Points:
        """Return (s since the first sample, largest queue in kB)."""
        return self.points(direction, lambda counts: counts.queue / 1000)

    def missing(self, direction: str) -> Points:
        """Return (s since the first sample, packets per s that were dropped or lost)."""
        return self.points(direction, lambda counts: (counts.dropped + counts.lost) / self.width_s)

    def points(self, direction: str, value: Callable[[Counts], float | None]) -> Points:
        """Return (s since the first sample, value) of each complete bin that has one."""
        found = (((n + 0.5) * self.width_s, value(each[direction])) for n, each in self._complete())
        return [(t, amount) for t, amount in found if amount is not None]

    def last(self, direction: str) -> tuple[Counts, float]:
        """Return the last complete bin and its width in s; without one, no counts."""
        complete = self._complete()
        return (complete[-1][1][direction] if complete else Counts()), self.width_s

    def total(self, direction: str, from_s: float) -> tuple[Counts, float]:
        """Return the sum of the bins from a time on (s since the first sample), and its duration in
        s.
        """
        found, bins = Counts(), 0
        for number, each in self._complete():
            if number * self.width_s >= from_s - 1e-9:
                found.add(each[direction])
                bins += 1
        return found, bins * self.width_s

    def _complete(self) -> list[tuple[int, _Bin]]:
        return sorted(self._bins.items(), key=lambda pair: pair[0])[:-1]

    def _halve(self) -> None:
        old = sorted(self._bins.items(), key=lambda pair: pair[0])
        self._bins = {}
        self.width_s = 2 * self.width_s
        for number, each in old:
            self._put(number // 2, each)


@dataclass
class _Followed:
    file: GrowingFile
    curves: Curves = field(default_factory=Curves)


class LinkCurves:
    """Follows the metrics of the runs that are viewed; each call reads only new lines."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[Path, _Followed] = OrderedDict()

    def curves(self, folder: Path) -> Curves:
        """Return the curves of a run so far; they are empty before the link has started."""
        with self._lock:
            followed = self._runs.pop(folder, None) or _Followed(GrowingFile(folder / LINK))
            self._runs[folder] = followed
            while len(self._runs) > MAX_RUNS:
                self._runs.popitem(last=False)
            while lines := followed.file.read():
                for line in lines:
                    followed.curves.add(line)
            return copy.deepcopy(followed.curves)  # others go on adding to it
