# SPDX-License-Identifier: GPL-3.0-or-later
"""A check in the formats of other tools: JUnit XML for build servers, and result.json of the QUIC interop runner."""

import math
import re
import statistics
from typing import Any
from xml.etree import ElementTree

from satlab.check.check_result import CheckResult
from satlab.check.report.check_tables import notices, seconds
from satlab.check.verdict import BaselineComparison, TargetVerdict

EXTENSION = "satlab/interop-extension/1"
_RESULTS = {"pass": "succeeded", "fail": "failed", "unsupported": "unsupported"}
_ABBREVIATIONS = {
    "handshake": "H", "transfer": "DC", "longrtt": "LR", "retry": "S", "resumption": "R", "zerortt": "Z", "http3": "3",
    "keyupdate": "U", "loss": "L2", "rebinding": "BP", "migration": "CM",
}  # fmt: skip


def junit(check: CheckResult) -> str:
    """Return one test case per verdict and per comparison; those without a result are skipped, with the reason."""
    suite = ElementTree.Element("testsuite", name=f"satlab.{check.suite.name}", time=f"{check.real_s:.3f}")
    for verdict in check.verdicts:
        _add_verdict(suite, verdict)
    for comparison in check.comparisons or ():
        _add_comparison(suite, comparison)
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    text = "\n".join(": ".join(row) for row in notices(check).rows)
    if text:
        ElementTree.SubElement(suite, "system-err").text = text
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _add_verdict(suite: ElementTree.Element, one: TargetVerdict) -> None:
    case = _add_case(suite, one.case, "test case" if one.mark_mb is None else f"{one.mark_mb:g} MB", one.median_s)
    if one.result == "fail":
        target = "" if one.target_s is None else f", target {one.target_s:g} s"
        died = f"; connection failed: {'; '.join(one.died)}" if one.died else ""
        limit = f"upper limit {seconds(one.interval_s.high)} s"
        ElementTree.SubElement(case, "failure", message=f"median {seconds(one.median_s)} s, {limit}{target}{died}")
    elif one.result != "pass":
        reason = {
            "not measurable": f"not measurable: {one.off} samples out of calibration",
            "unsupported": f"unsupported: {'; '.join(one.died)}",
        }.get(one.result, "no target")
        ElementTree.SubElement(case, "skipped", message=f"{reason}; median {seconds(one.median_s)} s")


def _add_comparison(suite: ElementTree.Element, one: BaselineComparison) -> None:
    case = _add_case(suite, one.case, f"{one.mark_mb:g} MB against the baseline", one.median_s)
    if one.result == "slower":
        grew = "" if one.grew is None or one.grown_s is None else f"; {one.grew} {one.grown_s[one.grew]:+.2f} s"
        message = f"{one.ratio:.3f} times the baseline's {seconds(one.baseline_s)} s, p {one.p:.2g}{grew}"
        ElementTree.SubElement(case, "failure", message=message)
    elif one.result == "not measurable":
        off = f"{one.off} samples, and {one.off_baseline} of the baseline, out of calibration"
        ElementTree.SubElement(case, "skipped", message=f"not measurable: {off}")


def _add_case(suite: ElementTree.Element, case: str, name: str, median_s: float) -> ElementTree.Element:
    time = "" if math.isinf(median_s) else f"{median_s:.3f}"
    return ElementTree.SubElement(suite, "testcase", classname=case, name=name, time=time)


# --- QUIC interop runner ---------------------------------------------------------------------------------------------


def interop_result(check: CheckResult) -> dict[str, Any]:
    """Return result.json, for one client and one server. A test case without a result is null."""
    tests = [_test(one) for one in check.verdicts if one.mark_mb is None]
    measurements = [_measurement(name, check) for name in check.samples] if check.suite.marks_mb else []
    names = {one["abbr"]: {"name": one["name"], "desc": check.suite.source} for one in (*tests, *measurements)}
    return {
        "start_time": check.began_unix_s,
        "end_time": check.began_unix_s + check.real_s,
        "log_dir": str(check.folder),
        "servers": [check.input.stack],
        "clients": [check.input.stack],
        "urls": {},
        "tests": names,
        "quic_version": "0x1",
        "results": [tests],
        "measurements": [measurements],
    }


def interop_extension(check: CheckResult) -> dict[str, Any]:
    """Return the whole check.json, and the cases by the abbreviations of result.json."""
    cases = {abbreviation(name): name for name in check.samples}
    return {"schema": EXTENSION, "cases": cases, "check": check.document()}


def abbreviation(case: str) -> str:
    """Return the interop runner's abbreviation, or one of the first letters of each word."""
    known = _ABBREVIATIONS.get(case)
    return known or "".join(part if part.isdigit() else part[:2] for part in re.split(r"[-_]", case)).upper()


def _test(one: TargetVerdict) -> dict[str, Any]:
    return {"abbr": abbreviation(one.case), "name": one.case, "result": _RESULTS.get(one.result)}


def _measurement(name: str, check: CheckResult) -> dict[str, Any]:
    """Return mean and standard deviation of the goodput if every sample is complete, as the interop runner does."""
    samples = check.samples[name]
    values = [one.goodput_interop_bps for one in samples if one.status == "ok"]
    rates = [value / 1000 for value in values if value is not None]
    incomplete = next((one for one in samples if one.status != "ok"), None)
    outcome = "succeeded"
    if incomplete:
        outcome = "unsupported" if incomplete.status == "unsupported" else "failed"
    spread = statistics.stdev(rates) if len(rates) > 1 else 0.0
    details = f"{statistics.fmean(rates):.0f} (± {spread:.0f}) kbps" if rates and outcome == "succeeded" else ""
    return {"abbr": abbreviation(name), "name": name, "result": outcome, "details": details}
