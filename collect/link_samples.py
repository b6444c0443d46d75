# SPDX-License-Identifier: GPL-3.0-or-later
"""raw/link.jsonl: the emulator's counts per direction (schemas/link-metrics.schema.json)."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from collect.queues import MOST_FIFOS, Fifos, OfFifo, Times, Waits, all_waits, together
from collect.raw import Model
from collect.records import Record, Series, failed
from collect.terminals import OfTerminal, Terminal

DIRECTIONS = ("forward", "return", "terrestrial_down", "terrestrial_up")
SERIES = {
    "link_queue_bytes": "queue_bytes",
    "link_queue_p50_ms": "queue_p50_ms",
    "link_queue_p95_ms": "queue_p95_ms",
    "link_queue_p99_ms": "queue_p99_ms",
    "link_rate_bps": "rate_bps",
    "link_dropped_packets": "dropped_packets",
    "link_lost_packets": "lost_packets",
    "link_lost_frames": "lost_frames",
    "link_es_n0_db": "es_n0_db",
    "link_threshold_db": "threshold_db",
    "link_modcod_id": "modcod_id",
    "link_frame_fill_ratio": "frame_fill_ratio",
    "link_slots_assigned": "slots_assigned",
    "link_slots_used": "slots_used",
    "link_slots_free": "slots_free",
    "link_requests": "requests",
    "link_requests_lost": "requests_lost",
    "link_plans_lost": "plans_lost",
    "link_release_late_p99_us": "late_p99_us",
}
"""Metric of a series and the counter it is read from."""
IMPAIRED = ("reordered_packets", "duplicated_packets", "corrupted_packets")
"""Counters of impairments, which few runs have."""


class Heard(Model):
    """Datagrams that came in from the preceding entity over one interval. `silent_ms`: time since
    its last datagram; None: there was none.
    """

    datagrams: int
    strangers: int
    malformed: int
    silent_ms: float | None


class Counters(Model):
    """One direction over one interval; queue figures are taken at the interval's end."""

    queue_bytes: int
    queue_packets: int
    in_packets: int
    in_bytes: int
    out_packets: int
    out_bytes: int
    rate_bps: float
    dropped_packets: int
    marked_packets: int = 0
    lost_packets: int
    reordered_packets: int = 0
    duplicated_packets: int = 0
    corrupted_packets: int = 0
    frames: int
    lost_frames: int | None = None
    frames_by_modcod: dict[str, int] = Field(default_factory=dict)
    modcod_id: int | None = None
    threshold_db: float | None = None
    es_n0_db: float | None = None
    frame_fill_ratio: float | None
    superframes: int | None = None
    slots_assigned: int | None = None
    slots_free: int | None = None
    slots_signalling: int | None = None
    requests: int | None = None
    requests_lost: int | None = None
    slots_requested: int | None = None
    plans_lost: int | None = None
    signalling_bytes: int = 0
    late_p50_us: float | None
    late_p99_us: float | None
    late_max_us: float | None
    late_packets: int
    heard: Heard | None = None
    queue_p50_ms: float | None = None
    queue_p95_ms: float | None = None
    queue_p99_ms: float | None = None
    waits_us: Waits = Field(default_factory=list)
    fifos: list[OfFifo] = Field(default_factory=list, max_length=MOST_FIFOS)
    terminals: list[OfTerminal] = Field(default_factory=list)

    @property
    def has_times(self) -> bool:
        """Return whether times in the queue are measured. Earlier emulators do not measure them,
        and some directions have no queue.
        """
        return "queue_p50_ms" in self.model_fields_set

    @property
    def all_waits_us(self) -> Waits:
        """Return the times in the queue, us. If several terminals share the direction, the times of
        all of them.
        """
        own = all_waits(self.waits_us, self.fifos)
        return own + [
            waited for one in self.terminals for waited in all_waits(one.waits_us, one.fifos)
        ]

    @property
    def slots_used(self) -> int | None:
        """Return the number of bursts sent, if slots are assigned on demand."""
        return None if self.slots_assigned is None else self.frames


