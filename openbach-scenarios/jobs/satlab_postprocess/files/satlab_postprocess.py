#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: draw a statistic that jobs of this run have sent so far, as a figure (Plotly) and a
table (CSV).

A series has the values that one job instance sent under one suffix. The job reads the statistics of
the run (`$SATLAB_RAW/stats.jsonl`), which only the embedded lab has; on an OpenBACH platform
OpenBACH's own jobs read the collector.

Exit statuses: 0 done, 1 no job has sent the statistic or a file was not stored, 2 arguments, 3 the
host cannot do it.
"""

import argparse
import csv
import html
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from itertools import accumulate
from pathlib import Path
from typing import Any

import collect_agent
from jobkit import JobError, argument_parser, matching, run_job, whole

MAX_BYTES, MAX_LINE, MAX_VALUES, MAX_SERIES = 256 << 20, 1 << 16, 1_000_000, 50
MAX_POINTS = 5000
"""Points of a line in the figure, evenly chosen; the table has all."""
Json = dict[str, Any]


@dataclass
class Series:
    """Values of one job instance under one suffix; times in s since the first value of all."""

    name: str
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Return median, mean, 95th percentile (nearest rank) and number of the values."""
        ordered = sorted(self.values)
        p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
        mean = statistics.fmean(ordered)
        return {
            "median": statistics.median(ordered),
            "mean": mean,
            "p95": p95,
            "values": len(ordered),
        }


# --- reading --------------------------------------------------------------------------------------


