# SPDX-License-Identifier: GPL-3.0-or-later
"""A check as one HTML file: its tables, the time by cause, and a plot of each traced transfer."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path

from satlab.check import provenance, verdict
from satlab.check.check_result import CheckResult
from satlab.check.provenance import ProgramFile
from satlab.check.report import check_tables
from satlab.check.samples import Sample
from satlab.check.trace import careful_resume, causes, trace_reader
from satlab.check.trace.causes import Cause, SenderState, Span, TransferTrace
from satlab.common.sudo_caller import chown_to_caller
from satlab.report import html
from satlab.report.page import (
    Axis,
    Facts,
    Page,
    Plot,
    Section,
    Series,
    Spans,
    Table,
    Text,
    Tile,
    Tiles,
)

MAX_POINTS = 600
"""Largest number of points of a curve. A plot has no more pixels, and a page has many plots."""


@dataclass(frozen=True)
class CauseStyle:
    """The look of a cause's bars: a colour, and a pattern if another cause has the same colour."""

    colour: str
    pattern: str = ""


STYLE: dict[Cause, CauseStyle] = {
    "handshake": CauseStyle("--c4"),
    "slow start": CauseStyle("--c2"),
    "link": CauseStyle("--c3"),
    "application": CauseStyle("--c5"),
    "flow control": CauseStyle("--c6"),
    "ack link": CauseStyle("--c1"),
    "constant window": CauseStyle("--c2", "x"),
    "congestion avoidance": CauseStyle("--c2", "/"),
    "loss recovery": CauseStyle("--bad", "/"),
    "spurious loss": CauseStyle("--bad", "x"),
    "pacing": CauseStyle("--c6", "/"),
    "idle": CauseStyle("--c5", "/"),
    "host": CauseStyle("--c5", "x"),
    "delivery": CauseStyle("--c1", "."),
    "unknown": CauseStyle("--c4", "x"),
}


def write(check: CheckResult) -> Path:
    """Write `check.html` into the check's folder, atomically."""
    path = html.write(page(check), check.folder / "check.html")
    chown_to_caller(path)
    return path


def page(check: CheckResult) -> Page:
    """Return the page of a check."""
    sections = [Section.of(table) for table in check_tables.tables(check)]
    if strips := _sample_times(check):
        sections.append(Section("Samples", strips))
    spent = _time_by_cause(check)
    if spent is not None:
        words = "Each moment of a transfer is assigned to the one cause that limited it."
        sections += [
            Section("Causes", [Text(words), Facts(tuple(causes.MEANING.items())), spent]),
            Section("Transfers", _transfers(check)),
        ]
    sections.append(Section("What was run", _origin(check)))
    build = provenance.digest(check.provenance["programs"])
    stack = check.input.stack + (f" (build {build})" if build else "")
    title = f"{check.suite.name}: {stack}, {check.input.clock} clock"
    return Page("satlab check", title, [Tiles(tiles(check))], sections)


def _origin(check: CheckResult) -> list[Facts | Text]:
    """Say what a reviewer needs to repeat the check: programs, options, seeds, host, baseline."""
    origin, samples = check.provenance, [one for each in check.samples.values() for one in each]
    seeds = sorted({one.seed for one in samples})
    host = ", ".join(f"{name} {value}" for name, value in origin["host"].items() if value)
    facts = [
        ("begin", _date(check.began_unix_s)),
        ("stack", check.input.stack),
        *_files(origin["programs"]),
        *(
            (f"options of the {side}", " ".join(f"{name}={value}" for name, value in each.items()))
            for side, each in (("client", check.input.client), ("server", check.input.server))
            if each
        ),
        *(
            (
                f"variables of the {side}",
                " ".join(f"{name}={value}" for name, value in each.items()),
            )
            for side, each in check.input.environment.items()
            if each
        ),
        ("suite", f"{check.suite.name}: {check.suite.source}"),
        ("seeds", f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])),
        ("host", host),
        ("versions", ", ".join(f"{name} {value}" for name, value in origin["versions"].items())),
    ]
    if (baseline := check.baseline_file) is not None:
        began_s = baseline.get("began_unix_s")
        began = "" if began_s is None else f", begun {_date(began_s)}"
        origin_of = f"{baseline['stack']}, satlab {baseline['version']}{began}"
        facts += [
            ("baseline", f"{_hashed(baseline['path'], baseline['sha256'])}: {origin_of}"),
            *((f"baseline, {name}", text) for name, text in _files(baseline["programs"])),
        ]
    found: list[Facts | Text] = [Facts(tuple(facts))]
    one = samples[0]
    if origin["command"]:
        found.append(Text("The command of this check:", "note"))
        found.append(Text(shlex.join(["satlab", *origin["command"]]), "code"))
    if words := provenance.sample_command(origin["command"], one.case, one.seed):
        found.append(Text("A single sample again, by its case and seed:", "note"))
        found.append(Text(shlex.join(["satlab", *words]), "code"))
    return found


