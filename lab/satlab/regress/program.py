# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab check`: samples of every case until the verdicts stand, then targets, baseline, and what to hand on."""

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import satlab
from satlab import ownership, paths
from satlab.errors import ConfigError, ExitStatus, Fault
from satlab.regress import endpoint, judge, links, outside, suite, why
from satlab.regress.ends import Ends, Satperf
from satlab.regress.judge import Compared, Judged
from satlab.regress.links import Link
from satlab.regress.real import Real
from satlab.regress.sample import Backend, Options, Sample, Warned
from satlab.regress.suite import Case, Suite
from satlab.regress.tcp import TcpPep
from satlab.regress.virtual import Virtual
from satlab.ui import Talk

SCHEMA = "satlab/check/1"
MIN_RUNS = 5
MAX_RUNS = 20
BASELINE_RUNS = 10
"""Samples a comparison starts from: with fewer, no test over the marks of a whole suite can be significant."""
COMPARED_RUNS = range(BASELINE_RUNS, MAX_RUNS + 1, MIN_RUNS)
SLOWDOWN = 0.10
"""What a comparison takes enough samples to find, if MAX_RUNS are enough."""


STACKS: dict[str, Callable[[], Ends]] = {"ngtcp2": outside.ngtcp2, "tcp-pep": TcpPep}
"""Built-in pairs beside satperf's."""


@dataclass(frozen=True)
class Wanted:
    """What a person asks for. `runs` None: as many as the verdicts need.

    `stack` and `ends` matter to the real clock alone: programs from outside, or a built-in pair.
    """

    suite: str = "etosat"
    cases: Sequence[str] = ()
    runs: int | None = None
    seed: int = 1
    client: Options = field(default_factory=dict)
    server: Options = field(default_factory=dict)
    baseline: Path | None = None
    beside: Sequence[Path] = ()
    tolerance: float = 0.03
    out: Path = Path("runs")
    jobs: int = os.cpu_count() or 1
    clock: Literal["virtual", "real"] = "virtual"
    stack: str = "quinn"
    ends: Ends | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def backend(self) -> Backend:
        """Choose who takes the samples."""
        if self.clock == "virtual":
            return Virtual(self.client, self.server, max(1, self.jobs))
        return Real(self.ends or self._built_in(), self.stop)

    def _built_in(self) -> Ends:
        if self.stack in ("quinn", "quiche"):
            return Satperf(self.stack, (self.client, self.server))
        if self.client or self.server:
            raise ConfigError(f"options of an end are satperf's; {self.stack} takes none", hint="leave --client out")
        return STACKS[self.stack]()


