# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of a check, for a terminal, a pull request (Markdown) and the HTML page."""

import math
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from statistics import median

from satlab.check import check_file, verdict
from satlab.check.check_file import Verdict
from satlab.check.check_result import CheckResult
from satlab.check.samples import Sample
from satlab.check.trace import causes
from satlab.check.verdict import BaselineComparison, TargetVerdict
from satlab.common import console, escape
from satlab.common.statistics import MIN_RUNS
from satlab.report import text_tables
from satlab.report.page import Cell, Row, Table

SHORT_TEXT_COLUMNS = ("case", "verdict", "main cause", "grew most")
TEXT_COLUMNS = (*SHORT_TEXT_COLUMNS, "source", "symptom or warning", "seeds", "reason")
"""Left-aligned columns; the short ones are not wrapped."""
RESULT_WORDS = {
    "fail": "FAIL",
    "to be determined": "measured",
    "slower": "SLOWER",
    "failed": "FAILED",
}
UNKNOWN = "unknown"
_FAILURES = "transfers that did not complete"
COMPARISON = "comparison with the baseline"
GREW = "what grew since the baseline"
_BY_CAUSE = "Mean seconds of a transfer, by cause."
_LEFT_OUT = re.compile(r" \(left out: [^)]*\)")


def table(title: str, head: Sequence[str], rows: Sequence[Row], caption: str = "") -> Table:
    """Return a table of a check. Columns that are not in `TEXT_COLUMNS` hold numbers. A row of more
    than three columns is a card on a narrow page.
    """
    numbers = frozenset(head) - frozenset(TEXT_COLUMNS)
    return Table(
        tuple(head),
        rows,
        numbers=numbers,
        verdict="verdict",
        title=title,
        caption=caption,
        cards=len(head) > 3,
        keys=1,
    )


def verdict_cell(text: str) -> Cell:
    """Return a verdict in words with its state."""
    is_bad = text.startswith("FAIL") or text == "SLOWER"
    is_good = text in ("pass", "no slower", WITHIN_TOLERANCE)
    return Cell(text, "good" if is_good else "bad" if is_bad else "")


def show(check: CheckResult) -> None:
    """Print all tables, the summary and the path of the page on stdout.

    Reasons have lines of their own: in a column, a long one would squeeze all others.
    """
    out = console.for_tables()
    for each in tables(check):
        if each.title == _FAILURES:
            lines = (f"  {case}, seeds {seeds}: {reason}" for case, seeds, reason in each.rows)
            console.say("\n".join([f"{each.title}:", *lines, ""]))
            continue
        out.print(text_tables.terminal(each, unwrapped=(*SHORT_TEXT_COLUMNS, "95 % interval")))
        if each.caption:
            out.print(escape.terminal(each.caption))
            out.print()
    console.say(summary(check))
    console.say(f"{check.folder}/check.html, {pace(check)}")


def markdown(check: CheckResult) -> str:
    """Return all tables as Markdown. The first line is the summary, a heading; below it is the
    picture of what grew.
    """
    title = escape.markdown(summary(check))
    parts = [f"### {title}\n", *picture(check)]
    for each in tables(check):
        parts.append(text_tables.markdown(each))
        if each.caption:
            parts.append(f"{escape.markdown(each.caption)}\n")
    return "\n".join(parts)


MOST_LETTERS = 120
"""Length of a reason in the summary."""
MOST_NAMED = 3
"""Largest number of cases that the summary names; the others are counted."""


def summary(check: CheckResult) -> str:
    """Return one line: what failed or became slower, by how much and by which cause; or that
    nothing did.
    """
    head = f"{check.suite.name}, {check.input.stack}"
    bad = [_headline(one) for one in worst(check.comparisons or ())]
    compared = {(one.case, one.mark_mb) for one in check.comparisons or ()}
    missed = [
        one
        for one in check.verdicts
        if one.result == "fail" and (one.case, one.mark_mb) not in compared
    ]
    bad += dict.fromkeys(map(_missed, missed))
    if bad:
        more = f"; {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
        return f"{head}: {'; '.join(bad[:MOST_NAMED])}{more}"
    if check.comparisons:
        counts = Counter(one.result for one in check.comparisons)
        found = ", ".join(f"{count} {result}" for result, count in counts.items())
        return f"{head}: {found}, of {len(check.comparisons)} comparisons with the baseline"
    met, judged, what = verdict.met(
        (one.mark_mb, one.target_s, one.result) for one in check.verdicts
    )
    if not judged:
        return f"{head}: measured, without targets"
    off = not_measurable(check)
    return f"{head}: {met} of {judged} {what}" + (f", {off} not measurable" if off else "")


def not_measurable(check: CheckResult) -> int:
    """Return how many targets or test cases lack samples in calibration."""
    return sum(
        one.result == "not measurable" and (one.target_s is not None or one.mark_mb is None)
        for one in check.verdicts
    )


