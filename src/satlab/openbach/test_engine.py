# SPDX-License-Identifier: GPL-3.0-or-later
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satlab.common import paths
from satlab.openbach.conftest import EXAMPLE, Write
from satlab.openbach.descriptor import Descriptor, Level, Platform, load_jobs
from satlab.openbach.engine import (
    Engine,
    Event,
    FunctionStatus,
    JobEnded,
    JobLaunched,
    JobRefused,
    JobStatus,
    ScenarioEnded,
    ScenarioStatus,
    StartJobAction,
    StopJobAction,
)
from satlab.openbach.job_arguments import InstanceOf
from satlab.openbach.model import (
    BoundScenario,
    Function,
    OnFail,
    Policy,
    StartJob,
    StartScenario,
    Stop,
    Wait,
)
from satlab.openbach.scenario import bind, load

JOB = Descriptor("work", "", "1.0", False, Path(), (Platform("", (), ()),), Level(), ())


def job(
    number: int, wait: Wait | None = None, on_fail: OnFail | None = None, **call: Any
) -> Function:
    action = StartJob("client", JOB, call.pop("words", ()), **call)
    return Function(number, str(number), wait or Wait(), on_fail or OnFail(), action)


def stop(number: int, *ids: int, wait: Wait | None = None) -> Function:
    return Function(number, str(number), wait or Wait(), OnFail(), Stop(ids))


def sub(number: int, *functions: Function, wait: Wait | None = None) -> Function:
    action = StartScenario(BoundScenario("sub", {}, functions))
    return Function(number, str(number), wait or Wait(), OnFail(), action)


FOREVER = 1e9


@dataclass
class Sim:
    """Drives an engine with a simulated clock; jobs last as long as `lasts` says, by function id (1
    s if unsaid).
    """

    functions: tuple[Function, ...]
    lasts: Mapping[int, float] = field(default_factory=dict)
    failing: frozenset[int] = frozenset()
    refusals: dict[int, int] = field(default_factory=dict)
    stop_takes: float = 0.5
    now: float = 0.0
    log: list[tuple[float, str, int]] = field(default_factory=list)
    end: ScenarioEnded | None = None

    def __post_init__(self) -> None:
        self.engine = Engine(BoundScenario("main", {}, self.functions))
        self.ends: dict[int, tuple[float, bool]] = {}
        self.pending: list[Event] = []

    def run(self, until: float = 1000.0, each: Callable[["Sim"], None] | None = None) -> "Sim":
        while self.end is None and self.now < until:
            if each is not None:
                each(self)
            self.turn()
            if not self.pending:
                self.now = round(self.now + 0.1, 3)
        return self

    def turn(self) -> None:
        due = [number for number, (when, _) in self.ends.items() if when <= self.now]
        events = self.pending + [
            JobEnded(number, self.ends.pop(number)[1], "exit status 1") for number in due
        ]
        self.pending = []
        for action in self.engine.step(self.now, events):
            assert self.end is None, "an action after the end"
            match action:
                case StartJobAction(job=started):
                    number = started.function.id
                    if self.refusals.get(number, 0) > 0:
                        self.refusals[number] -= 1
                        self.log.append((self.now, "refuse", number))
                        self.pending.append(JobRefused(started.id, "no such program"))
                        continue
                    self.log.append((self.now, "start", number))
                    self.ends[started.id] = (
                        self.now + self.lasts.get(number, 1.0),
                        number not in self.failing,
                    )
                    self.pending.append(JobLaunched(started.id))
                case StopJobAction(job=stopped):
                    self.log.append((self.now, "stop", stopped.function.id))
                    # A start that was refused at this very moment has left nothing to stop.
                    if stopped.id in self.ends:
                        self.ends[stopped.id] = (self.now + self.stop_takes, False)
                case ScenarioEnded():
                    assert not self.ends
                    self.end = action

    def when(self, what: str, number: int) -> list[float]:
        return [time for time, said, which in self.log if (said, which) == (what, number)]

    def status(self, number: int) -> FunctionStatus:
        return self.engine.root.functions[number].status

    def job_status(self, number: int) -> JobStatus | None:
        job = self.engine.root.functions[number].job
        return None if job is None else job.status

    @property
    def ended(self) -> tuple[Any, Any] | None:
        return None if self.end is None else (self.end.status, self.now)


