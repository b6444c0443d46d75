# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a campaign as one HTML file: progress, matrix, failures with reasons, hosts, and a
plot per metric.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

import polars as pl

from collect.calibration import REMEDY
from satlab.campaign import dataset
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.dataset import TASK_METRIC, Collected
from satlab.campaign.engine import duration
from satlab.campaign.host_effect import HostEffect
from satlab.campaign.plan_file import Plan, Value
from satlab.common import scratch
from satlab.common.statistics import student
from satlab.papers import paper_report, result_tables
from satlab.papers.judgement import Judgement
from satlab.report import html
from satlab.report.page import (
    Axis,
    Heat,
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
    scale_of,
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
        Section("Plots", _figures(collected.frame, plan.cells)),
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


def _figures(frame: pl.DataFrame, cells: Mapping[str, Mapping[str, Value]]) -> list[Part]:
    """Return the plots of the values in calibration. If there are none, those of the others."""
    found: list[Part] = [*plots(frame, cells)]
    if found:
        return found
    marked = frame.with_columns(calibrated=pl.lit(value=True))
    drawn = plots(marked, cells, "every value, all of them out of calibration")
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


def plots(
    frame: pl.DataFrame,
    cells: Mapping[str, Mapping[str, Value]],
    which: str = "every value in calibration",
) -> list[Plot]:
    """Draw every value in calibration of each metric, over the cells; `which` is the caption.

    ANSWERS come first, and there are at most MOST_PLOTS. If a metric's values are drawn, its
    statistics are not. The first answer is also drawn over the factors of the cells: a heat map of
    two factors, and the means of all values of each factor.
    """
    values = dataset.measured(frame)
    is_statistic = pl.col(dataset.SERIES).str.contains('"stat"')
    with_values = values.filter(~is_statistic)["metric"].unique().to_list()
    drawn = values.filter(~is_statistic | ~pl.col("metric").is_in(with_values))
    groups = list(drawn.group_by(["metric", dataset.SERIES], maintain_order=True))
    rank = {metric: place for place, metric in enumerate(ANSWERS)}
    groups.sort(key=lambda group: rank.get(str(group[0][0]), len(rank)))
    measured = [
        Measured(in_words(str(metric)), str(metric), str(labels), part)
        for (metric, labels), part in groups[:MOST_PLOTS]
    ]
    over_factors = [
        plot
        for one in measured[:1]
        for plot in (_heat_map(one, cells), _factor_plot(one, cells))
        if plot is not None
    ]
    order = list(dict.fromkeys(frame["cell"]))
    return [*over_factors, *(_plot(one, order, which) for one in measured)]


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


@dataclass(frozen=True)
class Measured:
    """The values of a metric with its labels: a row with cell, host and value each."""

    about: MetricInWords
    metric: str
    labels: str
    part: pl.DataFrame

    @property
    def named(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in json.loads(self.labels).items())

    @property
    def title(self) -> str:
        return ", ".join(filter(None, (self.about.name, self.named)))

    @property
    def key(self) -> str:
        return f"{self.metric}-{self.named}".translate(str.maketrans(" ,./", "----"))

    def by_cell(self) -> dict[str, list[float]]:
        """Return the values of each cell in the unit in which they are drawn."""
        found: dict[str, list[float]] = {}
        for cell, value in self.part.select("cell", "value").iter_rows():
            found.setdefault(cell, []).append(value * self.about.factor)
        return found


def _plot(one: Measured, cells: Sequence[str], which: str) -> Plot:
    about, values = one.about, one.by_cell()
    boxes = [
        Series(
            str(host),
            of_host["cell"].to_list(),
            [value * about.factor for value in of_host["value"]],
            "boxes",
            style,
        )
        for style, ((host,), of_host) in enumerate(one.part.group_by(["host"], maintain_order=True))
    ]
    rows = [(cell, str(len(samples)), f"{median(samples):.6g}") for cell, samples in values.items()]
    head = ("cell", "n", f"median ({about.unit})" if about.unit else "median")
    scale = scale_of(value for samples in values.values() for value in samples)
    return Plot(
        key=f"plot-{one.key}",
        title=one.title,
        caption=f"{one.metric}: {which}, a colour for each host.",
        x=Axis("cell", categories=[cell for cell in cells if cell in values]),
        y=(Axis(about.unit or about.name, from_zero=True, scale=scale),),
        series=boxes,
        height=340 if len(values) < 6 else 480,  # names of many cells stand upright
        table=Table(head, rows, numbers=all_but(head, 1)),
    )


# --- factors --------------------------------------------------------------------------------------


MOST_LEVELS = 50
"""Values of a factor that is drawn: a heat map has a cell for each pair."""


def _factors(cells: Iterable[Mapping[str, Value]]) -> dict[str, list[str]]:
    """Return the factors with 2 to MOST_LEVELS values, each with its values in order."""
    found: dict[str, dict[str, None]] = {}
    for factors in cells:
        for name, value in factors.items():
            found.setdefault(name, {})[_word(value)] = None
    return {name: [*values] for name, values in found.items() if 1 < len(values) <= MOST_LEVELS}


def _word(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _heat_map(one: Measured, cells: Mapping[str, Mapping[str, Value]]) -> Plot | None:
    """Draw the median of each pair of values of the two factors with most values; None for fewer
    than two factors.
    """
    values = {cell: samples for cell, samples in one.by_cell().items() if cell in cells}
    factors = _factors(cells[cell] for cell in values)
    across, down, *others = [*sorted(factors, key=lambda name: -len(factors[name])), "", ""]
    if not down:
        return None
    found: dict[tuple[str, str], list[float]] = {}
    for cell, samples in values.items():
        own = cells[cell]
        if across in own and down in own:
            found.setdefault((_word(own[across]), _word(own[down])), []).extend(samples)
    medians = [
        [median(found[x, y]) if (x, y) in found else None for x in factors[across]]
        for y in factors[down]
    ]
    texts = [["" if value is None else f"{value:.3g}" for value in row] for row in medians]
    rest = ", ".join(filter(None, others))
    head = (f"{down} \\ {across}", *factors[across])
    return Plot(
        key=f"heat-{one.key}",
        title=f"{one.title}: {across} and {down}",
        caption="Medians"
        + (f" in {one.about.unit}" if one.about.unit else "")
        + "; stronger colour: higher."
        + (f" Over all values of {rest}." if rest else ""),
        x=Axis(across, categories=factors[across]),
        y=(Axis(down, categories=factors[down], is_reversed=True),),
        series=[Heat(one.about.name, factors[across], factors[down], medians, texts)],
        height=110 + 40 * len(factors[down]),
        table=Table(
            head,
            [(y, *row) for y, row in zip(factors[down], texts, strict=True)],
            numbers=all_but(head, 1),
        ),
    )


def _factor_plot(one: Measured, cells: Mapping[str, Mapping[str, Value]]) -> Plot | None:
    """Draw the mean of all values at each value of each factor, with its 95 % interval (main
    effects); None without a factor.
    """
    values = {cell: samples for cell, samples in one.by_cell().items() if cell in cells}
    series: list[Series] = []
    rows: list[tuple[str, ...]] = []
    for style, (name, levels) in enumerate(_factors(cells[cell] for cell in values).items()):
        found = {
            level: [
                value
                for cell, samples in values.items()
                if name in cells[cell] and _word(cells[cell][name]) == level
                for value in samples
            ]
            for level in levels
        }
        means = [fmean(each) for each in found.values()]
        half = [_half_interval(each) for each in found.values()]
        places = [f"{name} {level}" for level in levels]
        series.append(Series(name, places, means, "marked line", style, interval=half))
        rows += [
            (name, level, str(len(found[level])), f"{mean:.6g}", f"\N{PLUS-MINUS SIGN}{each:.3g}")
            for level, mean, each in zip(levels, means, half, strict=True)
        ]
    if not series:
        return None
    unit = one.about.unit
    head = ("factor", "value", "n", f"mean ({unit})" if unit else "mean", "95 % interval")
    return Plot(
        key=f"factors-{one.key}",
        title=f"{one.title}: effect of each factor",
        caption="Mean of all values at each value of a factor, over all others, with its 95 %"
        " interval. A steep line: the factor matters.",
        x=Axis("", categories=[str(x) for each in series for x in each.x]),
        y=(Axis(unit or one.about.name, from_zero=True),),
        series=series,
        height=340,
        table=Table(head, rows, numbers=all_but(head, 2)),
    )


def _half_interval(values: Sequence[float]) -> float:
    """Return half the 95 % interval of a mean (Student's distribution); 0 for a single value."""
    count = len(values)
    return student(count - 1) * stdev(values) / count**0.5 if count > 1 else 0.0
