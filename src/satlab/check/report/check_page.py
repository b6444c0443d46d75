# SPDX-License-Identifier: GPL-3.0-or-later
"""A check as one HTML file: its tables, the time by cause, and a plot of each traced transfer."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from satlab.check import verdict
from satlab.check.check_result import CheckResult
from satlab.check.report import check_tables
from satlab.check.samples import Sample
from satlab.check.trace import careful_resume, causes, traces
from satlab.check.trace.causes import Cause, SenderState, Span, TransferTrace
from satlab.lab import ownership
from satlab.report import html
from satlab.report.figures import PATTERN, DataTable, Figure, Json, axis, line, text

MAX_POINTS = 600
"""Of a curve. A plot has no more pixels, and a page has many plots."""
STYLE: dict[Cause, tuple[str, str]] = {
    "handshake": ("--c4", ""),
    "slow start": ("--c2", ""),
    "link": ("--c3", ""),
    "application": ("--c5", ""),
    "flow control": ("--c6", ""),
    "ack link": ("--c1", ""),
    "congestion avoidance": ("--c2", "/"),
    "loss recovery": ("--bad", "/"),
    "pacing": ("--c6", "/"),
    "host": ("--c5", "x"),
    "delivery": ("--c1", "."),
}


@dataclass(frozen=True)
class PlottedTransfer:
    """The transfer of median duration of each case is shown, the others are folded."""

    sample: Sample
    trace: TransferTrace
    is_median: bool

    @property
    def title(self) -> str:
        return f"{self.sample.case}, seed {self.sample.seed}"


@dataclass(frozen=True)
class CheckPage:
    """The data of the template."""

    check: CheckResult
    sections: Sequence[check_tables.Section]

    @property
    def title(self) -> str:
        return f"{self.check.suite.name}: {self.check.input.stack}, {self.check.input.clock} clock"

    def tiles(self) -> list[tuple[str, str, str]]:
        """Return (figure, caption, state)."""
        met, judged, what = verdict.met(
            (one.mark_mb, one.target_s, one.result) for one in self.check.verdicts
        )
        samples = [one for case in self.check.samples.values() for one in case]
        complete = sum(one.status == "ok" for one in samples)
        tiles = [(f"{met}/{judged}", what, "good" if met == judged else "bad")] if judged else []
        tiles.append((f"{complete}/{len(samples)}", "transfers complete", ""))
        if self.check.comparisons is not None:
            tiles.append(_baseline_tile(self.check.comparisons))
        if self.check.simulated_s is not None:
            factor = self.check.simulated_s / self.check.real_s
            tiles.append((f"{factor:.0f}\u00d7", "as fast as real time", ""))
        return tiles


def _baseline_tile(comparisons: Sequence[verdict.BaselineComparison]) -> tuple[str, str, str]:
    slower = sum(one.is_slower for one in comparisons)
    undecided = sum(one.result in ("undecided", "not measurable") for one in comparisons)
    caption = f"of {len(comparisons)} comparisons slower than the baseline"
    if undecided:
        caption += f", {undecided} undecided or not measurable"
    return str(slower), caption, "bad" if slower else "" if undecided else "good"


def write(check: CheckResult) -> Path:
    """Write `check.html` into the check's folder, atomically."""
    transfers = _transfers(check)
    bars = _bars(check)
    plots = [(transfer, _plot(transfer)) for transfer in transfers]
    text = html.page(
        "check.html",
        [*bars, *(figure for _, figure in plots)],
        page=CheckPage(check, check_tables.sections(check)),
        bars=bars,
        meaning=causes.MEANING,
        shown=[figure for transfer, figure in plots if transfer.is_median],
        folded=[figure for transfer, figure in plots if not transfer.is_median],
        text_columns=check_tables.TEXT_COLUMNS,
    )
    path = check.folder / "check.html"
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
    ownership.chown_to_caller(path)
    return path


