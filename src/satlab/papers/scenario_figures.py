# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of one run of a scenario, from its records."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import fmean
from typing import Any, Self

import polars as pl

from collect import browser_yardstick, page_loads

CONDITIONS = ("tcp_leg_ok", "quic_leg_ok", "pep_connections_count")
"""Settings that must be as requested; otherwise the run has no figures."""
YARDSTICK = browser_yardstick.METRIC
MEASURED = (
    "response_start_ms",
    "first_contentful_paint_ms",
    "page_load_time_ms",
    "connect_ms",
    "ttfb_ms",
    "goodput_bps",
    YARDSTICK,
    page_loads.HOST_PART,
)
STEP_S = 0.1
DURATION_S = 15.0
EARLY_S = 5.0
"""seed-002 sees the benefit of proxies "in the first 5 seconds" (section III-A)."""
STEPS = round(DURATION_S / STEP_S)
Curve = tuple[float, ...]
"""Number of bytes received by the end of each step."""


class Records:
    """The records of one run."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the rows; none if the run's settings were not as requested."""
        is_off = any(row["metric"] in CONDITIONS and row["status"] != "ok" for row in rows)
        self._rows = () if is_off else tuple(rows)

    @classmethod
    def of_table(cls, table: pl.LazyFrame) -> Self:
        """Read the records of a run. Raises OSError, polars' errors."""
        wanted = table.filter(pl.col("metric").is_in([*CONDITIONS, *MEASURED]))
        frame = wanted.select("metric", "value", "t_s", "status", "labels").collect()
        rows = frame.iter_rows(named=True)
        return cls([row | {"labels": json.loads(row["labels"])} for row in rows])

    @classmethod
    def of_kept(cls, rows: Sequence[Mapping[str, Any]], curve: Sequence[float] | None) -> Self:
        """Return the records of a run from what `kept` returned."""
        found = cls(rows)
        found.__dict__["curve"] = None if curve is None else tuple(curve)
        return found

    def kept(self) -> tuple[list[dict[str, Any]], Curve | None]:
        """Return the samples of the run without its series, and in place of these the curve."""
        rows = [
            {name: row[name] for name in ("metric", "value", "t_s", "status", "labels")}
            for row in self._rows
            if row["t_s"] is None and "stat" not in row["labels"]
        ]
        kept = ("protocol", "page", "load", "stamp", "browser")
        for row in rows:
            row["labels"] = {name: row["labels"][name] for name in kept if name in row["labels"]}
        curve = self.curve
        return rows, None if curve is None else tuple(round(total) for total in curve)

    def figure(self, metric: str) -> float | None:
        """Return the first sample of a metric: a run measures each once. Summaries are left out.

        Infinite if the sample is censored; None if it failed or is missing.
        """
        for row in self._rows:
            if row["metric"] == metric and row["t_s"] is None and "stat" not in row["labels"]:
                if row["status"] == "censored":
                    return math.inf
                return row["value"] if row["status"] == "ok" else None
        return None

    @property
    def yardsticks_ms(self) -> dict[str, float]:
        """Return what the host's browser takes for the page over a bare wire, by protocol."""
        return {
            row["labels"].get("protocol", ""): row["value"]
            for row in self._rows
            if row["metric"] == YARDSTICK and row["status"] == "ok" and row["value"] is not None
        }

    def reached_s(self, size: int) -> float | None:
        """Return the time at which so many bytes had arrived, s, rounded to the step; infinite if
        they had not by the end.
        """
        if self.curve is None:
            return None
        steps = enumerate(self.curve, start=1)
        step = next((number for number, total in steps if total >= size), None)
        return math.inf if step is None else round(step * STEP_S, 3)

    @property
    def early_bytes(self) -> float | None:
        """Return the bytes received after EARLY_S."""
        return None if self.curve is None else self.curve[round(EARLY_S / STEP_S) - 1]

    @property
    def late_mbps(self) -> float | None:
        """Return the goodput from EARLY_S to the end."""
        if self.curve is None:
            return None
        late_bytes = self.curve[-1] - self.curve[round(EARLY_S / STEP_S) - 1]
        return late_bytes * 8e-6 / (DURATION_S - EARLY_S)

    @cached_property
    def curve(self) -> Curve | None:
        """Return the bytes received over time; None if the transfer did not end.

        TCP's time runs from iperf3's start of the transfer, QUIC's from the start of the interval
        with the first byte.
        """
        rows = [row for row in self._rows if row["metric"] == "goodput_bps"]
        whole = [row for row in rows if row["t_s"] is None]
        if not whole or any(row["status"] != "ok" for row in whole):
            return None
        series = [row for row in rows if row["t_s"] is not None and row["value"] is not None]
        points = sorted((row["t_s"], row["value"]) for row in series)
        if series and "satlab_satperf" in series[0]["labels"].values():
            points = list(itertools.dropwhile(lambda point: point[1] == 0, points))
        return cumulate(points) if points else None


def cumulate(points: Sequence[tuple[float, float]]) -> Curve:
    """Turn (end of interval in s, mean rate in bit/s) into bytes by steps of 0.1 s; the first
    interval is a step long.

    Bytes are assumed to arrive evenly within an interval, and none after the last interval.
    """
    ends, totals = [0.0], [0.0]
    before = points[0][0] - STEP_S
    origin = before
    for end, rate in points:
        totals.append(totals[-1] + rate * max(end - before, 0.0) / 8)
        ends.append(end - origin)
        before = end
    curve, index = [], 0
    for step in range(1, STEPS + 1):
        now = step * STEP_S
        while index < len(ends) - 2 and ends[index + 1] < now:
            index += 1
        span = ends[index + 1] - ends[index]
        share = min(max((now - ends[index]) / span, 0.0), 1.0) if span > 0 else 1.0
        curve.append(totals[index] + share * (totals[index + 1] - totals[index]))
    return tuple(curve)


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """Average curves step by step, as the paper does."""
    return tuple(fmean(values) for values in zip(*curves, strict=True))


def rates_mbps(curve: Curve) -> list[tuple[float, float]]:
    """Return the goodput over half a second, dated at its end, each step, Mbit/s."""
    width = 5
    padded = [0.0] * width + list(curve)
    return [
        (
            (step + 1) * STEP_S,
            (padded[step + width] - padded[step]) * 8 / (min(step + 1, width) * STEP_S) / 1e6,
        )
        for step in range(len(curve))
    ]
