# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches campaign`: what the engine adds to tasks, against a loop in the shell with the same
commands.

The loop runs half of the tasks before the engine and half after it, so that a host that becomes
faster or slower counts for both. A task is one QUIC connection under the virtual clock, which takes
CPU time alone. A shared host needs up to a third more CPU time for the same task
(docs/results.md); what is added is therefore the time beyond the tasks' own CPU time, of the
engine less that of the loop.
"""

import json
import math
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benches import bench_promises
from benches.bench_promises import Promise, at_most
from satlab.campaign import engine, planner, task_request
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.engine import Engine, Options
from satlab.campaign.plan_file import Plan, Task
from satlab.campaign.task_record import Attempt
from satlab.campaign.task_request import Flows
from satlab.common import paths, processes
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus, HostError

SCHEMA = "satlab/bench-campaign/2"
PROBE_S = 60.0
"""Simulated time of the run that determines how many simulated seconds a task needs."""
ADDED_RATIO, ADDED_S, PLANNED_S = 0.05, 1.0, 20.0
"""Promised limits with tasks of 4 s: the engine's time over the loop's, the time it adds to a task,
s, and the planning of 10,000 cells, s.
"""
DEADLINE_S = 3600.0
MATRIX = """\
name: cells
scenario: bulk_tcp
options: {{queue-bdp: {queues}, loss: {losses}}}
values: {{duration: 15}}
"""


@dataclass(frozen=True)
class Spent:
    """What tasks took: time on the clock, and CPU time of the tasks alone, s."""

    wall_s: float
    cpu_s: float

    def __add__(self, other: "Spent") -> "Spent":
        """Return both together."""
        return Spent(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)

    def beyond_s(self, at_once: int) -> float:
        """Return the time of `at_once` slots that no task computed in, s."""
        return self.wall_s * at_once - self.cpu_s


def measure(
    tasks: int, at_once: int, task_s: float, cells: int, log: ProgressLog
) -> dict[str, Any]:
    """Run so many tasks by a loop and by the engine, `at_once` of them, and plan so many cells.

    Raises:
        HostError: a program is missing or failed, or a task did not succeed.
    """
    with tempfile.TemporaryDirectory(prefix="satlab-bench-") as name:
        folder = Path(name)
        with log.step("how long a simulation takes") as step:
            simulated_s = _simulated_s(folder, task_s)
            step.outcome = f"{simulated_s:.0f} simulated s take {task_s:g} s"
        plan = plan_of(tasks, simulated_s, task_s)
        half = tasks // 2
        looped = _looped(log, folder / "before", plan.tasks[:half], at_once)
        where = CampaignFolder(folder / "engine")
        began_unix_s = time.time()
        engine_s = _timed(log, "engine", lambda: _by_engine(plan, where, at_once))
        looped += _looped(log, folder / "after", plan.tasks[half:], at_once)
        attempts = _attempts(plan, where)
        planned_s = _timed(log, f"plan of {cells} cells", lambda: plan_matrix(folder, cells))
    result = figures(looped, engine_s, began_unix_s, attempts, at_once)
    result |= {
        "planned": {"cells": cells, "s": round(planned_s, 2)},
        "simulated_s": round(simulated_s, 1),
    }
    return result | {"promises": [asdict(promise) for promise in promises(result)]}


def figures(
    looped: Spent, engine_s: float, began_unix_s: float, attempts: Sequence[Attempt], at_once: int
) -> dict[str, Any]:
    """Return the figures. `attempts`: those of the engine, by their begin.

    `added_ratio`, `added_s_per_task`: by the time beyond the tasks' CPU time. `wall_ratio`: by the
    clock alone. `gap_s`: median from the end of a task to the begin of the next one in its slot,
    nearly.
    """
    count = len(attempts)
    engine = Spent(engine_s, sum(attempt.cpu_s or 0 for attempt in attempts))
    added_s = engine.beyond_s(at_once) - looped.beyond_s(at_once)
    pairs = zip(attempts, attempts[at_once:], strict=False)
    gaps = [later.began_unix_s - one.ended_unix_s for one, later in pairs]
    return {
        "schema": SCHEMA,
        "tasks": count,
        "at_once": at_once,
        "loop_s": round(looped.wall_s, 2),
        "loop_cpu_s": round(looped.cpu_s, 2),
        "engine_s": round(engine.wall_s, 2),
        "engine_cpu_s": round(engine.cpu_s, 2),
        "wall_ratio": round(engine.wall_s / looped.wall_s - 1, 4),
        "added_ratio": round(added_s / (looped.wall_s * at_once), 4),
        "added_s_per_task": round(added_s / count, 3),
        "loop_task_s": round(looped.wall_s * at_once / count, 3),
        "start_s": round(attempts[0].began_unix_s - began_unix_s, 2),
        "end_s": round(
            began_unix_s + engine_s - max(attempt.ended_unix_s for attempt in attempts), 2
        ),
        "gap_s": round(median(gaps), 3) if gaps else None,
    }


def promises(result: Mapping[str, Any]) -> list[Promise]:
    """Compare a result with what the specification promises."""
    planned = result["planned"]
    return [
        at_most("engine over the loop", ADDED_RATIO, "of its time", result["added_ratio"]),
        at_most("added to a task", ADDED_S, "s", result["added_s_per_task"]),
        at_most(f"plan of {planned['cells']} cells", PLANNED_S, "s", planned["s"]),
    ]


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the result as text."""
    yield (
        f"{result['tasks']} tasks of {result['loop_task_s']:.1f} s, {result['at_once']} at once:"
        f" loop {result['loop_s']:.1f} s, engine {result['engine_s']:.1f} s"
        f" ({100 * result['wall_ratio']:+.1f} %)"
    )
    yield (
        f"  of it CPU time of the tasks: loop {result['loop_cpu_s']:.1f} s, engine"
        f" {result['engine_cpu_s']:.1f} s; the engine adds {100 * result['added_ratio']:.1f} %,"
        f" {result['added_s_per_task']:.2f} s to a task"
    )
    yield (
        f"  first task after {result['start_s']:.1f} s, end {result['end_s']:.1f} s after the"
        " last one"
    )
    if result["gap_s"] is not None:
        yield f"  between tasks {1000 * result['gap_s']:.0f} ms (median)"
    yield f"plan of {result['planned']['cells']} cells: {result['planned']['s']:.1f} s"
    yield from bench_promises.lines(result)


