# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares runs. Equal runs are samples of a group, and each group's figures are compared with
those of the first group, with intervals.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from collect import browser_yardstick, page_loads
from collect.percentile import percentile
from satlab.common.statistics import MIN_RUNS, interval_of_two, median, median_difference
from satlab.report import run_names
from satlab.report.measurements import PAGE_METRICS, PROTOCOLS, SummaryRecord
from satlab.report.page import Axis, Cell, Plot, Series, Table, all_but, scale_of
from satlab.report.run_names import RunSettings

_METRICS = {
    "goodput_bps": ("Goodput", "Mbit/s", 1e-6),
    "connect_ms": ("Connection established", "ms", 1.0),
    "ttfb_ms": ("Time to first byte", "ms", 1.0),
    "rtt_ms": ("Round-trip time", "ms", 1.0),
    "probe_rtt_ms": ("Round trip of small packets", "ms", 1.0),
    "responsiveness_rpm": ("Round trips per minute under load", "", 1.0),
    "one_way_delay_ms": ("One-way delay", "ms", 1.0),
    "mos": ("MOS", "", 1.0),
    "video_bitrate_bps": ("Video bitrate", "Mbit/s", 1e-6),
    "video_stalled_s": ("Video stalled", "s", 1.0),
    "fairness_jain_ratio": ("Jain's index", "", 1.0),
    **{metric: (title, "ms", 1.0) for metric, title in PAGE_METRICS.items()},
    page_loads.LAYOUT_SHIFT: (PAGE_METRICS[page_loads.LAYOUT_SHIFT], "", 1.0),
}
"""What is compared: title, unit, factor of the unit.

Page metrics: each load is a sample, else each run.
"""
_LABELS = (
    "transport",
    "congestion_control",
    "direction",
    "protocol",
    "pep",
    "codec",
    "player",
    "phase",
    "entity",
    "page",
)


@dataclass(frozen=True)
class Compared:
    """One run: its key, its number in the list ('' without one), the settings by which it equals
    other runs, and its summary records.
    """

    key: str
    number: str
    settings: RunSettings
    rows: tuple[SummaryRecord, ...]


@dataclass(frozen=True)
class Group:
    """Equal runs. Their name says what differs from other groups."""

    number: int
    name: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Delta:
    """A figure of a group as texts: median, samples, and the difference to the first group with its
    95 % interval.

    `state` is `up` or `down` if the interval excludes 0, otherwise ''. `percentiles` is '' if there
    are too few page loads.
    """

    group: Group
    median: str
    samples: str
    difference: str = ""
    interval: str = ""
    state: str = ""
    percentiles: str = ""


@dataclass(frozen=True)
class Figure:
    """A metric of all groups, the first one first."""

    title: str
    unit: str
    lines: tuple[Delta, ...]


def groups(runs: Sequence[Compared]) -> tuple[Group, ...]:
    """Return equal runs as groups in their order; each run alone if all are equal."""
    settings = [run.settings.without_seed() for run in runs]
    different = [one for place, one in enumerate(settings) if one not in settings[:place]]
    if len(different) > 1:
        found = [
            [run for run, own in zip(runs, settings, strict=True) if own == one]
            for one in different
        ]
    else:
        different, found = [run.settings for run in runs], [[run] for run in runs]
    titles, names = run_names.titles(different), run_names.names(different)
    return tuple(
        Group(place + 1, _name(members, titles[place], names[place]), tuple(r.key for r in members))
        for place, members in enumerate(found)
    )


def _name(members: Sequence[Compared], title: str, name: str) -> str:
    """Return the name of a group: the number of its run, or of its runs, tells equal titles apart."""
    number = f"{len(members)} runs" if len(members) > 1 else members[0].number
    return f"{title} ({number})" if number else name


def figures(runs: Sequence[Compared], found: Sequence[Group]) -> list[Figure]:
    """Return the figures that the first group has, or another one, in the order of the metrics."""
    by_key = {run.key: run for run in runs}
    tables = [_merged([_values(by_key[key].rows) for key in group.keys]) for group in found]
    names = dict.fromkeys(name for table in tables for name in table)
    order = list(_METRICS)
    listed = sorted(names, key=lambda name: (order.index(name[0]), name[1]))
    return [_figure(name, tables, found) for name in listed]


def _values(rows: Sequence[SummaryRecord]) -> dict[tuple[str, str], list[float]]:
    """Return samples by (metric, labels); a censored one is infinite, a failed one is left out."""
    values: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if (
            row.metric not in _METRICS
            or row.t_s is not None
            or row.labels.get("source") == "calibration"
        ):
            continue
        is_load = "load" in row.labels
        if is_load != (row.metric in PAGE_METRICS) or row.labels.get("stat", "median") != "median":
            continue
        sample = math.inf if row.status == "censored" else row.value
        if sample is not None:
            values.setdefault((row.metric, _labels(row)), []).append(sample)
    return values


def _labels(row: SummaryRecord) -> str:
    texts = [
        PROTOCOLS.get(row.labels[name], row.labels[name])
        for name in _LABELS
        if row.labels.get(name, "none") != "none"
    ]
    return " ".join(text for text in texts if text)


def _merged(
    tables: Sequence[Mapping[tuple[str, str], list[float]]],
) -> dict[tuple[str, str], tuple[float, ...]]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {
        name: tuple(value for table in tables for value in table.get(name, ())) for name in names
    }


