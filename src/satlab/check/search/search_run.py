# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab check --search`: search until a time has passed or a signal comes; files, threads and
progress.

In the folder of a search are search.json and, for each finding, a suite finding-N.yml.
"""

import shlex
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from satlab.check import suite
from satlab.check.backend.virtual_clock import VirtualClock
from satlab.check.check_run import CheckRequest
from satlab.check.search import search_file
from satlab.check.search.conditions import Space
from satlab.check.search.evaluator import Evaluator
from satlab.check.search.faults import Limits
from satlab.check.search.search_file import Finding, Input, Reference, SearchRecord
from satlab.check.search.search_loop import Search
from satlab.check.suite import Suite
from satlab.common import escape
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError
from satlab.common.files import new_folder
from satlab.common.sudo_caller import chown_to_caller

DEFAULT_CASE = "medium"


@dataclass(frozen=True)
class SearchRequest:
    """A search around the only case of `check`, or around DEFAULT_CASE if it names none. `wall_s`:
    duration, s. The search ends earlier after `most_findings`, if set. `reference` None: quinn with
    its defaults if programs or options are under test, otherwise arithmetic.
    """

    check: CheckRequest
    wall_s: float = 600.0
    limits: Limits = field(default_factory=Limits)
    largest_mb: float = 50.0
    reference: Reference | None = None
    most_findings: int | None = None
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class SearchResult:
    """`options`: words of the command line that name the stack under test."""

    folder: Path
    record: SearchRecord
    options: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the number of trials, and for each finding a line and the command that repeats
        it.
        """
        found = self.record
        judged = found.trials - found.not_judged
        head = (
            f"{len(found.findings)} findings in {found.trials} trials ({judged} judged),"
            f" {found.real_s:.0f} s"
        )
        return [
            head,
            *(
                line
                for one in found.findings
                for line in (f"  {text(one)}", f"    {self.command(one)}")
                if line.strip()
            ),
            f"  {self.folder / search_file.FILE}",
        ]

    def command(self, finding: Finding) -> str:
        """Return the command that repeats a finding, for a shell; empty before its suite is
        written.
        """
        if finding.suite is None:
            return ""
        suite_file = self.folder / finding.suite
        return shlex.join(["./satlab", "check", "--suite", str(suite_file), *self.options])


def options_of(check: CheckRequest) -> tuple[str, ...]:
    """Return the options of `satlab check` that name the stack under test."""
    words: list[str] = []
    if check.programs is not None:
        words += check.programs.options()
    for side, options in (("client", check.client), ("server", check.server)):
        for name, value in options.items():
            words += [f"--{side}", f"{name.replace('_', '-')}={value}"]
        for name, text_ in check.environment.get(side, {}).items():
            words += [f"--{side}-env", f"{name}={text_}"]
    return tuple(words)


def text(finding: Finding) -> str:
    """Return a finding on one line."""
    changes = (
        ", ".join(f"{name} {value:g}" for name, value in finding.changes.items())
        or "the case as it is"
    )
    time = "never complete" if finding.time_s is None else f"{finding.time_s:.1f} s"
    facts = [finding.reason, time if finding.kind != "dies" else ""]
    if finding.kind == "stalls" and finding.wait_s is not None:
        facts.append(f"{finding.wait_s:.1f} s without progress")
    if finding.kind == "slow" and finding.reference_s is not None:
        facts.append(f"reference {finding.reference_s:.1f} s")
    facts.append(
        f"{finding.repeats} of {finding.repeats_of} other seeds"
        if finding.is_shrunk
        else "not shrunk yet"
    )
    return f"{finding.kind}: {changes} ({'; '.join(filter(None, facts))})"


def run(request: SearchRequest, log: ProgressLog) -> SearchResult:
    """Search, and keep the record in a folder after each trial.

    Raises:
        ConfigError: suite, case or option is invalid, or the search to resume had other input.
        HostError: satvirtual cannot run on this host.
        KeyboardInterrupt: `request.stop` was set; the record is complete up to then.
    """
    space = _space(request)
    check = request.check
    is_own = bool(check.programs or check.client or check.server)
    reference = request.reference or ("quinn" if is_own else "arithmetic")
    stack = check.backend()
    found = _opened(
        request,
        Input(
            suite=space.suite.name,
            case=space.case.id,
            base=space.base,
            stack=stack.stack,
            reference=reference,
            options={"client": dict(request.check.client), "server": dict(request.check.server)},
            environment={side: dict(values) for side, values in request.check.environment.items()},
            seed=space.suite.seed if request.check.seed is None else request.check.seed,
            share=request.limits.share,
            stall_rtts=request.limits.stall_rtts,
            largest_mb=space.largest_mb,
        ),
    )
    work = found.folder / "work"
    work.mkdir(exist_ok=True)
    try:
        _Running(request, space, found, log, work).run()
    finally:
        shutil.rmtree(work, ignore_errors=True)
        chown_to_caller(found.folder)
    if request.stop.is_set():
        log.line(f"  to continue, repeat the command with --resume {found.folder}")
        raise KeyboardInterrupt
    return found