# --- waiting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait", "started"),
    [
        (Wait(), 0.0),
        (Wait(time=2), 2.0),
        (Wait(launched=(1,)), 1.0),
        (Wait(launched=(1,), time=2), 3.0),
        (Wait(finished=(1,)), 6.0),
        (Wait(finished=(1,), time=0.5), 6.5),
        (Wait(ended=(1,)), 1.0),
        (Wait(running=(1,)), 0.0),
        (Wait(launched=(1,), finished=(1,)), 6.0),
    ],
)
@pytest.mark.promise("P47")
def test_waiting_table(wait: Wait, started: float) -> None:
    sim = Sim((job(1, Wait(time=1)), job(2, wait)), lasts={1: 5}).run()
    assert sim.when("start", 2) == [pytest.approx(started, abs=0.11)]
    assert sim.end == ScenarioEnded(ScenarioStatus.FINISHED_OK, "")


def test_ended_ids_follow_a_stop() -> None:
    sim = Sim(
        (job(1), stop(2, 1, wait=Wait(time=3)), job(3, Wait(ended=(2,)))), lasts={1: FOREVER}
    ).run()
    assert sim.when("start", 3) == [pytest.approx(3.0, abs=0.11)]


def test_statuses_of_a_job_on_its_way() -> None:
    seen = []
    sim = Sim((job(1, Wait(time=1), offset=1.0),), lasts={1: 1})
    sim.run(each=lambda sim: seen.append((sim.status(1), sim.job_status(1))))
    assert list(dict.fromkeys(seen)) == [
        (FunctionStatus.SCHEDULED, None),
        (FunctionStatus.RUNNING, None),
        (FunctionStatus.FINISHED, JobStatus.SCHEDULED),
        (FunctionStatus.FINISHED, JobStatus.RUNNING),
    ]
    assert sim.job_status(1) is JobStatus.NOT_RUNNING
    assert sim.when("start", 1) == [pytest.approx(2.0, abs=0.11)]


def test_a_job_with_an_interval_is_repeated_until_it_is_stopped() -> None:
    functions = (job(1, interval=5), stop(2, 1, wait=Wait(time=12)))
    sim = Sim(functions, failing=frozenset({1})).run()
    assert sim.when("start", 1) == [pytest.approx(at, abs=0.2) for at in (0, 5, 10)]
    assert (sim.job_status(1), sim.end) == (
        JobStatus.STOPPED,
        ScenarioEnded(ScenarioStatus.FINISHED_OK, ""),
    )


def test_an_empty_scenario_ends_at_once() -> None:
    assert Sim(()).run().ended == (ScenarioStatus.FINISHED_OK, 0.1)


# --- failure --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "failing", "refusals", "expected"),
    [
        (OnFail(), {1}, 0, ScenarioStatus.FINISHED_KO),
        (OnFail(), set(), 1, ScenarioStatus.FINISHED_KO),
        (OnFail(Policy.IGNORE), {1}, 0, ScenarioStatus.FINISHED_OK),
        (OnFail(Policy.IGNORE), set(), 1, ScenarioStatus.FINISHED_OK),
        (OnFail(Policy.RETRY, 2), {1}, 0, ScenarioStatus.FINISHED_KO),
        (OnFail(Policy.RETRY, 2), set(), 2, ScenarioStatus.FINISHED_OK),
        (OnFail(Policy.RETRY, 2), set(), 3, ScenarioStatus.FINISHED_KO),
    ],
)
def test_failure_table(
    policy: OnFail, failing: set[int], refusals: int, expected: ScenarioStatus
) -> None:
    functions = (job(1, Wait(), policy), job(2), job(3, Wait(time=60)))
    sim = Sim(functions, failing=frozenset(failing), refusals={1: refusals}, lasts={2: 30}).run()
    assert sim.end is not None
    assert sim.end.status is expected
    stopped = expected is ScenarioStatus.FINISHED_KO
    assert (sim.job_status(2) is JobStatus.STOPPED) is stopped
    assert sim.status(3) is (FunctionStatus.STOPPED if stopped else FunctionStatus.FINISHED)
    assert bool(sim.end.reason) is stopped


