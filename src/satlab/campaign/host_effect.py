# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests whether a cell's values depend on the host.

Kruskal-Wallis for each cell and metric, adjusted for the number of tests.
"""

from dataclasses import dataclass, replace

import polars as pl

from satlab.campaign import dataset
from satlab.common.statistics import holm, kruskal_wallis, median

MIN_VALUES = 3
"""Fewest values of each host: two smaller groups cannot differ significantly."""
LEVEL = 0.05


@dataclass(frozen=True)
class HostEffect:
    """One test: medians and numbers by host; `p` is adjusted."""

    cell: str
    metric: str
    labels: str
    hosts: tuple[tuple[str, int, float], ...]
    h: float
    p: float

    @property
    def is_significant(self) -> bool:
        return self.p < LEVEL


def effects(frame: pl.DataFrame) -> list[HostEffect]:
    """Test each metric of each cell that at least two hosts measured in calibration, in the order
    of cells.
    """
    found = []
    groups_of = dataset.measured(frame).group_by(
        ["cell", "metric", dataset.SERIES], maintain_order=True
    )
    for (cell, metric, labels), part in groups_of:
        groups: dict[str, list[float]] = {}
        for host, value in part.select("host", "value").iter_rows():
            groups.setdefault(host, []).append(value)
        groups = {
            host: values for host, values in sorted(groups.items()) if len(values) >= MIN_VALUES
        }
        if len(groups) >= 2 and len({value for values in groups.values() for value in values}) > 1:
            hosts = tuple(
                (host, len(values), median(sorted(values))) for host, values in groups.items()
            )
            h, p = kruskal_wallis(list(groups.values()))
            found.append(HostEffect(str(cell), str(metric), str(labels), hosts, h, p))
    adjusted = holm([effect.p for effect in found])
    return [replace(effect, p=p) for effect, p in zip(found, adjusted, strict=True)]
