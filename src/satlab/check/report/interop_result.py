# SPDX-License-Identifier: GPL-3.0-or-later
"""result.json of the QUIC interop runner, for its page: test cases and goodput of each client with
each server.

The page builds class names and links from names, so names have only letters, digits and hyphens. A
cell of the page has one of three results, so a case that was not measurable is "unsupported" there;
FILE.satlab.json has the reason.
"""

import contextlib
import json
import os
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from satlab.check import verdict
from satlab.check.check_result import CheckResult

EXTENSION = "satlab/interop-extension/1"
LOGS = "logs"
"""The folder next to result.json in which the page looks for files of a cell."""
_RESULTS = {"pass": "succeeded", "fail": "failed"}
_UNSUPPORTED = "unsupported"
ABBREVIATIONS = {
    "handshake": "H",
    "transfer": "DC",
    "longrtt": "LR",
    "chacha20": "C20",
    "multiplexing": "M",
    "retry": "S",
    "resumption": "R",
    "zerortt": "Z",
    "http3": "3",
    "blackhole": "B",
    "keyupdate": "U",
    "ecn": "E",
    "amplificationlimit": "A",
    "handshakeloss": "L1",
    "transferloss": "L2",
    "handshakecorruption": "C1",
    "transfercorruption": "C2",
    "ipv6": "6",
    "v2": "V2",
    "rebind-port": "BP",
    "rebind-addr": "BA",
    "connectionmigration": "CM",
    "sat": "SAT",
    "satl": "SATL",
}


def write(checks: Sequence[CheckResult], file: Path) -> None:
    """Write result.json, links to the files of each cell next to it, and everything else to
    FILE.satlab.json.
    """
    file.write_text(json.dumps(document(checks), indent=1) + "\n")
    file.with_suffix(".satlab.json").write_text(json.dumps(extension(checks), indent=1) + "\n")
    place = file.parent / LOGS / _log_folder(checks)
    for check in checks:
        client, server = map(page_name, check.input.ends)
        _link_logs(check, place / f"{server}_{client}")


def document(checks: Sequence[CheckResult]) -> dict[str, Any]:
    """Return result.json for checks of one suite, one check per pair. A pair without a check has an
    empty cell.
    """
    cells = {tuple(map(page_name, check.input.ends)): check for check in checks}
    clients, servers = (list(dict.fromkeys(pair[side] for pair in cells)) for side in (0, 1))
    pairs = [(client, server) for client in clients for server in servers]
    tests: list[list[dict[str, Any]]] = [[] for _ in pairs]
    measurements: list[list[dict[str, Any]]] = [[] for _ in pairs]
    for number, check in enumerate(map(cells.get, pairs)):
        if check is None:
            continue
        tests[number] = [
            {
                "abbr": abbreviation(one.case),
                "name": one.case,
                "result": _RESULTS.get(one.result, _UNSUPPORTED),
            }
            for one in check.verdicts
            if one.mark_mb is None
        ]
        if check.suite.marks_mb:
            measurements[number] = [_measurement(name, check) for name in check.samples]
    known = [one for cell in (*tests, *measurements) for one in cell]
    return {
        "start_time": min(check.began_unix_s for check in checks),
        "end_time": max(check.began_unix_s + check.real_s for check in checks),
        "log_dir": _log_folder(checks),
        "servers": servers,
        "clients": clients,
        "urls": {},
        "tests": {
            one["abbr"]: {"name": one["name"], "desc": checks[0].suite.source} for one in known
        },
        "quic_version": "0x1",
        "results": tests,
        "measurements": measurements,
    }


def extension(checks: Sequence[CheckResult]) -> dict[str, Any]:
    """Return every check.json in full, the cases by their abbreviations in result.json, and the
    cases that were not measurable.
    """
    cases = {abbreviation(name): name for check in checks for name in check.samples}
    unmeasured = [
        {
            "stack": check.input.stack,
            "case": one.case,
            "reason": "; ".join((f"{one.off} samples out of calibration", *one.died)),
        }
        for check in checks
        for one in check.verdicts
        if one.result == "not measurable"
    ]
    documents = [check.document() for check in checks]
    return {"schema": EXTENSION, "cases": cases, "not_measurable": unmeasured, "checks": documents}


def page_name(name: str) -> str:
    """Return a name in the form that the page can use: "ngtcp2 1.2" becomes ngtcp2-1-2."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "unnamed"


def abbreviation(case: str) -> str:
    """Return the interop runner's abbreviation or, if it has none, the first letters of the
    words.
    """
    known = ABBREVIATIONS.get(case)
    return (
        known
        or "".join(part if part.isdigit() else part[:2] for part in re.split(r"[-_]", case)).upper()
    )


def _log_folder(checks: Sequence[CheckResult]) -> str:
    return page_name(checks[0].folder.name)


def _measurement(name: str, check: CheckResult) -> dict[str, Any]:
    """Return mean and standard deviation of the goodput if every counted sample is complete, as the
    runner does.
    """
    samples = verdict.counted_of(check.samples[name])
    values = [one.goodput_interop_bps for one in samples if one.status == "ok"]
    rates = [value / 1000 for value in values if value is not None]
    incomplete = next((one for one in samples if one.status != "ok"), None)
    outcome = "succeeded"
    if not verdict.is_measurable(check.samples[name]):
        outcome = _UNSUPPORTED
    elif incomplete:
        outcome = _UNSUPPORTED if incomplete.status == "unsupported" else "failed"
    spread = statistics.stdev(rates) if len(rates) > 1 else 0.0
    details = (
        f"{statistics.fmean(rates):.0f} (± {spread:.0f}) kbps"
        if rates and outcome == "succeeded"
        else ""
    )
    return {"abbr": abbreviation(name), "name": name, "result": outcome, "details": details}


def _link_logs(check: CheckResult, cell: Path) -> None:
    """Link the files of each sample to the place where the page looks for them. A test case gets
    the files of its first failed sample or, if none failed, of its first sample.
    """
    for case, samples in check.samples.items():
        raw = check.folder / "raw"
        own = {sample.seed: raw / f"{case}-{sample.seed}" for sample in samples}
        # Under the virtual clock all samples are in one folder.
        sources = {seed: folder if folder.is_dir() else raw for seed, folder in own.items()}
        if check.suite.marks_mb:
            places = {
                cell / case / str(number): source
                for number, source in enumerate(sources.values(), 1)
            }
        else:
            shown = next((one for one in samples if one.status != "ok"), samples[0])
            places = {cell / case: sources[shown.seed]}
        for place, source in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                place.unlink()
            place.symlink_to(os.path.relpath(source, place.parent))
