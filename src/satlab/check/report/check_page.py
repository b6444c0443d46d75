# SPDX-License-Identifier: GPL-3.0-or-later
"""A check as one HTML file: its tables, the time by cause, and plots of each traced transfer."""

import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from satlab.check import provenance, verdict
from satlab.check.check_result import CheckResult
from satlab.check.provenance import ProgramFile
from satlab.check.report import check_tables
from satlab.check.samples import Sample
from satlab.check.suite import Case, Change
from satlab.check.trace import careful_resume, causes, qlog, trace_reader
from satlab.check.trace.causes import Cause, SenderState, Span, TransferTrace
from satlab.check.trace.time_sequence import Flow, Point
from satlab.common.files import write_atomically
from satlab.common.sudo_caller import chown_to_caller
from satlab.report import html, plot_svg
from satlab.report.page import (
    Axis,
    Facts,
    Link,
    Links,
    Mark,
    Page,
    Plot,
    Section,
    Series,
    Spans,
    State,
    Table,
    Text,
    Tile,
    Tiles,
)

MAX_POINTS = 600
"""Largest number of points of a curve. A plot has no more pixels, and a page has many plots."""
GREW_FILE = "grew.svg"
"""File in the check's folder: what grew in its worst case, for a pull request."""
LABEL_ROOM = 0.026
"""Width of a character of a mark's label on a phone, as a share of the plot."""
LEAST_SPREAD = 0.02
"""Half of the shortest time axis of samples, as a share of their time."""
MOST_FILES = 8
"""Number of files of a side that the page names for each case."""
QVIS = "https://qvis.quictools.info/"


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
    "late acks": CauseStyle("--c6", "x"),
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
    """Write `check.html` into the check's folder, atomically, and GREW_FILE if a case became
    slower.
    """
    path = html.write(page(check), check.folder / "check.html")
    chown_to_caller(path)
    for plot in _grown(check)[:1]:
        picture = check.folder / GREW_FILE
        write_atomically(picture, plot_svg.document(plot))
        chown_to_caller(picture)
    return path


