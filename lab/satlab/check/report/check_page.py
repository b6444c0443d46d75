# SPDX-License-Identifier: GPL-3.0-or-later
"""A check as one HTML file: verdicts, where the time went, and for each traced transfer what held it up when."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from satlab.check.check_run import CheckResult
from satlab.check.report import check_tables
from satlab.check.samples import Sample
from satlab.check.trace import causes, traces
from satlab.check.trace.causes import Cause, SenderState, Span, TransferTrace
from satlab.netlab import ownership
from satlab.report import html
from satlab.report.figures import PATTERN, DataTable, Figure, Json, axis, line, text

MAX_POINTS = 600
"""Points of a curve: more than a plot has pixels for helps nobody, and a page holds many plots."""
STYLE: dict[Cause, tuple[str, str]] = {
    "handshake": ("--c4", ""),
    "slow start": ("--c2", ""),
    "link": ("--c3", ""),
    "application": ("--c5", ""),
    "flow control": ("--c6", ""),
    "ack link": ("--c1", ""),
    "congestion avoidance": ("--c2", "/"),
    "loss recovery": ("--bad", "/"),
    "host": ("--c5", "x"),
    "delivery": ("--c1", "."),
}


@dataclass(frozen=True)
class PlottedTransfer:
    """A traced transfer to draw; the one whose time is the median of its case is shown at once."""

    sample: Sample
    trace: TransferTrace
    is_median: bool

    @property
    def key(self) -> str:
        """Name it, in words and on the page."""
        return f"{self.sample.case}, seed {self.sample.seed}"


@dataclass(frozen=True)
class CheckPage:
    """What the template shows."""

    findings: CheckResult
    sections: Sequence[check_tables.Section]

    @property
    def title(self) -> str:
        """Return the page's title."""
        return f"{self.findings.suite.name}: {self.findings.backend.stack}, {self.findings.backend.clock} clock"

    def tiles(self) -> list[tuple[str, str, str]]:
        """Return (figure, caption, state)."""
        judged = [one for one in self.findings.judged if one.target_s is not None]
        met = sum(one.result == "pass" for one in judged)
        samples = [one for case in self.findings.samples.values() for one in case]
        ended = sum(one.status == "ok" for one in samples)
        tiles = [
            (f"{met}/{len(judged)}", "targets met", "good" if met == len(judged) else "bad"),
            (f"{ended}/{len(samples)}", "transfers complete, the others cut off or failed", ""),
        ]
        if self.findings.compared is not None:
            slower = sum(one.is_slower for one in self.findings.compared)
            tiles.append((str(slower), "comparisons slower than the baseline", "bad" if slower else "good"))
        if self.findings.simulated_s is not None:
            times = self.findings.simulated_s / self.findings.real_s
            tiles.append((f"{times:.0f}\u00d7", "as fast as real time, over all", ""))
        return tiles


def write(findings: CheckResult) -> Path:
    """Write `check.html` into the check's folder, at once, and give its path."""
    runs = _runs(findings)
    bars = _bars(findings)
    plots = {run.key: (run, _plot(run)) for run in runs}
    drawn = [*bars, *(figure for _, figure in plots.values())]
    text = html.page(
        "check.html", drawn, page=CheckPage(findings, check_tables.sections(findings)), bars=bars,
        meaning=causes.MEANING,
        shown=[figure for run, figure in plots.values() if run.is_median],
        others=[figure for run, figure in plots.values() if not run.is_median], words=check_tables.TEXTS,
    )  # fmt: skip
    path = findings.folder / "check.html"
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
    ownership.give_to_caller(path)
    return path


