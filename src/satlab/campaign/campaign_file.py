# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of a campaign: a matrix of scenarios, the cells of a paper, or the cases of a suite
(docs/campaigns.md).
"""

from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from satlab.campaign import yaml_file
from satlab.campaign.plan_file import Id, Value
from satlab.campaign.task_request import Strict
from satlab.papers.shipped_papers import Clock, NamedPaper

MAX_TASKS = 100_000
T = TypeVar("T")


def _listed(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


Many = Annotated[tuple[T, ...], BeforeValidator(_listed), Field(min_length=1, max_length=10_000)]
"""One value, or a list of values: a factor."""
OWN_FIELDS = {
    "scenario": ("profile", "options", "values"),
    "paper": ("quick", "cells", "clock"),
    "suite": ("cases", "clock", "stack"),
}
"""The possible contents of a campaign, and the fields of each."""


class CampaignFile(Strict):
    """The YAML file of a campaign.

    Each list is a factor, and a cell is one combination of all factors. `options` are options of
    the link by their names on the command line, `values` are as for `--set`. The `repetitions` of
    each cell have the seeds 1, 2, ..., unless `seeds` lists others. `deadline_s` is the time limit
    of one attempt at a task, s. `answer_mib` is the largest size of the files that an attempt over
    ssh returns, MiB. Without `clock` a paper runs on the clock of `reproduce`, and a suite on the
    virtual clock.
    """

    name: Id
    scenario: Many[str] | None = None
    profile: Many[str] = ("geo",)
    options: dict[str, Many[Value]] = Field(default_factory=dict)
    values: dict[str, Many[Value]] = Field(default_factory=dict)
    paper: NamedPaper | None = None
    quick: bool = False
    cells: Many[str] | None = None
    suite: Id | None = None
    cases: Many[str] | None = None
    clock: Clock | None = None
    stack: Literal["quinn", "quiche", "ngtcp2", "tcp-pep"] = "quinn"
    repetitions: int = Field(default=1, ge=1, le=10_000)
    seeds: tuple[Annotated[int, Field(ge=0, lt=1 << 63)], ...] | None = Field(
        default=None, min_length=1
    )
    deadline_s: float = Field(default=1200, ge=1, le=86_400)
    answer_mib: int = Field(default=256, ge=1, le=8192)

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        kinds = [kind for kind in OWN_FIELDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise ValueError(f"name one of {', '.join(OWN_FIELDS)}; there are {len(kinds)}")
        own = set(OWN_FIELDS[kinds[0]])
        foreign = {name for names in OWN_FIELDS.values() for name in names} - own
        for name in sorted(foreign & self.model_fields_set):
            owners = " or ".join(kind for kind, names in OWN_FIELDS.items() if name in names)
            raise ValueError(f"{name}: only with {owners}")
        if self.stack != "quinn" and self.clock != "real":
            raise ValueError(f"stack {self.stack}: with clock: real")
        if self.seeds is not None and "repetitions" in self.model_fields_set:
            raise ValueError("seeds and repetitions: name one of them")
        if self.seeds is not None and len(set(self.seeds)) != len(self.seeds):
            raise ValueError("seeds: each only once")
        return self

    @property
    def seeds_of_cell(self) -> tuple[int, ...]:
        """Return the seeds of each cell's tasks."""
        return self.seeds or tuple(range(1, self.repetitions + 1))


def load(path: Path) -> CampaignFile:
    """Read a campaign's file; its name without ending is that of the campaign.

    Raises ConfigError with every fault.
    """
    return yaml_file.load(path, CampaignFile, {"name": path.stem})
