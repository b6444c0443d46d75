# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab check`: samples of every case until the verdicts stand, then targets, baseline, and what to hand on."""

import contextlib
import functools
import itertools
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
from satlab.check import case_link, suite, verdict
from satlab.check.backend.real_clock import RealClock
from satlab.check.backend.virtual_clock import VirtualClock
from satlab.check.case_link import CaseLink
from satlab.check.endpoint import command_line, interop_endpoint
from satlab.check.endpoint.pair import EndpointPair, SatperfPair
from satlab.check.endpoint.tcp_pep import TcpPepPair
from satlab.check.samples import Backend, Options, Sample, UnusedSource
from satlab.check.suite import Case, Suite
from satlab.check.trace import causes
from satlab.check.verdict import BaselineComparison, TargetVerdict
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, Fault
from satlab.common.files import write_atomically
from satlab.netlab import ownership

SCHEMA = "satlab/check/1"
MIN_RUNS = 5
MAX_RUNS = 20
BASELINE_RUNS = 10
"""Samples a comparison starts from: with fewer, no test over the marks of a whole suite can be significant."""
COMPARED_RUNS = range(BASELINE_RUNS, MAX_RUNS + 1, MIN_RUNS)
SLOWDOWN = 0.10
"""What a comparison takes enough samples to find, if MAX_RUNS are enough."""


STACKS: dict[str, Callable[[], EndpointPair]] = {"ngtcp2": command_line.ngtcp2, "tcp-pep": TcpPepPair}
"""Built-in pairs beside satperf's."""


@dataclass(frozen=True)
class CheckRequest:
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
    resume: Path | None = None
    tolerance: float = 0.03
    out: Path = Path("runs")
    jobs: int = os.cpu_count() or 1
    clock: Literal["virtual", "real"] = "virtual"
    stack: str = "quinn"
    ends: EndpointPair | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def backend(self) -> Backend:
        """Choose who takes the samples."""
        if self.clock == "virtual":
            return VirtualClock(self.client, self.server, max(1, self.jobs))
        return RealClock(self.ends or self._built_in(), self.stop)

    def _built_in(self) -> EndpointPair:
        if self.stack in ("quinn", "quiche"):
            return SatperfPair(self.stack, (self.client, self.server))
        if self.client or self.server:
            raise ConfigError(f"options of an end are satperf's; {self.stack} takes none", hint="leave --client out")
        return STACKS[self.stack]()