def _date(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _files(files: Sequence[ProgramFile]) -> list[tuple[str, str]]:
    return [(one["side"], _hashed(one["path"], one["sha256"])) for one in files]


def _hashed(path: str, sha256: str | None) -> str:
    return f"{path}, SHA-256 {(sha256 or 'unknown')[:12]}"


def _sample_times(check: CheckResult) -> list[Text | Plot]:
    """Plot the distribution of the times to the last mark of each case, beside the baseline's."""
    if not check.suite.marks_mb:
        return []
    plots: list[Text | Plot] = []
    for case, samples in check.samples.items():
        sides = {"this check": samples}
        if check.baseline is not None and case in check.baseline:
            sides["baseline"] = list(check.baseline[case])
        counted = {name: verdict.counted_of(each) for name, each in sides.items()}
        times = {name: verdict.sorted_times(each, -1) for name, each in counted.items()}
        if any(map(math.isfinite, times["this check"])):
            plots.append(_distribution(check, case, times))
    if plots:
        words = (
            "Each step is a sample. A curve that does not reach 1 has samples that never reached"
            " the mark."
        )
        plots.insert(0, Text(words, "note"))
    return plots


def _distribution(check: CheckResult, case: str, times: Mapping[str, list[float]]) -> Plot:
    every = [value for values in times.values() for value in values if math.isfinite(value)]
    curves, rows = [], []
    for style, (name, values) in enumerate(times.items()):
        reached = [value for value in values if math.isfinite(value)]
        shares = [number / len(values) for number in range(len(reached) + 1)]
        # From the first sample of both to the last one, so that the curves can be compared.
        x, y = [min(every), *reached, max(every)], [*shares, shares[-1]]
        curves.append(Series(name, x, y, shape="steps", style=style))
        rows += [(name, check_tables.seconds(value)) for value in values]
    mark = check.suite.marks_mb[-1]
    return Plot(
        key=f"samples-{case}",
        title=f"{case}: time to {mark:g} MB",
        caption="Share of the samples in calibration that reached the mark within the time.",
        x=Axis("Time since the client's first packet (s)"),
        y=(Axis("Share of samples", range=(0, 1.05)),),
        series=curves,
        height=260,
        table=Table(("of", "s"), rows, numbers=("s",)),
        room=40,
    )


def tiles(check: CheckResult) -> list[Tile]:
    """Return tiles: targets met, transfers complete, cases slower than the baseline, and the
    pace.
    """
    met, judged, what = verdict.met(
        (one.mark_mb, one.target_s, one.result) for one in check.verdicts
    )
    samples = [one for case in check.samples.values() for one in case]
    complete = sum(one.status == "ok" for one in samples)
    found = []
    if judged:
        found.append(Tile(f"{met}/{judged}", what, state="good" if met == judged else "bad"))
    found.append(Tile(f"{complete}/{len(samples)}", "transfers complete"))
    if check.comparisons is not None:
        failed = sum(one.result == "failed" for one in check.comparisons)
        slower = sum(one.result == "slower" for one in check.comparisons)
        if failed:
            caption = f"of {len(check.comparisons)} comparisons with transfers that do not complete"
            found.append(Tile(str(failed), caption, state="bad"))
        open_ = sum(one.result in ("undecided", "not measurable") for one in check.comparisons)
        caption = f"of {len(check.comparisons)} comparisons slower than the baseline"
        if open_:
            caption += f", {open_} undecided or not measurable"
        found.append(Tile(str(slower), caption, state="bad" if slower else "" if open_ else "good"))
    if check.simulated_s is not None:
        factor = check.simulated_s / check.real_s
        found.append(Tile(f"{factor:.0f}\u00d7", "as fast as real time"))
    return found


def _time_by_cause(check: CheckResult) -> Plot | None:
    """Plot the share of each cause in the time of each case; None without a trace."""
    traced = {case: spent for case in check.samples if (spent := check.spent_s(case)) is not None}
    if not traced:
        return None
    cases = list(traced)
    bars = []
    for cause in causes.CAUSES:
        shares = [100 * spent[cause] / sum(spent.values()) for spent in traced.values()]
        if any(shares):
            style = STYLE[cause]
            bars.append(
                Spans(
                    cause, cases, (), shares, style.colour, style.pattern, hover="%{y}: %{x:.1f} %"
                )
            )
    head = ("case", *causes.CAUSES)
    rows = [
        (case, *(f"{spent[cause]:.3f}" for cause in causes.CAUSES))
        for case, spent in traced.items()
    ]
    return Plot(
        key="spent",
        title="Where the time went",
        caption="Means of the samples of a case. The table is in seconds.",
        x=Axis("Share of the transfer's time (%)", range=(0, 100)),
        y=(Axis("", is_reversed=True),),
        series=bars,
        height=130 + 32 * len(traced),
        table=Table(head, rows, numbers=causes.CAUSES),
        bars="stack",
        room=90,
    )


# --- transfers ------------------------------------------------------------------------------------


def _transfers(check: CheckResult) -> list[Text | Plot]:
    """Plot every sample that has a trace, those of median duration first and the others folded."""
    shown, folded = [], []
    for case, samples in check.samples.items():
        traced = [(sum(one.spent_s.values()), one) for one in samples if one.spent_s]
        traced.sort(key=itemgetter(0))
        for rank, (_, sample) in enumerate(traced):
            trace = trace_reader.read(
                check.folder / "raw", check.suite.case(case), sample, check.links[case].plan
            )
            if trace is None:
                continue
            if rank == (len(traced) - 1) // 2:
                shown.append(_plot(sample, trace, is_folded=False))
            else:
                folded.append(_plot(sample, trace, is_folded=True))
    note = "The transfer of median duration of each case; the others are folded below."
    return [Text(note, "note"), *shown, *folded]


@dataclass(frozen=True)
class Curve:
    """A value of the sender over time, in a row of the plot."""

    name: str
    row: int
    style: int
    value: Callable[[SenderState], float]


CURVES = (
    Curve("congestion window (MB)", 1, 1, lambda state: state.cwnd_bytes / 1e6),
    Curve("in flight (MB)", 1, 0, lambda state: state.in_flight_bytes / 1e6),
    Curve("RTT at the sender (ms)", 2, 4, lambda state: state.rtt_ms),
    Curve("queue of the payload (ms)", 2, 2, lambda state: state.payload_queue_ms),
    Curve("queue of acknowledgements (ms)", 2, 3, lambda state: state.ack_queue_ms),
)


def _plot(sample: Sample, trace: TransferTrace, *, is_folded: bool) -> Plot:
    """Plot the causes as a band over time, with window, bytes in flight, queues and RTT below it."""
    spans = trace.spans()
    states = trace.states[:: max(1, len(trace.states) // MAX_POINTS)]
    times = [state.t_s for state in states]
    curves = [
        Series(
            curve.name,
            times,
            [curve.value(state) for state in states],
            style=curve.style,
            row=curve.row,
            dash="solid",
            width=2 if curve.style else 1,
        )
        for curve in CURVES
    ]
    parts = ", ".join(f"{cause} {time:.2f}" for cause, time in trace.spent_s().items() if time)
    caption = (
        f"{trace.end_s:.2f} s ({sample.status}): {parts}. Queues as the time that their link takes"
        f" to send. {careful_resume.line(sample.careful_resume)}"
    )
    rows = [(span.cause, f"{span.start_s:.3f}", f"{span.end_s:.3f}") for span in spans]
    return Plot(
        key=f"run-{sample.case}-{sample.seed}",
        title=f"{sample.case}, seed {sample.seed}",
        caption=caption.strip(),
        x=Axis("Time since the client's first packet (s)", range=(0, trace.end_s)),
        y=(
            Axis("", is_bare=True, share=0.16),
            Axis("MB", from_zero=True, share=0.42),
            Axis("ms", from_zero=True, share=0.42),
        ),
        series=[*_band(spans), *curves],
        height=560,
        table=Table(("cause", "from (s)", "until (s)"), rows, numbers=("from (s)", "until (s)")),
        bars="overlay",
        room=120,
        folded=is_folded,
    )


def _band(spans: Sequence[Span]) -> list[Spans]:
    """Return one row of bars, coloured by cause."""
    bars = []
    for cause in causes.CAUSES:
        own = [span for span in spans if span.cause == cause]
        if own:
            bars.append(
                Spans(
                    cause,
                    [""] * len(own),
                    [span.start_s for span in own],
                    [span.end_s - span.start_s for span in own],
                    STYLE[cause].colour,
                    STYLE[cause].pattern,
                    hover="from %{base:.2f} s until %{x:.2f} s",
                )
            )
    return bars
