# SPDX-License-Identifier: GPL-3.0-or-later
import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collect.jobs import Job
from collect.raw import read_jsonl
from satlab.common.errors import HostError
from satlab.common.processes import Entrance
from satlab.openbach import job_process, runner
from satlab.openbach.conftest import MakeJob, option
from satlab.openbach.descriptor import Descriptor
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
from satlab.openbach.runner import JobProgress, ScenarioResult, run


class Here:
    """A host with one node: this machine."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def usage(self, _: Sequence[str]) -> Any:
        """Return nothing: what jobs use is unknown here."""

    def enter(self, node: str, job: str, variables: Mapping[str, str]) -> Entrance:
        return Entrance(self.words, variables)

    def environment(self, node: str) -> dict[str, str]:
        return {"NODE": node, "HOME": "/tmp"}

    def grant(self, path: Path) -> None:
        self.given = [*getattr(self, "given", ()), path]

    def keep(self) -> None:
        pass


def start(
    number: int,
    job: Descriptor,
    *words: str,
    wait: Wait | None = None,
    on_fail: OnFail | None = None,
) -> Function:
    return Function(
        number, f"f{number}", wait or Wait(), on_fail or OnFail(), StartJob("client", job, words)
    )


def stop(number: int, *ids: int, wait: Wait) -> Function:
    return Function(number, f"f{number}", wait, OnFail(), Stop(ids))


Go = Callable[..., ScenarioResult]


@pytest.fixture
def go(tmp_path: Path) -> Go:
    """Run functions here; whatever happens, nothing may be left."""

    def run_here(
        *functions: Function,
        host: Here | None = None,
        on_event: Callable[[JobProgress], None] = lambda _: None,
        interrupt: threading.Event | None = None,
        deadline_s: float = 30.0,
    ) -> ScenarioResult:
        raw = tmp_path / "raw"
        try:
            scenario = BoundScenario("main", {}, functions)
            return run(
                scenario, host or Here(), raw, on_event, interrupt or threading.Event(), deadline_s
            )
        finally:
            assert started_with(f"SATLAB_RAW={raw}") == []

    return run_here


def started_with(variable: str) -> list[str]:
    """Return the processes that have an environment variable."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and variable.encode() in (entry / "environ").read_bytes().split(
                b"\0"
            ):
                found.append(entry.name)
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


REPORT = """
import json, os, sys, collect_agent
collect_agent.register_collect("/nonexistent")
collect_agent.send_stat(collect_agent.now(), answer=42)
print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))
"""

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(60)\n"

# A job that will not end, with a child that will not end either.
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
print("up", flush=True)
while True:
    time.sleep(1)