class PerDirection(Model):
    """One figure for each direction; None if no packet crossed it."""

    forward: float | None
    return_: float | None = Field(alias="return")
    terrestrial_down: float | None
    terrestrial_up: float | None

    def of(self, direction: str) -> float | None:
        """Return the figure of one of `DIRECTIONS`."""
        value: float | None = getattr(self, _field(direction))
        return value


class Header(Model):
    """First line: the origin of the metrics."""

    type: Literal["header"]
    schema_: Literal["satlab/link-metrics/1"] = Field(alias="schema")
    run_id: str
    version: str
    profile_sha256: str
    config_sha256: str
    seed: int
    clock: str
    start_unix_s: float
    interval_ms: int
    late_limit_us: int
    sched_fifo: bool
    memory_locked: bool
    entity: Literal["all", "st", "sat", "gw"] = "all"


class Sample(Model):
    """One interval, stamped at its end. A direction is None if another emulator or entity carries
    it.
    """

    type: Literal["sample"]
    t_unix_s: float
    forward: Counters | None
    return_: Counters | None = Field(alias="return")
    terrestrial_down: Counters | None
    terrestrial_up: Counters | None

    def of(self, direction: str) -> Counters | None:
        """Return the counters of one of `DIRECTIONS`."""
        counters: Counters | None = getattr(self, _field(direction))
        return counters


class Change(Model):
    """A change of a direction while the link ran: the field that was set, and the reason if the
    change was refused.
    """

    type: Literal["change"]
    t_unix_s: float
    t_s: float
    direction: Literal["forward", "return", "terrestrial_down", "terrestrial_up"]
    origin: Literal["control", "timeline", "profile"]
    terminal: int | None = None
    set: dict[str, Any]
    error: str | None

    @property
    def handover_to(self) -> str:
        """Return where the direction was handed over to; empty if the change is no handover or was
        refused.
        """
        if self.error is not None:
            return ""
        gateway = self.set.get("gateway")
        if isinstance(gateway, dict):
            return f"GW {gateway.get('id')}"
        return "another link" if "handover" in self.set else ""


class End(Model):
    """Last line: release error over the emulator's whole life, us, and CPU time, s."""

    type: Literal["end"]
    t_unix_s: float
    reason: str
    late_p50_us: PerDirection
    late_p99_us: PerDirection
    late_max_us: PerDirection
    cpu_s: float


AnyLine = Header | Sample | Change | End
Line = Annotated[AnyLine, Field(discriminator="type")]
ADAPTER: TypeAdapter[AnyLine] = TypeAdapter(Line)


@dataclass(frozen=True)
class Window:
    """The time during which the scenario's jobs ran.

    Calibration fills queues on purpose before it.
    """

    start_unix_s: float
    stop_unix_s: float

    def overlaps(self, start_unix_s: float, stop_unix_s: float) -> bool:
        """Return whether an interval overlaps the window: jobs may start and end between two
        samples.
        """
        return stop_unix_s >= self.start_unix_s and start_unix_s < self.stop_unix_s


BLOCK = 5000
"""Number of samples of a direction that become one series, so that memory does not grow with the
run.
"""