@dataclass(frozen=True)
class Findings:
    """All that a check gives."""

    suite: Suite
    links: dict[str, Link]
    samples: dict[str, list[Sample]]
    judged: list[Judged]
    compared: list[Compared] | None
    wanted: Wanted
    backend: Backend
    beside: Sequence[dict[str, Any]]
    folder: Path
    began_unix_s: float
    real_s: float

    @property
    def status(self) -> ExitStatus:
        """Give 1 when a target is missed, or with a baseline, when something became slower; else 4, 5 or 0.

        4 when the link was out of calibration for a verdict, 5 when the programs support nothing that was asked.
        """
        results = {one.result for one in self.judged}
        missed = "fail" in results if self.compared is None else any(one.is_slower for one in self.compared)
        if missed:
            return ExitStatus.FAILED
        if "not measurable" in results:
            return ExitStatus.UNCALIBRATED
        return ExitStatus.UNSUPPORTED if results == {"unsupported"} else ExitStatus.OK

    @property
    def simulated_s(self) -> float | None:
        """Give the time that all samples together would have taken on a real link; None where the clock was real."""
        times = [one.simulated_s for samples in self.samples.values() for one in samples]
        return sum(time or 0.0 for time in times) if any(times) else None

    def spent_s(self, case: str) -> dict[str, float] | None:
        """Give the mean seconds that a transfer of the case spent for each cause; None where none was traced."""
        traced = [one.spent_s for one in self.samples[case] if one.spent_s is not None]
        return why.mean(traced) if traced else None

    def document(self) -> dict[str, Any]:
        """Give what is saved as check.json, and taken as a baseline later (schemas/check.schema.json)."""
        return {
            "schema": SCHEMA,
            "version": satlab.__version__,
            "clock": self.backend.clock,
            "stack": self.backend.stack,
            "suite": self.suite.name,
            "source": self.suite.source,
            "marks_mb": list(self.suite.marks_mb),
            "options": {"client": dict(self.wanted.client), "server": dict(self.wanted.server)},
            "seed": self.wanted.seed,
            "real_s": round(self.real_s, 3),
            "simulated_s": None if self.simulated_s is None else round(self.simulated_s, 3),
            "cases": [self._case(name) for name in self.samples],
            "compared": None if self.compared is None else [_comparison(one) for one in self.compared],
        }

    def _case(self, name: str) -> dict[str, Any]:
        link = self.links[name]
        return {
            "id": name,
            "forward_mbps": link.forward_mbps,
            "return_mbps": link.return_mbps,
            "rtt_ms": link.plan.rtt_ms.mean,
            "queue_bytes": [link.plan.forward.queue_bytes, link.plan.return_.queue_bytes],
            "spent_s": self.spent_s(name),
            "verdicts": [_verdict(one) for one in self.judged if one.case == name],
            "samples": [asdict(one) for one in self.samples[name]],
        }


def _verdict(one: Judged) -> dict[str, Any]:
    document = asdict(one)
    del document["case"]
    spread = document.pop("interval_s")
    times = {"median_s": one.median_s, "low_s": spread["low"], "high_s": spread["high"]}
    return document | {key: _json(value) for key, value in times.items()}


def _comparison(one: Compared) -> dict[str, Any]:
    times = {"median_s": one.median_s, "baseline_s": one.baseline_s, "ratio": one.ratio}
    return asdict(one) | {key: _json(value) for key, value in times.items()}


def _json(value: float) -> float | None:
    """Give a time as JSON can hold it: null for never."""
    return None if math.isinf(value) else value


def run(wanted: Wanted, talk: Talk) -> Findings:
    """Take samples of every case and judge them.

    Raises:
        ConfigError: suite, case, option or baseline are not usable.
        HostError: the program that moves the time is missing or dies.
    """
    began, began_unix_s = time.monotonic(), time.time()
    plan = suite.load(paths.BASELINES / f"{wanted.suite}.yml")
    cases = plan.selected(wanted.cases)
    before = None if wanted.baseline is None else load_baseline(wanted.baseline, plan)
    beside = [load(path, plan) for path in wanted.beside]
    least = {case.id: wanted.runs or _least(plan, case, before, len(cases)) for case in cases}
    folder = wanted.out / f"check-{plan.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    raw = folder / "raw"
    raw.mkdir(parents=True)
    backend = wanted.backend()
    found: dict[str, list[Sample]] = {}
    built: dict[str, Link] = {}
    try:
        for case in cases:
            with talk.step(case.id) as step:
                built[case.id] = links.build(plan, case, raw / "profiles")
                found[case.id] = _samples(plan, case, built[case.id], wanted, backend, raw, least[case.id])
                step.outcome = _told(found[case.id])
    finally:
        ownership.give_to_caller(folder)
    judged = judge.against_targets(plan, cases, found)
    compared = None if before is None else judge.against_baseline(plan.marks_mb, found, before, wanted.tolerance)
    findings = Findings(
        plan, built, found, judged, compared, wanted, backend, beside, folder, began_unix_s, time.monotonic() - began
    )
    (folder / "check.json").write_text(json.dumps(findings.document(), indent=1) + "\n")
    ownership.give_to_caller(folder)
    return findings


