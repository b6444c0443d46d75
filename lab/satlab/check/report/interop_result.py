# SPDX-License-Identifier: GPL-3.0-or-later
"""A check in the shape of the QUIC interop runner's `result.json`, and what that shape has no place for beside it."""

import re
import statistics
from typing import Any

from satlab.check.check_run import CheckResult
from satlab.check.verdict import TargetVerdict

EXTENSION = "satlab/interop-extension/1"
_RESULTS = {"pass": "succeeded", "fail": "failed", "unsupported": "unsupported"}
_ABBREVIATIONS = {
    "handshake": "H", "transfer": "DC", "longrtt": "LR", "retry": "S", "resumption": "R", "zerortt": "Z", "http3": "3",
    "keyupdate": "U", "loss": "L2", "rebinding": "BP", "migration": "CM",
}  # fmt: skip


def result(findings: CheckResult) -> dict[str, Any]:
    """Return result.json of one client and one server; times without a target are "to be determined", which is null."""
    tests = [_test(one) for one in findings.judged if one.mark_mb is None]
    measured = [_measurement(name, findings) for name in findings.samples] if findings.suite.marks_mb else []
    names = {one["abbr"]: {"name": one["name"], "desc": findings.suite.source} for one in (*tests, *measured)}
    return {
        "start_time": findings.began_unix_s,
        "end_time": findings.began_unix_s + findings.real_s,
        "log_dir": str(findings.folder),
        "servers": [findings.backend.stack],
        "clients": [findings.backend.stack],
        "urls": {},
        "tests": names,
        "quic_version": "0x1",
        "results": [tests],
        "measurements": [measured],
    }


def extension(findings: CheckResult) -> dict[str, Any]:
    """Return the same check whole, under the abbreviations of result.json."""
    cases = {abbreviation(name): name for name in findings.samples}
    return {"schema": EXTENSION, "cases": cases, "check": findings.document()}


def abbreviation(case: str) -> str:
    """Abbreviate as the runner does; else by initials, digits kept."""
    known = _ABBREVIATIONS.get(case)
    return known or "".join(part if part.isdigit() else part[:2] for part in re.split(r"[-_]", case)).upper()


def _test(one: TargetVerdict) -> dict[str, Any]:
    return {"abbr": abbreviation(one.case), "name": one.case, "result": _RESULTS.get(one.result)}


def _measurement(name: str, findings: CheckResult) -> dict[str, Any]:
    """Tell goodput as the runner does: mean and standard deviation, if every sample came to its end."""
    samples = findings.samples[name]
    values = [one.goodput_interop_bps for one in samples if one.status == "ok"]
    rates = [value / 1000 for value in values if value is not None]
    bad = next((one for one in samples if one.status != "ok"), None)
    outcome = "unsupported" if bad and bad.status == "unsupported" else "failed" if bad else "succeeded"
    spread = statistics.stdev(rates) if len(rates) > 1 else 0.0
    details = f"{statistics.fmean(rates):.0f} (± {spread:.0f}) kbps" if rates and outcome == "succeeded" else ""
    return {"abbr": abbreviation(name), "name": name, "result": outcome, "details": details}