def worst(comparisons: Sequence[BaselineComparison]) -> list[BaselineComparison]:
    """Return the worst mark of each case that is slower or failed; failures first, then by ratio."""
    bad = sorted(
        (one for one in comparisons if one.is_slower),
        key=lambda one: (one.result == "failed", one.ratio or math.inf),
        reverse=True,
    )
    return list({one.case: one for one in reversed(bad)}.values())[::-1]


def _missed(one: TargetVerdict) -> str:
    """Say which target a case misses; if all of its connections failed, why."""
    if one.died and one.censored == one.n:
        why = textwrap.shorten(one.died[0], MOST_LETTERS, placeholder=" ...")
        return f"{one.case} fails: {why}"
    what = f" {_megabytes(one)} MB fails its target" if one.mark_mb else " fails"
    return f"{one.case}{what}"


def _headline(one: BaselineComparison) -> str:
    what = f"{one.case} {one.mark_mb:g} MB"
    if one.result == "failed":
        return f"{what} FAILED, {one.incomplete} of {one.n} transfers did not complete"
    times = f"{seconds(one.baseline_s)} s to {seconds(one.median_s)} s"
    factor = f"\u00d7 {one.ratio:.2f}, " if one.ratio is not None else ""
    grew = f", {grew}" if (grew := growth(one)) else ""
    return f"{what} SLOWER, {factor}{times}{grew}"


def growth(one: BaselineComparison) -> str:
    """Return the cause that grew most, and by how much; empty if it is unknown."""
    if one.grew is None or one.grown_s is None:
        return ""
    return f"{one.grew} {one.grown_s[one.grew]:+.2f} s"


BAR = 30
"""Length of the longest bar of `picture`, characters."""
LEAST_SHOWN_S = 0.005
"""A change that `picture` shows as more than 0.00 s."""


def picture(check: CheckResult) -> list[str]:
    """Return what grew in the worst case as bars of text, one block of code; none if no case became
    slower or it has no causes. Where Markdown is shown, pictures would need a place of their own.
    """
    found = ((one, before_and_now(check, one.case)) for one in worst(check.comparisons or ()))
    one, spent = next(((one, spent) for one, spent in found if spent is not None), (None, None))
    if one is None or spent is None:
        return []
    before, now = spent.values()
    grown = {cause: now[cause] - before[cause] for cause in causes.CAUSES}
    shown = [cause for cause in causes.CAUSES if abs(grown[cause]) >= LEAST_SHOWN_S]
    longest = max((abs(grown[cause]) for cause in shown), default=1.0)
    lines = [f"{one.case}: mean seconds by cause, baseline and now"]
    for cause in sorted(shown, key=lambda each: -grown[each]):
        bar = ("\u2588" if grown[cause] > 0 else "\u2591") * math.ceil(
            BAR * abs(grown[cause]) / longest
        )
        seconds_ = f"{before[cause]:8.2f} {now[cause]:8.2f} {grown[cause]:+8.2f}"
        lines.append(f"{cause:20} {seconds_}  {bar}")
    return ["\n".join(["```text", *lines, "```\n"])]


def before_and_now(check: CheckResult, case: str) -> dict[str, dict[str, float]] | None:
    """Return the mean seconds by cause of a case, of the baseline and of this check; None if one of
    them was not traced.
    """
    before = [one.spent_s for one in (check.baseline or {}).get(case, ()) if one.spent_s]
    now = check.spent_s(case)
    return {"baseline": causes.mean(before), "this check": now} if before and now else None


def tables(check: CheckResult) -> list[Table]:
    """Return the tables in order; those without rows are left out."""
    found = [
        _verdicts(check),
        table(
            COMPARISON,
            _COMPARISONS_HEAD,
            [_comparison_row(one) for one in check.comparisons or ()],
            _comparisons_caption(check.comparisons or ()),
        ),
        _failures(check),
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
    factor = pace_factor(check.simulated_s, check.real_s)
    return f"{check.simulated_s:.0f} s simulated in {took}: {factor} times as fast as real time"


def pace_factor(simulated_s: float, real_s: float) -> str:
    """Return how much faster than real time a simulation was; programs may be slower."""
    factor = simulated_s / real_s
    return f"{factor:.0f}" if factor >= 10 else f"{factor:.2g}"


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
        f"suite {check.suite.name}: {check.suite.source}{reference}",
        tuple(head[column] for column in kept),
        [tuple(row[column] for column in kept) for row in rows],
        " ".join(
            text for name, text in _VERDICT_TERMS.items() if name in (head[each] for each in kept)
        ),
    )


_VERDICT_TERMS = {
    "floor s": "Floor: the shortest possible time, by round trips and the rate of the link.",
    "95 % interval": (
        "95 % interval: of the median, by bootstrap; none with fewer than 5 samples. Its upper end"
        " must meet a target, or without an interval the slowest sample."
    ),
}


