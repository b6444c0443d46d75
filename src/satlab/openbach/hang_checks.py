# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios that OpenBACH accepts although they hang: cycles, waits that never end, jobs that
nothing stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from satlab.openbach.json_document import Node
from satlab.openbach.model import Function, Policy, StartJob, StartScenario, Stop

Functions = Mapping[int, Function]

_MAX_CYCLES = 10
"""Largest number of cycles that are reported."""


def check_waits(functions: Functions, nodes: Mapping[int, Node]) -> None:
    """Report every wait that never ends."""
    for function in functions.values():
        node = nodes[function.id]
        for other in _known(functions, function.wait.finished):
            if not other.starts:
                node.fault(
                    f"waits for the end of function {other.id}, which starts no job and no"
                    " scenario",
                    "use ended_ids, or launched_ids",
                    "wait",
                    "finished_ids",
                )
        for other in _known(functions, function.wait.launched):
            if other.on_fail.policy is not Policy.FAIL:
                node.doubt(
                    f"waits for the launch of function {other.id}, which may never succeed under"
                    f" on_fail {other.on_fail.policy.value.title()}",
                    "use ended_ids, or finished_ids",
                    "wait",
                    "launched_ids",
                )
    for cycle in _cycles(functions):
        remedy = "take one of these waits away"
        nodes[cycle[0]].fault(
            f"functions wait for each other: {' -> '.join(map(str, cycle))}", remedy, "wait"
        )


def endless(functions: Functions) -> dict[int, str]:
    """Find functions whose job or sub-scenario runs for ever, by id, with the reason."""
    stoppers: dict[int, list[int]] = {}
    for function in functions.values():
        if isinstance(function.action, Stop):
            for target in function.action.ids:
                stoppers.setdefault(target, []).append(function.id)
    earlier = {
        stopper: _ancestors(functions, stopper) for own in stoppers.values() for stopper in own
    }
    return {
        number: reason
        for number, function in functions.items()
        if (what := _runs_on(function))
        and (reason := _unstopped(functions, number, stoppers, earlier, what))
    }


def _unstopped(
    functions: Functions,
    number: int,
    stoppers: Mapping[int, list[int]],
    earlier: Mapping[int, set[int]],
    what: str,
) -> str:
    """Return why nothing stops a function that runs on; '' when something does."""
    own = stoppers.get(number, [])
    if not own:
        return f"{what}, and no function stops it"
    if not any(number in earlier[stopper] for stopper in own):
        return f"{what}, and function {own[0]} may stop it before it starts"
    waiting = {other.id for other in functions.values() if number in other.wait.finished}
    if all(waiting & (earlier[stopper] | {stopper}) for stopper in own):
        return f"{what}, and the function that stops it waits for its end"
    return ""


def _runs_on(function: Function) -> str:
    """Return the job that runs until it is stopped; '' without one."""
    match function.action:
        case StartJob(job=job) if job.persistent:
            return f"the job {job.name} runs until it is stopped"
        case StartJob(job=job, interval=int(seconds)):
            return f"the job {job.name} is repeated every {seconds} s for ever"
        case StartScenario(scenario=scenario) if scenario.endless:
            return f"the scenario {scenario.name} runs until it is stopped"
    return ""


def _known(functions: Functions, ids: Iterable[int]) -> list[Function]:
    return [functions[number] for number in ids if number in functions]


def _ancestors(functions: Functions, number: int) -> set[int]:
    """Return every function that a function waits for, directly or not."""
    found: set[int] = set()
    waiting = [number]
    while waiting:
        for other in _known(functions, functions[waiting.pop()].wait.ids):
            if other.id not in found:
                found.add(other.id)
                waiting.append(other.id)
    return found


def _cycles(functions: Functions) -> Iterable[list[int]]:
    """Find cycles of waits, each as a path that ends where it starts."""
    graph = {
        number: {other.id for other in _known(functions, functions[number].wait.ids)}
        for number in functions
    }
    for _ in range(_MAX_CYCLES):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            path = list(
                reversed(error.args[1])
            )  # graphlib lists each node before the one that waits for it
            yield path
            graph[path[0]].discard(path[1])
        else:
            return
