# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of a check, for a terminal, a pull request (Markdown) and the HTML page."""

import math
import re
from collections.abc import Sequence
from statistics import median

from satlab.check import check_file
from satlab.check.check_file import Verdict
from satlab.check.check_result import CheckResult
from satlab.check.samples import Sample
from satlab.check.trace import causes
from satlab.check.verdict import BaselineComparison, TargetVerdict
from satlab.common import console, escape
from satlab.report import text_tables
from satlab.report.page import Cell, Row, State, Table

SHORT_TEXT_COLUMNS = ("case", "verdict", "main cause", "grew most")
TEXT_COLUMNS = (*SHORT_TEXT_COLUMNS, "source", "symptom or warning", "seeds")
"""Left-aligned columns; the short ones are not wrapped."""
RESULT_WORDS = {"fail": "FAIL", "to be determined": "measured", "slower": "SLOWER"}
UNKNOWN = "unknown"
_LEFT_OUT = re.compile(r" \(left out: [^)]*\)")


def table(title: str, head: Sequence[str], rows: Sequence[Row]) -> Table:
    """Return a table of a check. Columns that are not in `TEXT_COLUMNS` hold numbers."""
    numbers = frozenset(head) - frozenset(TEXT_COLUMNS)
    return Table(tuple(head), rows, numbers=numbers, verdict="verdict", title=title)


def verdict_cell(text: str) -> Cell:
    """Return a verdict in words with its state."""
    is_bad = text.startswith("FAIL") or text == "SLOWER"
    state: State = "good" if text in ("pass", "no slower") else "bad" if is_bad else ""
    return Cell(text, state)


def show(check: CheckResult) -> None:
    """Print all tables, and the path of the page, on stdout."""
    out = console.for_tables()
    for each in tables(check):
        out.print(text_tables.terminal(each, unwrapped=(*SHORT_TEXT_COLUMNS, "95 % interval")))
    console.say(f"{check.folder}/check.html, {pace(check)}")


def markdown(check: CheckResult) -> str:
    title = escape.markdown(f"{check.suite.name}: {check.input.stack}, {check.input.clock} clock")
    return "\n".join([f"### {title}\n", *map(text_tables.markdown, tables(check))])


def tables(check: CheckResult) -> list[Table]:
    """Return the tables in order; those without rows are left out."""
    found = [
        _verdicts(check),
        table(
            "comparison with the baseline",
            _COMPARISONS_HEAD,
            [_comparison_row(one) for one in check.comparisons or ()],
        ),
        _growth(check),
        _other_checks(check),
        _times_by_cause(check),
        _other_figures(check),
        notices(check),
    ]
    return [each for each in found if each.rows]


def pace(check: CheckResult) -> str:
    """Return how long the check took and, for the virtual clock, how much faster than real time it
    was.
    """
    took = f"{check.real_s:.1f} s"
    if check.simulated_s is None:
        return took
    factor = check.simulated_s / check.real_s
    return f"{check.simulated_s:.0f} s simulated in {took}: {factor:.0f} times as fast as real time"


# --- verdicts -------------------------------------------------------------------------------------

_VERDICTS_HEAD = (
    "case",
    "down/up Mbit/s",
    "MB",
    "target s",
    "floor s",
    "reference s",
    "median s",
    "95 % interval",
    "samples",
    "verdict",
)


def _verdicts(check: CheckResult) -> Table:
    reference = f"; reference: {check.suite.reference}" if check.suite.reference else ""
    rows = [_verdict_row(one, check) for one in check.verdicts]
    head = [check.suite.targets if name == "target s" else name for name in _VERDICTS_HEAD]
    kept = [column for column in range(len(head)) if any(str(row[column]) for row in rows)]
    return table(
        f"{check.suite.name}: {check.suite.source}{reference}",
        tuple(head[column] for column in kept),
        [tuple(row[column] for column in kept) for row in rows],
    )


