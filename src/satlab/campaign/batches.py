# SPDX-License-Identifier: GPL-3.0-or-later
"""Batches: tasks that one worker runs one after the other, so that worker and job start only once
for all.

In the campaign's folder, `batches/all.json` lists the batches that the engine starts, and
`batches/ID.done` marks a batch whose tasks are done. The id of a batch is the digest of its tasks'
ids, so a worker of an earlier engine can end only a batch of the same tasks.
"""

import hashlib
import itertools
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from satlab.campaign.plan_file import Id, Plan, Task
from satlab.campaign.task_request import Flows, Strict
from satlab.common.errors import ConfigError
from satlab.common.files import write_atomically

BATCH_S = 60.0
"""Target for the estimated time of all tasks of a batch, s; a longer task forms its own batch.
"""
PARTS = 3
"""Fewest batches per slot, so that all slots end at about the same time."""
SPARE_S = 300.0
"""Added to the time that a scheduler allows, for the start of a worker and for a task that another
worker holds.
"""
FOLDER, ALL = "batches", "all.json"


class Batch(Strict):
    """Tasks of one kind.

    `cores` and `labs` are the needs of one task; `minutes` is the time that a scheduler allows for
    all. A task that changes a setting of the whole host takes all labs.
    """

    tasks: tuple[Id, ...] = Field(min_length=1)
    rule: str
    cores: int
    labs: int
    minutes: int


Batches = TypeAdapter(dict[Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")], Batch])


def group(
    tasks: Sequence[Task], at_once: int, deadline_s: float, labs: int = 1
) -> dict[str, Batch]:
    """Return the batches of tasks by their ids, in the tasks' order; `at_once` of them run, with at
    most so many `labs`.
    """
    total_s = sum(task.estimate_s for task in tasks)
    limit_s = min(BATCH_S, total_s / (PARTS * at_once))
    found = {}
    for _, alike in itertools.groupby(sorted(tasks, key=_kind), _kind):
        for part in _parts(alike, limit_s):
            names = tuple(task.id for task in part)
            expected_s = sum(task.estimate_s for task in part)
            found[id_of(names)] = Batch(
                tasks=names,
                rule=part[0].rule,
                cores=part[0].cores,
                labs=_labs(part[0], labs),
                minutes=math.ceil((deadline_s + 2 * expected_s + SPARE_S) / 60),
            )
    return found


def _kind(task: Task) -> tuple[str, str, int, bool]:
    return task.rule, task.lab, task.cores, _is_alone(task)


def _is_alone(task: Task) -> bool:
    """Return whether a task sets HyStart, a setting of the whole host."""
    asked = task.request
    return isinstance(asked, Flows) and asked.flows.get("tcp_hystart") is not None


def _labs(task: Task, most: int) -> int:
    if task.lab != "netns":
        return 0
    return most if _is_alone(task) else 1


def _parts(tasks: Iterator[Task], limit_s: float) -> Iterator[list[Task]]:
    part: list[Task] = []
    left_s = limit_s
    for task in tasks:
        if part and task.estimate_s > left_s:
            yield part
            part, left_s = [], limit_s
        part.append(task)
        left_s -= task.estimate_s
    if part:
        yield part


def id_of(names: Sequence[str]) -> str:
    """Return the id of a batch of these tasks."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def write(folder: Path, batches: dict[str, Batch]) -> None:
    """Replace the list of batches; no batch of the new list is done yet."""
    place = folder / FOLDER
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    document: Any = {name: batch.model_dump() for name, batch in batches.items()}
    write_atomically(place / ALL, json.dumps(document, indent=1) + "\n")


def load(folder: Path, name: str, plan: Plan) -> list[Task]:
    """Return the tasks of a batch.

    Raises ConfigError: there is no such batch, or its id belongs to other tasks.
    """
    file = folder / FOLDER / ALL
    try:
        found = Batches.validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(
            f"{file} holds no batches: {error}", hint="satlab campaign run writes it"
        ) from error
    if name not in found or id_of(found[name].tasks) != name:
        raise ConfigError(f"{file} has no batch {name}", hint="satlab campaign run writes it")
    known = {task.id: task for task in plan.tasks}
    foreign = [task for task in found[name].tasks if task not in known]
    if foreign:
        raise ConfigError(
            f"{foreign[0]} is not a task of the plan", hint="satlab campaign plan lists them"
        )
    return [known[task] for task in found[name].tasks]


def end(folder: Path, name: str) -> None:
    """Mark a batch as done. A newer engine may have removed the folder."""
    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    write_atomically(place / f"{name}.done", "")
