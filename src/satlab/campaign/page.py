# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a campaign as one HTML file: progress, matrix, failures with reasons, hosts, and a
plot per metric.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from satlab.campaign import dataset
from satlab.campaign.dataset import TASK_METRIC, Collected
from satlab.campaign.engine import duration
from satlab.campaign.folder import CampaignFolder
from satlab.campaign.host_effect import HostEffect
from satlab.campaign.plan import Plan
from satlab.common.files import write_atomically
from satlab.papers.judgement import Judgement
from satlab.report import html
from satlab.report.figures import COLOURS, DataTable, Figure, axis, text

MOST_PLOTS = 12
ANSWERS = (
    "goodput_bps",
    "goodput_mbps",
    "time_s",
    "complete_s",
    "page_load_time_ms",
    "first_contentful_paint_ms",
    "largest_contentful_paint_ms",
    "transfer_time_s",
    "rtt_ms",
    "mos",
    "video_bitrate_bps",
    "one_way_delay_ms",
    "retransmitted_ratio",
    "retransmits_count",
    "link_queue_p95_ms",
)
"""What most campaigns are made for: drawn before other metrics, in this order."""
MOST_ROWS = 500
ABBREVIATIONS = frozenset({"cpu", "mos", "rtt", "tcp"})
UNITS: Mapping[str, tuple[str, float]] = {
    "bps": ("Mbit/s", 1e-6),
    "mbps": ("Mbit/s", 1.0),
    "bytes": ("MB", 1e-6),
    "ms": ("ms", 1.0),
    "us": ("ms", 1e-3),
    "s": ("s", 1.0),
    "db": ("dB", 1.0),
}
"""By the last part of a metric's name: the unit in which it is drawn, and what one of its own
counts in it.
"""
STATES = ("ok", "out of calibration", "failed", "missing")


@dataclass(frozen=True)
class Page:
    """What the template shows."""

    plan: Plan
    collected: Collected
    effects: list[HostEffect]
    figures: list[Figure]
    conclusions: Sequence[Judgement]

    def tiles(self) -> list[tuple[str, str, str]]:
        """Return (figure, caption, state)."""
        count = Counter(self._tasks()["status"].to_list())
        done = len(self.plan.tasks) - count["missing"]
        hosts = {host for host in self._tasks()["host"].to_list() if host is not None}
        significant = sum(effect.is_significant for effect in self.effects)
        left_s = sum(
            task.estimate_s for task in self.plan.tasks if self.collected.records[task.id] is None
        )
        rest = f", {duration(left_s)} of work left" if left_s else ""
        return [
            (
                f"{done}/{len(self.plan.tasks)}",
                f"tasks done, of {len(self.plan.cells)} cells{rest}",
                "",
            ),
            (
                str(count["failed"]),
                "tasks failed, reasons below",
                "bad" if count["failed"] else "good",
            ),
            (str(count["out of calibration"]), "tasks out of calibration", ""),
            (str(len(hosts)), "hosts", ""),
            (
                f"{significant}/{len(self.effects)}",
                "tests with an effect of the host",
                "bad" if significant else "",
            ),
        ]

    def matrix(self) -> list[tuple[str, ...]]:
        """Return (cell, number of tasks in each state, median time)."""
        rows = []
        for (cell,), part in self._tasks().group_by(["cell"], maintain_order=True):
            count = Counter(part["status"].to_list())
            middle = part["value"].median()
            took = f"{middle:.1f}" if isinstance(middle, float) else "\N{EN DASH}"
            rows.append((str(cell), *(str(count[state]) for state in STATES), took))
        return rows

    def failures(self) -> list[tuple[str, ...]]:
        """Return (task, host, status, attempts, reason), at most MOST_ROWS."""
        failed = (
            self._tasks()
            .filter(pl.col("status").is_in(["failed", "out of calibration"]))
            .head(MOST_ROWS)
        )
        columns = failed.select("task", "host", "status", "attempts", "reason")
        return [tuple(str(value) for value in row) for row in columns.iter_rows()]

    def hosts(self) -> list[tuple[str, ...]]:
        """Return (host, stamp, processor, cores, kernel, tasks)."""
        found = Counter(
            (
                last.host.name,
                last.host.stamp,
                *(str(last.host.facts.get(key)) for key in ("cpu", "cores", "kernel")),
            )
            for record in self.collected.records.values()
            if record is not None
            for last in (record.last,)
        )
        return [(*host, str(count)) for host, count in sorted(found.items())]

    def tests(self) -> list[tuple[str, ...]]:
        """Return the tests of the host's effect, the most significant first."""
        rows = sorted(self.effects, key=lambda effect: effect.p)[:MOST_ROWS]
        return [
            (
                effect.cell,
                f"{effect.metric} {effect.labels}" if effect.labels != "{}" else effect.metric,
                "; ".join(f"{host}: {middle:.4g} (n = {n})" for host, n, middle in effect.hosts),
                f"{effect.h:.2f}",
                f"{effect.p:.4f}",
                "differs" if effect.is_significant else "no effect seen",
            )
            for effect in rows
        ]

    def judged(self) -> list[tuple[str, ...]]:
        """Return (conclusion of the paper, verdict, evidence)."""
        return [
            (one.conclusion.text, one.verdict, "; ".join(one.evidence)) for one in self.conclusions
        ]

    def _tasks(self) -> pl.DataFrame:
        return self.collected.frame.filter(pl.col("metric") == TASK_METRIC)