def test_a_retry_waits_for_its_delay_in_place_of_the_waiting_time() -> None:
    sim = Sim((job(1, Wait(time=1), OnFail(Policy.RETRY, 2, 7.0)),), refusals={1: 2}).run()
    assert sim.when("refuse", 1) == [pytest.approx(1.0, abs=0.11), pytest.approx(8.0, abs=0.21)]
    assert sim.when("start", 1) == [pytest.approx(15.0, abs=0.31)]
    assert [attempt.status for attempt in sim.engine.root.retried] == [FunctionStatus.RETRIED] * 2


def test_an_ignored_error_keeps_its_status() -> None:
    sim = Sim(
        (job(1, Wait(), OnFail(Policy.IGNORE)), job(2, Wait(ended=(1,)))), refusals={1: 1}
    ).run()
    assert (sim.status(1), sim.job_status(1)) == (FunctionStatus.ERROR, None)
    assert sim.when("start", 2)


def test_functions_that_never_started_stay_scheduled() -> None:
    sim = Sim((job(1), job(2, Wait(finished=(1,)))), failing=frozenset({1})).run()
    assert (sim.status(2), sim.when("start", 2)) == (FunctionStatus.SCHEDULED, [])


def test_what_would_hang_in_openbach_ends_with_a_reason() -> None:
    functions = (job(1, Wait(), OnFail(Policy.IGNORE)), job(2, Wait(finished=(1,))))
    sim = Sim(functions, refusals={1: 1}).run()
    assert sim.end == ScenarioEnded(
        ScenarioStatus.FINISHED_KO, "what function(s) 2 wait for can no longer happen"
    )


# --- stopping -------------------------------------------------------------------------------------


def test_a_stopped_job_has_not_failed() -> None:
    sim = Sim((job(1), stop(2, 1, wait=Wait(launched=(1,), time=2))), lasts={1: FOREVER}).run()
    assert (sim.job_status(1), sim.end) == (
        JobStatus.STOPPED,
        ScenarioEnded(ScenarioStatus.FINISHED_OK, ""),
    )


def test_a_job_that_failed_before_its_stop_has_failed() -> None:
    sim = Sim((job(1), stop(2, 1, wait=Wait(time=2))), failing=frozenset({1})).run()
    assert (sim.job_status(1), sim.ended and sim.ended[0]) == (
        JobStatus.ERROR,
        ScenarioStatus.FINISHED_KO,
    )


def test_a_scheduled_job_can_be_stopped() -> None:
    sim = Sim((job(1, offset=50.0), stop(2, 1, wait=Wait(launched=(1,))))).run()
    assert (sim.when("start", 1), sim.job_status(1)) == ([], JobStatus.STOPPED)


def test_stopping_what_is_over_or_not_begun_does_nothing() -> None:
    sim = Sim((job(1), job(2, Wait(time=5)), stop(3, 1, 2, wait=Wait(time=2)))).run()
    assert sim.when("stop", 1) == sim.when("stop", 2) == []
    assert sim.job_status(2) is JobStatus.NOT_RUNNING


def test_a_stop_request_stops_everything_and_then_ends() -> None:
    functions = (job(1), sub(2, job(11)), job(3, Wait(time=60)), job(4, Wait(finished=(1,))))
    sim = Sim(functions, lasts={1: FOREVER, 11: FOREVER}).run(until=5)
    sim.engine.stop("interrupted")
    sim.run()
    assert sim.end == ScenarioEnded(ScenarioStatus.STOPPED, "interrupted")
    assert (sim.when("stop", 1), sim.when("stop", 11)) == ([5.0], [5.0])
    assert (sim.status(3), sim.status(4)) == (FunctionStatus.STOPPED, FunctionStatus.SCHEDULED)
    assert sim.ended == (ScenarioStatus.STOPPED, pytest.approx(5.6, abs=0.2))