def page(check: CheckResult) -> Page:
    """Return the page of a check."""
    sections = []
    tables = check_tables.tables(check)
    for table in sorted(tables, key=lambda each: each.title != check_tables.COMPARISON):
        plots = _grown(check) if table.title == check_tables.GREW else []
        sections.append(Section(Section.of(table).title, [table, *plots]))
    if strips := _sample_times(check):
        sections.append(Section("Samples", strips))
    spent = _time_by_cause(check)
    if spent is not None:
        words = "Each moment of a transfer is assigned to the one cause that limited it."
        drawn = {bar.name for bar in spent.series}
        meanings = tuple(one for one in causes.MEANING.items() if one[0] in drawn)
        sections += [
            Section("Causes", [Text(words), spent, Facts(meanings)]),
            Section("Transfers", _transfers(check)),
        ]
    sections.append(Section("What was run", _origin(check)))
    build = provenance.digest(check.provenance["programs"])
    stack = check.input.stack + (f" (build {build})" if build else "")
    title = f"{check.suite.name}: {stack}, {check.input.clock} clock"
    lead: list[Tiles | Text] = [Tiles(tiles(check)), Text(check_tables.summary(check))]
    return Page("satlab check", title, lead, sections)


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
    middle, half = (min(every) + max(every)) / 2, (max(every) - min(every)) / 2
    half = max(1.05 * half, LEAST_SPREAD * middle)
    curves, rows = [], []
    for style, (name, values) in enumerate(times.items()):
        reached = [value for value in values if math.isfinite(value)]
        shares = [number / len(values) for number in range(len(reached) + 1)]
        # Over the whole axis, so that the curves can be compared.
        x, y = [middle - half, *reached, middle + half], [*shares, shares[-1]]
        curves.append(Series(name, x, y, shape="steps", style=style))
        rows += [(name, check_tables.seconds(value)) for value in values]
    mark = check.suite.marks_mb[-1]
    return Plot(
        key=f"samples-{case}",
        title=f"{case}: time to {mark:g} MB",
        caption="Share of the samples in calibration that reached the mark within the time.",
        x=Axis("Time since the client's first packet (s)", range=(middle - half, middle + half)),
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
        off = check_tables.not_measurable(check)
        missed = met + off < judged
        state: State = "bad" if missed else "" if off else "good"
        what += f", {off} not measurable" if off else ""
        found.append(Tile(f"{met}/{judged}", what, state=state))
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
        factor = check_tables.pace_factor(check.simulated_s, check.real_s)
        found.append(Tile(f"{factor}\u00d7", "as fast as real time"))
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
    drawn = [bar.name for bar in bars]
    rows = [(case, *(f"{spent[cause]:.3f}" for cause in drawn)) for case, spent in traced.items()]
    return Plot(
        key="spent",
        title="Where the time went",
        caption="Means of the samples of a case. The table is in seconds.",
        x=Axis("Share of the transfer's time (%)", range=(0, 100)),
        y=(Axis("", is_reversed=True),),
        series=bars,
        height=130 + 32 * len(traced),
        table=Table(("case", *drawn), rows, numbers=drawn),
        bars="stack",
        room=90,
    )


def _grown(check: CheckResult) -> list[Plot]:
    """Plot the seconds of each cause before and now, for the worst cases that became slower."""
    plots = []
    for one in check_tables.worst(check.comparisons or ())[: check_tables.MOST_NAMED]:
        if (spent := check_tables.before_and_now(check, one.case)) is None:
            continue
        bars, rows = [], []
        for cause in causes.CAUSES:
            seconds = [found[cause] for found in spent.values()]
            if any(seconds):
                style = STYLE[cause]
                bars.append(
                    Spans(
                        cause,
                        list(spent),
                        (),
                        seconds,
                        style.colour,
                        style.pattern,
                        hover="%{y}: %{x:.2f} s",
                    )
                )
                growth = seconds[-1] - seconds[0]
                rows.append((cause, *(f"{each:.3f}" for each in seconds), f"{growth:+.3f}"))
        head = ("cause", *spent, "growth")
        plots.append(
            Plot(
                key=f"grew-{one.case}",
                title=f"{one.case}: {check_tables.growth(one) or 'no cause grew'}",
                caption="Mean seconds of a transfer by cause, before and now.",
                x=Axis("Time (s)", from_zero=True),
                y=(Axis("", is_reversed=True),),
                series=bars,
                height=190,
                table=Table(head, rows, numbers=head[1:]),
                bars="stack",
                room=70,
            )
        )
    return plots


# --- transfers ------------------------------------------------------------------------------------


def _transfers(check: CheckResult) -> list[Text | Plot | Links]:
    """Plot every sample that has a trace, those of median duration first and the others folded."""
    shown: list[Plot | Links] = []
    folded: list[Plot] = []
    for name, samples in check.samples.items():
        case = check.suite.case(name)
        traced = [(sum(one.spent_s.values()), one) for one in samples if one.spent_s]
        traced.sort(key=itemgetter(0))
        for rank, (_, sample) in enumerate(traced):
            trace = trace_reader.read(check.folder / "raw", case, sample, check.links[name].plan)
            if trace is None:
                continue
            marks = changes(case, trace)
            plots = [_plot(sample, trace, marks)]
            if trace.flows:
                plots.append(_time_sequence(sample, trace, marks))
            if rank == (len(traced) - 1) // 2:
                shown += [*plots, *_links(check, sample)]
            else:
                folded += [replace(plot, folded=True) for plot in plots]
    note = "The transfer of median duration of each case; the others are folded below."
    return [Text(note, "note"), *shown, *folded]


def changes(case: Case, trace: TransferTrace) -> list[Mark]:
    """Mark the changes of the link. A label that would cover the one before it is left out."""
    marks: list[Mark] = []
    free_s = 0.0
    for change in sorted(case.changes, key=lambda one: one.at_s):
        at_s = change.at_s + (math.inf if trace.began_s is None else trace.began_s)
        if not 0 <= at_s < trace.end_s:
            continue
        label = _in_words(change) if at_s >= free_s else ""
        if label:
            free_s = at_s + LABEL_ROOM * trace.end_s * len(label)
        until_s = None if change.outage_s is None else min(at_s + change.outage_s, trace.end_s)
        marks.append(Mark("x", at_s, until_s, label))
    return marks


def _in_words(change: Change) -> str:
    words = {
        "outage {:g} s": change.outage_s,
        "{:g} Mbit/s": change.forward_mbps,
        "RTT {:g} ms": change.rtt_ms,
    }
    return ", ".join(text.format(value) for text, value in words.items() if value is not None)


def _links(check: CheckResult, sample: Sample) -> list[Links]:
    """Link the files of a sample that other programs read."""
    name = f"{sample.case}-{sample.seed}"
    folder = check.folder / "raw" / name
    found = [
        Link(f"qlog of the {side}: {file}", _relative(f"raw/{name}/{side}/{file}"))
        for side in ("server", "client")
        for file in qlog.names(folder / side)[:MOST_FILES]
    ]
    if found:
        note = "opens the site alone: choose the file there. This page sends nothing."
        found.append(Link("qvis, a viewer of qlog files", QVIS, note, is_file=False))
    found += [
        Link(
            f"packets at the {file.stem.partition('-')[0]}: {file.name}",
            _relative(f"raw/{name}/{file.name}"),
        )
        for file in sorted(folder.glob("*.pcap"))[:MOST_FILES]
    ]
    return [Links(found, f"Files of {sample.case}, seed {sample.seed}")] if found else []


def _relative(path: str) -> str:
    """Return a path as a relative URL; its names are those that programs chose."""
    return quote(os.fsencode(path))


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
SINCE = "Time since the client's first packet (s)"


def _plot(sample: Sample, trace: TransferTrace, marks: Sequence[Mark]) -> Plot:
    """Plot the causes as a band over time; below it window, bytes in flight, queues and RTT."""
    spans = trace.spans()
    states = _thinned(trace.states)
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
        f" to send.{_of_marks(marks)} {careful_resume.line(sample.careful_resume)}"
    )
    rows = [(span.cause, f"{span.start_s:.3f}", f"{span.end_s:.3f}") for span in spans]
    return Plot(
        key=f"run-{sample.case}-{sample.seed}",
        title=f"{sample.case}, seed {sample.seed}",
        caption=caption.strip(),
        x=Axis(SINCE, range=(0, trace.end_s)),
        y=(
            Axis("", is_bare=True, share=0.16),
            Axis("MB", from_zero=True, share=0.42),
            Axis("ms", from_zero=True, share=0.42),
        ),
        series=[*_band(spans), *curves],
        height=560,
        table=Table(("cause", "from (s)", "until (s)"), rows, numbers=("from (s)", "until (s)")),
        marks=marks,
        bars="overlay",
        room=120,
    )