def _figure(
    name: tuple[str, str],
    tables: Sequence[Mapping[tuple[str, str], tuple[float, ...]]],
    found: Sequence[Group],
) -> Figure:
    metric, labels = name
    title, unit, factor = _METRICS[metric]
    samples = [tuple(value * factor for value in table.get(name, ())) for table in tables]
    lines = [_delta(group, own, samples[0]) for group, own in zip(found, samples, strict=True)]
    if metric in PAGE_METRICS:
        lines = [
            replace(line, percentiles=_percentiles(own))
            for line, own in zip(lines, samples, strict=True)
        ]
    return Figure(f"{title}, {labels}" if labels else title, unit, tuple(lines))


def _percentiles(samples: Sequence[float]) -> str:
    if len(samples) < page_loads.MIN_FOR_PERCENTILES:
        return ""
    return ", ".join(
        f"p{share} {_number(percentile(sorted(samples), share))}"
        for share in page_loads.PERCENTILES
    )


def _delta(group: Group, samples: tuple[float, ...], base: tuple[float, ...]) -> Delta:
    if not samples:
        return Delta(group, "not measured", "0")
    middle, count = median(sorted(samples)), str(len(samples))
    if group.number == 1:
        return Delta(group, _number(middle), count, "reference")
    if not base:
        return Delta(group, _number(middle), count, interval="no reference")
    reference = median(sorted(base))
    difference = _difference(middle, reference)
    if min(len(samples), len(base)) < MIN_RUNS:
        needed = f"needs {MIN_RUNS} samples of each"
        return Delta(group, _number(middle), count, difference, needed)
    low, high = _interval(samples, base)
    state = "up" if low > 0 else "down" if high < 0 else ""
    interval = f"{_signed(low)} to {_signed(high)}"
    return Delta(group, _number(middle), count, difference, interval, state)


def hosts(runs: Sequence[Compared]) -> str:
    """Return a warning if the runs are from hosts whose browsers are not equally fast; "" if not."""
    unequal = browser_yardstick.unequal(
        (_labels(row), row.value)
        for run in runs
        for row in run.rows
        if row.metric == browser_yardstick.METRIC and row.value is not None
    )
    return f"{UNEQUAL} ({'; '.join(unequal)})." if unequal else ""


UNEQUAL = (
    "These runs are from hosts, or from a host at times, whose browsers are not equally fast: a part"
    " of the differences of page loads is the hosts'. Page Load Time over a bare wire"
)


def differences(runs: Sequence[Compared], found: Sequence[Group]) -> Table | None:
    """Return the figures of all groups as a table, bold where they differ; None without any."""
    rows = [
        (
            f"{figure.title} ({figure.unit})" if figure.unit else figure.title,
            line.group.name,
            Cell(line.median, is_strong=True, small=line.percentiles),
            line.samples,
            line.difference,
            Cell(line.interval, is_strong=bool(line.state)),
        )
        for figure in figures(runs, found)
        for line in figure.lines
    ]
    head = ("Figure", "Runs", "Median", "Samples", "Difference", "95 % interval")
    caption = "Medians, and their differences from the first line of each figure"
    caption = f"{caption}. {unequal}" if (unequal := hosts(runs)) else caption
    table = Table(head, rows, numbers=all_but(head, 2), caption=caption, cards=True, keys=2)
    return table if rows else None


MOST_PLOTS = 12
"""Figures whose samples are drawn, the first ones."""


def samples(runs: Sequence[Compared], found: Sequence[Group]) -> list[Plot]:
    """Draw the samples of the figures that a group has several of: a box for each group."""
    by_key = {run.key: run for run in runs}
    tables = {group: _merged([_values(by_key[key].rows) for key in group.keys]) for group in found}
    names = dict.fromkeys(name for table in tables.values() for name in table)
    plots = []
    for metric, labels in sorted(names, key=lambda name: (list(_METRICS).index(name[0]), name[1])):
        title, unit, factor = _METRICS[metric]
        drawn = [
            Series(
                group.name,
                [str(group.number)] * len(ended),
                [value * factor for value in ended],
                "boxes",
                colour=f"--c{(group.number - 1) % 6 + 1}",
            )
            for group, table in tables.items()
            if (ended := [each for each in table.get((metric, labels), ()) if math.isfinite(each)])
        ]
        if max((len(one.y) for one in drawn), default=0) < 2:
            continue
        rows = [(one.name, f"{value:.6g}") for one in drawn for value in one.y]
        head = ("runs", unit or title)
        named = f"{title}, {labels}" if labels else title
        plots.append(
            Plot(
                key=f"samples-{metric}-{labels}",
                title=f"{named} ({unit})" if unit else named,
                caption=", ".join(f"{one.name}: {len(one.y)} samples" for one in drawn),
                x=Axis("", categories=[str(group.number) for group in found]),
                y=(Axis("", scale=scale_of(value for one in drawn for value in one.y)),),
                series=drawn,
                height=220,
                table=Table(head, rows, numbers=all_but(head, 1)),
                bars="overlay",
                has_legend=False,
            )
        )
    return plots[:MOST_PLOTS]


@lru_cache(maxsize=2000)
def _interval(samples: tuple[float, ...], base: tuple[float, ...]) -> tuple[float, float]:
    found = interval_of_two(samples, base, median_difference)
    return found.low, found.high


def _difference(middle: float, reference: float) -> str:
    if math.isinf(middle) or math.isinf(reference):
        return "cut off" if middle != reference else "both cut off"
    share = f" ({_signed(100 * (middle / reference - 1))} %)" if reference else ""
    return f"{_signed(middle - reference)}{share}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "cut off"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _signed(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "\N{MINUS SIGN}∞"
    sign = "+" if value > 0 else "\N{MINUS SIGN}" if value < 0 else "±"
    return sign + _number(abs(value))
