# SPDX-License-Identifier: GPL-3.0-or-later
"""What a forward link carries while its MODCOD follows Es/N0."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from satlab.link import modcods
from satlab.report.page import Points


def over_time(modcod_ids: Points, forward: Mapping[str, Any]) -> Points:
    """Return (s, bit/s of TCP payload) at the start and at each change; empty where the rate of a
    MODCOD is unknown.

    `modcod_ids`: (s since the first job, MODCOD); what is before the first job counts at 0.
    `forward`: the link's plan.
    """
    points: list[tuple[float, float]] = []
    for t_s, number in modcod_ids:
        rate_bps = modcods.forward_rate_bps(forward, int(number))
        if rate_bps is None:
            return []
        carried_bps = float(forward["tcp_goodput_bps"]) * rate_bps / float(forward["rate_bps"])
        if t_s <= 0:
            points = [(0.0, carried_bps)]
        elif not points or points[-1][1] != carried_bps:
            points.append((t_s, carried_bps))
    return points


def mean_bps(points: Points, times_s: Iterable[float]) -> float | None:
    """Return the mean of what is in force at these times; None without points or times."""
    if not points:
        return None
    starts = [t_s for t_s, _ in points]
    found = [points[max(0, bisect_right(starts, t_s) - 1)][1] for t_s in times_s]
    return fmean(found) if found else None