def _of_marks(marks: Sequence[Mark]) -> str:
    return " Dotted lines and shaded areas: changes of the link." if marks else ""


def _time_sequence(sample: Sample, trace: TransferTrace, marks: Sequence[Mark]) -> Plot:
    """Plot what was sent, acknowledged, sent again and lost, by stream; below it what the link
    lost.
    """
    is_one = len(trace.flows) == 1
    series: list[Series] = []
    for style, flow in enumerate(trace.flows):
        series += _of_flow(flow, style, is_one=is_one)
    caption = f"Bytes of {trace.flows[0].name if is_one else 'each stream'} over time."
    if not is_one:
        caption += (
            " Solid: sent, dashed: acknowledged. Triangles: sent again. Crosses: declared lost."
        )
    rows = [
        Axis("MB", from_zero=True, share=0.75 if trace.link_losses else 1),
    ]
    if trace.link_losses:
        rows.append(Axis("packets", from_zero=True, share=0.25))
        caption += " Below: packets that the link of the payload lost, in each interval."
        dropped = [(one.t_s, one.dropped) for one in trace.link_losses if one.dropped]
        lost = [(one.t_s, one.lost) for one in trace.link_losses if one.lost]
        series.append(_marks("dropped by the queue", dropped, 1, row=1, size=6))
        series.append(_marks("lost on the link", lost, 3, row=1, size=6))
    table = [
        (flow.name, f"{t_s:.3f}", kind, f"{offset:.0f}")
        for flow in trace.flows
        for kind, points in (("sent again", flow.retransmitted), ("declared lost", flow.lost))
        for t_s, offset in points[:MAX_POINTS]
    ]
    return Plot(
        key=f"sequence-{sample.case}-{sample.seed}",
        title=f"{sample.case}, seed {sample.seed}: time-sequence",
        caption=caption + _of_marks(marks),
        x=Axis(SINCE, range=(0, trace.end_s)),
        y=tuple(rows),
        series=[one for one in series if len(one.x)],
        height=470 if trace.link_losses else 380,
        table=Table(("of", "s", "what", "at byte"), table, numbers=("s", "at byte")),
        marks=marks,
        room=90,
    )


def _of_flow(flow: Flow, style: int, *, is_one: bool) -> list[Series]:
    """Return the lines and marks of a flow. Each of several flows has its own colour."""
    group = "" if is_one else flow.name
    kinds = {
        "sent": (flow.sent, "solid", "--c1"),
        "acknowledged": (flow.acknowledged, "dash", "--c3"),
        "payload at the receiver": (flow.arrived, "dot", "--c4"),
    }
    found = []
    for kind, (points, dash, colour) in kinds.items():
        thin = _thinned(points)
        found.append(
            Series(
                kind if is_one else flow.name,
                [t_s for t_s, _ in thin],
                [at / 1e6 for _, at in thin],
                style=style,
                colour=colour if is_one else "",
                dash=dash,
                group=group,
                in_legend=is_one or kind == "sent",
            )
        )
    for kind, points, symbol, colour in (
        ("sent again", flow.retransmitted, "triangle-up", "--c2"),
        ("declared lost", flow.lost, "x", "--bad"),
    ):
        marks = _marks(kind, [(t_s, at / 1e6) for t_s, at in points], style, row=0, size=7)
        found.append(replace(marks, symbol=symbol, colour=colour, group=group, in_legend=is_one))
    return found


def _marks(name: str, points: Sequence[Point], style: int, *, row: int, size: float) -> Series:
    thin = _thinned(points)
    x, y = [t_s for t_s, _ in thin], [value for _, value in thin]
    return Series(name, x, y, shape="marks", style=style, row=row, size=size)


Each = TypeVar("Each")


def _thinned(points: Sequence[Each]) -> Sequence[Each]:
    """Return at most about MAX_POINTS of the points, the last one among them."""
    every = max(1, len(points) // MAX_POINTS)
    return points if every == 1 else [*points[::every], points[-1]]


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