def figures(frame: pl.DataFrame) -> list[Figure]:
    """Draw each metric over the cells: every value in calibration;

    ANSWERS first, at most MOST_PLOTS.

    A metric whose values are there is not drawn by statistics of them as well.
    """
    cells = list(dict.fromkeys(frame["cell"]))
    values = dataset.measured(frame)
    is_statistic = pl.col(dataset.SERIES).str.contains('"stat"')
    with_values = values.filter(~is_statistic)["metric"].unique().to_list()
    drawn = values.filter(~is_statistic | ~pl.col("metric").is_in(with_values))
    groups = list(drawn.group_by(["metric", dataset.SERIES], maintain_order=True))
    rank = {metric: place for place, metric in enumerate(ANSWERS)}
    groups.sort(key=lambda group: rank.get(str(group[0][0]), len(rank)))
    return [
        _figure(str(metric), str(series), part, cells)
        for (metric, series), part in groups[:MOST_PLOTS]
    ]


def in_words(metric: str) -> tuple[str, str, float]:
    """Return a metric's name in words, the unit in which it is drawn, '' without one, and a value's
    factor to it.
    """
    words, _, suffix = metric.rpartition("_")
    unit, factor = UNITS.get(suffix, ("", 1.0)) if words else ("", 1.0)
    parts = (words if unit else metric.removesuffix("_count")).split("_")
    name = " ".join(part.upper() if part in ABBREVIATIONS else part for part in parts)
    return name[:1].upper() + name[1:], unit, factor


def _figure(metric: str, series: str, part: pl.DataFrame, cells: Sequence[str]) -> Figure:
    named = ", ".join(f"{name} {value}" for name, value in json.loads(series).items())
    words, unit, factor = in_words(metric)
    title = ", ".join((words, *([named] if named else [])))
    boxes = [
        {
            "type": "box",
            "name": text(str(host)),
            "x": [text(cell) for cell in of_host["cell"].to_list()],
            "y": [value * factor for value in of_host["value"]],
            "boxpoints": "all",
            "marker": {"color": COLOURS[style % 6]},
        }
        for style, ((host,), of_host) in enumerate(part.group_by(["host"], maintain_order=True))
    ]
    drawn = set(part["cell"])
    order = [text(cell) for cell in cells if cell in drawn]
    middle = part.group_by("cell", maintain_order=True).agg(pl.len(), pl.col("value").median())
    rows = tuple((cell, str(n), f"{value * factor:.6g}") for cell, n, value in middle.iter_rows())
    layout = {
        "xaxis": axis("cell", type="category", categoryorder="array", categoryarray=order),
        "yaxis": axis(unit or words, rangemode="tozero"),
        "boxmode": "group",
    }
    key = f"plot-{metric}-{named}".translate(str.maketrans(" ,./", "----"))
    caption = f"{metric}: every value in calibration, a colour for each host."
    return Figure(
        key,
        title,
        caption,
        {"data": boxes, "layout": layout},
        340,
        DataTable(("cell", "n", f"median{f' ({unit})' if unit else ''}"), rows),
    )


def write(
    plan: Plan,
    folder: CampaignFolder,
    collected: Collected,
    effects: list[HostEffect],
    conclusions: Sequence[Judgement],
) -> Path:
    """Write the page atomically and return its path."""
    page = Page(plan, collected, effects, figures(collected.frame), conclusions)
    path = folder.path / "report" / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, html.page("campaign.html", page.figures, page=page, states=STATES))
    return path
