# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check hands on: tables for a terminal and for a pull request, JUnit XML for a build server."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from satlab.check.check_run import CheckResult
from satlab.check.samples import Sample
from satlab.check.trace import causes
from satlab.check.verdict import BaselineComparison, TargetVerdict

NAMES = ("case", "verdict", "most")
TEXTS = (*NAMES, "told by", "what", "seeds")
"""Columns of words; those of names stay on one line."""
MISSED = {"fail": "FAIL", "to be determined": "measured"}


def show(findings: CheckResult) -> None:
    """Print the tables and where everything lies on stdout."""
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    for section in sections(findings):
        console.print(_table(section))
    console.print(f"{findings.folder}/check.html, {pace(findings)}", soft_wrap=True)


@dataclass(frozen=True)
class Section:
    """A table: its title, the names of its columns, its rows."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def sections(findings: CheckResult) -> list[Section]:
    """Return the verdicts, the comparison if there is one, and what held transfers up if it was traced."""
    title = f"{findings.suite.name}: {findings.suite.source}{_of_reference(findings)}"
    shown = [_without_empty_columns(Section(title, _HEAD, _rows(findings)))]
    if findings.compared is not None:
        shown.append(Section("against the baseline", _COMPARED_HEAD, [_compared(one) for one in findings.compared]))
    if findings.beside:
        shown.append(_beside(findings))
    return [*shown, *_spent(findings), _seen(findings), *_noticed(findings)]


def _without_empty_columns(section: Section) -> Section:
    kept = [number for number in range(len(section.head)) if any(row[number] for row in section.rows)]
    rows = [tuple(row[number] for number in kept) for row in section.rows]
    return Section(section.title, tuple(section.head[number] for number in kept), rows)


def _beside(findings: CheckResult) -> Section:
    """Return every target with what each check measured: medians and intervals, stack by stack."""
    checks = [findings.document(), *findings.beside]
    known = [
        {(case["id"], one["mark_mb"]): one for case in each["cases"] for one in case["verdicts"]} for each in checks
    ]
    rows = [
        (
            one.case,
            _megabytes(one),
            "" if one.target_s is None else f"{one.target_s:g}",
            *(_measured(each.get((one.case, one.mark_mb))) for each in known),
        )
        for one in findings.judged
    ]
    names = (f"{each['stack']}, {each['clock']} clock" for each in checks)
    return Section(
        f"beside other checks, s; targets: {findings.suite.source}", ("case", "MB", "target s", *names), rows
    )


def _measured(verdict: dict[str, Any] | None) -> str:
    """Word median, interval and number of samples of a verdict in a check.json."""
    if verdict is None:
        return "not run"
    if verdict["result"] == "unsupported":
        return "unsupported"
    middle, low, high = (
        seconds(math.inf if verdict[key] is None else verdict[key]) for key in ("median_s", "low_s", "high_s")
    )
    mark = ", not measurable" if verdict["result"] == "not measurable" else ""
    return f"{middle} ({low} to {high}), n {verdict['n']}{mark}"


def pace(findings: CheckResult) -> str:
    """Return how long the check took, and how much faster than a real link it was."""
    took = f"{findings.real_s:.1f} s"
    if findings.simulated_s is None:
        return took
    times = findings.simulated_s / findings.real_s
    return f"{findings.simulated_s:.0f} s simulated in {took}: {times:.0f} times as fast as real time"


def _of_reference(findings: CheckResult) -> str:
    return f"; reference: {findings.suite.reference}" if findings.suite.reference else ""


def markdown(findings: CheckResult) -> str:
    """Return the same as text for a pull request."""
    head = f"### {findings.suite.name}: {findings.backend.stack}, {findings.backend.clock} clock\n"
    return "\n".join([head, *map(_lines, sections(findings))])


def junit(findings: CheckResult) -> str:
    """Return one test case per verdict; what has no target is skipped, with its figure as the reason."""
    suite = ElementTree.Element("testsuite", name=f"satlab.{findings.suite.name}", time=f"{findings.real_s:.3f}")
    for one in findings.judged:
        case = _test_case(suite, one.case, _amount(one), one.median_s)
        if one.result == "fail":
            ElementTree.SubElement(case, "failure", message=_why(one))
        elif one.result != "pass":
            ElementTree.SubElement(case, "skipped", message=f"{_why_skipped(one)}; median {seconds(one.median_s)} s")
    for compared in findings.compared or []:
        case = _test_case(suite, compared.case, f"{compared.mark_mb:g} MB against the baseline", compared.median_s)
        if compared.is_slower:
            message = f"{compared.ratio:.3f} times the baseline's {seconds(compared.baseline_s)} s, p {compared.p:.2g}"
            ElementTree.SubElement(case, "failure", message=message)
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    noticed = "\n".join(": ".join(row) for section in _noticed(findings) for row in section.rows)
    if noticed:
        ElementTree.SubElement(suite, "system-err").text = noticed
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _test_case(suite: ElementTree.Element, case: str, name: str, median_s: float) -> ElementTree.Element:
    time = "" if math.isinf(median_s) else f"{median_s:.3f}"
    return ElementTree.SubElement(suite, "testcase", classname=case, name=name, time=time)


_HEAD = ("case", "down/up Mbit/s", "MB", "target s", "reference s", "median s", "95 % interval", "n", "verdict")
_COMPARED_HEAD = ("case", "MB", "baseline s", "now s", "ratio", "p", "detectable", "verdict")


def _spent(findings: CheckResult) -> list[Section]:
    """Return one table, without causes that never were, or none where nothing was traced."""
    found = {case: spent for case in findings.samples if (spent := findings.spent_s(case)) is not None}
    seen = [cause for cause in causes.CAUSES if any(spent[cause] for spent in found.values())]
    rows = [
        (
            case,
            *(f"{spent[cause]:.2f}" for cause in seen),
            f"{sum(spent.values()):.2f}",
            causes.largest(spent),
            _source(findings, case, "spent_s"),
        )
        for case, spent in found.items()
    ]
    title = "where the time went, mean s of a transfer"
    return [Section(title, ("case", *seen, "all", "most", "told by"), rows)] if rows else []


_SEEN_HEAD = (
    "case", "handshake ms", "first byte ms", "told by", "sent again %", "lost packets", "told by", "client CPU s",
    "server CPU s",
)  # fmt: skip
UNKNOWN = "not told"


def _seen(findings: CheckResult) -> Section:
    """Return medians of what else is known of transfers."""
    rows = [
        (
            case,
            _median(samples, "handshake_ms", "{:.0f}"),
            _median(samples, "time_to_first_byte_ms", "{:.0f}"),
            _source(findings, case, "time_to_first_byte_ms"),
            _median(samples, "retransmitted_share", "{:.2f}", 100),
            _median(samples, "lost_packets", "{:.0f}"),
            _source(findings, case, "lost_packets", "retransmitted_share"),
            _median(samples, "client_cpu_s", "{:.2f}"),
            _median(samples, "server_cpu_s", "{:.2f}"),
        )
        for case, samples in findings.samples.items()
    ]
    return Section(f"what else is known of a transfer, medians; {UNKNOWN}: no program says it", _SEEN_HEAD, rows)


def _median(samples: Sequence[Sample], name: str, shape: str, times: float = 1) -> str:
    known = [value for one in samples if (value := getattr(one, name)) is not None]
    return shape.format(median(known) * times) if known else UNKNOWN


def _source(findings: CheckResult, case: str, *names: str) -> str:
    """Name where the figures of these fields are from; nothing where there are none."""
    samples = findings.samples[case]
    known = [(one, name) for one in samples for name in names if getattr(one, name) is not None]
    return ", ".join(sorted({one.sources.get(name, "itself") for one, name in known}))


def _noticed(findings: CheckResult) -> list[Section]:
    """Return what slowed transfers down, as far as it showed, and what could not be read."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for case, samples in findings.samples.items():
        for one in samples:
            for text in (*one.symptoms, *(warned.text for warned in one.warnings)):
                seeds.setdefault((case, text), []).append(str(one.seed))
    rows = [(case, text, ", ".join(found)) for (case, text), found in seeds.items()]
    return [Section("what was noticed", ("case", "what", "seeds"), rows)] if rows else []