def test_the_first_reason_for_the_end_stays() -> None:
    sim = Sim((job(1), job(2)), failing=frozenset({1}), lasts={2: FOREVER}).run(until=1.2)
    sim.engine.stop("too late")
    assert "function 1" in (sim.run().end or ScenarioEnded(ScenarioStatus.STOPPED, "")).reason


# --- sub-scenarios, instance ids ------------------------------------------------------------------


def test_a_sub_scenario_is_waited_for() -> None:
    sim = Sim(
        (sub(1, job(11), job(12, Wait(finished=(11,)))), job(2, Wait(finished=(1,)))), lasts={11: 3}
    ).run()
    assert sim.when("start", 2) == [pytest.approx(4.0, abs=0.31)]


def test_a_sub_scenario_can_be_stopped() -> None:
    sim = Sim((sub(1, job(11)), stop(2, 1, wait=Wait(time=4))), lasts={11: FOREVER}).run()
    assert sim.end == ScenarioEnded(ScenarioStatus.FINISHED_OK, "")
    below = sim.engine.root.functions[1].scenario
    assert below is not None
    assert below.status is ScenarioStatus.STOPPED


def test_a_failed_sub_scenario_does_not_fail_its_parent() -> None:
    sim = Sim((sub(1, job(11)), job(2, Wait(finished=(1,)))), failing=frozenset({11})).run()
    assert sim.end == ScenarioEnded(ScenarioStatus.FINISHED_OK, "")
    assert [below.status for below in sim.engine.root.below] == [ScenarioStatus.FINISHED_KO]


def test_instances_know_their_owner_and_paths_become_ids() -> None:
    wait = Wait(finished=(1,))
    reader = job(
        2, wait, words=("-j", InstanceOf("job", (1, 12)), "-s", InstanceOf("scenario", (1,)))
    )
    sim = Sim((sub(1, job(11), job(12)), reader)).run()
    instance = sim.engine.root.functions[2].job
    assert instance is not None
    assert instance.arguments == ("-j", "2", "-s", "2")
    assert [(below.id, below.owner_id) for below in sim.engine.root.below] == [(2, 1)]


def test_a_path_to_a_job_that_was_not_started_is_an_error() -> None:
    sim = Sim((job(1, words=(InstanceOf("job", (2,)),)), job(2, Wait(time=1)))).run()
    assert (sim.status(1), sim.ended and sim.ended[0]) == (
        FunctionStatus.ERROR,
        ScenarioStatus.FINISHED_KO,
    )


# --- whole scenarios ------------------------------------------------------------------------------


def test_the_example_of_a_real_openbach(write: Write, jobs: Mapping[str, Descriptor]) -> None:
    path = write(
        EXAMPLE["openbach_functions"], **{key: EXAMPLE[key] for key in ("arguments", "constants")}
    )
    bound = bind(load(path, jobs, ["client", "server"]), {"duration": "5", "cc": "bbr"})
    sim = Sim(bound.functions, lasts={1: FOREVER, 2: 5}).run()
    assert [(what, number) for _, what, number in sim.log] == [
        ("start", 1),
        ("start", 2),
        ("stop", 1),
    ]
    assert [time for time, _, _ in sim.log] == [pytest.approx(at, abs=0.31) for at in (0, 2, 8)]
    assert sim.end == ScenarioEnded(ScenarioStatus.FINISHED_OK, "")
    assert sim.job_status(1) is JobStatus.STOPPED
    failed = Sim(bound.functions, lasts={1: FOREVER}, failing=frozenset({2})).run()
    assert failed.ended == (ScenarioStatus.FINISHED_KO, pytest.approx(3.5, abs=0.4))
    assert failed.job_status(1) is JobStatus.STOPPED


