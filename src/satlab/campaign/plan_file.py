# SPDX-License-Identifier: GPL-3.0-or-later
"""plan.json of a campaign (schemas/campaign-plan.schema.json): every task with its request, written
before anything runs.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from collect import raw
from satlab import __version__
from satlab.campaign.task_request import Lab, LocalRun, Request, Rule, Strict
from satlab.common.errors import ConfigError, Fault

FILE = "plan.json"
MOST_BYTES = 256 << 20
"""Largest plan, bytes."""
HINT = "satlab campaign run FILE writes it"
ID = r"[A-Za-z0-9][A-Za-z0-9=._-]{0,119}"
Id = Annotated[str, Field(pattern=rf"^{ID}$")]
Value = bool | int | float | str


@dataclass(frozen=True)
class CellDraft:
    """A cell before it has tasks: its factors, its request for a given seed, and the seeds. `id`
    empty: the id is made from the factors in which cells differ.
    """

    factors: Mapping[str, Value]
    estimate_s: float
    request: Callable[[int], Request]
    seeds: tuple[int, ...]
    cores: int = 1
    id: str = ""


class Task(Strict):
    """One run of a cell: its number from 1, and the request to a host. `cores`: number of cores
    that it needs at most; `estimate_s`: estimated duration, s.
    """

    id: Id
    cell: Id
    number: int = Field(ge=1)
    request: Request
    estimate_s: float = Field(gt=0, le=1_000_000)
    cores: int = Field(ge=1, le=1024)

    @property
    def rule(self) -> Rule:
        """Return the kind of its command."""
        return self.request.rule

    @property
    def lab(self) -> Lab:
        """Return the kind of lab that the task needs: network namespaces, or the virtual clock."""
        return self.request.lab

    @property
    def seed(self) -> int:
        """Return the seed of the task's random parts."""
        return self.request.seed


class Plan(Strict):
    """plan.json of a campaign: cells and tasks.

    `cells` has the factors of each cell, by the cell's id. `deadline_s` is the time limit of one
    attempt at a task, s. `answer_mib` is the largest size of the files that an attempt over ssh
    returns, MiB.
    """

    schema_: Literal["satlab/campaign-plan/3"] = Field(
        default="satlab/campaign-plan/3", alias="schema"
    )
    name: Id
    satlab_version: str = __version__
    deadline_s: float = Field(gt=0, le=86_400)
    answer_mib: int = Field(default=256, ge=1, le=8192)
    cells: dict[Id, dict[str, Value]]
    tasks: tuple[Task, ...]

    def for_any_host(self, where: str) -> None:
        """Raise ConfigError if a task names files or addresses of this host's user.

        `where`: the other hosts, for the message.
        """
        found = {
            name: task
            for task in self.tasks
            if isinstance(task.request, LocalRun)
            for name in task.request.names
        }
        if found:
            faults = [
                Fault(
                    f"{task.cell}: {name}",
                    "names a file or an address, or has a value that only this host takes",
                )
                for name, task in found.items()
            ]
            hint = (
                "run it with --executor local or slurm; elsewhere tasks name what ships with satlab"
            )
            raise ConfigError(f"{self.name} cannot run {where}", faults, hint)

    @property
    def estimate_s(self) -> float:
        """Return the time of all tasks one after the other, s."""
        return sum(task.estimate_s for task in self.tasks)

    def task(self, name: str) -> Task:
        """Return the task of an id. Raises ConfigError."""
        found = next((task for task in self.tasks if task.id == name), None)
        if found is None:
            raise ConfigError(
                f"{name} is not a task of the plan", hint="satlab campaign plan lists them"
            )
        return found

    def text(self) -> str:
        """Return the contents of plan.json; equal plans have equal texts."""
        return self.model_dump_json(by_alias=True, indent=1) + "\n"


def digest(text: str) -> str:
    """Return the SHA-256 of a plan's text, with which workers are started."""
    return hashlib.sha256(text.encode()).hexdigest()


def load(file: Path, expected: str | None = None) -> Plan:
    """Read a plan; with `expected` only that of this SHA-256. Raises ConfigError."""
    try:
        with raw.open_plain(file.parent, file.name, MOST_BYTES) as opened:
            text = opened.read(MOST_BYTES).decode()
    except (OSError, raw.RefusedError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{file} holds no plan of a campaign: {why}", hint=HINT) from error
    return parse(text, str(file), expected)


def parse(text: str, place: str, expected: str | None = None) -> Plan:
    """Return the plan of a text from a place; with `expected` only that of this SHA-256.

    Raises ConfigError.
    """
    if expected is not None and digest(text) != expected:
        raise ConfigError(
            f"{place} is not the plan that was started", hint="run the campaign in a new folder"
        )
    try:
        return Plan.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"{place} holds no plan of a campaign: {error}", hint=HINT) from error