def records(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a file of statistics; an incomplete or foreign line is passed over."""
    with path.open("rb") as file:
        left = MAX_BYTES
        while (line := file.readline(MAX_LINE)) and left > 0:
            left -= len(line)
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("_metadata"), dict):
                yield record


def collect(
    found: Iterator[Mapping[str, Any]], statistic: str, jobs: Sequence[int]
) -> list[Series]:
    """Return the series of a statistic, in the order of their first values.

    Raises JobError: nobody sent it, or there are too many of them.
    """
    series: dict[tuple[int, str], Series] = {}
    count, start_ms = 0, math.inf
    for record in found:
        about, value = record["_metadata"], record.get(statistic)
        instance, suffix, time_ms = (
            about.get("job_instance_id"),
            str(about.get("suffix", "")),
            about.get("time"),
        )
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            continue
        if not isinstance(time_ms, int) or about.get("is_file") or (jobs and instance not in jobs):
            continue
        name = " ".join(
            filter(
                None, (f"{about.get('job_name')} {instance}", str(about.get("agent_name")), suffix)
            )
        )
        one = series.setdefault((instance, suffix), Series(name))
        one.times.append(time_ms / 1000)
        one.values.append(float(value))
        count, start_ms = count + 1, min(start_ms, time_ms)
        if count > MAX_VALUES or len(series) > MAX_SERIES:
            raise JobError(
                f"more than {MAX_VALUES} values or {MAX_SERIES} series: choose jobs with -j",
                status=1,
            )
    if not series:
        raise JobError(f"no job has sent the statistic {statistic} so far", status=1)
    for one in series.values():
        one.times = [each - start_ms / 1000 for each in one.times]
    return list(series.values())


# --- figures --------------------------------------------------------------------------------------


def text(raw: str) -> str:
    """Make text safe for Plotly, which reads a subset of HTML in labels."""
    return html.escape(raw, quote=False)


def time_series(
    series: Sequence[Series], title: str, value: str
) -> tuple[Json, list[list[object]]]:
    """Draw values over time."""
    traces: list[Json] = []
    for one in series:
        step = math.ceil(len(one.values) / MAX_POINTS)
        points = {"x": one.times[::step], "y": one.values[::step]}
        traces.append(
            {"type": "scatter", "mode": "lines+markers", "name": text(one.name), **points}
        )
    rows: list[list[object]] = [["series", "time_s", "value"]]
    for one in series:
        rows += [
            [one.name, f"{at:.3f}", number]
            for at, number in zip(one.times, one.values, strict=True)
        ]
    return figure(traces, title, "time, s", value), rows


def edges(series: Sequence[Series], bins: int) -> list[float]:
    """Return the edges of bins of equal width over all values."""
    every = [number for one in series for number in one.values]
    low, high = min(every), max(every)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return [low + (high - low) * number / bins for number in range(bins)] + [high]


def histogram(
    series: Sequence[Series], title: str, value: str, bins: int, *, cumulative: bool
) -> tuple[Json, list[list[object]]]:
    """Draw the share of the values in each bin, or up to its end."""
    limits = edges(series, bins)
    width = limits[1] - limits[0]
    traces: list[Json] = []
    rows: list[list[object]] = [["series", "from", "to", "values", "share"]]
    for one in series:
        counts = [0] * bins
        for number in one.values:
            counts[min(bins - 1, int((number - limits[0]) / width))] += 1
        shown = list(accumulate(counts)) if cumulative else counts
        shares = [count / len(one.values) for count in shown]
        kind = (
            {"type": "scatter", "line": {"shape": "hv"}}
            if cumulative
            else {"type": "bar", "opacity": 0.7}
        )
        at = limits[1:] if cumulative else [edge + width / 2 for edge in limits[:-1]]
        traces.append({**kind, "name": text(one.name), "x": at, "y": shares})
        rows += [
            [one.name, low, high, count, share]
            for low, high, count, share in zip(limits[:-1], limits[1:], shown, shares, strict=True)
        ]
    return figure(traces, title, value, "share of values"), rows


def comparison(series: Sequence[Series], title: str, value: str) -> tuple[Json, list[list[object]]]:
    """Draw a box of each series: quartiles, mean, and whiskers of 1.5 interquartile ranges."""
    traces: list[Json] = []
    rows: list[list[object]] = [
        ["series", "values", "mean", "min", "q1", "median", "q3", "p95", "max"]
    ]
    for one in series:
        q1, median, q3 = quartiles(one.values)
        low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
        inside = [number for number in one.values if low <= number <= high]
        about = one.figures()
        box = {"q1": [q1], "median": [median], "q3": [q3], "mean": [about["mean"]]}
        whiskers = {"lowerfence": [min(inside)], "upperfence": [max(inside)]}
        traces.append(
            {"type": "box", "name": text(one.name), "x": [text(one.name)], **box, **whiskers}
        )
        ends = min(one.values), max(one.values)
        rows.append(
            [
                one.name,
                about["values"],
                about["mean"],
                ends[0],
                q1,
                median,
                q3,
                about["p95"],
                ends[1],
            ]
        )
    return figure(traces, title, "series", value), rows


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the quartiles (inclusive method); of a single value three times this."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return q1, median, q3


def figure(traces: list[Json], title: str, x: str, y: str) -> Json:
    """Return a document of Plotly."""
    layout = {
        "title": {"text": text(title)},
        "xaxis": {"title": {"text": text(x)}},
        "showlegend": True,
    }
    return {
        "data": traces,
        "layout": layout | {"yaxis": {"title": {"text": text(y)}}, "template": "none"},
    }


def page(document: Json, title: str) -> str:
    """Return a page with the figure that needs no other file.

    Raises JobError: Plotly is not there.
    """
    try:
        library = Path(
            str(distribution("plotly").locate_file("plotly/package_data/plotly.min.js"))
        ).read_text()
    except (PackageNotFoundError, OSError) as error:
        raise JobError(f"Plotly is not installed for {sys.executable}") from error
    content = json.dumps(document, allow_nan=False)
    for character in "<>&":  # the text of a job ends no script
        content = content.replace(character, f"\\u{ord(character):04x}")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta'
        f' charset="utf-8"><title>{html.escape(title)}</title>\n<script>{library}</script></head>\n<body><div'
        f' id="figure" style="height: 90vh"></div>\n<script>const made = {content};'
        ' Plotly.newPlot("figure", made.data, made.layout);</script>\n</body></html>\n'
    )


def cell(content: object) -> object:
    """Return a cell of a table; text that a spreadsheet would take for a formula is quoted."""
    return (
        f"'{content}"
        if isinstance(content, str) and content[:1] in "=+-@\t\r" and content
        else content
    )


# --- the job --------------------------------------------------------------------------------------


def draw(options: argparse.Namespace, series: Sequence[Series]) -> tuple[Json, list[list[object]]]:
    """Return the figure of the requested kind and its table."""
    title = options.title or f"{options.statistic}: {options.kind.replace('_', ' ')}"
    value = f"{options.statistic}, {options.unit}" if options.unit else options.statistic
    match options.kind:
        case "histogram":
            return histogram(series, title, value, options.bins, cumulative=options.cumulative)
        case "comparison":
            return comparison(series, title, value)
    return time_series(series, title, value)


def main() -> None:
    """Read, draw and store."""
    options = parser().parse_args()
    raw = os.environ.get("SATLAB_RAW")
    if not raw:
        raise JobError(
            "SATLAB_RAW is not set: only the embedded lab has the statistics of a run in a file"
        )
    try:
        series = collect(records(Path(raw) / "stats.jsonl"), options.statistic, options.jobs or ())
    except OSError as error:
        raise JobError(f"{raw}/stats.jsonl: {error.strerror}") from error
    document, rows = draw(options, series)
    for one in series:
        collect_agent.send_stat(collect_agent.now(), one.name, **one.figures())
    with tempfile.TemporaryDirectory() as folder:
        drawn, table = Path(folder) / "figure.html", Path(folder) / "table.csv"
        drawn.write_text(page(document, options.statistic), encoding="utf-8")
        with table.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([cell(each) for each in row] for row in rows)
        answer = collect_agent.store_files(collect_agent.now(), figure=str(drawn), table=str(table))
    if answer != "OK":
        raise JobError(f"the files were not stored: {answer}", status=1)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    options.add_argument(
        "statistic", type=matching(r"[A-Za-z][A-Za-z0-9_.-]{0,99}", "the name of a statistic")
    )
    options.add_argument("-j", "--jobs", type=whole(1, 2**53), action="append")
    options.add_argument("-t", "--title")
    options.add_argument("-u", "--unit")
    kinds = options.add_subparsers(dest="kind", required=True)
    kinds.add_parser("time_series")
    bars = kinds.add_parser("histogram")
    bars.add_argument("-b", "--bins", type=whole(1, 1000), default=30)
    bars.add_argument("-c", "--cumulative", action="store_true")
    kinds.add_parser("comparison")
    return options


if __name__ == "__main__":
    run_job(__file__, main)