@st.composite
def scenarios(draw: st.DrawFn, depth: int = 0) -> tuple[Function, ...]:
    """Draw functions whose waits point backwards, so that nothing but failures can keep them from
    ending.
    """
    functions: list[Function] = []
    for number in range(draw(st.integers(0, 5))):
        some = (
            st.lists(st.integers(0, number - 1), max_size=2).map(tuple) if number else st.just(())
        )
        time = draw(st.sampled_from([0.0, 0.3, 2.0]))
        wait = Wait(time, draw(some), draw(some), draw(some), draw(some))
        kind = draw(st.sampled_from(["job", "job", "stop", "sub"]))
        if kind == "stop" or (kind == "sub" and depth == 2):
            functions.append(stop(number, *draw(some), wait=wait))
        elif kind == "sub":
            functions.append(sub(number, *draw(scenarios(depth=depth + 1)), wait=wait))
        else:
            policy = draw(
                st.sampled_from([OnFail(), OnFail(Policy.IGNORE), OnFail(Policy.RETRY, 2, 0.5)])
            )
            functions.append(job(number, wait, policy, offset=draw(st.sampled_from([0.0, 1.0]))))
    return tuple(functions)


@given(
    functions=scenarios(),
    lasts=st.dictionaries(st.integers(0, 5), st.sampled_from([0.0, 0.2, 4.0])),
    failing=st.frozensets(st.integers(0, 5), max_size=2),
    refusals=st.dictionaries(st.integers(0, 5), st.integers(0, 4), max_size=2),
    interrupt=st.none() | st.sampled_from([0.0, 0.5, 3.0]),
)
def test_every_scenario_ends_with_nothing_left(
    functions: tuple[Function, ...],
    lasts: dict[int, float],
    failing: frozenset[int],
    refusals: dict[int, int],
    interrupt: float | None,
) -> None:
    sim = Sim(functions, lasts, failing, dict(refusals))
    if interrupt is not None:
        sim.run(until=interrupt)
        sim.engine.stop("interrupted")
    sim.run(until=300)
    assert sim.end is not None, "it terminates"
    assert sim.engine.step(sim.now) == [], "nothing comes after the end"
    every = list(sim.engine._jobs.values())
    assert all(instance.status.ended for instance in every if instance.accepted)
    if sim.end.status is ScenarioStatus.FINISHED_OK:
        assert not any(attempt.pending for attempt in sim.engine.root.functions.values())
        fatal = (Policy.FAIL, Policy.RETRY)
        assert not any(
            one.status.failed and one.function.on_fail.policy in fatal
            for one in sim.engine.root.jobs
        )
    else:
        assert sim.end.reason


# --- scenarios of the product ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("page_load", {"protocol": "h3"}),
        ("tcp", {"pep": "haproxy"}),
        ("web_tcp", {"pep": "haproxy", "protocol": "h2"}),
        ("quic", {"pep": "quic"}),
        ("web_quic", {"pep": "quic"}),
    ],
)
@pytest.mark.promise("P47")
def test_nothing_is_measured_before_proxies_and_servers_are_ready(
    name: str, arguments: dict[str, str]
) -> None:
    """Each readiness takes longer than the one before; one that does not come fails all, and
    nothing is measured.
    """
    jobs = load_jobs(paths.JOBS)
    nodes = ("client", "proxy-st", "proxy-gw", "server")
    functions = bind(load(paths.SCENARIOS / f"{name}.json", jobs, nodes), arguments).functions
    started = {
        f.id: (f.action.job.name, f.action.entity)
        for f in functions
        if isinstance(f.action, StartJob)
    }
    awaits = [number for number, (job_name, _) in started.items() if job_name == "satlab_await"]
    measures = [
        (job_name, "client") for job_name in ("satlab_curl", "satlab_page_load", "satlab_satperf")
    ]
    measuring = min(number for number, job in started.items() if job in measures)
    lasts = {n: FOREVER for n in started if n not in awaits and n < measuring}
    lasts |= {number: 2.0 + place for place, number in enumerate(awaits)}
    sim = Sim(functions, lasts).run()
    assert sim.ended is not None and sim.ended[0] is ScenarioStatus.FINISHED_OK
    ready = max(sim.when("start", number)[0] + lasts[number] for number in awaits)
    assert sim.when("start", measuring)[0] >= ready
    failed = Sim(functions, lasts, failing=frozenset({awaits[-1]})).run()
    assert failed.ended is not None and failed.ended[0] is ScenarioStatus.FINISHED_KO
    assert not failed.when("start", measuring)
