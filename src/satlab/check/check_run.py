# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab check`: take samples of each case until its verdicts are final, then compare with targets
or a baseline.
"""

import json
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from satlab.check import case_link, check_file, check_result, provenance, suite, verdict
from satlab.check.backend.real_clock import RealClock
from satlab.check.backend.virtual_clock import VirtualClock
from satlab.check.case_link import CaseLink
from satlab.check.check_file import CheckFile
from satlab.check.check_result import CheckResult, SampleInput
from satlab.check.endpoint import endpoint_options
from satlab.check.endpoint.endpoint_options import External
from satlab.check.endpoint.lockstep import LockstepPair
from satlab.check.endpoint.pair import EndpointPair, Environment
from satlab.check.provenance import Provenance
from satlab.check.samples import Backend, Options, Sample
from satlab.check.sampling_order import Sampling, longest_first
from satlab.check.suite import Case, Suite
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, Fault
from satlab.common.files import new_folder, write_atomically
from satlab.common.sudo_caller import chown_to_caller
from satlab.run import manifest, quiet_host
from satlab.run.quiet_host import Patience

MIN_RUNS = 5
MAX_RUNS = 20
BASELINE_RUNS = 10
"""Fewest samples of a comparison: with fewer, no test over all marks of a suite can be significant.
"""
COMPARED_RUNS = range(BASELINE_RUNS, MAX_RUNS + 1, MIN_RUNS)
ENOUGH_RUNS = range(MIN_RUNS, MAX_RUNS + 1)
"""Samples of each build of which a comparison too small is told."""
LINK_TOLERANCE = 0.001
"""Relative difference below which a baseline's link is the same."""
SLOWDOWN = 0.10
"""A comparison takes enough samples to find this slowdown, up to MAX_RUNS."""


@dataclass(frozen=True)
class CheckRequest:
    """A check as requested on the command line.

    `runs` None: the number of samples of the suite and its cases; or as many as the verdicts need,
    if the suite has none, or if a comparison needs more.
    `seed` None: the suite's. `patience`, `stack` and `pair` are for the real clock; `pair` has
    external programs and replaces the built-in `stack`. `programs` are for the virtual clock.
    `environment` has variables of all these programs, by side. `command` has the words of the
    command line after `satlab`, for the record. `stop` ends the samples in progress.
    `compare_with` are check.json files of other stacks.
    """

    suite: str = "etosat"
    cases: Sequence[str] = ()
    runs: int | None = None
    seed: int | None = None
    client: Options = field(default_factory=dict)
    server: Options = field(default_factory=dict)
    baseline: Path | None = None
    compare_with: Sequence[Path] = ()
    resume: Path | None = None
    tolerance: float = 0.03
    out: Path = Path("runs")
    jobs: int = os.cpu_count() or 1
    clock: Literal["virtual", "real"] = "virtual"
    stack: str = "quinn"
    pair: EndpointPair | None = None
    programs: LockstepPair | None = None
    environment: Environment = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    patience: Patience = field(default_factory=Patience)
    command: Sequence[str] = ()

    def backend(self) -> Backend:
        if self.clock == "virtual":
            return VirtualClock(
                self.client, self.server, max(1, self.jobs), programs=self.programs, stop=self.stop
            )
        return RealClock(
            self.pair or endpoint_options.built_in(self.stack, self.client, self.server), self.stop
        )


def run(request: CheckRequest, log: ProgressLog) -> CheckResult:
    """Take samples of every case and judge them. check.json is written after each sample.

    Raises:
        ConfigError: suite, case, option, baseline or the check to resume is invalid.
        HostError: satvirtual or the lab cannot run on this host.
    """
    plan = suite.load(suite.file_of(request.suite))
    cases = plan.selected(request.cases)
    if request.clock == "virtual" and not plan.marks_mb:
        hint = "--endpoint, or a suite with marks_mb"
        raise ConfigError(
            f"suite {plan.name} has test cases of the QUIC interop runner, no payload to time",
            hint=hint,
        )
    baseline = None
    if request.baseline is not None:
        baseline = check_file.load(request.baseline, plan)
        if not {case.id for case in cases} & {case["id"] for case in baseline["cases"]}:
            known = ", ".join(case["id"] for case in baseline["cases"])
            raise ConfigError(
                f"{request.baseline} has none of the requested cases",
                hint=f"its cases are {known or 'none'}; make a new baseline, or choose with --cases",
            )
    others = [check_file.load(path, plan) for path in request.compare_with]
    check = _Check(plan, request, baseline, others, log)
    check.build_links(cases)
    check.compare_links()
    try:
        check.take_samples(cases)
    except BaseException:
        if any(check.samples.values()):
            log.line(
                f"  samples so far: {check.folder}; to continue, repeat the command with --resume"
                f" {check.folder}"
            )
        raise
    finally:
        chown_to_caller(check.folder)
    return check.save()


