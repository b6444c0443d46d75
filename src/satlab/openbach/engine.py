# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH's director as a state machine: stepped with (now, events), it returns what to start and
stop.

No clock, process or thread is in here. Times are seconds of any clock that does not go back.
Statuses and their order of checks follow OpenBACH 2.7. Where OpenBACH would hang for ever (nothing
runs, and no function left can start), the scenario instance ends `Finished Ko` with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count

from satlab.openbach.job_arguments import InstanceOf
from satlab.openbach.model import BoundScenario, Function, Policy, StartJob, StartScenario, Stop


class ScenarioStatus(StrEnum):
    """OpenBACH's labels of a scenario instance."""

    SCHEDULING = "Scheduling"
    RUNNING = "Running"
    FINISHED_OK = "Finished Ok"
    FINISHED_KO = "Finished Ko"
    STOPPED = "Stopped"


class FunctionStatus(StrEnum):
    """OpenBACH's labels of a function instance."""

    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    STOPPED = "Stopped"
    FINISHED = "Finished"
    ERROR = "Error"
    RETRIED = "Retried"


class JobStatus(StrEnum):
    """OpenBACH's labels of a job instance; `NOT_RUNNING` is the normal end."""

    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    NOT_RUNNING = "Not Running"
    ERROR = "Error"
    STOPPED = "Stopped"
    AGENT_UNREACHABLE = "Agent Unreachable"
    NOT_SCHEDULED = "Not Scheduled"
    UNKNOWN = "Unknown"

    @property
    def ended(self) -> bool:
        """Return whether the job is over."""
        return self not in (JobStatus.SCHEDULED, JobStatus.RUNNING)

    @property
    def failed(self) -> bool:
        """Return whether the job is over and failed."""
        return self.ended and self not in (JobStatus.NOT_RUNNING, JobStatus.STOPPED)


@dataclass
class JobInstance:
    """One started job. `arguments` follow the job's command."""

    id: int
    scenario: ScenarioInstance
    function: Function
    call: StartJob
    arguments: tuple[str, ...]
    start_at: float
    status: JobStatus = JobStatus.SCHEDULED
    accepted: bool = False
    stopping: bool = False
    reason: str = ""


@dataclass
class FunctionInstance:
    """One function, or one attempt at it."""

    function: Function
    status: FunctionStatus = FunctionStatus.SCHEDULED
    attempts: int = 0
    act_at: float = 0.0
    job: JobInstance | None = None
    scenario: ScenarioInstance | None = None
    reason: str = ""

    @property
    def pending(self) -> bool:
        """Return whether the function itself is not done."""
        return self.status in (FunctionStatus.SCHEDULED, FunctionStatus.RUNNING)

    @property
    def finished(self) -> bool:
        """Return whether what the function started is over (`finished_ids`)."""
        job_over = self.job is not None and self.job.status.ended
        return job_over or (self.scenario is not None and self.scenario.over)


@dataclass
class ScenarioInstance:
    """One run of a scenario.

    `functions` holds the latest attempt of each function; earlier ones are in `retried`.
    """

    id: int
    owner_id: int
    bound: BoundScenario
    functions: dict[int, FunctionInstance]
    retried: list[FunctionInstance] = field(default_factory=list)
    status: ScenarioStatus = ScenarioStatus.RUNNING
    ending: ScenarioStatus | None = None
    reason: str = ""

    @property
    def over(self) -> bool:
        """Return whether the instance has ended."""
        return self.status not in (ScenarioStatus.SCHEDULING, ScenarioStatus.RUNNING)

    @property
    def jobs(self) -> Iterator[JobInstance]:
        """Yield the jobs of this instance alone."""
        every = (*self.retried, *self.functions.values())
        return (attempt.job for attempt in every if attempt.job is not None)

    @property
    def below(self) -> Iterator[ScenarioInstance]:
        """Yield the sub-scenario instances of this instance."""
        return (
            attempt.scenario for attempt in self.functions.values() if attempt.scenario is not None
        )

    @property
    def busy(self) -> bool:
        """Return whether a job or sub-scenario still runs."""
        return any(not job.status.ended for job in self.jobs) or any(
            not below.over for below in self.below
        )


@dataclass(frozen=True)
class JobLaunched:
    """Event: the job was started."""

    job_instance_id: int


@dataclass(frozen=True)
class JobRefused:
    """Event: the job could not be started."""

    job_instance_id: int
    reason: str


@dataclass(frozen=True)
class JobEnded:
    """Event: the job ended by itself or was stopped; `ok` means exit status 0."""

    job_instance_id: int
    ok: bool
    reason: str = ""


Event = JobLaunched | JobRefused | JobEnded


@dataclass(frozen=True)
class StartJobAction:
    """Start this job; answer with Launched or Refused."""

    job: JobInstance