def _verdict_row(one: TargetVerdict, check: CheckResult) -> Row:
    link = check.links[one.case]
    references = check.suite.case(one.case).reference_s
    by_mark = dict(zip(check.suite.marks_mb, references, strict=False))
    reference_s = None if one.mark_mb is None else by_mark.get(one.mark_mb)
    incomplete = f", {one.censored} incomplete" if one.censored else ""
    off = f", {one.off} out of calibration" if one.off else ""
    died = f": {'; '.join(one.died)}" if one.died else ""
    return (
        one.case,
        f"{link.forward_mbps:.4g}/{link.return_mbps:.3g}",
        _megabytes(one),
        "" if one.target_s is None else f"{one.target_s:g}",
        floor(one, check),
        "" if reference_s is None else f"{reference_s:g}",
        seconds(one.median_s),
        f"{seconds(one.interval_s.low)} to {seconds(one.interval_s.high)}",
        f"{one.n}{incomplete}{off}",
        verdict_cell(f"{RESULT_WORDS.get(one.result, one.result)}{died}"),
    )


def floor(one: TargetVerdict, check: CheckResult) -> str:
    """Return the shortest possible time to a mark, s; empty if it is unknown."""
    floors_s = dict(zip(check.suite.marks_mb, check.samples[one.case][0].floors_s, strict=False))
    return "" if one.mark_mb not in floors_s else f"{floors_s[one.mark_mb]:.2f}"


def _megabytes(one: TargetVerdict) -> str:
    return "all" if one.mark_mb is None else f"{one.mark_mb:g}"


def seconds(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.3f}"


# --- comparisons ----------------------------------------------------------------------------------

_COMPARISONS_HEAD = ("case", "MB", "baseline s", "now s", "ratio", "p", "detectable", "verdict")


def _comparison_row(one: BaselineComparison) -> Row:
    detectable = "over 100 %" if one.detectable is None else f"{one.detectable:.0%}"
    return (
        one.case,
        f"{one.mark_mb:g}",
        seconds(one.baseline_s),
        seconds(one.median_s),
        f"{one.ratio:.3f}",
        "" if one.p is None else f"{one.p:.2g}",
        "" if one.p is None else detectable,
        verdict_cell(RESULT_WORDS.get(one.result, one.result)),
    )


def _growth(check: CheckResult) -> Table:
    """Growth of the traced cases, seconds per cause; causes without a change have no column."""
    grown = {one.case: one.grown_s for one in check.comparisons or () if one.grown_s is not None}
    slower = {one.case for one in check.comparisons or () if one.is_slower}
    columns = [
        cause
        for cause in causes.CAUSES
        if any(f"{each[cause]:.2f}" != "0.00" for each in grown.values())
    ]
    rows = [
        (
            case,
            *(f"{each[cause]:+.2f}" for cause in columns),
            f"{sum(each.values()):+.2f}",
            causes.largest(each) if case in slower else "",
        )
        for case, each in grown.items()
    ]
    title = "what grew since the baseline: mean seconds of a transfer by cause"
    return table(title, ("case", *columns, "total", "grew most"), rows)


def _other_checks(check: CheckResult) -> Table:
    """The times of this check and of `--compare-with`, stack by stack."""
    documents = [check.contents(), *check.others]
    measured = [check_file.verdicts(document) for document in documents]
    rows = [
        (
            one.case,
            _megabytes(one),
            "" if one.target_s is None else f"{one.target_s:g}",
            floor(one, check),
            *(_median_and_interval(verdicts.get((one.case, one.mark_mb))) for verdicts in measured),
        )
        for one in check.verdicts
    ]
    names = (f"{document['stack']}, {document['clock']} clock" for document in documents)
    targets = "satlab's own" if check.suite.own_targets else check.suite.source
    title = f"comparison with other checks, s; targets: {targets}"
    return table(
        title, ("case", "MB", check.suite.targets, "floor s", *names), rows if check.others else ()
    )


def _median_and_interval(verdict: Verdict | None) -> str:
    """Return the text for a verdict of a check.json."""
    if verdict is None:
        return "not run"
    if verdict["result"] == "unsupported":
        return "unsupported"
    middle, low, high = (
        seconds(math.inf if each is None else each)
        for each in (verdict["median_s"], verdict["low_s"], verdict["high_s"])
    )
    mark = ", not measurable" if verdict["result"] == "not measurable" else ""
    return f"{middle} ({low} to {high}), n {verdict['n']}{mark}"


