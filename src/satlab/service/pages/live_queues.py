# SPDX-License-Identifier: GPL-3.0-or-later
"""Queues of terminals and FIFOs of an active run, from the last sample of its link. No I/O."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from satlab.report.page import Table, all_but

DIRECTIONS = ("forward", "return")
MOST_LINES = 320
"""Lines that are kept: 64 terminals in both directions, and some with FIFOs."""
COLUMNS = (
    "Direction",
    "Terminal",
    "FIFO",
    "Rate (Mbit/s)",
    "Queue (kB)",
    "Queue p50 (ms)",
    "p95 (ms)",
    "p99 (ms)",
    "Dropped (packets)",
    "MODCOD or waveform",
    "Slots asked for",
    "Assigned",
    "Used",
)


class _Key(NamedTuple):
    """A line: number of the direction, terminal (0: all), place and name of the FIFO ('': all)."""

    direction: int
    terminal: int
    place: int
    fifo: str


@dataclass
class _Line:
    """A direction, terminal or FIFO: its figures of the last sample, empty if not there, and
    packets dropped so far.
    """

    figures: dict[str, Any] = field(default_factory=dict)
    dropped: int = 0


@dataclass
class Queues:
    """Directions, terminals and FIFOs that were in the samples so far."""

    _lines: dict[_Key, _Line] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)

    def add(self, sample: dict[str, Any]) -> None:
        """Add one sample (schemas/link-metrics.schema.json)."""
        for line in self._lines.values():
            line.figures = {}
        for key, figures in self._each(sample):
            if key in self._lines or len(self._lines) < MOST_LINES:
                line = self._lines.setdefault(key, _Line())
                line.figures = figures
                line.dropped += figures.get("dropped_packets", 0)

    def rows(self) -> list[tuple[str, ...]]:
        """Return a line each, as in `COLUMNS`; none where there is one terminal and one FIFO in
        each direction.
        """
        if all(key.terminal == 0 and not key.fifo for key in self._lines):
            return []
        ordered = sorted(self._lines.items(), key=lambda pair: pair[0])
        return [
            (
                DIRECTIONS[key.direction],
                str(key.terminal or "all"),
                key.fifo or "all",
                *_cells(line),
            )
            for key, line in ordered
        ]

    def table(self) -> Table | None:
        """Return the lines as a table; None without any."""
        rows = self.rows()
        return Table(COLUMNS, rows, numbers=all_but(COLUMNS, 3)) if rows else None

    def _each(self, sample: dict[str, Any]) -> Iterator[tuple[_Key, dict[str, Any]]]:
        for number, direction in enumerate(DIRECTIONS):
            figures = sample.get(direction)
            if figures is None:
                continue
            for terminal, own in enumerate((figures, *figures.get("terminals", ()))):
                yield _Key(number, terminal, 0, ""), own
                for fifo in own.get("fifos", ()):
                    name = fifo["fifo"]
                    yield _Key(number, terminal, self._place(name), name), fifo

    def _place(self, name: str) -> int:
        """Return when the name was first seen: samples have FIFOs in the order of their priority."""
        if name not in self._names and len(self._names) >= MOST_LINES:
            return MOST_LINES
        return self._names.setdefault(name, len(self._names))


def _cells(line: _Line) -> tuple[str, ...]:
    def cell(name: str, scale: float = 1.0, digits: int = 0) -> str:
        value = line.figures.get(name)
        return "" if value is None else f"{value * scale:,.{digits}f}"

    is_on_demand = line.figures.get("slots_assigned") is not None
    return (
        cell("rate_bps", 1e-6, 2),
        cell("queue_bytes", 1e-3, 1) or "0.0",
        *(cell(f"queue_{quantile}_ms", 1.0, 1) for quantile in ("p50", "p95", "p99")),
        f"{line.dropped:,}",
        cell("modcod_id"),
        *(
            cell(name) if is_on_demand else ""
            for name in ("slots_requested", "slots_assigned", "frames")
        ),
    )