def _transfers(check: CheckResult) -> list[PlottedTransfer]:
    """Read the traces of all samples that have one."""
    transfers = []
    for case, samples in check.samples.items():
        traced = sorted(
            (one for one in samples if one.spent_s),
            key=lambda one: sum((one.spent_s or {}).values()),
        )
        for rank, sample in enumerate(traced):
            trace = traces.read(
                check.folder / "raw", check.suite.case(case), sample, check.links[case].plan
            )
            if trace is not None:
                transfers.append(PlottedTransfer(sample, trace, rank == (len(traced) - 1) // 2))
    return transfers


def _bars(check: CheckResult) -> list[Figure]:
    """Plot the share of each cause in the time of each case."""
    traced = {case: spent for case in check.samples if (spent := check.spent_s(case)) is not None}
    if not traced:
        return []
    data: list[Json] = []
    for cause in causes.CAUSES:
        shares = [100 * spent[cause] / sum(spent.values()) for spent in traced.values()]
        if any(shares):
            bar = _bar(cause, [round(share, 2) for share in shares], list(traced))
            data.append(bar | {"hovertemplate": "%{y}: %{x:.1f} %"})
    layout = {
        "xaxis": axis("Share of the transfer's time (%)", range=[0, 100]),
        "yaxis": {"autorange": "reversed", "automargin": True},
        "barmode": "stack",
        "margin": {"l": 130, "r": 12, "t": 24, "b": 90},
    }
    table = DataTable(
        ("case", *causes.CAUSES),
        tuple(
            (case, *(f"{spent[cause]:.3f}" for cause in causes.CAUSES))
            for case, spent in traced.items()
        ),
    )
    caption = "Means of the samples of a case. The table is in seconds."
    document = {"data": data, "layout": layout}
    return [
        Figure("spent", "Where the time went", caption, document, 130 + 32 * len(traced), table)
    ]


def _bar(cause: Cause, lengths: Sequence[float], labels: Sequence[str]) -> Json:
    colour, shape = STYLE[cause]
    marker = {"color": colour, "line": {"width": 0}, "pattern": {**PATTERN, "shape": shape}}
    return {
        "type": "bar",
        "orientation": "h",
        "name": text(cause),
        "legendgroup": cause,
        "x": list(lengths),
        "y": [text(label) for label in labels],
        "marker": marker,
    }


# --- one transfer ---------------------------------------------------------------------------------

Value = Callable[[SenderState], float]
ROWS: tuple[tuple[str, str, tuple[tuple[str, int, Value], ...]], ...] = (
    (
        "y2",
        "MB",
        (
            ("congestion window (MB)", 1, lambda state: state.cwnd_bytes / 1e6),
            ("in flight (MB)", 0, lambda state: state.in_flight_bytes / 1e6),
        ),
    ),
    (
        "y3",
        "ms",
        (
            ("RTT at the sender (ms)", 4, lambda state: state.rtt_ms),
            ("queue of the payload (ms)", 2, lambda state: state.payload_queue_ms),
            ("queue of acknowledgements (ms)", 3, lambda state: state.ack_queue_ms),
        ),
    ),
)
"""Axis, its unit, and curves (name, style, value) of the rows below the band."""


def _plot(transfer: PlottedTransfer) -> Figure:
    """Plot the causes as a band over time, with window, bytes in flight, queues and RTT below it."""
    trace, spans = transfer.trace, transfer.trace.spans()
    states = trace.states[:: max(1, len(trace.states) // MAX_POINTS)]
    data = _band(spans)
    for y_axis, _, curves in ROWS:
        for name, style, value in curves:
            data.append(
                line([(state.t_s, value(state)) for state in states], name, style, yaxis=y_axis)
            )
            data[-1]["line"] |= {"dash": "solid", "width": 2 if style else 1}
    layout = {
        "xaxis": axis(
            "Time since the client's first packet (s)",
            range=[0, round(trace.end_s, 3)],
            anchor="y3",
        ),
        "yaxis": {
            "domain": [0.88, 1],
            "showticklabels": False,
            "showgrid": False,
            "zeroline": False,
        },
        "yaxis2": axis("MB", domain=[0.46, 0.84], rangemode="tozero"),
        "yaxis3": axis("ms", domain=[0, 0.4], rangemode="tozero"),
        "barmode": "overlay",
        "margin": {"l": 56, "r": 12, "t": 12, "b": 120},
    }
    spent = trace.spent_s()
    parts = ", ".join(f"{cause} {time:.2f}" for cause, time in spent.items() if time)
    caption = (
        f"{trace.end_s:.2f} s ({transfer.sample.status}): {parts}. Queues as the time that their"
        " link takes to send. " + careful_resume.line(transfer.sample.careful_resume)
    ).strip()
    table = DataTable(
        ("cause", "from (s)", "until (s)"),
        tuple((span.cause, f"{span.start_s:.3f}", f"{span.end_s:.3f}") for span in spans),
    )
    key = f"run-{transfer.sample.case}-{transfer.sample.seed}"
    return Figure(key, transfer.title, caption, {"data": data, "layout": layout}, 560, table)


def _band(spans: Sequence[Span]) -> list[Json]:
    """Return one row of bars, coloured by cause."""
    data: list[Json] = []
    for cause in causes.CAUSES:
        own = [span for span in spans if span.cause == cause]
        if own:
            bar = _bar(
                cause, [round(span.end_s - span.start_s, 3) for span in own], [""] * len(own)
            )
            bar |= {"base": [round(span.start_s, 3) for span in own], "width": 1}
            data.append(bar | {"hovertemplate": "from %{base:.2f} s until %{x:.2f} s"})
    return data