def _verdict_row(one: TargetVerdict, check: CheckResult) -> Row:
    link = check.links[one.case]
    references = check.suite.case(one.case).reference_s
    by_mark = dict(zip(check.suite.marks_mb, references, strict=False))
    reference_s = None if one.mark_mb is None else by_mark.get(one.mark_mb)
    incomplete = f", {one.censored} incomplete" if one.censored else ""
    off = f", {one.off} out of calibration" if one.off else ""
    ends = (seconds(one.interval_s.low), seconds(one.interval_s.high))
    return (
        one.case,
        f"{link.forward_mbps:.4g}/{link.return_mbps:.3g}",
        _megabytes(one),
        "" if one.target_s is None else f"{one.target_s:g}",
        floor(one, check),
        "" if reference_s is None else f"{reference_s:g}",
        seconds(one.median_s),
        " to ".join(ends) if one.has_interval else "",
        f"{one.n}{incomplete}{off}",
        verdict_cell(RESULT_WORDS.get(one.result, one.result)),
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
    word = WITHIN_TOLERANCE if one.is_tolerated else RESULT_WORDS.get(one.result, one.result)
    return (
        one.case,
        f"{one.mark_mb:g}",
        seconds(one.baseline_s),
        seconds(one.median_s),
        "" if one.ratio is None else f"{one.ratio:.3f}",
        "" if one.p is None else f"{one.p:.2g}",
        "" if one.p is None else detectable,
        verdict_cell(word),
    )


WITHIN_TOLERANCE = "slower within tolerance"


def _comparisons_caption(comparisons: Sequence[BaselineComparison]) -> str:
    """Explain the columns, and the verdicts that occur."""
    if not comparisons:
        return ""
    tests = sum(one.p is not None for one in comparisons)
    tolerance = comparisons[0].tolerance
    results = {one.result for one in comparisons}
    texts = [
        "Ratio: now / baseline. p: probability of samples this slow if both builds were equal"
        " (one-sided rank-sum test). A case is SLOWER if the ratio exceeds"
        f" {1 + tolerance:g} (tolerance {tolerance:.0%}) and p, corrected for {tests} tests (Holm),"
        f" is at most {verdict.ALPHA:g}."
    ]
    if any(one.is_tolerated for one in comparisons):
        texts.append(f"{WITHIN_TOLERANCE.capitalize()}: such a p, but not such a ratio.")
    if tests:
        texts.append(
            "Detectable: the smallest slowdown that these numbers of samples find with a"
            f" probability of {verdict.POWER:.0%}, by the spread of the baseline."
        )
    if "undecided" in results:
        texts.append(
            "Undecided: not even twice the time would be found; take more samples of both."
        )
    if "failed" in results:
        texts.append(
            "FAILED: a transfer did not complete, and all of the baseline did, or too many more"
            " than of the baseline; or none completed."
        )
    return " ".join(texts)


def _failures(check: CheckResult) -> Table:
    """Transfers that did not complete, with the seeds of their samples and the reason."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for case, samples in check.samples.items():
        for one in samples:
            if one.status != "ok":
                seeds.setdefault((case, one.reason or one.status), []).append(str(one.seed))
    rows = [(case, ", ".join(found), reason) for (case, reason), found in seeds.items()]
    return table(_FAILURES, ("case", "seeds", "reason"), rows)


def _growth(check: CheckResult) -> Table:
    """Growth of the traced cases, seconds per cause; causes without a change have no column."""
    grown = {one.case: one.grown_s for one in check.comparisons or () if one.grown_s is not None}
    grew = {one.case: one.grew for one in check.comparisons or () if one.is_slower}
    columns = [
        cause
        for cause in causes.CAUSES
        if any(f"{each[cause]:.2f}" != "0.00" for each in grown.values())
    ]
    rows = [
        (
            case,
            *(f"{each[cause]:+z.2f}" for cause in columns),
            f"{sum(each.values()):+z.2f}",
            grew.get(case) or "",
        )
        for case, each in grown.items()
    ]
    head = ("case", *columns, "total", "grew most")
    return table(GREW, head, rows, _BY_CAUSE)


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


def _median_and_interval(found: Verdict | None) -> str:
    """Return the text for a verdict of a check.json."""
    if found is None:
        return "not run"
    if found["result"] == "unsupported":
        return "unsupported"
    middle, low, high = (
        seconds(math.inf if each is None else each)
        for each in (found["median_s"], found["low_s"], found["high_s"])
    )
    mark = ", not measurable" if found["result"] == "not measurable" else ""
    interval = f" ({low} to {high})" if found["n"] >= MIN_RUNS else ""
    return f"{middle}{interval}, n {found['n']}{mark}"


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
    head = ("case", *columns, "total", "main cause", "source")
    return table("where the time went", head, rows, _BY_CAUSE)


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
    caption = (
        f"Medians of the samples; {UNKNOWN}: not measured; source stack: reported by the programs."
    )
    return table("other figures", _OTHER_FIGURES_HEAD, rows, caption)


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
    is_off = any(one.calibration for samples in check.samples.values() for one in samples)
    head = ("case", "symptom or warning", "seeds")
    return table("symptoms and warnings", head, rows, _OFF if is_off else "")


_OFF = (
    "Out of calibration: the host or the link was not as planned, so the times do not count. On a"
    " busy host use --wait-quiet 600 and --retries 3, a faster host, or the virtual clock."
)
