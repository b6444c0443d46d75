# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches host-load`: dose and response of figures to the host's load, the source of the
host's limits.

At each level so many processes keep a core busy, while pages are loaded, or files transferred by
QUIC, over a LEO link. A sample is off if its time differs from the median without load by more than
TOLERANCE. The limits are good if each sample that is off was marked, and hardly any without load
was.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

import collect
from satlab.check.backend.real_clock import RealClock
from satlab.check.endpoint.satperf import SatperfPair
from satlab.check.samples import Sample
from satlab.check.suite import Case, Suite, SuiteLink
from satlab.common import scratch
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError
from satlab.common.paths import SCENARIOS
from satlab.link.options import LinkOptions
from satlab.report import html
from satlab.report.page import Axis, Mark, Page, Plot, Section, Series, Table, all_but
from satlab.run import host_load as limits
from satlab.run import scenario_run
from satlab.run.lab_session import NetnsHost, new_lab_id, run_session
from satlab.run.scenario_run import RunRequest

Kind = Literal["h1", "h2", "h3", "quic"]
SampleDocument = Mapping[str, Any]
TOLERANCE = 0.05
PAGE_METRICS = ("first_contentful_paint_ms", "response_start_ms", *collect.HOST_METRICS)
LONGEST_LOAD_S = 120.0
"""Of one page load, next to 16 busy processes."""
TRANSFER_MB = 5.0
BURNER = """
import os, sys
if pid := os.fork():
    os.write(1, b"%d" % pid)
    os._exit(0)
os.setsid()
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
while os.path.exists(f"/proc/{sys.argv[1]}"):
    for _ in range(10**6):
        pass
"""
"""Prints the id of its child, which works until the process of its argument ends."""


def measure(
    levels: Sequence[int],
    samples: int,
    kind: Kind,
    runs: Path,
    log: ProgressLog,
    earlier: Sequence[SampleDocument] = (),
) -> dict[str, Any]:
    """Take `samples` at each level of load, the lowest first; `earlier` levels are kept.

    Raises:
        ConfigError, HostError: this host cannot run a lab.
    """
    take = _transfers if kind == "quic" else _loads
    found = {level["processes"]: level["samples"] for level in earlier}
    for level in sorted(set(levels)):
        with log.step(f"{level} processes") as step, burning(level):
            found[level] = take(samples, kind, runs)
            step.outcome = f"{len(found[level])} of {samples} samples"
    limit = limits.PROGRAM_WAIT_LIMIT if kind == "quic" else limits.BROWSER_WAIT_LIMIT
    return {
        "schema": "satlab/bench-host-load/2",
        "kind": kind,
        "limit": limit,
        **judged(found, samples),
    }


def earlier_levels(file: Path, kind: Kind) -> list[SampleDocument]:
    """Read the levels of an earlier result.

    Raises:
        ConfigError: the file holds none, or another kind of sample.
    """
    try:
        document = json.loads(file.read_text())
        levels: list[SampleDocument] = document["levels"]
        is_same = document["kind"] == kind
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{file}: no result of this benchmark", hint="name a file that --json wrote"
        ) from error
    if not is_same:
        raise ConfigError(f"{file}: its samples are of {document['kind']}, not {kind}")
    return levels


def judged(found: Mapping[int, Sequence[SampleDocument]], asked: int) -> dict[str, Any]:
    """Return the table of the levels: medians, how many samples are off, how many of these were not
    marked.
    """
    quiet_ms = median(one["time_ms"] for one in found[min(found)])
    table = []
    for level, samples in sorted(found.items()):
        off = [one for one in samples if abs(one["time_ms"] / quiet_ms - 1) > TOLERANCE]
        table.append(
            {
                "processes": level,
                "n": len(samples),
                "failed": max(0, asked - len(samples)),
                "time_ms": median(one["time_ms"] for one in samples),
                "wait_ratio": median(one["wait_ratio"] for one in samples),
                "marked": sum(one["is_marked"] for one in samples),
                "off": len(off),
                "off_and_not_marked": sum(not one["is_marked"] for one in off),
                "samples": list(samples),
            }
        )
    return {"quiet_ms": quiet_ms, "tolerance": TOLERANCE, "levels": table}


# --- samples --------------------------------------------------------------------------------------


def _loads(count: int, kind: Kind, runs: Path) -> list[SampleDocument]:
    settings = {"protocol": kind, "runs": str(count)}
    page, link = SCENARIOS / "page_load.json", LinkOptions(profile="leo")
    request = RunRequest(
        page, link, settings, runs, deadline_s=LONGEST_LOAD_S * count, report=False
    )
    result = scenario_run.execute(
        scenario_run.prepare(request), ProgressLog(quiet=True), threading.Event()
    )
    host_is_busy = any(f"{name} " in result.reason for name in limits.WHOLE_HOST)
    return [
        _of_load(one.load, host_is_busy)
        for one in result.collected.stored.loads
        if one.load.status == "ok"
    ]