# --- causes, other figures, notices ---------------------------------------------------------------


def _times_by_cause(check: CheckResult) -> Table:
    """Mean seconds per cause of the traced cases; causes without time have no column."""
    traced = {case: spent for case in check.samples if (spent := check.spent_s(case)) is not None}
    columns = [cause for cause in causes.CAUSES if any(spent[cause] for spent in traced.values())]
    rows = [
        (
            case,
            *(f"{spent[cause]:.2f}" for cause in columns),
            f"{sum(spent.values()):.2f}",
            causes.largest(spent),
            _source(check, case, "spent_s"),
        )
        for case, spent in traced.items()
    ]
    title = "where the time went: mean seconds of a transfer by cause"
    return table(title, ("case", *columns, "total", "main cause", "source"), rows)


_OTHER_FIGURES_HEAD = (
    "case",
    "handshake ms",
    "first byte ms",
    "source",
    "last byte s",
    "last packet s",
    "retrans. %",
    "lost packets",
    "source",
    "client CPU s",
    "server CPU s",
)


def _other_figures(check: CheckResult) -> Table:
    rows = [
        (
            case,
            _median(samples, "handshake_ms", "{:.0f}"),
            _median(samples, "time_to_first_byte_ms", "{:.0f}"),
            _source(check, case, "time_to_first_byte_ms"),
            _last_byte(samples),
            _median(samples, "last_packet_s", "{:.2f}"),
            _median(samples, "retransmitted_share", "{:.2f}", 100),
            _median(samples, "lost_packets", "{:.0f}"),
            _source(check, case, "lost_packets", "retransmitted_share"),
            _median(samples, "client_cpu_s", "{:.2f}"),
            _median(samples, "server_cpu_s", "{:.2f}"),
        )
        for case, samples in check.samples.items()
    ]
    title = (
        f"other figures: medians of the samples; {UNKNOWN}: not measured; source stack: reported by"
        " the programs"
    )
    return table(title, _OTHER_FIGURES_HEAD, rows)


def _median(samples: Sequence[Sample], name: str, shape: str, factor: float = 1) -> str:
    known = [value for one in samples if (value := getattr(one, name)) is not None]
    return shape.format(median(known) * factor) if known else UNKNOWN


def _last_byte(samples: Sequence[Sample]) -> str:
    known = [time for one in samples if (time := one.times_s[-1]) is not None]
    return f"{median(known):.2f}" if known else UNKNOWN


def _source(check: CheckResult, case: str, *names: str) -> str:
    """Return the sources of the fields `names`; empty if they are unknown."""
    samples = check.samples[case]
    known = [(one, name) for one in samples for name in names if getattr(one, name) is not None]
    found = {
        one.sources.get(name, "stack").replace(_left_out(one, name), "") for one, name in known
    }
    return ", ".join(sorted(found))


def _left_out(sample: Sample, name: str) -> str:
    """Return what was left out of the source of a field, in brackets; empty if nothing was."""
    found = _LEFT_OUT.search(sample.sources.get(name, ""))
    return found[0] if found else ""


def notices(check: CheckResult) -> Table:
    """Symptoms of slow transfers, calibration checks out of tolerance, and files that were not
    used, or not as a whole; each with the seeds of its samples.
    """
    seeds: dict[tuple[str, str], list[str]] = {}
    for case, samples in check.samples.items():
        for one in samples:
            texts = list(one.symptoms)
            if one.calibration:
                texts.append(f"out of calibration: {one.calibration}")
            texts += [
                f"host losses, {direction}: {counts['by_host']} of {counts['sent'] or 0} packets"
                for direction, counts in (one.ledgers or {}).items()
                if counts["by_host"]
            ]
            texts += [warning.text for warning in one.warnings]
            texts += sorted(
                {
                    f"{source.partition(part)[0].rpartition(': ')[2]}{part}"
                    for name, source in one.sources.items()
                    if (part := _left_out(one, name))
                }
            )
            for text in texts:
                seeds.setdefault((case, text), []).append(str(one.seed))
    rows = [(case, text, ", ".join(found)) for (case, text), found in seeds.items()]
    return table("symptoms and warnings", ("case", "symptom or warning", "seeds"), rows)