@dataclass
class _Direction:
    """One direction: the sums of its counters inside the window, and a column of the last samples
    for each metric.
    """

    inside: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    queue_max_bytes: int = 0
    times: Times = field(default_factory=Times)
    fifos: Fifos = field(default_factory=Fifos)
    has_frames: bool = False
    is_carried: bool = False
    requested: int | None = None
    by_modcod: Counter[str] = field(default_factory=Counter)
    t_s: "array[float]" = field(default_factory=lambda: array("d"))
    columns: "dict[str, array[float]]" = field(default_factory=dict)
    terminals: dict[int, Terminal] = field(default_factory=dict)

    def take(self, counters: Counters, t_s: float) -> None:
        """Append to the columns; a column begins at the first count of its metric."""
        before = len(self.t_s)
        self.is_carried = True
        self.t_s.append(t_s)
        for metric, counter in SERIES.items():
            value = getattr(counters, counter)
            if value is not None and metric not in self.columns:
                self.columns[metric] = array("d", [math.nan]) * before
            if metric in self.columns:
                self.columns[metric].append(math.nan if value is None else value)

    def add(self, counters: Counters) -> None:
        """Add the counts inside the window."""
        self.inside += 1
        for name in ("in_packets", "out_bytes", "dropped_packets", "lost_packets", "late_packets"):
            self.sums[name] += getattr(counters, name)
        self.sums["lost_frames"] += counters.lost_frames or 0
        for name in IMPAIRED:
            self.sums[name] += getattr(counters, name)
        self.queue_max_bytes = max(self.queue_max_bytes, counters.queue_bytes)
        self.has_frames = self.has_frames or bool(counters.modcod_id)
        if counters.has_times:
            self.times.add(counters.all_waits_us, counters.queue_bytes)
            self.fifos.add(counters.fifos)
            self.fifos.add(together(fifo for one in counters.terminals for fifo in one.fifos))
        self.by_modcod.update(counters.frames_by_modcod)
        if counters.superframes:
            self.sums["superframes"] += counters.superframes
            self.sums["slots_assigned"] += counters.slots_assigned or 0
            self.sums["slots_used"] += counters.frames
            self.sums["slots_free"] += counters.slots_free or 0
        if counters.slots_requested is not None:
            self.requested = (self.requested or 0) + counters.slots_requested
        for one in counters.terminals:
            self.terminals.setdefault(one.terminal, Terminal()).add(one, counters.superframes or 0)

    def totals(self, labels: Mapping[str, str]) -> list[Record]:
        """Return the sums inside the window."""
        if not self.inside:
            return [failed("link_dropped_packets", labels, "no link sample while the jobs ran")]
        return [
            Record("link_in_packets", self.sums["in_packets"], labels),
            Record("link_out_bytes", self.sums["out_bytes"], labels),
            Record("link_dropped_packets", self.sums["dropped_packets"], labels),
            Record("link_lost_packets", self.sums["lost_packets"], labels),
            Record("link_late_packets", self.sums["late_packets"], labels),
            Record("link_queue_max_bytes", self.queue_max_bytes, labels),
            *(
                Record(f"link_{name}", self.sums[name], labels)
                for name in IMPAIRED
                if self.sums[name]
            ),
            *self._times(labels),
            *self.fifos.records(labels),
            *self._slots(labels),
            *self._frames(labels),
            *(
                record
                for number, one in sorted(self.terminals.items())
                for record in one.records(number, labels)
            ),
        ]

    def _times(self, labels: Mapping[str, str]) -> list[Record]:
        """Return percentiles of the time in the queue, one metric each, as in `SERIES`."""
        found = self.times.records("link_queue", labels)
        return [
            replace(one, metric=f"link_queue_{one.labels['stat']}_ms", labels=labels)
            for one in found
        ]

    def _slots(self, labels: Mapping[str, str]) -> list[Record]:
        """Return means per superframe, if slots are assigned on demand."""
        superframes = self.sums["superframes"]
        if not superframes:
            return []
        counted = {name: self.sums[name] for name in ("slots_assigned", "slots_used", "slots_free")}
        if self.requested is not None:
            counted["slots_requested"] = self.requested
        return [
            Record(f"link_{name}_mean", count / superframes, labels)
            for name, count in counted.items()
        ]

    def _frames(self, labels: Mapping[str, str]) -> list[Record]:
        """Return frames lost and frames sent by MODCOD or waveform, if the direction has frames and
        counts them.
        """
        if not self.has_frames:
            return []
        sent = [
            Record("link_modcod_frames", count, {**labels, "modcod": m})
            for m, count in self.by_modcod.items()
        ]
        return [Record("link_lost_frames", self.sums["lost_frames"], labels), *sent]

    def series(self, labels: Mapping[str, str]) -> Series:
        """Return the columns so far, in the order of `SERIES`, and begin new columns."""
        made = Series(
            labels,
            self.t_s,
            {metric: self.columns[metric] for metric in SERIES if metric in self.columns},
        )
        self.t_s, self.columns = array("d"), {}
        return made


