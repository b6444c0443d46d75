# SPDX-License-Identifier: GPL-3.0-or-later
"""The link of an active run: `raw/link.jsonl` is read as it grows, into a limited number of time bins."""

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LINK = Path("raw") / "link.jsonl"
MAX_BINS = 240
FIRST_BIN_S = 0.5
MAX_RUNS = 8
MAX_BYTES = 4 << 20
"""Bins of a curve, initial width of a bin, runs that are followed at once, bytes read at a time."""

DIRECTIONS = ("forward", "return")


@dataclass
class _Bin:
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DIRECTIONS, 0))
    queue: int = 0


@dataclass
class Curves:
    """Samples in bins of `width_s`; when there are too many bins, each two are merged."""

    start_unix_s: float | None = None
    width_s: float = FIRST_BIN_S
    _bins: dict[int, _Bin] = field(default_factory=dict)

    def add(self, sample: dict[str, Any]) -> None:
        """Add one line of the metrics (schemas/link-metrics.schema.json)."""
        if sample.get("type") != "sample":
            return
        if self.start_unix_s is None:
            self.start_unix_s = sample["t_unix_s"]
        number = int(max(0.0, sample["t_unix_s"] - self.start_unix_s) / self.width_s)
        current = self._bins.setdefault(number, _Bin())
        for direction in DIRECTIONS:
            figures = sample[direction]
            if figures is not None:  # null if another emulator carries the link
                current.bytes[direction] += figures["out_bytes"]
        if sample["forward"] is not None:
            current.queue = max(current.queue, sample["forward"]["queue_bytes"])
        while number >= MAX_BINS:
            self._halve()
            number //= 2

    def rate_mbps(self, direction: str) -> list[tuple[float, float]]:
        """Return (s since the first sample, Mbit/s of delivered IP packets), without the last, incomplete bin."""
        scale = 8e-6 / self.width_s
        return [((n + 0.5) * self.width_s, b.bytes[direction] * scale) for n, b in self._complete()]

    def queue_kb(self) -> list[tuple[float, float]]:
        """Return (s since the first sample, largest forward queue in kB)."""
        return [((n + 0.5) * self.width_s, b.queue / 1000) for n, b in self._complete()]

    def _complete(self) -> list[tuple[int, _Bin]]:
        return sorted(self._bins.items())[:-1]

    def _halve(self) -> None:
        merged: dict[int, _Bin] = {}
        for number, old in self._bins.items():
            new = merged.setdefault(number // 2, _Bin())
            for direction in DIRECTIONS:
                new.bytes[direction] += old.bytes[direction]
            new.queue = max(new.queue, old.queue)
        self._bins, self.width_s = merged, 2 * self.width_s


@dataclass
class _Followed:
    curves: Curves = field(default_factory=Curves)
    offset: int = 0


class Watcher:
    """Follows the metrics of the runs that are viewed; each call reads only new lines."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[Path, _Followed] = OrderedDict()

    def curves(self, folder: Path) -> Curves:
        """Return the curves of a run so far; empty ones before its link has started."""
        with self._lock:
            followed = self._runs.pop(folder, None) or _Followed()
            self._runs[folder] = followed
            while len(self._runs) > MAX_RUNS:
                self._runs.popitem(last=False)
            while self._read(folder / LINK, followed):
                pass
            return followed.curves

    @staticmethod
    def _read(path: Path, followed: _Followed) -> bool:
        try:
            with path.open("rb") as file:
                file.seek(followed.offset)
                lines, newline, _ = file.read(MAX_BYTES).rpartition(b"\n")
        except OSError:
            return False
        for text in lines.splitlines():
            followed.curves.add(json.loads(text))
        followed.offset += len(lines) + len(newline)
        return bool(lines)