def plan_of(count: int, simulated_s: float, task_s: float) -> Plan:
    """Return a plan of so many equal tasks in one cell."""
    tasks = tuple(
        Task(
            id=f"flow.{number}",
            cell="flow",
            number=number,
            estimate_s=task_s,
            cores=1,
            request=Flows(verb="flows", flows=_flows(number, simulated_s)),
        )
        for number in range(1, count + 1)
    )
    return Plan(name="cost", deadline_s=DEADLINE_S, cells={"flow": {}}, tasks=tasks)


def _flows(seed: int, simulated_s: float) -> dict[str, Any]:
    """Return one QUIC connection over 20 Mbit/s and 100 ms."""
    half = {"rate_mbps": 20, "delay_ms": 50, "queue": {"bdp": 1}}
    flow = {
        "id": "flow",
        "from": "server1",
        "to": "client1",
        "stack": "quinn",
        "congestion_control": "cubic",
    }
    return {
        "schema": "satlab/virtual-flows/1",
        "seed": seed,
        "duration_s": simulated_s,
        "wire": {"forward": half, "return": half},
        "flows": [flow | {"start_s": 0, "datagram_bytes": 1252}],
    }


def loop(folder: Path, tasks: Sequence[Task], at_once: int) -> None:
    """Run tasks' commands by xargs and a shell. Raises HostError when one fails."""
    for task in tasks:
        place = folder / task.id
        place.mkdir(parents=True)
        for name, content in task_request.files(task.request).items():
            (place / name).write_text(json.dumps(content))
    words = shlex.join([str(paths.SATVIRTUAL), *tasks[0].request.words()[1:]]) if tasks else "true"
    script = f"cd {{}} && exec {words} >output.json 2>log"
    argv = ["xargs", "-P", str(at_once), "-I", "{}", "sh", "-c", script]
    names = "".join(f"{task.id}\n" for task in tasks)
    done = subprocess.run(argv, input=names, text=True, cwd=folder, check=False) if tasks else None
    if done is not None and done.returncode != 0:
        raise HostError(
            f"a command of the loop failed (xargs: {done.returncode})", "./satlab --install virtual"
        )


def _simulated_s(folder: Path, task_s: float) -> float:
    task = plan_of(1, PROBE_S, task_s).tasks
    began = time.monotonic()
    loop(folder / "probe", task, 1)
    return max(1.0, PROBE_S * task_s / (time.monotonic() - began))


def _by_engine(plan: Plan, where: CampaignFolder, at_once: int) -> None:
    status = Engine(plan, where, Options(jobs=at_once)).run(
        ProgressLog(quiet=True), threading.Event()
    )
    if status != ExitStatus.OK:
        raise HostError(f"the engine ended with status {status}", f"read {engine.WORKFLOW}")


def _attempts(plan: Plan, where: CampaignFolder) -> list[Attempt]:
    """Return the attempts that count, by their begin."""
    records = [record.last for task in plan.tasks if (record := where.read(task))]
    return sorted(records, key=lambda attempt: attempt.began_unix_s)


def plan_matrix(folder: Path, cells: int) -> Plan:
    """Write and plan a matrix of at least so many cells: queue limits times loss ratios."""
    queues = max(1, math.isqrt(cells))
    losses = -(-cells // queues)
    file = folder / "cells.yml"
    values = {
        "queues": [0.5 + n / 100 for n in range(queues)],
        "losses": [n / 10_000 for n in range(losses)],
    }
    file.write_text(MATRIX.format(**values))
    plan = planner.plan(file)
    (folder / "plan.json").write_text(plan.text())
    return plan


def _looped(log: ProgressLog, folder: Path, tasks: Sequence[Task], at_once: int) -> Spent:
    before_s = processes.children_cpu_s()
    wall_s = _timed(log, "loop in the shell", lambda: loop(folder, tasks, at_once))
    return Spent(wall_s, processes.children_cpu_s() - before_s)


def _timed(log: ProgressLog, what: str, step: Callable[[], object]) -> float:
    began = time.monotonic()
    with log.step(what):
        step()
    return time.monotonic() - began
