# SPDX-License-Identifier: GPL-3.0-or-later
"""Summary records for a terminal and for spreadsheets."""

import csv
import json
from collections.abc import Sequence
from typing import TextIO

from rich.table import Table

import collect
from satlab.common import console, escape
from satlab.report import rows as read
from satlab.report import shares
from satlab.report.rows import (
    PAGE_METRICS,
    BulkTransfer,
    PageFigure,
    Row,
    StreamFigure,
    VideoFigure,
)

CHECKS = {
    "rtt_ms": "round-trip time",
    "forward_udp_goodput_bps": "forward UDP goodput",
    "forward_loss_ratio": "forward loss ratio",
    "late_packet_ratio": "packets released late",
    "late_packet_ratio.forward": "packets released late, forward",
    "late_packet_ratio.return": "packets released late, return",
    "browser_wait_ratio": "browser without a core",
    "cpu_wait_ratio.jobs": "jobs without a core",
    "cpu_wait_ratio.client": "client without a core",
    "cpu_wait_ratio.server": "server without a core",
    "cpu_others_ratio": "CPU time of others",
    "cpu_steal_ratio": "CPU time stolen",
    "memory_wait_ratio": "waits for memory",
    "host_loss_ratio": "packets lost by the host",
    "opensand_losses.gse_encapsulation": "lost by OpenSAND's GW",
    "opensand_losses.gse_reassembly": "lost by OpenSAND's reassembly",
    "opensand_losses.socket": "losses in OpenSAND's sockets",
}


def terminal_tables(frames: Sequence[collect.Table]) -> list[Table]:
    """Return tables of goodput, page metrics, calibration and failed samples; empty ones are left
    out.
    """
    rows = read.summaries(frames)
    tables = [
        _goodput(read.transfers(rows)),
        _pages(read.page_figures(rows)),
        _streams(read.streams(rows)),
    ]
    tables += [
        _fairness(rows),
        _videos(read.videos(rows)),
        _echoes(rows),
        _calibration(rows),
        _failures(read.failures(rows)),
    ]
    return [table for table in tables if table.row_count]


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


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    return console.table(title, (*left, *right), (), right=right)


def _add(table: Table, *cells: str) -> None:
    table.add_row(*map(escape.terminal, cells))


def _goodput(transfers: Sequence[BulkTransfer]) -> Table:
    table = _table(
        "Bulk transfer",
        ("profile", "transfer"),
        ("goodput Mbit/s", "steady Mbit/s", "time s", "retransmits"),
    )
    for one in transfers:
        name = f"{one.name} {one.labels.get('direction', '')}".strip()
        goodput = mbits(one.goodput_bps) if one.status == "ok" else one.status
        figures = (
            goodput,
            mbits(one.steady_bps),
            _number(one.time_s, 1),
            _number(one.retransmits, 0),
        )
        _add(table, one.profile, name, *figures)
    return table


def _fairness(rows: Sequence[Row]) -> Table:
    columns = ("n", "Jain's index", "equal part", "least", "most")
    table = _table(
        "Terminals that share the link, Mbit/s", ("profile", "direction", "transport"), columns
    )
    runs: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        runs.setdefault((row.run_id, row.profile), []).append(row)
    for (_, profile), own in runs.items():
        for line in shares.fairness_rows(own):
            _add(table, profile, *line)
    return table


def _pages(figures: Sequence[PageFigure]) -> Table:
    columns = {
        metric: name
        for metric, name in PAGE_METRICS.items()
        if metric != "largest_contentful_paint_ms"
    }
    table = _table(
        "Page loads, median ms", ("profile", "page", "protocol"), (*columns.values(), "loads")
    )
    groups: dict[tuple[str, str, str, str], dict[str, PageFigure]] = {}
    for one in figures:
        groups.setdefault((one.run_id, one.profile, one.page, one.kind), {})[one.metric] = one
    for (_, profile, page, kind), group in groups.items():
        medians = [_median(group[metric]) if metric in group else "-" for metric in columns]
        count = next(iter(group.values()))
        ended = f"{group.get('page_load_time_ms', count).ended} of {count.loads}"
        _add(table, profile, page, kind, *medians, ended)
    return table