def _runs(findings: CheckResult) -> list[PlottedTransfer]:
    """Read the traces that the samples left."""
    found = []
    for case, samples in findings.samples.items():
        traced = sorted((one for one in samples if one.spent_s), key=lambda one: sum((one.spent_s or {}).values()))
        for place, sample in enumerate(traced):
            trace = traces.read(findings.folder / "raw", case, sample.seed, findings.links[case].plan)
            if trace is not None:
                found.append(PlottedTransfer(sample, trace, place == (len(traced) - 1) // 2))
    return found


def _bars(findings: CheckResult) -> list[Figure]:
    """Draw what share of its time each case spent for each cause."""
    found = {case: spent for case in findings.samples if (spent := findings.spent_s(case)) is not None}
    if not found:
        return []
    data: list[Json] = []
    for cause in causes.CAUSES:
        shares = [100 * spent[cause] / sum(spent.values()) for spent in found.values()]
        if any(shares):
            bar = _bar(cause, [round(share, 2) for share in shares], list(found))
            data.append(bar | {"hovertemplate": "%{y}: %{x:.1f} %"})
    layout = {
        "xaxis": axis("Share of the transfer's time (%)", range=[0, 100]),
        "yaxis": {"autorange": "reversed", "automargin": True},
        "barmode": "stack",
        "margin": {"l": 130, "r": 12, "t": 24, "b": 90},
    }
    table = DataTable(
        ("case", *causes.CAUSES),
        tuple((case, *(f"{spent[cause]:.3f}" for cause in causes.CAUSES)) for case, spent in found.items()),
    )
    caption = "Means over the samples of a case. The table gives seconds."
    document = {"data": data, "layout": layout}
    return [Figure("spent", "Where the time went", caption, document, 130 + 32 * len(found), table)]


def _bar(cause: Cause, lengths: Sequence[float], places: Sequence[str]) -> Json:
    colour, shape = STYLE[cause]
    marker = {"color": colour, "line": {"width": 0}, "pattern": {**PATTERN, "shape": shape}}
    return {
        "type": "bar", "orientation": "h", "name": text(cause), "legendgroup": cause,
        "x": list(lengths), "y": [text(place) for place in places], "marker": marker,
    }  # fmt: skip


# --- one transfer ---------------------------------------------------------------------------------------------------

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
            ("payload's queue (ms)", 2, lambda state: state.payload_queue_ms),
            ("acknowledgements' queue (ms)", 3, lambda state: state.ack_queue_ms),
        ),
    ),
)
"""Axis, its unit, and curves (name, style, value) of the rows below the band."""


def _plot(run: PlottedTransfer) -> Figure:
    """Draw the causes as a band over time, with window, bytes in flight, queues and RTT below it."""
    trace, spans = run.trace, run.trace.spans()
    states = _thinned(trace.states)
    data = _band(spans)
    for y_axis, _, curves in ROWS:
        for name, style, value in curves:
            data.append(line([(state.t_s, value(state)) for state in states], name, style, yaxis=y_axis))
            data[-1]["line"] |= {"dash": "solid", "width": 2 if style else 1}
    layout = {
        "xaxis": axis("Time since the client's first packet (s)", range=[0, round(trace.end_s, 3)], anchor="y3"),
        "yaxis": {"domain": [0.88, 1], "showticklabels": False, "showgrid": False, "zeroline": False},
        "yaxis2": axis("MB", domain=[0.46, 0.84], rangemode="tozero"),
        "yaxis3": axis("ms", domain=[0, 0.4], rangemode="tozero"),
        "barmode": "overlay",
        "margin": {"l": 56, "r": 12, "t": 12, "b": 120},
    }
    spent = trace.spent_s()
    parts = ", ".join(f"{cause} {time:.2f}" for cause, time in spent.items() if time)
    caption = f"{trace.end_s:.2f} s ({run.sample.status}): {parts}. Queues as the time the link needs for what waits."
    table = DataTable(
        ("cause", "from (s)", "until (s)"),
        tuple((span.cause, f"{span.start_s:.3f}", f"{span.end_s:.3f}") for span in spans),
    )
    key = f"run-{run.sample.case}-{run.sample.seed}"
    return Figure(key, run.key, caption, {"data": data, "layout": layout}, 560, table)


def _band(spans: Sequence[Span]) -> list[Json]:
    """Return one row of bars, coloured by cause."""
    data: list[Json] = []
    for cause in causes.CAUSES:
        mine = [span for span in spans if span.cause == cause]
        if mine:
            bar = _bar(cause, [round(span.end_s - span.start_s, 3) for span in mine], [""] * len(mine))
            bar |= {"base": [round(span.start_s, 3) for span in mine], "width": 1}
            data.append(bar | {"hovertemplate": "from %{base:.2f} s until %{x:.2f} s"})
    return data


def _thinned(states: Sequence[SenderState]) -> Sequence[SenderState]:
    return states[:: max(1, len(states) // MAX_POINTS)]
