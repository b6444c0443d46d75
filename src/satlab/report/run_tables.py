# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of the measurements of runs. Pages and terminals show them, some with fewer columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from collect.calibration import CHECKS, quantity
from satlab.report.measurements import (
    BulkTransfer,
    Failure,
    MediaFigure,
    SummaryRecord,
)
from satlab.report.page import Cell, Row, State, Table, all_but

Names = Mapping[str, str]
"""Of runs, by their ids."""
STATUS = {"failed": "failed", "censored": "cut off", "ok": "ok"}


def bulk(transfers: Sequence[BulkTransfer], names: Names) -> Table:
    """Return bulk transfers."""
    rows = []
    for one in transfers:
        share = ""
        if one.carried_bps and one.goodput_bps is not None:
            share = f"{one.goodput_bps / one.carried_bps:.0%}"
        rows.append(
            (
                names[one.run_id],
                one.title,
                mbits(one.goodput_bps) if one.goodput_bps is not None else STATUS[one.status],
                mbits(one.steady_bps),
                mbits(one.carried_bps),
                share,
                number(one.received_bytes, 2, 1e-6),
                number(one.time_s, 1),
                one.lost or number(one.retransmits, 0),
                number(one.cwnd_max_bytes, 2, 1e-6),
                number(one.rtt_ms, 0),
            )
        )
    head = (
        "Run",
        "Transfer",
        "Goodput (Mbit/s)",
        "Steady (Mbit/s)",
        "Link carries, mean (Mbit/s)",
        "Share",
        "Received (MB)",
        "Time (s)",
        "Retransmitted or lost",
        "Largest window (MB)",
        "Median RTT (ms)",
    )
    return Table(head, rows, numbers=all_but(head, 2), title="Bulk transfer")


def streams(figures: Sequence[MediaFigure], names: Names) -> Table:
    """Return streams of packets."""
    rows = []
    for one in figures:
        median = number(one.values.get("one_way_delay_ms median"), 1)
        rows.append(
            (
                names[one.run_id],
                one.name,
                one.codec,
                number(one.values.get("mos"), 2),
                median if one.status == "ok" else STATUS[one.status],
                number(one.values.get("one_way_delay_ms min"), 1),
                number(one.values.get("one_way_delay_ms p95"), 1),
                number(one.values.get("one_way_delay_ms max"), 1),
                number(one.values.get("stream_jitter_ms"), 2),
                number(one.values.get("stream_loss_ratio"), 2, 100),
                number(one.values.get("mouth_to_ear_ms"), 0),
            )
        )
    head = (
        "Run",
        "Stream",
        "Codec",
        "MOS",
        "Delay, median ms",
        "Min ms",
        "95 % ms",
        "Max ms",
        "Jitter ms",
        "Loss %",
        "Mouth to ear ms",
    )
    return Table(head, rows, numbers=all_but(head, 3), title="Streams")


def responses(figures: Sequence[MediaFigure], names: Names) -> Table:
    """Return round trips of small packets on the idle path and beside transfers."""
    stats = [(phase, stat) for phase in ("idle", "loaded") for stat in ("median", "p95", "p99")]
    rows = []
    for one in figures:
        rpm = number(one.values.get("responsiveness_rpm"), 0)
        rows.append(
            (
                names[one.run_id],
                rpm if one.status == "ok" else STATUS[one.status],
                *(number(one.values.get(f"probe_rtt_ms {p} {stat}"), 1) for p, stat in stats),
                number(one.values.get("probe_loss_ratio loaded"), 2, 100),
            )
        )
    columns = [f"{phase.capitalize()}, {stat} ms" for phase, stat in stats]
    head = ("Run", "Round trips per minute", *columns, "Lost while loaded %")
    return Table(head, rows, numbers=all_but(head, 1), title="Responsiveness under load")