def run_each(
    request: CheckRequest, pairs: Sequence[External | LockstepPair], log: ProgressLog
) -> list[CheckResult]:
    """Run the check with each pair in turn; without pairs, once and without programs. With several
    pairs, each has a folder with its number.

    Raises:
        ConfigError: as `run`, or a program or endpoint is invalid.
        HostError: as `run`.
    """
    if not pairs:
        return [run(request, log)]
    found = []
    for number, pair in enumerate(pairs, 1):
        one = request if len(pairs) == 1 else replace(request, out=request.out / f"pair-{number}")
        if isinstance(pair, LockstepPair):
            found.append(run(replace(one, programs=pair), log))
            continue
        with pair.opened() as opened:
            found.append(run(replace(one, pair=opened), log))
    return found


class _Check:
    """A check in progress: the samples so far."""

    def __init__(
        self,
        plan: Suite,
        request: CheckRequest,
        baseline: CheckFile | None,
        others: Sequence[CheckFile],
        log: ProgressLog,
    ) -> None:
        self._log = log
        self._began, self._began_unix_s = time.monotonic(), time.time()
        self._plan, self._request, self._others = plan, request, others
        self._baseline = baseline
        self._before = None if baseline is None else check_file.samples(baseline)
        self._baseline_file = None
        if baseline is not None and request.baseline is not None:
            self._baseline_file = provenance.baseline_file(request.baseline, baseline)
        programs = request.pair or request.programs
        self._provenance: Provenance = {
            "command": list(request.command),
            "host": manifest.host(),
            "versions": manifest.versions(paths.SATLINK),
            "programs": provenance.program_files(programs.commands() if programs else {}),
        }
        self._backend = request.backend()
        self._seed = plan.seed if request.seed is None else request.seed
        self._input = SampleInput(
            self._backend.clock,
            self._backend.stack,
            request.client,
            request.server,
            self._seed,
            request.environment,
        )
        self._links: dict[str, CaseLink] = {}
        self.samples: dict[str, list[Sample]] = {}
        self._earlier_s = 0.0
        if request.resume is None:
            self.folder = new_folder(request.out, f"check-{plan.name}")
        else:
            self.folder = request.resume
            self._resume(self.folder / check_file.NAME)
        self._raw = self.folder / "raw"
        self._raw.mkdir(parents=True, exist_ok=request.resume is not None)

    def _resume(self, file: Path) -> None:
        """Keep the samples of an earlier check. Raises ConfigError if that check had other
        input.
        """
        earlier = check_file.load(file, self._plan)
        self._earlier_s = earlier["real_s"]
        self.samples = check_file.samples(earlier)
        document: Mapping[str, object] = dict(earlier)
        own = {"environment": None} | self._input.document()
        other = [name for name, value in own.items() if document.get(name) != value]
        if other:
            values = " and ".join(f"{name} {json.dumps(document.get(name))}" for name in other)
            raise ConfigError(
                f"{self.folder} was made with {values}", hint="use the same, or omit --resume"
            )

    def build_links(self, cases: Sequence[Case]) -> None:
        """Build the link of each case that is requested or has samples."""
        for case in self._plan.cases:
            if case.id in self.samples or case in cases:
                self._links[case.id] = case_link.build(self._plan, case, self._raw / "profiles")

    def compare_links(self) -> None:
        """Refuse a baseline over other links: its times are no measure of a build.

        Raises:
            ConfigError: with every case whose link differs.
        """
        faults = []
        for case in [] if self._baseline is None else self._baseline["cases"]:
            if (link := self._links.get(case["id"])) is None:
                continue
            for name, value in check_result.link_of(link).items():
                before: Any = dict(case)[name]
                pairs = zip(_numbers(before), _numbers(value), strict=True)
                if not all(math.isclose(*pair, rel_tol=LINK_TOLERANCE) for pair in pairs):
                    faults.append(Fault(case["id"], f"{name} was {before}, now it is {value}"))
        if faults:
            raise ConfigError(
                f"{self._request.baseline} was measured over other links",
                faults,
                hint="make a new baseline with this suite",
            )

    def take_samples(self, cases: Sequence[Case]) -> None:
        """Take samples until the verdicts are final. Equal input leads to equal numbers of samples
        on any host.

        The backend decides whether it takes samples of several cases at once.
        """
        runs, at_once, stop = self._request.runs, self._backend.at_once, self._request.stop.set
        least = {
            case.id: runs or _min_runs(self._plan, case, self._before, len(cases)) for case in cases
        }
        for case in cases:
            if self._before is not None and self._before.get(case.id):
                self._log.line(
                    f"  {case.id}: "
                    + _detectable_by(
                        self._plan,
                        self._before[case.id],
                        least[case.id],
                        self._request.tolerance,
                        len(cases),
                    )
                )
        sampling = Sampling(
            self._take, lambda case: self._missing(case, least[case.id]), self._keep, self._log_case
        )
        for case in cases:
            self.samples.setdefault(case.id, [])
        if at_once > 1:
            with self._log.step("all cases"):
                sampling.of_cases(longest_first(self._plan, cases), at_once, stop)
            return
        for case in cases:
            with self._log.step(case.id) as step:
                sampling.of_case(case)
                step.outcome = _outcome(self.samples[case.id])

    def _missing(self, case: Case, min_runs: int) -> Sequence[int]:
        """Return the seeds of the next samples of a case. The first sample is taken alone, as it
        shows whether the case is supported.
        """
        samples = self.samples[case.id]
        if not samples:
            count = 1
        elif samples[0].status == "unsupported":
            count = 0
        elif len(samples) < min_runs:
            count = min(min_runs - len(samples), MAX_RUNS)
        else:
            verdicts = verdict.against_targets(self._plan, [case], self.samples)
            is_open = any(one.is_open for one in verdicts)
            is_fixed = self._request.runs or case.runs or self._plan.runs
            is_done = is_fixed or len(samples) >= MAX_RUNS
            count = MIN_RUNS if is_open and not is_done else 0
        first = self._seed + len(samples)
        return range(first, first + count)

    def _keep(self, case: Case, found: Sequence[Sample]) -> None:
        self.samples[case.id] += found
        self.save()

    def _log_case(self, case: Case) -> None:
        took_s = time.monotonic() - self._began
        self._log.line(f"  {case.id}: {_outcome(self.samples[case.id])} (after {took_s:.1f} s)")

    def _take(self, case: Case, seed: int) -> Sample:
        """Take a sample. On the real clock, wait for a quiet host and repeat samples out of
        calibration, as requested.
        """
        attempts = 0

        def take() -> Sample:
            nonlocal attempts
            attempts += 1
            return self._backend.sample(self._plan, case, self._links[case.id], seed, self._raw)

        if self._backend.clock == "virtual":
            return take()
        request = self._request
        found = quiet_host.measured(
            take,
            lambda sample: verdict.spoilt_by(sample, is_test=not self._plan.marks_mb),
            request.patience,
            self._log,
            request.stop,
        )
        return replace(found, attempts=attempts)

    def save(self) -> CheckResult:
        """Write check.json and return its contents."""
        cases = [case for case in self._plan.cases if self.samples.get(case.id)]
        samples = {case.id: self.samples[case.id] for case in cases}
        comparisons = None
        if self._before is not None:
            tolerance = self._request.tolerance
            limits_s = {case.id: case.timeout_s for case in cases}
            comparisons = verdict.against_baseline(
                self._plan.marks_mb, samples, self._before, tolerance, limits_s
            )
        result = CheckResult(
            suite=self._plan,
            input=self._input,
            links=self._links,
            samples=samples,
            verdicts=verdict.against_targets(self._plan, cases, samples),
            comparisons=comparisons,
            others=self._others,
            folder=self.folder,
            provenance=self._provenance,
            baseline=self._before,
            baseline_file=self._baseline_file,
            began_unix_s=self._began_unix_s,
            real_s=self._earlier_s + time.monotonic() - self._began,
        )
        document = json.dumps(result.document(), indent=1)
        write_atomically(self.folder / check_file.NAME, document + "\n")
        return result