def _rows(findings: CheckResult) -> list[tuple[str, ...]]:
    return [_row(one, findings) for one in findings.judged]


def _row(one: TargetVerdict, findings: CheckResult) -> tuple[str, ...]:
    link = findings.links[one.case]
    censored = f", {one.censored} cut off" if one.censored else ""
    off = f", {one.off} off" if one.off else ""
    spread = f"{seconds(one.interval_s.low)} to {seconds(one.interval_s.high)}"
    return (
        one.case,
        f"{link.forward_mbps:.4g}/{link.return_mbps:.3g}",
        _megabytes(one),
        "" if one.target_s is None else f"{one.target_s:g}",
        _reference(one, findings),
        seconds(one.median_s),
        spread,
        f"{one.n}{censored}{off}",
        f"{MISSED.get(one.result, one.result)}{': ' + '; '.join(one.died) if one.died else ''}",
    )


def _reference(one: TargetVerdict, findings: CheckResult) -> str:
    case = next(case for case in findings.suite.cases if case.id == one.case)
    times = dict(zip(findings.suite.marks_mb, case.reference_s, strict=False))
    found = None if one.mark_mb is None else times.get(one.mark_mb)
    return "" if found is None else f"{found:g}"


def _compared(one: BaselineComparison) -> tuple[str, ...]:
    least = "over 100 %" if one.detectable is None else f"{one.detectable:.0%}"
    verdict = "SLOWER" if one.is_slower else "no slower"
    figures = (seconds(one.baseline_s), seconds(one.median_s), f"{one.ratio:.3f}", f"{one.p:.2g}", least)
    return (one.case, f"{one.mark_mb:g}", *figures, verdict)


def _why(one: TargetVerdict) -> str:
    died = f"; died: {'; '.join(one.died)}" if one.died else ""
    target = "" if one.target_s is None else f", target {one.target_s:g} s"
    return f"median {seconds(one.median_s)} s, up to {seconds(one.interval_s.high)} s{target}{died}"


def _megabytes(one: TargetVerdict) -> str:
    return "all" if one.mark_mb is None else f"{one.mark_mb:g}"


def _amount(one: TargetVerdict) -> str:
    return "test case" if one.mark_mb is None else f"{one.mark_mb:g} MB"


def _why_skipped(one: TargetVerdict) -> str:
    if one.result == "not measurable":
        return f"not measurable: {one.off} samples out of calibration"
    return f"unsupported: {'; '.join(one.died)}" if one.result == "unsupported" else "no target"


def seconds(value: float) -> str:
    """Return seconds with three digits after the point, or `never`."""
    return "never" if math.isinf(value) else f"{value:.3f}"


def _table(section: Section) -> Table:
    table = Table(title=section.title, title_justify="left")
    for name in section.head:
        table.add_column(name, justify="left" if name in TEXTS else "right", no_wrap=name in (*NAMES, "95 % interval"))
    for row in section.rows:
        table.add_row(*row)
    return table


def _lines(section: Section) -> str:
    def line(cells: tuple[str, ...]) -> str:
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

    head = section.head
    return "\n".join([f"#### {section.title}\n", line(head), line(("---",) * len(head)), *map(line, section.rows), ""])