@dataclass(frozen=True)
class CheckResult:
    """All that a check gives."""

    suite: Suite
    links: dict[str, CaseLink]
    samples: dict[str, list[Sample]]
    judged: list[TargetVerdict]
    compared: list[BaselineComparison] | None
    wanted: CheckRequest
    backend: Backend
    beside: Sequence[dict[str, Any]]
    folder: Path
    began_unix_s: float
    real_s: float

    @property
    def status(self) -> ExitStatus:
        """Return 1 when a target is missed, or with a baseline, when something became slower; else 4, 5 or 0.

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
        """Return the time that all samples together would have taken on a real link; None where the clock was real."""
        times = [one.simulated_s for samples in self.samples.values() for one in samples]
        return sum(time or 0.0 for time in times) if any(times) else None

    def spent_s(self, case: str) -> dict[str, float] | None:
        """Return the mean seconds that a transfer of the case spent for each cause; None where none was traced."""
        traced = [one.spent_s for one in self.samples[case] if one.spent_s is not None]
        return causes.mean(traced) if traced else None

    def document(self) -> dict[str, Any]:
        """Return what is saved as check.json, and taken as a baseline later (schemas/check.schema.json)."""
        return {
            "schema": SCHEMA,
            "version": satlab.__version__,
            "suite": self.suite.name,
            "source": self.suite.source,
            "marks_mb": list(self.suite.marks_mb),
            **_input(self.wanted, self.backend),
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


def _input(wanted: CheckRequest, backend: Backend) -> dict[str, Any]:
    """Return what a sample depends on beside suite and case, as check.json has it."""
    options = {"client": dict(wanted.client), "server": dict(wanted.server)}
    return {"clock": backend.clock, "stack": backend.stack, "options": options, "seed": wanted.seed}


def _verdict(one: TargetVerdict) -> dict[str, Any]:
    document = asdict(one)
    del document["case"]
    spread = document.pop("interval_s")
    times = {"median_s": one.median_s, "low_s": spread["low"], "high_s": spread["high"]}
    return document | {key: _json(value) for key, value in times.items()}


def _comparison(one: BaselineComparison) -> dict[str, Any]:
    times = {"median_s": one.median_s, "baseline_s": one.baseline_s, "ratio": one.ratio}
    return asdict(one) | {key: _json(value) for key, value in times.items()}


def _json(value: float) -> float | None:
    """Return a time as JSON can hold it: null for never."""
    return None if math.isinf(value) else value


def run(wanted: CheckRequest, log: ProgressLog) -> CheckResult:
    """Take samples of every case and judge them; check.json holds what was found so far, whatever happens.

    Raises:
        ConfigError: suite, case, option, baseline or the check to go on with are not usable.
        HostError: the program that moves the time is missing or dies.
    """
    plan = suite.load(paths.BASELINES / f"{wanted.suite}.yml")
    cases = plan.selected(wanted.cases)
    before = None if wanted.baseline is None else load_baseline(wanted.baseline, plan)
    check = _Check(plan, wanted, before, [load(path, plan) for path in wanted.beside], wanted.backend())
    for case in plan.cases:
        if case.id in check.found or case in cases:
            check.built[case.id] = case_link.build(plan, case, check.raw / "profiles")
    try:
        for case in cases:
            with log.step(case.id) as step:
                check.take(case, _least(plan, case, before, len(cases)))
                step.outcome = _told(check.found[case.id])
    except BaseException:
        if check.found:
            log.line(f"  what was found is in {check.folder}; go on with: the same command and --resume {check.folder}")
        raise
    finally:
        ownership.give_to_caller(check.folder)
    return check.save()


class _Check:
    """The samples that were taken so far, each saved before the next."""

    def __init__(
        self,
        plan: Suite,
        wanted: CheckRequest,
        before: verdict.Samples | None,
        beside: Sequence[dict[str, Any]],
        backend: Backend,
    ) -> None:
        self._began, self._began_unix_s = time.monotonic(), time.time()
        self._plan, self._wanted, self._before, self._beside, self._backend = plan, wanted, before, beside, backend
        self.built: dict[str, CaseLink] = {}
        self.found: dict[str, list[Sample]] = {}
        self._earlier_s = 0.0
        if wanted.resume is None:
            self.folder = wanted.out / f"check-{plan.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
        else:
            self.folder = wanted.resume
            document = load(self.folder / "check.json", plan)
            self._earlier_s = document["real_s"]
            self.found = _samples(document, self.folder / "check.json")
            asked = _input(wanted, backend)
            other = [one for one, value in asked.items() if document[one] != value]
            if other:
                told = " and ".join(f"{one} {json.dumps(document[one])}" for one in other)
                raise ConfigError(f"{self.folder} was made with {told}", hint="ask for the same, or leave --resume out")
        self.raw = self.folder / "raw"
        self.raw.mkdir(parents=True, exist_ok=wanted.resume is not None)

    def take(self, case: Case, least: int) -> None:
        """Take samples until the verdict stands; in all cases the same number for the same input, however fast."""
        found = self.found.setdefault(case.id, [])
        least = self._wanted.runs or least
        self._sample(case, 1 - len(found))
        if found[0].status == "unsupported":
            return
        self._sample(case, least - len(found))
        while self._wanted.runs is None and len(found) < MAX_RUNS:
            if not any(verdict.is_open for verdict in verdict.against_targets(self._plan, [case], {case.id: found})):
                break
            self._sample(case, MIN_RUNS)

    def _sample(self, case: Case, count: int) -> None:
        found, at_once = self.found[case.id], self._backend.at_once
        seeds = iter(range(self._wanted.seed + len(found), self._wanted.seed + len(found) + count))
        one = functools.partial(self._backend.sample, self._plan, case, self.built[case.id])
        with ThreadPoolExecutor(at_once) as pool:
            spread, size = (map, 1) if at_once == 1 else (pool.map, MAX_RUNS)
            while some := list(itertools.islice(seeds, size)):
                found += spread(lambda seed: one(seed, self.raw), some)
                self.save()

    def save(self) -> CheckResult:
        """Write what was found so far, and give it."""
        findings = self._findings()
        write_atomically(self.folder / "check.json", json.dumps(findings.document(), indent=1) + "\n")
        return findings

    def _findings(self) -> CheckResult:
        cases = [case for case in self._plan.cases if self.found.get(case.id)]
        found = {case.id: self.found[case.id] for case in cases}
        judged = verdict.against_targets(self._plan, cases, found)
        compared = None
        if self._before is not None:
            compared = verdict.against_baseline(self._plan.marks_mb, found, self._before, self._wanted.tolerance)
        real_s = self._earlier_s + time.monotonic() - self._began
        return CheckResult(
            self._plan, self.built, found, judged, compared, self._wanted, self._backend, self._beside, self.folder,
            self._began_unix_s, real_s,
        )  # fmt: skip


def _least(plan: Suite, case: Case, before: verdict.Samples | None, cases: int) -> int:
    """Return how many samples a case needs at the least; a comparison plans with the baseline's spread."""
    if before is None:
        return MIN_RUNS
    pilot = [verdict.ordered(before[case.id], mark) for mark in range(len(plan.marks_mb))] if case.id in before else []
    return verdict.runs_for(pilot, COMPARED_RUNS, SLOWDOWN, cases * len(plan.marks_mb))


def _told(samples: Sequence[Sample]) -> str:
    worst = next((one.reason for one in samples if one.status != "ok"), "")
    off = sum(bool(one.calibration) for one in samples)
    return f"{len(samples)} samples{f', {off} out of calibration' if off else ''}{f'; {worst}' if worst else ''}"


def from_outside(
    client: str | None, server: str | None, show: Sequence[Path], place: Path | None
) -> AbstractContextManager[EndpointPair]:
    """Return what a person brings: two commands, or an endpoint of the QUIC interop runner; usable within the block.

    Raises:
        ConfigError: it is not usable, or both.
    """
    if place is None:
        return contextlib.nullcontext(command_line.parse(client, server, show))
    if client or server:
        raise ConfigError("both an endpoint and commands are given", hint="leave out --endpoint, or the other two")
    return interop_endpoint.opened(place)


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
    return _samples(load(path, plan), path)


def _samples(document: dict[str, Any], path: Path) -> dict[str, list[Sample]]:
    try:
        return {case["id"]: [_sample(one) for one in case["samples"]] for case in document["cases"]}
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no {SCHEMA}: {error}", hint="take the check.json of an earlier check") from error


def _sample(document: dict[str, Any]) -> Sample:
    tuples = {name: tuple(document.get(name, ())) for name in ("times_s", "symptoms")}
    tuples["warnings"] = tuple(UnusedSource(**one) for one in document.get("warnings", ()))
    return Sample(**document | tuples)