class Metrics:
    """An emulator's lines, read one at a time: series over the whole run, totals inside `window`
    (None: the whole run).

    `names`: the directions' names in records. A direction that another emulator carries has no name
    and no records.
    """

    def __init__(
        self,
        lines: Iterable[AnyLine],
        run_start_unix_s: float,
        window: Window | None,
        names: Mapping[str, str],
    ) -> None:
        self._lines, self._origin, self._window, self._names = (
            lines,
            run_start_unix_s,
            window,
            names,
        )
        self._end: End | None = None
        self._limits: list[int] = []
        self._directions = {direction: _Direction() for direction in names}
        self._has_samples = False
        self._sampled_until = -math.inf

    def each(self) -> Iterator[Record | Series]:
        """Read the lines; yield handovers and series of each direction, then its totals."""
        for line in self._lines:
            match line:
                case Sample():
                    yield from self._take(line)
                case Change() if line.direction in self._names and line.handover_to:
                    yield self._handover(line)
                case Header():
                    self._limits.append(line.late_limit_us)
                case End() if self._end is None:
                    self._end = line
        for direction, seen in self._directions.items():
            if seen.t_s:
                yield seen.series(self._labels(direction))
            if seen.is_carried or not self._has_samples:
                yield from seen.totals(self._labels(direction))
                yield from _lateness(self._end, direction, self._labels(direction))

    def process(self) -> list[Record]:
        """Return the records of the emulator itself, once all lines are read."""
        limits = [Record("link_late_limit_us", limit) for limit in self._limits]
        if self._end is None:
            return [
                *limits,
                failed(
                    "link_cpu_s",
                    {},
                    "the emulator's metrics have no end line: it died or was killed",
                ),
            ]
        return [*limits, Record("link_cpu_s", self._end.cpu_s)]

    def _handover(self, change: Change) -> Record:
        labels = self._labels(change.direction) | {"to": change.handover_to}
        if change.terminal is not None:
            labels["terminal"] = str(change.terminal)
        return Record("link_handovers", 1.0, labels, change.t_unix_s - self._origin)

    def _labels(self, direction: str) -> dict[str, str]:
        return {"direction": self._names[direction]}

    def _take(self, sample: Sample) -> Iterator[Series]:
        self._has_samples = True
        for direction, seen in self._directions.items():
            counters = sample.of(direction)
            if counters is not None:
                seen.take(counters, sample.t_unix_s - self._origin)
                if self._window is None or self._window.overlaps(
                    self._sampled_until, sample.t_unix_s
                ):
                    seen.add(counters)
                if len(seen.t_s) >= BLOCK:
                    yield seen.series(self._labels(direction))
        self._sampled_until = sample.t_unix_s


def _lateness(end: End | None, direction: str, labels: Mapping[str, str]) -> list[Record]:
    if end is None:
        return [
            failed("link_release_late_p99_us", labels, "the emulator's metrics have no end line")
        ]
    figures = {
        "link_release_late_p50_us": end.late_p50_us.of(direction),
        "link_release_late_p99_us": end.late_p99_us.of(direction),
        "link_release_late_max_us": end.late_max_us.of(direction),
    }
    return [Record(metric, value, labels) for metric, value in figures.items() if value is not None]


def _field(direction: str) -> str:
    return "return_" if direction == "return" else direction
