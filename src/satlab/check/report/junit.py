# SPDX-License-Identifier: GPL-3.0-or-later
"""A check as JUnit XML, for build servers."""

import math
from xml.etree import ElementTree

from satlab.check.check_result import CheckResult
from satlab.check.report.check_tables import floor, growth, notices, seconds
from satlab.check.verdict import BaselineComparison, TargetVerdict
from satlab.common import escape


def junit(check: CheckResult) -> str:
    """Return one test case per verdict and per comparison; those without a result are skipped, with
    the reason.
    """
    suite = ElementTree.Element(
        "testsuite", name=escape.xml(f"satlab.{check.suite.name}"), time=f"{check.real_s:.3f}"
    )
    compared = {(one.case, one.mark_mb) for one in check.comparisons or ()}
    for verdict in check.verdicts:
        is_compared = (verdict.case, verdict.mark_mb) in compared
        _add_verdict(suite, verdict, floor(verdict, check), is_compared=is_compared)
    for comparison in check.comparisons or ():
        _add_comparison(suite, comparison)
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    text = "\n".join(": ".join(map(str, row)) for row in notices(check).rows)
    if text:
        ElementTree.SubElement(suite, "system-err").text = escape.xml(text)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _add_verdict(
    suite: ElementTree.Element, one: TargetVerdict, floor_s: str, *, is_compared: bool
) -> None:
    """Add the verdict on a target. Beside a comparison, which counts in its place, it is skipped."""
    case = _add_case(
        suite, one.case, "test case" if one.mark_mb is None else f"{one.mark_mb:g} MB", one.median_s
    )
    if one.result == "fail":
        target = "" if one.target_s is None else f", target {one.target_s:g} s"
        target += f", floor {floor_s} s" if floor_s else ""
        died = f"; connection failed: {'; '.join(one.died)}" if one.died else ""
        limit = "upper limit" if one.has_interval else "slowest"
        limit += f" {seconds(one.interval_s.high)} s"
        message = f"median {seconds(one.median_s)} s, {limit}{target}{died}"
        if is_compared:
            message = f"missed, but compared with the baseline: {message}"
        kind = "skipped" if is_compared else "failure"
        ElementTree.SubElement(case, kind, message=escape.xml(message))
    elif one.result != "pass":
        reason = {
            "not measurable": "; ".join(
                (f"not measurable: {one.off} samples out of calibration", *one.died)
            ),
            "unsupported": f"unsupported: {'; '.join(one.died)}",
        }.get(one.result, "no target")
        ElementTree.SubElement(
            case, "skipped", message=escape.xml(f"{reason}; median {seconds(one.median_s)} s")
        )


def _add_comparison(suite: ElementTree.Element, one: BaselineComparison) -> None:
    case = _add_case(suite, one.case, f"{one.mark_mb:g} MB against the baseline", one.median_s)
    if one.result == "slower":
        factor = f"{one.ratio:.3f} times" if one.ratio is not None else "never, not in"
        message = f"{factor} the baseline's {seconds(one.baseline_s)} s, p {one.p:.2g}"
        message += f"; {grew}" if (grew := growth(one)) else ""
        ElementTree.SubElement(case, "failure", message=message)
    elif one.result == "failed":
        counts = (
            f"{one.incomplete} of {one.n} transfers did not complete, of the baseline"
            f" {one.incomplete_baseline} of {one.n_baseline}"
        )
        message = ": ".join(filter(None, (counts, "; ".join(one.reasons))))
        ElementTree.SubElement(case, "failure", message=escape.xml(message))
    elif one.result == "unsupported":
        message = f"unsupported: {'; '.join(one.reasons)}"
        ElementTree.SubElement(case, "skipped", message=escape.xml(message))
    elif one.result == "not measurable":
        off = f"{one.off} samples, and {one.off_baseline} of the baseline, out of calibration"
        ElementTree.SubElement(case, "skipped", message=f"not measurable: {off}")
    elif one.result == "undecided":
        ElementTree.SubElement(
            case, "skipped", message="undecided: a time twice as long would not be detected"
        )


def _add_case(
    suite: ElementTree.Element, case: str, name: str, median_s: float
) -> ElementTree.Element:
    time = "" if math.isinf(median_s) else f"{median_s:.3f}"
    return ElementTree.SubElement(
        suite, "testcase", classname=escape.xml(case), name=name, time=time
    )
