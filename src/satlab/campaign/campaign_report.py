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

from collect.calibration import REMEDY
from satlab.campaign import dataset
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.dataset import TASK_METRIC, Collected
from satlab.campaign.engine import duration
from satlab.campaign.host_effect import HostEffect
from satlab.campaign.plan_file import Plan
from satlab.common import scratch
from satlab.papers import paper_report, result_tables
from satlab.papers.judgement import Judgement
from satlab.report import html
from satlab.report.page import (
    Axis,
    Page,
    Part,
    Plot,
    Section,
    Series,
    Table,
    Text,
    Tile,
    Tiles,
    all_but,
)

PAGE, BESIDE_A_PAPER = "report/index.html", "report/campaign.html"
MOST_PLOTS = 12
ANSWERS = (
    "goodput_bps",
    "goodput_mbps",
    "time_s",
    "complete_s",
    "page_load_time_ms",
    "first_contentful_paint_ms",
    "largest_contentful_paint_ms",
    "cumulative_layout_shift",
    "interaction_to_next_paint_ms",
    "transfer_time_s",
    "rtt_ms",
    "responsiveness_rpm",
    "mos",
    "video_bitrate_bps",
    "one_way_delay_ms",
    "retransmitted_ratio",
    "retransmits_count",
    "link_queue_p95_ms",
)
"""The metrics that most campaigns ask for. They are drawn first, in this order."""
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
"""By the last part of a metric's name: the unit for plots, and the factor from the metric's unit to
it.
"""
STATES = ("ok", "out of calibration", "failed", "missing")


def write(
    plan: Plan,
    folder: CampaignFolder,
    collected: Collected,
    effects: list[HostEffect],
    conclusions: Sequence[Judgement],
) -> Path:
    """Write the page atomically and return its path. The page of a reproduction stays.

    Raises ConfigError.
    """
    made = page(plan, collected, effects, conclusions)
    place = BESIDE_A_PAPER if paper_report.is_at(folder.path, PAGE) else PAGE
    with scratch.folder("report") as own:
        dataset.place_in(folder.path, place, html.write(made, own / "index.html"))
    return folder.path / place


def page(
    plan: Plan,
    collected: Collected,
    effects: list[HostEffect],
    conclusions: Sequence[Judgement],
) -> Page:
    """Return the page of a campaign."""
    tasks = collected.frame.filter(pl.col("metric") == TASK_METRIC)
    sections = []
    tested: list[Part] = [_host_effects(effects), Text(TESTS, "note")] if effects else []
    if conclusions:
        sections.append(Section.of(result_tables.conclusions(conclusions)))
    sections += [
        Section("Plots", _figures(collected.frame)),
        Section("Cells", [_cells(tasks)]),
        Section("Tasks that failed or are out of calibration", [_failures(tasks)]),
        Section("Hosts", [_hosts(collected), Text(STAMPS, "note"), *tested]),
    ]
    lead = [Tiles(_tiles(plan, collected, tasks, effects))]
    return Page("satlab campaign", f"Campaign {plan.name}", lead, sections)


def summary(collected: Collected) -> str:
    """Return in words how many tasks failed or are out of calibration; empty if none."""
    done = [record for record in collected.records.values() if record is not None]
    count = Counter[str](record.status for record in done)
    texts = [
        f"{count[state]} of {len(done)} tasks {words}"
        for state, words in (("failed", "failed"), ("out of calibration", "are out of calibration"))
        if count[state]
    ]
    if not texts:
        return ""
    remedy = f"; {REMEDY}" if count["out of calibration"] else ""
    return f"{', '.join(texts)}: the report has the reasons{remedy}"


def _figures(frame: pl.DataFrame) -> list[Part]:
    """Return the plots of the values in calibration. If there are none, those of the others."""
    found: list[Part] = [*plots(frame)]
    if found:
        return found
    marked = frame.with_columns(calibrated=pl.lit(value=True))
    drawn = plots(marked, "every value, all of them out of calibration")
    words = f"No task was in calibration: do not trust these figures; {REMEDY}."
    return [Text(words, "warning"), *drawn] if drawn else [Text("Nothing was measured.", "note")]


STAMPS = (
    "Hosts with equal stamps have equal processors, cores, memory, kernels, systems, and versions"
    " of satlab."
)
TESTS = (
    "Kruskal-Wallis for each cell and metric that two hosts or more measured at least three times"
    " in calibration; p from permutations, adjusted for the number of tests (Holm)."
)


def _tiles(
    plan: Plan, collected: Collected, tasks: pl.DataFrame, effects: Sequence[HostEffect]
) -> list[Tile]:
    count = Counter(tasks["status"].to_list())
    failed = count["failed"]
    done = len(plan.tasks) - count["missing"]
    hosts = {host for host in tasks["host"].to_list() if host is not None}
    significant = sum(effect.is_significant for effect in effects)
    left_s = sum(task.estimate_s for task in plan.tasks if collected.records[task.id] is None)
    rest = f", {duration(left_s)} of work left" if left_s else ""
    tested = Tile(
        f"{significant}/{len(effects)}",
        "tests with an effect of the host",
        state="bad" if significant else "",
    )
    off = count["out of calibration"]
    return [
        Tile(f"{done}/{len(plan.tasks)}", f"tasks done, of {len(plan.cells)} cells{rest}"),
        Tile(str(failed), "tasks failed, reasons below", state="bad" if failed else "good"),
        Tile(str(off), "tasks out of calibration", state="bad" if off else ""),
        Tile(str(len(hosts)), "host" if len(hosts) == 1 else "hosts"),
        *([tested] if effects else []),
    ]


