# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a campaign (schemas/campaign-plan.schema.json): every task with its command, before
anything runs.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from satlab import __version__
from satlab.common.errors import ConfigError

FILE = "plan.json"
HINT = "satlab campaign run FILE writes it"
Rule = Literal["run", "check", "flows"]
HEADS: Mapping[Rule, tuple[tuple[str, str], ...]] = {
    "run": (("satlab", "run"),),
    "check": (("satlab", "check"),),
    "flows": (("satvirtual", "flows"), ("satlab", "flows")),
}
"""How the command of a rule's tasks begins. A worker starts nothing else."""
ID = r"[A-Za-z0-9][A-Za-z0-9=._-]{0,119}"
Id = Annotated[str, Field(pattern=rf"^{ID}$")]
Value = bool | int | float | str


class Strict(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Cell(Strict):
    """One combination of a campaign's factors."""

    id: Id
    factors: Mapping[str, Value]


class Task(Strict):
    """One run of a cell: its number from 1, seed and command.

    `lab`: network namespaces, or the virtual clock.

    `files`: JSON documents that the command reads, by name. `cores`: what it needs at the most;
    `estimate_s`: how long it may take, s.
    """

    id: Id
    cell: Id
    number: int = Field(ge=1)
    rule: Rule
    lab: Literal["netns", "virtual"]
    seed: int = Field(ge=0)
    argv: tuple[str, ...]
    files: Mapping[Id, Any] = {}
    estimate_s: float = Field(gt=0)
    cores: int = Field(ge=1)

    @model_validator(mode="after")
    def _begins_as_its_rule(self) -> Self:
        heads = HEADS[self.rule]
        if self.argv[:2] not in heads:
            named = " or ".join(" ".join(head) for head in heads)
            raise ValueError(f"{self.id}: the command of a task {self.rule} begins with {named}")
        return self


class Plan(Strict):
    """plan.json; `deadline_s` for one attempt at a task."""

    schema_: Literal["satlab/campaign-plan/1"] = Field(
        default="satlab/campaign-plan/1", alias="schema"
    )
    name: Id
    satlab_version: str = __version__
    deadline_s: float = Field(gt=0)
    cells: tuple[Cell, ...]
    tasks: tuple[Task, ...]

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
    """Return the SHA-256 of a plan's text: what a worker is started with."""
    return hashlib.sha256(text.encode()).hexdigest()


def load(file: Path, expected: str | None = None) -> Plan:
    """Read a plan; with `expected` only that of this SHA-256. Raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} holds no plan of a campaign: {error}", hint=HINT) from error
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