@dataclass(frozen=True)
class StopJobAction:
    """Stop this job; answer with Ended."""

    job: JobInstance


@dataclass(frozen=True)
class ScenarioEnded:
    """The scenario instance has ended, and so have its jobs."""

    status: ScenarioStatus
    reason: str


EngineAction = StartJobAction | StopJobAction | ScenarioEnded


@dataclass(frozen=True)
class FirstIds:
    """The first ids of a run's instances."""

    scenario: int = 1
    job: int = 1


FROM_ONE = FirstIds()


class Engine:
    """Runs one bound scenario and everything below it."""

    def __init__(self, scenario: BoundScenario, first: FirstIds = FROM_ONE) -> None:
        self._job_ids = count(first.job)
        self._scenario_ids = count(first.scenario)
        self._jobs: dict[int, JobInstance] = {}
        self._actions: list[EngineAction] = []
        self._now = 0.0
        self.root = self._instance(scenario, owner_id=None)

    def stop(self, reason: str, status: ScenarioStatus = ScenarioStatus.STOPPED) -> None:
        """Request the end of everything; the next steps carry it out."""
        if not self.root.over and self.root.ending is None:
            self.root.ending, self.root.reason = status, reason

    def step(self, now: float, events: Iterable[Event] = ()) -> list[EngineAction]:
        """Process events and return the next actions; `ScenarioEnded` comes once, last, when
        nothing runs any more.
        """
        if self.root.over:
            return []
        self._now, self._actions = now, []
        for event in events:
            self._take(event)
        for job in self._jobs.values():
            if job.status is JobStatus.SCHEDULED and job.start_at <= self._now:
                self._start(job)
        self._turn(self.root)
        if self.root.over:
            self._actions.append(ScenarioEnded(self.root.status, self.root.reason))
        return self._actions

    def _take(self, event: Event) -> None:
        job = self._jobs[event.job_instance_id]
        attempt = job.scenario.functions[job.function.id]
        match event:
            case JobLaunched():
                job.accepted = True
                if attempt.job is job and attempt.status is FunctionStatus.RUNNING:
                    attempt.status = FunctionStatus.FINISHED
            case JobRefused(reason=reason):
                job.reason = reason
                first = (
                    not job.accepted
                    and attempt.job is job
                    and attempt.status is FunctionStatus.RUNNING
                )
                job.status = JobStatus.STOPPED if job.stopping else JobStatus.ERROR
                if first:  # the call itself failed, so the function errs; its job never was
                    attempt.job, attempt.status, attempt.reason = None, FunctionStatus.ERROR, reason
            case JobEnded(ok=ok, reason=reason):
                job.reason = reason
                if job.stopping:
                    job.status = JobStatus.STOPPED
                elif job.call.interval is not None:
                    job.start_at = max(job.start_at + job.call.interval, self._now)
                    job.status = JobStatus.SCHEDULED
                else:
                    job.status = JobStatus.NOT_RUNNING if ok else JobStatus.ERROR

    def _start(self, job: JobInstance) -> None:
        job.status = JobStatus.RUNNING
        self._actions.append(StartJobAction(job))

    def _turn(self, instance: ScenarioInstance) -> None:
        """Make one step of the director: stop request, failed jobs, errored functions, functions
        that may start.
        """
        for below in [below for below in instance.below if not below.over]:
            self._turn(below)
        if instance.ending is None:
            self._judge_jobs(instance)
        if instance.ending is None:
            self._judge_functions(instance)
        if instance.ending is not None:
            self._wind_down(instance)
            return
        progress = True
        while progress and instance.ending is None:
            progress = self._advance(instance)
            self._judge_functions(instance)
        if instance.ending is None:
            self._close(instance)

    def _judge_jobs(self, instance: ScenarioInstance) -> None:
        for job in instance.jobs:
            if job.status.failed and job.function.on_fail.policy is not Policy.IGNORE:
                what = (
                    f"job {job.call.job.name} of function {job.function.id} ({job.function.label})"
                )
                self._fail(instance, f"{what} ended with {job.status}: {job.reason}")
                return

    def _judge_functions(self, instance: ScenarioInstance) -> None:
        for number, attempt in list(instance.functions.items()):
            if attempt.status is not FunctionStatus.ERROR:
                continue
            on_fail = attempt.function.on_fail
            if on_fail.policy is Policy.RETRY and attempt.attempts < on_fail.retry:
                attempt.status = FunctionStatus.RETRIED
                instance.retried.append(attempt)
                again = FunctionInstance(
                    attempt.function, FunctionStatus.RUNNING, attempt.attempts + 1
                )
                again.act_at = self._now + on_fail.delay
                instance.functions[number] = again
            elif on_fail.policy is not Policy.IGNORE:
                self._fail(
                    instance, f"function {number} ({attempt.function.label}): {attempt.reason}"
                )
                return

    def _fail(self, instance: ScenarioInstance, reason: str) -> None:
        instance.ending, instance.reason = ScenarioStatus.FINISHED_KO, reason

    def _advance(self, instance: ScenarioInstance) -> bool:
        """Start the functions that may start and carry out due actions; return whether anything
        changed.
        """
        changed = False
        for attempt in instance.functions.values():
            if attempt.status is FunctionStatus.SCHEDULED and _may_start(
                attempt.function, instance
            ):
                attempt.status = FunctionStatus.RUNNING
                attempt.act_at = self._now + attempt.function.wait.time
                changed = True
            acted = attempt.job is not None or attempt.scenario is not None
            if (
                attempt.status is FunctionStatus.RUNNING
                and not acted
                and attempt.act_at <= self._now
            ):
                self._act(attempt, instance)
                changed = True
        return changed

    def _act(self, attempt: FunctionInstance, instance: ScenarioInstance) -> None:
        match attempt.function.action:
            case StartJob() as call:
                self._act_start_job(attempt, instance, call)
            case StartScenario(scenario=scenario):
                attempt.scenario = self._instance(scenario, instance.owner_id)
                attempt.status = FunctionStatus.FINISHED
                self._turn(attempt.scenario)
            case Stop(ids=ids):
                for number in ids:
                    self._stop_started_by(instance.functions[number])
                attempt.status = FunctionStatus.FINISHED

    def _act_start_job(
        self, attempt: FunctionInstance, instance: ScenarioInstance, call: StartJob
    ) -> None:
        arguments = [self._word(word, instance) for word in call.words]
        if None in arguments:
            attempt.status = FunctionStatus.ERROR
            attempt.reason = "an argument names a job or scenario instance that was not started"
            return
        words = tuple(word for word in arguments if word is not None)
        job = JobInstance(
            next(self._job_ids), instance, attempt.function, call, words, self._now + call.offset
        )
        self._jobs[job.id] = attempt.job = job
        if call.offset > 0:  # the agent takes the request at once and starts the job later
            job.accepted = True
            attempt.status = FunctionStatus.FINISHED
        else:
            self._start(job)

    def _word(self, word: str | InstanceOf, instance: ScenarioInstance) -> str | None:
        """Return the text of an argument; a path of function ids becomes the id of the instance it
        leads to.
        """
        if isinstance(word, str):
            return word
        here: ScenarioInstance | None = instance
        for number in word.path[:-1]:
            here = here.functions[number].scenario if here is not None else None
        if here is None:
            return None
        last = here.functions[word.path[-1]]
        found = last.job if word.kind == "job" else last.scenario
        return None if found is None else str(found.id)

    def _stop_started_by(self, attempt: FunctionInstance) -> None:
        job = attempt.job
        if job is not None and job.status is JobStatus.SCHEDULED:
            job.status = JobStatus.STOPPED
        elif job is not None and job.status is JobStatus.RUNNING and not job.stopping:
            job.stopping = True
            self._actions.append(StopJobAction(job))
        below = attempt.scenario
        if below is not None and not below.over and below.ending is None:
            below.ending, below.reason = ScenarioStatus.STOPPED, "stopped by its parent"
            self._turn(below)

    def _wind_down(self, instance: ScenarioInstance) -> None:
        """Stop the running jobs; when all have ended, end the instance."""
        for attempt in instance.functions.values():
            if attempt.status is FunctionStatus.RUNNING:
                attempt.status = FunctionStatus.STOPPED
            self._stop_started_by(attempt)
        if not instance.busy and instance.ending is not None:
            instance.status = instance.ending

    def _close(self, instance: ScenarioInstance) -> None:
        """End an instance whose functions are all over, or whose remaining functions can never
        start.
        """
        pending = [attempt for attempt in instance.functions.values() if attempt.pending]
        if instance.busy or any(attempt.status is FunctionStatus.RUNNING for attempt in pending):
            return
        if pending:
            names = ", ".join(str(attempt.function.id) for attempt in pending)
            self._fail(instance, f"what function(s) {names} wait for can no longer happen")
            self._wind_down(instance)
        else:
            instance.status = instance.ending = ScenarioStatus.FINISHED_OK

    def _instance(self, scenario: BoundScenario, owner_id: int | None) -> ScenarioInstance:
        number = next(self._scenario_ids)
        functions = {function.id: FunctionInstance(function) for function in scenario.functions}
        return ScenarioInstance(
            number, number if owner_id is None else owner_id, scenario, functions
        )


def _may_start(function: Function, instance: ScenarioInstance) -> bool:
    wait, functions = function.wait, instance.functions
    return (
        all(functions[number].status is FunctionStatus.FINISHED for number in wait.launched)
        and all(functions[number].finished for number in wait.finished)
        and all(not functions[number].pending for number in wait.ended)
        and all(functions[number].status is not FunctionStatus.SCHEDULED for number in wait.running)
    )