def _numbers(value: float | Sequence[float]) -> Sequence[float]:
    return value if isinstance(value, Sequence) else (value,)


def _min_runs(plan: Suite, case: Case, baseline: verdict.Samples | None, cases: int) -> int:
    """Return the fewest samples of a case: those of the suite; with a baseline, more if the spread
    of its calibrated samples needs them.
    """
    usual = case.runs or plan.runs
    if baseline is None:
        return usual or MIN_RUNS
    pilot = verdict.calibrated(baseline.get(case.id, ()))
    times = (
        [verdict.sorted_times(pilot, mark) for mark in range(len(plan.marks_mb))] if pilot else []
    )
    planned = verdict.runs_for(times, COMPARED_RUNS, SLOWDOWN, cases * len(plan.marks_mb))
    return max(planned, usual or planned)


def _detectable_by(
    plan: Suite, baseline: Sequence[Sample], runs: int, tolerance: float, cases: int
) -> str:
    """Return which slowdowns so many samples of a case will show, for each mark; or how many
    samples would show one.
    """
    pilot = verdict.calibrated(baseline)
    tests = cases * len(plan.marks_mb)
    times = [verdict.sorted_times(pilot, mark) for mark in range(len(plan.marks_mb))]
    least = [verdict.detectable(each, runs, tolerance, tests) if each else None for each in times]
    counts = f"{runs} sample{'s' * (runs != 1)}, {len(pilot)} of the baseline"
    if not any(least):
        enough = max(runs, verdict.runs_for(times if pilot else [], ENOUGH_RUNS, 1.0, tests))
        return (
            f"{counts}: too few to show even twice the time; take {enough} of each build"
            f" (--runs {enough})"
        )
    sizes = ("over 100%" if one is None else f"{one:.0%}" for one in least)
    found = (f"{size} ({mark:g} MB)" for size, mark in zip(sizes, plan.marks_mb, strict=True))
    return f"{counts}; they show slowdowns from {', '.join(found)}"


def _outcome(samples: Sequence[Sample]) -> str:
    """One line for the progress log: number of samples, and the reason of the first failed one."""
    reason = next((one.reason for one in samples if one.status != "ok"), "")
    off = sum(bool(one.calibration) for one in samples)
    text = f"{len(samples)} sample{'s' * (len(samples) != 1)}"
    text += f", {off} out of calibration" if off else ""
    return f"{text}; {reason}" if reason else text