def videos(figures: Sequence[MediaFigure], names: Names) -> Table:
    """Return adaptive videos."""
    rows = []
    for one in figures:
        bitrate = number(one.values.get("video_bitrate_bps"), 2, 1e-6)
        rows.append(
            (
                names[one.run_id],
                one.name,
                one.labels.get("player", ""),
                one.labels.get("n", ""),  # none where nothing was stored
                bitrate if one.status == "ok" else STATUS[one.status],
                number(one.values.get("video_startup_ms"), 2, 1e-3),
                number(one.values.get("video_stalls_count"), 0),
                number(one.values.get("video_stalled_s"), 1),
                number(one.values.get("video_switches_count"), 0),
            )
        )
    head = (
        "Run",
        "Video",
        "Player",
        "Segments",
        "Mean bitrate (Mbit/s)",
        "Start-up (s)",
        "Stalls",
        "Stalled (s)",
        "Switches",
    )
    return Table(head, rows, numbers=all_but(head, 3), title="Video")


def calibration(runs: Mapping[str, Sequence[SummaryRecord]]) -> Table:
    """Return the calibration checks of runs, by the runs' names."""
    groups: dict[str, list[Row]] = {}
    for run, records in runs.items():
        groups[run] = []
        for row in records:
            if row.metric != "calibration_check_ok":
                continue
            check, unit = row.labels["check"], row.labels["unit"]
            measured, expected, low, high = (
                quantity(check, row.labels.get(key, "none"), unit)
                for key in ("measured", "expected", "low", "high")
            )
            verdict = "not measured" if row.value is None else "ok" if row.value else "outside"
            state: State = "good" if verdict == "ok" else "bad"
            texts = (measured.amount, expected.amount, low.amount, high.amount)
            unit_of = f" ({expected.unit})" if expected.unit else ""
            name = f"{CHECKS.get(check, check)}{unit_of}"
            groups[run].append((name, Cell(verdict, state), *texts, row.labels["note"]))
    head = ("Check", "Verdict", "Measured", "Expected", "Low", "High", "Note")
    numbers = ("Measured", "Expected", "Low", "High")
    table = Table(head, groups=groups, numbers=numbers, verdict="Verdict", cards=True, keys=2)
    if len(groups) > 1:
        return table.ungrouped("Run")
    return replace(table, rows=next(iter(groups.values()), ()), groups=None, keys=1)


LINK_COLUMNS = {
    "link_out_bytes": ("Released (MB)", 2, 1e-6),
    "link_dropped_packets": ("Dropped, queue full (packets)", 0, 1),
    "link_lost_packets": ("Lost on the link (packets)", 0, 1),
    "link_queue_max_bytes": ("Largest queue (MB)", 2, 1e-6),
    "link_release_late_p50_us": ("Release error p50 (µs)", 0, 1),
    "link_release_late_p99_us": ("p99 (µs)", 0, 1),
    "link_release_late_max_us": ("max (µs)", 0, 1),
}
"""Title, digits and scale of each metric of a direction."""


def link(runs: Mapping[str, Sequence[SummaryRecord]]) -> Table:
    """Return the emulator's counters of each direction while the jobs ran, by the runs' names."""
    groups: dict[str, list[Row]] = {}
    for run, records in runs.items():
        directions: dict[str, dict[str, str]] = {}
        for row in records:
            if row.metric in LINK_COLUMNS and "direction" in row.labels:
                _, digits, scale = LINK_COLUMNS[row.metric]
                cells = directions.setdefault(row.labels["direction"], {})
                cells[row.metric] = number(row.value, digits, scale)
        groups[run] = [
            (direction.replace("_", " "), *(cells.get(metric, "") for metric in LINK_COLUMNS))
            for direction, cells in directions.items()
        ]
    head = ("Direction", *(title for title, _, _ in LINK_COLUMNS.values()))
    return Table(head, groups=groups, numbers=all_but(head, 1))


def failures(found: Iterable[Failure], names: Names) -> Table:
    """Return failed and cut-off samples."""
    rows = [
        (
            names[one.run_id],
            Cell(STATUS[one.status], "bad"),
            one.place,
            one.reason,
            ", ".join(one.metrics),
        )
        for one in found
    ]
    head = ("Run", "Status", "Where", "Reason", "Metrics without value")
    title = "Failed and cut-off samples"
    return Table(head, rows, verdict="Status", title=title, cards=True)


def number(value: float | None, digits: int, scale: float = 1.0) -> str:
    """Return a scaled number with so many digits after the point, "" for None."""
    return "" if value is None else f"{value * scale:,.{digits}f}"


def mbits(value: float | None) -> str:
    """Return a rate in Mbit/s with two digits after the point, "-" for None."""
    return "-" if value is None else f"{value / 1e6:,.2f}"
