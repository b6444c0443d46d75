# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of summary records on the console, and summary records as CSV."""

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TextIO

from rich.table import Table as TerminalTable

import collect
from collect import page_loads
from satlab.common import escape
from satlab.report import link_tables, run_tables, text_tables
from satlab.report import measurements as read
from satlab.report.measurements import PAGE_METRICS, PageFigure, PageGroup, SummaryRecord
from satlab.report.page import Table, all_but

MOST_OF_A_REASON = 200
"""Characters of the reason of a failed sample."""


WIDE_ONLY = ("largest_contentful_paint_ms", page_loads.LAYOUT_SHIFT, page_loads.INTERACTION)
"""Page metrics for which a terminal has no room."""
BULK_COLUMNS = (
    "Run",
    "Transfer",
    "Goodput (Mbit/s)",
    "Steady (Mbit/s)",
    "Time (s)",
    "Retransmitted or lost",
)
RESPONSE_COLUMNS = (
    "Run",
    "Round trips per minute",
    "Idle, median ms",
    "Loaded, median ms",
    "Loaded, p95 ms",
    "Loaded, p99 ms",
)
STREAM_COLUMNS = (
    "Run",
    "Stream",
    "Codec",
    "MOS",
    "Delay, median ms",
    "95 % ms",
    "Jitter ms",
    "Loss %",
)
VIDEO_COLUMNS = ("Run", "Video", "Mean bitrate (Mbit/s)", "Start-up (s)", "Stalls", "Stalled (s)")
FAILURE_COLUMNS = ("Metrics without value", "Status", "Where", "Reason")
"""Those of the report's columns that fit on a terminal."""


def terminal_tables(
    frames: Sequence[collect.Table], named: run_tables.Names
) -> list[TerminalTable]:
    """Return the tables of goodput, page metrics, calibration and failed samples that have rows.

    `named`: the runs' names by id. Without them a single run has its scenario and profile.
    """
    rows = read.summaries(frames)
    is_one = len({row.run_id for row in rows}) == 1
    usual = {r.run_id: f"{r.scenario} over {r.profile}" if is_one else r.run_id for r in rows}
    names = usual | dict(named)
    runs: dict[str, list[SummaryRecord]] = {}
    for row in rows:
        runs.setdefault(names[row.run_id], []).append(row)
    fairness = link_tables.fairness(runs)
    failed = [replace(one, reason=one.reason[:MOST_OF_A_REASON]) for one in read.failures(rows)]
    tables = [
        run_tables.bulk(read.transfers(rows), names).columns(*BULK_COLUMNS),
        _page_loads(read.page_figures(rows), names),
        run_tables.streams(read.streams(rows), names).columns(*STREAM_COLUMNS),
        run_tables.responses(read.responses(rows), names).columns(*RESPONSE_COLUMNS),
        *([fairness.ungrouped("Run")] if fairness else []),
        run_tables.videos(read.videos(rows), names).columns(*VIDEO_COLUMNS),
        _round_trips(runs),
        _calibration(runs),
        run_tables.failures(failed, names).columns(*FAILURE_COLUMNS),
    ]
    if len(runs) == 1:  # no need to say which
        tables = [
            table.columns(*(name for name in table.head if name != "Run")) for table in tables
        ]
    return [text_tables.terminal(table) for table in tables if table.rows]


def write_csv(frames: Sequence[collect.Table], file: TextIO) -> None:
    """Write the summary records as CSV, columns as in schemas/records.schema.json; labels are JSON
    text.
    """
    writer = csv.DictWriter(file, [*collect.SCHEMA], lineterminator="\n")
    writer.writeheader()
    for frame in frames:
        for row in collect.summaries(frame):
            writer.writerow(
                escape.csv_row(row | {"labels": json.dumps(row["labels"], sort_keys=True)})
            )


def _page_loads(figures: Sequence[PageFigure], names: run_tables.Names) -> Table:
    """Return a row for each page and protocol of a run, a column for each metric."""
    metrics = {metric: name for metric, name in PAGE_METRICS.items() if metric not in WIDE_ONLY}
    groups: dict[PageGroup, dict[str, PageFigure]] = {}
    for one in figures:
        groups.setdefault(one.group, {})[one.metric] = one
    rows = []
    for group, found in groups.items():
        medians = []
        for metric in metrics:
            if metric not in found:
                medians.append("")
            elif (median := found[metric].median) is None:
                medians.append(run_tables.STATUS[found[metric].status])
            else:
                medians.append(f"{median:,.0f}")
        last = found.get("page_load_time_ms") or next(iter(found.values()))
        host = "" if last.host_ms is None else f"{last.host_ms:,.0f}"
        ended = f"{last.ended} of {last.loads}"
        rows.append((names[group.run_id], group.page, group.kind, *medians, host, ended))
    head = ("Run", "Page", "Protocol", *metrics.values(), "Of which the host", "Loads ended")
    return Table(head, rows, numbers=all_but(head, 3), title="Page loads, median ms")


def _round_trips(runs: link_tables.Runs) -> Table:
    rows = []
    for run, records in runs.items():
        groups: dict[str, dict[str, SummaryRecord]] = {}
        for row in records:
            if row.metric == "rtt_ms" and row.labels.get("source") == "ping":
                stats = groups.setdefault(row.labels.get("instance", ""), {})
                stats[row.labels.get("stat", "")] = row
        for stats in groups.values():
            labels = next(iter(stats.values())).labels
            figures = [
                run_tables.number(stats[stat].value if stat in stats else None, 2)
                for stat in ("median", "min", "max")
            ]
            rows.append((run, labels.get("destination", ""), *figures, labels.get("n", "0")))
    head = ("Run", "Destination", "Median ms", "Min ms", "Max ms", "Replies")
    return Table(head, rows, numbers=all_but(head, 2), title="Round-trip time")


def _calibration(runs: link_tables.Runs) -> Table:
    """Return how many checks of each run held, and the others in words."""
    rows = []
    for run, records in runs.items():
        checks = [row for row in records if row.metric == "calibration_check_ok"]
        bad = [row.reason for row in checks if row.value != 1]
        held = f"{len(checks) - len(bad)} of {len(checks)} held"
        rows += [(run, held, "; ".join(bad) or "none")] if checks else []
    return Table(("Run", "Checks", "Out of calibration"), rows, title="Calibration")
