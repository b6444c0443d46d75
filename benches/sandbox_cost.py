# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches confinement`: what sandboxes cost, in pairs: the start of a program, page loads,
QUIC transfers.

The runs of a pair follow each other, in turn with the sandbox first and last. Without it a job has
a user of its own and its node's network, and sees of the folders closed to others what it needs,
nothing more.
"""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import collect
from satlab.common import scratch
from satlab.common.console import ProgressLog
from satlab.common.paths import SCENARIOS
from satlab.lab import privileges, sandbox
from satlab.lab.sandbox import Sandbox
from satlab.link.options import LinkOptions
from satlab.run import scenario_run
from satlab.run.scenario_run import RunRequest

START_LIMIT_MS = 50.0
"""Promised cost of a start."""
RUNS: dict[str, tuple[str, dict[str, str], str]] = {
    "page load": ("page_load", {"protocol": "h1", "runs": "3"}, "page_load_time_ms"),
    "QUIC": ("quic", {"pep": "none", "duration": "5"}, "goodput_bps"),
}
"""Scenario, arguments and figure of what is compared."""


def measure(pairs: int, starts: int, runs: Path, log: ProgressLog) -> dict[str, Any]:
    """Measure so many pairs of runs and of starts.

    Raises:
        ConfigError, HostError: this host cannot run a lab.
    """
    with log.step(f"{starts} starts"):
        found: dict[str, Any] = {
            "schema": "satlab/bench-confinement/1",
            "start_ms": start_ms(starts),
        }
    for name, (scenario, settings, metric) in RUNS.items():
        values: dict[str, list[float]] = {"sandbox": [], "without": []}
        for number in range(pairs):
            for kind in sorted(values, reverse=bool(number % 2)):
                with log.step(f"{name} {number + 1} of {pairs}, {kind}"):
                    values[kind] += _figures(
                        scenario, settings, metric, runs, is_confined=kind == "sandbox"
                    )
        found[metric] = values
    return found


def start_ms(starts: int) -> dict[str, list[float]]:
    """Return the times of starts of `true`, in turn with a sandbox and without, ms."""
    found: dict[str, list[float]] = {"sandbox": [], "without": []}
    with scratch.folder("bench") as folder:
        root = folder / "root"
        root.mkdir()
        prefix = Sandbox(mounts=sandbox.programs()).argv(folder / "sandbox.json", root)
        for _ in range(starts):
            for kind, argv in (("sandbox", [*prefix, "true"]), ("without", ["true"])):
                began = time.monotonic()
                subprocess.run(
                    argv,
                    env=sandbox.ENVIRONMENT,
                    cwd=sandbox.HOME,
                    stdin=subprocess.DEVNULL,
                    check=True,
                )
                found[kind].append(1000 * (time.monotonic() - began))
    return found


def _figures(
    scenario: str, settings: dict[str, str], metric: str, runs: Path, *, is_confined: bool
) -> list[float]:
    request = RunRequest(
        SCENARIOS / f"{scenario}.json", LinkOptions(profile="leo"), settings, runs, report=False
    )
    with nullcontext() if is_confined else _unconfined():
        result = scenario_run.execute(
            scenario_run.prepare(request), ProgressLog(quiet=True), threading.Event()
        )
    rows = collect.summaries(result.records)
    return [
        row["value"]
        for row in rows
        if row["metric"] == metric and row["value"] and "stat" not in row["labels"]
    ]


@contextmanager
def _unconfined() -> Iterator[None]:
    """Run jobs without sandboxes during the block."""
    confined = Sandbox.argv

    def argv(box: Sandbox, *_: object, **__: object) -> list[str]:
        network = (
            [] if box.place.network is None else ["nsenter", f"--net={box.place.network}", "--"]
        )
        variables = [f"{name}={value}" for name, value in box.variables.items()]
        visible = [mount.source for mount in box.mounts]
        return [*network, *privileges.drop_argv(box.uid, visible), "env", *variables]

    setattr(Sandbox, "argv", argv)  # noqa: B010 - for this comparison alone
    try:
        yield
    finally:
        setattr(Sandbox, "argv", confined)  # noqa: B010


def lines(result: dict[str, Any]) -> list[str]:
    """Return the result as text."""
    rows = []
    for metric, kinds in result.items():
        if metric == "schema":
            continue
        with_it, without = (
            median(kinds[kind]) if kinds[kind] else float("nan") for kind in ("sandbox", "without")
        )
        scale, unit = (1e6, "Mbit/s") if metric.endswith("_bps") else (1.0, "ms")
        name = metric.rpartition("_")[0].replace("_", " ")
        line = (
            f"{name}: median {with_it / scale:.2f} {unit} in a sandbox, {without / scale:.2f}"
            " without"
        )
        if metric == "start_ms":
            line += f", {with_it - without:.1f} ms more; promised: at most {START_LIMIT_MS:g} ms"
        else:
            line += f", {with_it / without - 1:+.1%}; n {len(kinds['sandbox'])}, {_spread(kinds)}"
        rows.append(line)
    return rows


def _spread(kinds: dict[str, list[float]]) -> str:
    """Return what two medians of equal figures may differ by: the spread of those without a
    sandbox.
    """
    values = kinds["without"]
    return (
        f"spread without {(max(values) - min(values)) / median(values):.1%}"
        if values
        else "no figure"
    )