def _of_load(load: collect.PageLoad, host_is_busy: bool) -> SampleDocument:
    ratio = limits.wait_ratio(load) or 0.0
    figures = {metric: getattr(load, metric) for metric in PAGE_METRICS}
    is_marked = host_is_busy or ratio > limits.BROWSER_WAIT_LIMIT
    return figures | {
        "time_ms": load.page_load_time_ms,
        "wait_ratio": ratio,
        "is_marked": is_marked,
    }


def _transfers(count: int, _: Kind, runs: Path) -> list[SampleDocument]:
    """Transfer TRANSFER_MB by satperf again and again, in one lab."""
    case = Case(id="load", forward_mbps=1, return_mbps=1, targets_s=(None,), timeout_s=120)
    suite = Suite(
        schema="satlab/suite/1",
        name="load",
        source="host-load",
        link=SuiteLink(rtt_ms=600, queue_bdp=1),
        marks_mb=(TRANSFER_MB,),
        cases=(case,),
    )
    clock = RealClock(SatperfPair("quinn"))
    prepared = scenario_run.prepare(
        RunRequest(
            SCENARIOS / "ping.json", LinkOptions(profile="leo"), {"count": "1"}, runs, report=False
        )
    )
    with scratch.folder("load") as folder:
        link = replace(prepared.link, metrics=folder / "link.jsonl", timeline=None)
        host = NetnsHost(new_lab_id("load"), clock.ends.topology(case), link)
        session = run_session(
            host,
            lambda up, halt: [
                clock.sample_in(up, suite, case, n, folder / "sample", halt) for n in range(count)
            ],
        )
    host_is_busy = any(one.name in limits.WHOLE_HOST and not one.ok for one in session.checks)
    return [
        _of_transfer(one, host_is_busy)
        for one in session.outcome or ()
        if one.times_s[0] is not None
    ]


def _of_transfer(sample: Sample, host_is_busy: bool) -> SampleDocument:
    length_s = sample.times_s[0] or 0.0
    waited_s = max(sample.client_wait_s or 0.0, sample.server_wait_s or 0.0)
    ratio = waited_s / (sample.last_packet_s or length_s)
    return {
        "time_ms": length_s * 1000,
        "wait_ratio": ratio,
        "is_marked": host_is_busy or bool(sample.calibration),
    }


@contextlib.contextmanager
def burning(count: int) -> Iterator[list[int]]:
    """Keep `count` processes busy during the block; no descendants: their CPU time would count as
    the measurement's.
    """
    argv = [sys.executable, "-S", "-c", BURNER, str(os.getpid())]
    burners = [
        int(subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=10).stdout)
        for _ in range(count)
    ]
    try:
        yield burners
    finally:
        for pid in burners:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# --- what is shown --------------------------------------------------------------------------------


def lines(result: Mapping[str, Any]) -> list[str]:
    """Return the result as text."""
    head = (
        f"{result['kind']} over LEO, medians; off: more than {TOLERANCE:.0%} from"
        f" {result['quiet_ms']:,.0f} ms"
    )
    rows = [
        f"{one['processes']:3} processes: {one['time_ms']:7,.0f} ms, wait {one['wait_ratio']:5.1%};"
        f" {one['marked']} of {one['n']} marked, {one['off']} off, {one['off_and_not_marked']} of"
        f" them not marked, {one['failed']} failed"
        for one in result["levels"]
    ]
    return [f"{head}; limit of the wait {result['limit']:.0%}", *rows]


def plot(result: Mapping[str, Any], file: Path) -> None:
    """Draw each sample's time over the wait for a core, a colour for each level; the limits are
    lines.
    """
    series = [
        Series(
            f"{level['processes']} processes",
            [one["wait_ratio"] for one in level["samples"]],
            [one["time_ms"] / result["quiet_ms"] for one in level["samples"]],
            "marks",
            style,
            hover="wait %{x:.3f}, time %{y:.3f}",
        )
        for style, level in enumerate(result["levels"])
    ]
    head = ("load", "longest wait / time", "time / median without load")
    rows = [
        (one.name, f"{wait:.4f}", f"{time:.4f}")
        for one in series
        for wait, time in zip(one.x, one.y, strict=True)
    ]
    limit = result["limit"]
    title = f"{result['kind']}: time against the wait for a core"
    drawn = Plot(
        key="host-load",
        title=title,
        caption=f"Samples right of the line (a wait of {limit:.0%}) are marked; those in the band"
        " are not off.",
        x=Axis("Longest wait for a core / time", from_zero=True),
        y=(Axis("Time / median without load"),),
        series=series,
        height=480,
        table=Table(head, rows, numbers=all_but(head, 1)),
        marks=[Mark("x", limit), Mark("y", 1 - TOLERANCE, until=1 + TOLERANCE)],
    )
    html.write(Page("satlab bench host-load", title, (), [Section("Samples", [drawn])]), file)