def _least(plan: Suite, case: Case, before: judge.Samples | None, cases: int) -> int:
    """Tell how many samples a case needs at the least; a comparison plans with the baseline's spread."""
    if before is None:
        return MIN_RUNS
    pilot = [judge.ordered(before[case.id], mark) for mark in range(len(plan.marks_mb))] if case.id in before else []
    return judge.runs_for(pilot, COMPARED_RUNS, SLOWDOWN, cases * len(plan.marks_mb))


def _samples(
    plan: Suite, case: Case, link: Link, wanted: Wanted, backend: Backend, raw: Path, least: int
) -> list[Sample]:
    """Take samples until the verdict stands; in all cases the same number for the same input, however fast."""

    def take(first: int, count: int) -> list[Sample]:
        seeds = range(wanted.seed + first, wanted.seed + first + count)
        if backend.at_once == 1:
            return [backend.sample(plan, case, link, seed, raw) for seed in seeds]
        with ThreadPoolExecutor(backend.at_once) as pool:
            return list(pool.map(lambda seed: backend.sample(plan, case, link, seed, raw), seeds))

    found = take(0, 1)
    if found[0].status == "unsupported":
        return found
    found += take(1, least - 1)
    while wanted.runs is None and len(found) < MAX_RUNS:
        if not any(verdict.is_open for verdict in judge.against_targets(plan, [case], {case.id: found})):
            break
        found += take(len(found), MIN_RUNS)
    return found


def _told(samples: Sequence[Sample]) -> str:
    worst = next((one.reason for one in samples if one.status != "ok"), "")
    off = sum(bool(one.calibration) for one in samples)
    return f"{len(samples)} samples{f', {off} out of calibration' if off else ''}{f'; {worst}' if worst else ''}"


def from_outside(
    client: str | None, server: str | None, show: Sequence[Path], place: Path | None
) -> AbstractContextManager[Ends]:
    """Give what a person brings: two commands, or an endpoint of the QUIC interop runner; usable within the block.

    Raises:
        ConfigError: it is not usable, or both.
    """
    if place is None:
        return contextlib.nullcontext(outside.parse(client, server, show))
    if client or server:
        raise ConfigError("both an endpoint and commands are given", hint="leave out --endpoint, or the other two")
    return endpoint.opened(place)


def options(given: Sequence[str]) -> Options:
    """Read NAME=VALUE pairs of one end, names as on satperf's command line; satvirtual knows which there are.

    Raises:
        ConfigError: something is no such pair.
    """
    pairs = [text.partition("=") for text in given]
    bad = [
        Fault(text, "is no NAME=VALUE") for text, pair in zip(given, pairs, strict=True) if not (pair[0] and pair[2])
    ]
    if bad:
        raise ConfigError("options of an end", bad, "say, --client initial-window=32")
    return {name.replace("-", "_"): int(value) if value.isdecimal() else value for name, _, value in pairs}


def load(path: Path, plan: Suite) -> dict[str, Any]:
    """Read an earlier check.json.

    Raises:
        ConfigError: it is none, or of another suite.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        same = (document["schema"], document["suite"], tuple(document["marks_mb"]))
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}", hint="an earlier check left runs/check-.../check.json"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no {SCHEMA}: {error}", hint="take the check.json of an earlier check") from error
    if same != (SCHEMA, plan.name, plan.marks_mb):
        raise ConfigError(f"{path} is of suite {document['suite']}", hint=f"take a check.json of suite {plan.name}")
    return document


def load_baseline(path: Path, plan: Suite) -> dict[str, list[Sample]]:
    """Read the samples of an earlier check.json. Raises ConfigError as `load`."""
    try:
        return {case["id"]: [_sample(one) for one in case["samples"]] for case in load(path, plan)["cases"]}
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no {SCHEMA}: {error}", hint="take the check.json of an earlier check") from error


def _sample(document: dict[str, Any]) -> Sample:
    tuples = {name: tuple(document.get(name, ())) for name in ("times_s", "symptoms")}
    tuples["warnings"] = tuple(Warned(**one) for one in document.get("warnings", ()))
    return Sample(**document | tuples)
