# SPDX-License-Identifier: GPL-3.0-or-later
"""raw/link.jsonl: what the emulator saw, per direction (schemas/link-metrics.schema.json)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from collect.raw import Model
from collect.records import Record, failed

DIRECTIONS = ("forward", "return", "terrestrial_down", "terrestrial_up")
SERIES = {
    "link_queue_bytes": "queue_bytes",
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


class Heard(Model):
    """What came in from the entity before, over one interval; `silent_ms` since its last datagram, or None: never."""

    datagrams: int
    strangers: int
    malformed: int
    silent_ms: float | None


class Counters(Model):
    """One direction over one interval; queue figures are those of the interval's end."""

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
    plans_lost: int | None = None
    signalling_bytes: int = 0
    late_p50_us: float | None
    late_p99_us: float | None
    late_max_us: float | None
    late_packets: int
    heard: Heard | None = None

    @property
    def slots_used(self) -> int | None:
        """Return the bursts sent where slots are assigned on demand."""
        return None if self.slots_assigned is None else self.frames


class PerDirection(Model):
    """One figure for each direction; None where no packet crossed."""

    forward: float | None
    return_: float | None = Field(alias="return")
    terrestrial_down: float | None
    terrestrial_up: float | None

    def of(self, direction: str) -> float | None:
        """Return the figure of one of `DIRECTIONS`."""
        value: float | None = getattr(self, _field(direction))
        return value


class Header(Model):
    """First line: where the metrics come from."""

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
    """One interval, stamped at its end; None where another emulator or entity carries a direction."""

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
    """A change of a direction while the link ran: the field that was set, and why it was refused if it was."""

    type: Literal["change"]
    t_unix_s: float
    t_s: float
    direction: Literal["forward", "return", "terrestrial_down", "terrestrial_up"]
    origin: Literal["control", "timeline", "profile"]
    set: dict[str, Any]
    error: str | None


class End(Model):
    """Last line: release error over the emulator's whole life, us; CPU time in s."""

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
    """The time during which the scenario's jobs ran. Calibration fills queues on purpose before it."""

    start_unix_s: float
    stop_unix_s: float

    def holds(self, t_unix_s: float) -> bool:
        """Return whether a moment lies inside."""
        return self.start_unix_s <= t_unix_s <= self.stop_unix_s


def records(lines: Sequence[AnyLine], run_start_unix_s: float, window: Window | None) -> list[Record]:
    """Return series over the whole run, and summaries of the time inside `window` (None: of all).

    A direction that another emulator carries has no records.
    """
    samples = [line for line in lines if isinstance(line, Sample)]
    end = next((line for line in lines if isinstance(line, End)), None)
    limits = [line.late_limit_us for line in lines if isinstance(line, Header)]
    found = [Record("link_late_limit_us", limit) for limit in limits]
    for direction in DIRECTIONS:
        labels = {"direction": direction}
        counted = [(s.t_unix_s, counters) for s in samples if (counters := s.of(direction)) is not None]
        if samples and not counted:
            continue
        inside = [counters for t_unix_s, counters in counted if window is None or window.holds(t_unix_s)]
        found += _totals(inside, labels)
        found += _lateness(end, direction, labels)
        for t_unix_s, counters in counted:
            found += _series(counters, t_unix_s - run_start_unix_s, labels)
    if end is None:
        return [*found, failed("link_cpu_s", {}, "the emulator's metrics have no end line: it died or was killed")]
    return [*found, Record("link_cpu_s", end.cpu_s)]


def _totals(inside: Sequence[Counters], labels: Mapping[str, str]) -> list[Record]:
    if not inside:
        return [failed("link_dropped_packets", labels, "no link sample while the jobs ran")]
    return [
        Record("link_in_packets", sum(c.in_packets for c in inside), labels),
        Record("link_out_bytes", sum(c.out_bytes for c in inside), labels),
        Record("link_dropped_packets", sum(c.dropped_packets for c in inside), labels),
        Record("link_lost_packets", sum(c.lost_packets for c in inside), labels),
        Record("link_late_packets", sum(c.late_packets for c in inside), labels),
        Record("link_queue_max_bytes", max(c.queue_bytes for c in inside), labels),
        *_slots(inside, labels),
        *_frames(inside, labels),
    ]


def _slots(inside: Sequence[Counters], labels: Mapping[str, str]) -> list[Record]:
    """Return means per superframe where slots are assigned on demand."""
    counted = [c for c in inside if c.superframes]
    superframes = sum(c.superframes or 0 for c in counted)
    if not superframes:
        return []
    sums = {
        "link_slots_assigned_mean": sum(c.slots_assigned or 0 for c in counted),
        "link_slots_used_mean": sum(c.frames for c in counted),
        "link_slots_free_mean": sum(c.slots_free or 0 for c in counted),
    }
    return [Record(metric, value / superframes, labels) for metric, value in sums.items()]


def _frames(inside: Sequence[Counters], labels: Mapping[str, str]) -> list[Record]:
    """Return frames lost and frames sent by MODCOD or waveform, where the direction has frames and counts them."""
    if not any(c.modcod_id for c in inside):
        return []
    by_modcod: Counter[str] = Counter()
    for counters in inside:
        by_modcod.update(counters.frames_by_modcod)
    sent = [Record("link_modcod_frames", count, {**labels, "modcod": name}) for name, count in by_modcod.items()]
    return [Record("link_lost_frames", sum(c.lost_frames or 0 for c in inside), labels), *sent]


def _lateness(end: End | None, direction: str, labels: Mapping[str, str]) -> list[Record]:
    if end is None:
        return [failed("link_release_late_p99_us", labels, "the emulator's metrics have no end line")]
    figures = {
        "link_release_late_p50_us": end.late_p50_us.of(direction),
        "link_release_late_p99_us": end.late_p99_us.of(direction),
        "link_release_late_max_us": end.late_max_us.of(direction),
    }
    return [Record(metric, value, labels) for metric, value in figures.items() if value is not None]


def _series(counters: Counters, t_s: float, labels: Mapping[str, str]) -> list[Record]:
    values = {metric: getattr(counters, counter) for metric, counter in SERIES.items()}
    return [Record(metric, value, labels, t_s=t_s) for metric, value in values.items() if value is not None]


def _field(direction: str) -> str:
    return "return_" if direction == "return" else direction
