# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulator's metrics (schemas/link-metrics.schema.json) while it writes them."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETTLE_DEADLINE_S = 10.0
POLL_S = 0.02


@dataclass(frozen=True)
class MetricsFile:
    """raw/link.jsonl of a run."""

    path: Path

    def each(self) -> Iterator[dict[str, Any]]:
        """Read the lines written so far, one at a time. A line that is still being written is left
        for the next call.
        """
        with self.path.open(encoding="utf-8") as file:
            yield from (json.loads(line) for line in file if line.endswith("\n"))

    def lines(self) -> list[dict[str, Any]]:
        return list(self.each())

    def samples(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["type"] == "sample"]

    def forward_drops(self, since: int) -> int:
        """Return how many packets the forward queue dropped after sample number `since`."""
        samples = (sample["forward"] for sample in self.samples()[since:])
        return sum(counters["dropped_packets"] for counters in samples if counters)

    def largest_release_error_us(self, since_unix_s: float) -> float:
        """Return how late the latest packet of any direction left in the samples after
        `since_unix_s` (Unix time).
        """
        samples = (
            line
            for line in self.each()
            if line["type"] == "sample" and line["t_unix_s"] > since_unix_s
        )
        directions = (
            part for sample in samples for part in sample.values() if isinstance(part, dict)
        )
        return max((part.get("late_max_us") or 0.0 for part in directions), default=0.0)

    def settle(self) -> None:
        """Wait, no longer than `SETTLE_DEADLINE_S`, until satlink's satellite queues are empty in
        two samples.

        Then all packets of a probe have left the link.
        """
        start, end = len(self.samples()), time.monotonic() + SETTLE_DEADLINE_S
        while time.monotonic() < end:
            last = self.samples()[start:][-2:]
            queues = [s[d]["queue_packets"] for s in last for d in ("forward", "return") if s[d]]
            if len(last) == 2 and not any(queues):
                return
            time.sleep(POLL_S)