"""


def test_a_job_gets_its_arguments_and_a_clean_environment(
    make_job: MakeJob, go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_CALLER", "x")
    events: list[JobProgress] = []
    result = go(start(7, make_job("j", program=REPORT), "-t", "a b;$(id)"), on_event=events.append)
    assert (result.outcome, result.status, result.reason, result.ok) == (
        "ok",
        "Finished Ok",
        "",
        True,
    )
    arguments, environment, cwd = json.loads((tmp_path / "raw/logs/j-1.log").read_text())
    assert arguments == ["-t", "a b;$(id)"]
    assert set(environment) - {"LC_CTYPE"} == {
        "PATH",
        "LANG",
        "HOME",
        "TMPDIR",
        "PYTHONPATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
        "NODE",
        "SATLAB_RAW",
        "SATLAB_AGENT",
        "JOB_NAME",
        "JOB_INSTANCE_ID",
        "SCENARIO_INSTANCE_ID",
        "OWNER_SCENARIO_INSTANCE_ID",
    }
    assert environment["HOME"] == environment["TMPDIR"] == cwd
    (record,) = lines(tmp_path / "raw/stats.jsonl")
    assert (record["answer"], record["_metadata"]["agent_name"], record["_metadata"]["flag"]) == (
        42,
        "client",
        3,
    )
    assert [event.status for event in events] == ["Running", "Not Running"]


def test_every_ended_job_has_a_line_that_can_be_read(
    make_job: MakeJob, go: Go, tmp_path: Path
) -> None:
    good, bad = make_job("good"), make_job("bad", program="raise SystemExit(3)")
    sleeper = make_job("sleeper", program=SLEEP)
    ignore = OnFail(Policy.IGNORE)
    ending = stop(4, 3, wait=Wait(finished=(1, 2)))
    result = go(start(1, good), start(2, bad, on_fail=ignore), start(3, sleeper), ending)
    assert result.ok
    records, _ = read_jsonl(tmp_path / "raw", "jobs.jsonl", Job.model_validate_json)
    by_job = {record.job: (record.status, record.exit_code) for record in records}
    assert by_job == {"good": ("Not Running", 0), "bad": ("Error", 3), "sleeper": ("Stopped", -15)}
    assert len(result.jobs) == 3


def test_a_failing_job_fails_the_run_and_stops_the_others(make_job: MakeJob, go: Go) -> None:
    program = (
        "import sys; print('error: TCP port 80: in use\\nhint: end it', file=sys.stderr);"
        " sys.exit(3)"
    )
    bad = make_job("bad", program=program)
    result = go(start(1, bad), start(2, make_job("sleeper", program=SLEEP)))
    assert (result.outcome, result.status) == ("failed", "Finished Ko")
    assert "function 1 (f1)" in result.reason
    assert "exit status 3, see logs/bad-1.log: TCP port 80: in use" in result.reason
    assert {record.job: record.status for record in result.jobs} == {
        "bad": "Error",
        "sleeper": "Stopped",
    }


def test_a_job_that_cannot_start_is_a_failed_sample(
    make_job: MakeJob, go: Go, tmp_path: Path
) -> None:
    result = go(start(1, make_job("j")), host=Here("/nonexistent/enter"))
    assert result.outcome == "failed"
    assert "/nonexistent/enter cannot be started" in result.reason
    (record,) = lines(tmp_path / "raw/jobs.jsonl")
    assert (record["status"], record["exit_code"]) == ("Error", None)
    assert "cannot be started" in (tmp_path / "raw" / record["log"]).read_text()


def test_a_failed_sub_scenario_fails_the_run(make_job: MakeJob, go: Go) -> None:
    inner = BoundScenario("inner", {}, (start(1, make_job("bad", program="raise SystemExit(3)")),))
    result = go(Function(1, "f1", Wait(), OnFail(), StartScenario(inner)))
    assert (result.outcome, result.status) == ("failed", "Finished Ok")
    assert result.reason.startswith("sub-scenario inner: ")


def when_up(path: Path, act: Callable[[], None]) -> threading.Thread:
    """Act once the log says that the job is up."""

    def watch() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (path.exists() and "up" in path.read_text()):
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_an_interrupt_ends_even_what_will_not_end(
    make_job: MakeJob, go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_process, "STOP_S", 0.1)
    interrupt = threading.Event()
    thread = when_up(tmp_path / "raw/logs/j-1.log", interrupt.set)
    result = go(start(1, make_job("j", program=STUBBORN)), interrupt=interrupt)
    thread.join()
    assert (result.outcome, result.status, result.reason) == (
        "interrupted",
        "Stopped",
        "interrupted",
    )
    assert [(record.status, record.exit_code) for record in result.jobs] == [("Stopped", -9)]


def test_the_deadline_fails_the_run(make_job: MakeJob, go: Go) -> None:
    result = go(start(1, make_job("j", program=SLEEP)), deadline_s=0.5)
    assert (result.outcome, result.status, result.reason) == (
        "failed",
        "Finished Ko",
        "not over after 0.5 s",
    )


class Counting(Here):
    def usage(self, _: Sequence[str]) -> Any:
        return SimpleNamespace(cpu_s=1.5, peak_bytes=4096, waited_s=0.25)


def test_what_a_job_used_is_in_its_record(make_job: MakeJob, go: Go, tmp_path: Path) -> None:
    program = make_job("j")
    [job] = go(start(1, program), host=Counting()).jobs
    assert (job.cpu_s, job.waited_s, job.peak_bytes) == (1.5, 0.25, 4096)
    [job] = go(start(1, program)).jobs
    assert (job.cpu_s, job.waited_s, job.peak_bytes) == (None, None, None)


class Refusing(Here):
    def enter(self, node: str, job: str, variables: Mapping[str, str]) -> Entrance:
        raise HostError(f"{job}: not here")


def test_a_job_that_the_host_refuses_is_a_failed_sample(
    make_job: MakeJob, go: Go, tmp_path: Path
) -> None:
    result = go(start(1, make_job("j")), host=Refusing())
    assert result.outcome == "failed" and "j: not here" in result.reason
    (record,) = lines(tmp_path / "raw/jobs.jsonl")
    assert (record["status"], record["exit_code"]) == ("Error", None)


def test_nothing_is_left_when_the_caller_fails(make_job: MakeJob, go: Go) -> None:
    def fail(_: JobProgress) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        go(start(1, make_job("j", program=SLEEP)), on_event=fail)


def test_a_job_that_ends_is_noticed_at_once(
    make_job: MakeJob, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five jobs, one after the other, do not wait for the next look at all of them."""
    monkeypatch.setattr(runner, "POLL_S", 60.0)
    quick = make_job("quick", {"optional": [option("text", "-t")]})
    functions = [
        start(1, quick),
        *(start(n, quick, wait=Wait(finished=(n - 1,))) for n in range(2, 6)),
    ]
    assert go(*functions, deadline_s=180.0).ok