class _Running:
    """A search while it runs: its clock, its threads, its folder."""

    def __init__(
        self,
        request: SearchRequest,
        space: Space,
        found: SearchResult,
        log: ProgressLog,
        work: Path,
    ) -> None:
        self._request, self._found, self._log = request, found, log
        self._halt = threading.Event()
        self._began, self._earlier_s = time.monotonic(), found.record.real_s
        check, jobs = request.check, max(1, request.check.jobs)
        stack = VirtualClock(
            check.client, check.server, jobs, programs=check.programs, stop=self._halt
        )
        name = found.record.input.reference
        reference = None
        if name != "arithmetic":
            options = {"congestion_control": "bbr3"} if name == "noq" else {}
            reference = VirtualClock({}, options, jobs, library=name, stop=self._halt)
        self._evaluator = Evaluator(space, stack, reference, request.limits, work)
        self._jobs = jobs
        self._space = space

    def run(self) -> None:
        with ThreadPoolExecutor(self._jobs) as pool, self._log.step("search") as step:
            self._step = step
            try:
                Search(
                    self._space,
                    self._found.record,
                    self._evaluator,
                    pool,
                    self._jobs,
                    self._may_continue,
                    self._save,
                ).run()
            finally:
                self._halt.set()
                pool.shutdown(cancel_futures=True)
                step.outcome = self._found.lines()[0]

    def _may_continue(self) -> bool:
        request, findings = self._request, self._found.record.findings
        is_over = time.monotonic() - self._began >= request.wall_s
        is_enough = (
            request.most_findings is not None
            and sum(one.is_shrunk for one in findings) >= request.most_findings
        )
        return not (request.stop.is_set() or is_over or is_enough)

    def _save(self, finding: Finding | None) -> None:
        """Write the record, and the suite of a finding that is complete."""
        found = self._found.record
        found.real_s = round(self._earlier_s + time.monotonic() - self._began, 3)
        if finding is not None:
            name = f"finding-{found.findings.index(finding) + 1}"
            finding.suite = f"{name}.yml"
            _write_suite(self._found, finding, self._evaluator.suite_of(finding, name))
            self._log.line(f"  {text(finding)}")
            self._log.line(f"    {self._found.command(finding)}")
        found.write(self._found.folder)
        is_shrinking = not all(one.is_shrunk for one in found.findings)
        text_ = f"{found.trials} trials, {len(found.findings)} findings"
        self._step.now(text_ + (", shrinking" if is_shrinking else ""))


def _write_suite(result: SearchResult, finding: Finding, found: Suite) -> None:
    document = found.model_dump(mode="json", by_alias=True, exclude_unset=True)
    asked = result.record.input
    fault = "is slow" if finding.kind == "slow" else finding.kind
    head = (
        f"# {escape.visible(asked.stack)} {fault} here; trial {finding.trial} of a search around"
        f" {asked.case} of {asked.suite}.\n"
    )
    content = yaml.safe_dump(document, sort_keys=False, width=120)
    (result.folder / f"{found.name}.yml").write_text(head + content)


def _space(request: SearchRequest) -> Space:
    plan = suite.load(suite.file_of(request.check.suite))
    names = request.check.cases or (DEFAULT_CASE,)
    cases = plan.selected(names)
    if len(cases) != 1:
        raise ConfigError(f"a search is around one case, not {len(cases)}", hint="--cases ID")
    if not plan.marks_mb:
        raise ConfigError(
            f"suite {plan.name} has test cases, no payload to vary",
            hint="use a suite with marks_mb",
        )
    if plan.marks_mb[0] > request.largest_mb:
        plan = plan.model_copy(update={"marks_mb": (request.largest_mb,)})
    return Space(plan, cases[0], request.largest_mb)


def _opened(request: SearchRequest, asked: Input) -> SearchResult:
    """Return an earlier search, or a new one in a new folder."""
    folder, options = request.check.resume, options_of(request.check)
    if folder is not None:
        return SearchResult(folder, search_file.load(folder, asked), options)
    folder = new_folder(request.check.out, f"search-{asked.suite}-{asked.case}")
    new = SearchResult(folder, SearchRecord(input=asked), options)
    new.record.write(folder)
    return new