def _median(figure: PageFigure) -> str:
    return figure.status if figure.median is None else f"{figure.median:,.0f}"


def _echoes(rows: Sequence[Row]) -> Table:
    table = _table(
        "Round-trip time", ("profile", "destination"), ("median ms", "min ms", "max ms", "replies")
    )
    groups: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if row.metric == "rtt_ms" and row.labels.get("source") == "ping":
            groups.setdefault((row.run_id, row.labels.get("instance", "")), {})[
                row.labels.get("stat", "")
            ] = row
    for group in groups.values():
        head = next(iter(group.values()))
        figures = [
            _number(group[stat].value, 2) if stat in group else "-"
            for stat in ("median", "min", "max")
        ]
        cells = (
            head.profile,
            head.labels.get("destination", ""),
            *figures,
            head.labels.get("n", "0"),
        )
        _add(table, *cells)
    return table


def _streams(streams: Sequence[StreamFigure]) -> Table:
    columns = ("MOS", "delay ms", "95 % ms", "jitter ms", "loss %")
    table = _table("Streams", ("profile", "to", "codec"), columns)
    for one in streams:
        delay = [one.values.get(f"one_way_delay_ms {stat}") for stat in ("median", "p95")]
        loss = one.values.get("stream_loss_ratio")
        cells = [_number(one.values.get("mos"), 2) if one.status == "ok" else one.status]
        cells += [_number(value, 1) for value in (*delay, one.values.get("stream_jitter_ms"))]
        cells.append("-" if loss is None else f"{100 * loss:.2f}")
        _add(table, one.profile, one.labels.get("entity", ""), one.codec, *cells)
    return table


def _videos(videos: Sequence[VideoFigure]) -> Table:
    table = _table(
        "Video", ("profile", "video"), ("bitrate Mbit/s", "start-up ms", "stalls", "stalled s")
    )
    for one in videos:
        bitrate = mbits(one.values["video_bitrate_bps"]) if one.status == "ok" else one.status
        more = [_number(one.values.get(f"video_{name}"), digits) for name, digits in _VIDEO_FIGURES]
        _add(table, one.profile, one.name, bitrate, *more)
    return table


_VIDEO_FIGURES = (("startup_ms", 0), ("stalls_count", 0), ("stalled_s", 1))


def _calibration(rows: Sequence[Row]) -> Table:
    table = _table("Calibration", ("scenario", "checks", "outside tolerance"), ())
    checks: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.metric == "calibration_check_ok":
            checks.setdefault((row.run_id, row.scenario), []).append(row)
    for (_, scenario), found in checks.items():
        bad = [_deviation(row) for row in found if row.value != 1]
        _add(
            table,
            scenario,
            f"{len(found) - len(bad)} of {len(found)} held",
            "; ".join(bad) or "none",
        )
    return table


def _deviation(row: Row) -> str:
    """Return a measured value and its bounds."""
    name, unit = CHECKS.get(row.labels["check"], row.labels["check"]), row.labels["unit"]
    if row.value is None:
        return f"{name}: not measured, {row.reason}"
    measured, low, high = (quantity(row.labels[k], unit)[0] for k in ("measured", "low", "high"))
    return (
        f"{name}: {measured} {quantity(row.labels['measured'], unit)[1]} ({low} to {high} allowed)"
    )


def _failures(failures: Sequence[read.Failure]) -> Table:
    table = _table("Failed and cut-off samples", ("metrics", "status", "where", "reason"), ())
    for one in failures:
        _add(table, ", ".join(one.metrics), one.status, one.place, one.reason[:200])
    return table


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def mbits(value: float | None) -> str:
    """Return a rate in Mbit/s with two digits after the point."""
    return "-" if value is None else f"{value / 1e6:,.2f}"


def quantity(text: str, unit: str) -> tuple[str, str]:
    """Return a number of a calibration check and its unit; bit/s as Mbit/s, us as µs."""
    try:
        value = float(text)
    except ValueError:
        return text, ""
    if unit == "bit/s":
        return f"{value / 1e6:,.3f}", "Mbit/s"
    return f"{value:,.5g}", unit.replace("us", "µs")