def _cells(tasks: pl.DataFrame) -> Table:
    """Return the number of tasks of each cell in each state, and their median time."""
    rows = []
    for (cell,), part in tasks.group_by(["cell"], maintain_order=True):
        count = Counter(part["status"].to_list())
        middle = part["value"].median()
        took = f"{middle:.1f}" if isinstance(middle, float) else "\N{EN DASH}"
        rows.append((str(cell), *(str(count[state]) for state in STATES), took))
    head = ("Cell", *STATES, "Median time of a task, s")
    return Table(head, rows, numbers=all_but(head, 1))


def _failures(tasks: pl.DataFrame) -> Table:
    """Return tasks without a value in calibration, at most MOST_ROWS."""
    failed = tasks.filter(pl.col("status").is_in(["failed", "out of calibration"]))
    columns = failed.head(MOST_ROWS).select("task", "host", "status", "attempts", "reason")
    rows = [tuple(str(value) for value in row) for row in columns.iter_rows()]
    return Table(("Task", "Host", "Status", "Attempts", "Reason"), rows)


def _hosts(collected: Collected) -> Table:
    """Return the hosts with the number of their tasks."""
    found = Counter(
        (
            last.host.name,
            last.host.stamp,
            *(str(last.host.facts.get(key)) for key in ("cpu", "cores", "kernel")),
        )
        for record in collected.records.values()
        if record is not None
        for last in (record.last,)
    )
    rows = [(*host, str(count)) for host, count in sorted(found.items())]
    return Table(
        ("Host", "Stamp", "Processor", "Cores", "Kernel", "Tasks"), rows, numbers=("Tasks",)
    )


def _host_effects(effects: Sequence[HostEffect]) -> Table:
    """Return the tests of the host's effect, the most significant first."""
    rows = [
        (
            effect.cell,
            f"{effect.metric} {effect.labels}" if effect.labels != "{}" else effect.metric,
            "; ".join(f"{host}: {middle:.4g} (n = {n})" for host, n, middle in effect.hosts),
            f"{effect.h:.2f}",
            f"{effect.p:.4f}",
            "differs" if effect.is_significant else "no effect seen",
        )
        for effect in sorted(effects, key=lambda effect: effect.p)[:MOST_ROWS]
    ]
    head = ("Cell", "Metric", "Medians by host", "H", "p", "Effect of the host")
    return Table(head, rows, numbers=("H", "p"))


def plots(frame: pl.DataFrame, which: str = "every value in calibration") -> list[Plot]:
    """Draw every value in calibration of each metric, over the cells; `which` is the caption.

    ANSWERS come first, and there are at most MOST_PLOTS. If a metric's values are drawn, its
    statistics are not.
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
        _plot(str(metric), str(series), part, cells, which)
        for (metric, series), part in groups[:MOST_PLOTS]
    ]


@dataclass(frozen=True)
class MetricInWords:
    """A metric's name in words, the unit in which it is drawn, '' without one, and a value's factor
    to it.
    """

    name: str
    unit: str
    factor: float


def in_words(metric: str) -> MetricInWords:
    """Return the name, unit and factor with which a metric is drawn."""
    words, _, suffix = metric.rpartition("_")
    unit, factor = UNITS.get(suffix, ("", 1.0)) if words else ("", 1.0)
    parts = (words if unit else metric.removesuffix("_count")).split("_")
    name = " ".join(part.upper() if part in ABBREVIATIONS else part for part in parts)
    return MetricInWords(name[:1].upper() + name[1:], unit, factor)


def _plot(metric: str, labels: str, part: pl.DataFrame, cells: Sequence[str], which: str) -> Plot:
    named = ", ".join(f"{name} {value}" for name, value in json.loads(labels).items())
    about = in_words(metric)
    boxes = [
        Series(
            str(host),
            of_host["cell"].to_list(),
            [value * about.factor for value in of_host["value"]],
            "boxes",
            style,
        )
        for style, ((host,), of_host) in enumerate(part.group_by(["host"], maintain_order=True))
    ]
    drawn = set(part["cell"])
    middle = part.group_by("cell", maintain_order=True).agg(pl.len(), pl.col("value").median())
    rows = [(cell, str(n), f"{value * about.factor:.6g}") for cell, n, value in middle.iter_rows()]
    head = ("cell", "n", f"median ({about.unit})" if about.unit else "median")
    return Plot(
        key=f"plot-{metric}-{named}".translate(str.maketrans(" ,./", "----")),
        title=", ".join((about.name, *([named] if named else []))),
        caption=f"{metric}: {which}, a colour for each host.",
        x=Axis("cell", categories=[cell for cell in cells if cell in drawn]),
        y=(Axis(about.unit or about.name, from_zero=True),),
        series=boxes,
        height=340,
        table=Table(head, rows, numbers=all_but(head, 1)),
    )
