# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of the measurements of runs. Pages and terminals show them, some with fewer columns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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
    "opensand_losses.rle_reassembly": "lost by OpenSAND's return link",
    "opensand_losses.socket": "losses in OpenSAND's sockets",
}
"""Calibration checks in words."""


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
                f"{one.name} {one.labels.get('direction', '')}".strip(),
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
        "Link carries (Mbit/s)",
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


def videos(figures: Sequence[MediaFigure], names: Names) -> Table:
    """Return adaptive videos."""
    rows = []
    for one in figures:
        bitrate = number(one.values.get("video_bitrate_bps"), 2, 1e-6)
        rows.append(
            (
                names[one.run_id],
                one.name,
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
        "Segments",
        "Mean bitrate (Mbit/s)",
        "Start-up (s)",
        "Stalls",
        "Stalled (s)",
        "Switches",
    )
    return Table(head, rows, numbers=all_but(head, 2), title="Video")


def calibration(runs: Mapping[str, Sequence[SummaryRecord]]) -> Table:
    """Return the calibration checks of runs, by the runs' names."""
    groups: dict[str, list[Row]] = {}
    for run, records in runs.items():
        groups[run] = []
        for row in records:
            if row.metric != "calibration_check_ok":
                continue
            unit = row.labels["unit"]
            measured, expected, low, high = (
                quantity(row.labels.get(key, "none"), unit)
                for key in ("measured", "expected", "low", "high")
            )
            verdict = "not measured" if row.value is None else "ok" if row.value else "outside"
            state: State = "good" if verdict == "ok" else "bad"
            texts = (measured.amount, expected.amount, low.amount, high.amount, expected.unit)
            check = CHECKS.get(row.labels["check"], row.labels["check"])
            groups[run].append((check, Cell(verdict, state), *texts, row.labels["note"]))
    head = ("Check", "Verdict", "Measured", "Expected", "Low", "High", "Unit", "Note")
    numbers = ("Measured", "Expected", "Low", "High")
    return Table(head, groups=groups, numbers=numbers, verdict="Verdict")


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


class Quantity(NamedTuple):
    """A value and its unit as text. A value that is not a number has no unit."""

    amount: str
    unit: str


def quantity(text: str, unit: str) -> Quantity:
    """Return a number of a calibration check; bit/s as Mbit/s, us as µs."""
    try:
        value = float(text)
    except ValueError:
        return Quantity(text, "")
    if unit == "bit/s":
        return Quantity(f"{value / 1e6:,.3f}", "Mbit/s")
    return Quantity(f"{value:,.5g}", unit.replace("us", "µs"))
