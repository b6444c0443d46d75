# SPDX-License-Identifier: GPL-3.0-or-later
"""A reproduction on disk:

`campaign.json`, `runs/<orbit>/<loss>/<type>/<run id>/`, `logs/`, `report/`.

The state is read from the run folders alone, so it is also right after a kill: a run is done when
it has ended and its records exist. Incomplete runs are kept and repeated.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import collect
from satlab import __version__
from satlab.common.errors import ConfigError, ExitStatus, HostError
from satlab.common.files import write_atomically
from satlab.common.locks import open_lock, try_lock
from satlab.common.processes import wait
from satlab.lab import ownership
from satlab.papers.matrix import Cell, select

PAPER: Literal["seed-002"] = "seed-002"
LOCK_DEADLINE_S = 180.0
"""Runs of a killed program end by themselves; the longest takes less."""


class CampaignPlan(BaseModel):
    """campaign.json: which cells, how many runs of each."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    schema_: Literal["satlab/campaign/1"] = Field(default="satlab/campaign/1", alias="schema")
    paper: Literal["seed-002"] = PAPER
    cells: tuple[str, ...]
    runs: int = Field(ge=1, le=10000)
    satlab_version: str = __version__
    started_unix_s: float


@dataclass(frozen=True)
class Task:
    """One run to do: its cell and its number, from 1."""

    cell: Cell
    number: int


@dataclass(frozen=True)
class Done:
    """One run that is done; times in s."""

    folder: Path
    number: int
    exit_status: int
    took_s: float


@dataclass(frozen=True)
class Campaign:
    """A reproduction's folder and plan."""

    folder: Path
    plan: CampaignPlan

    @property
    def cells(self) -> list[Cell]:
        """Return the cells, in the paper's order."""
        return select(self.plan.cells)

    def runs_of(self, cell: Cell) -> Path:
        """Return the folder of a cell's runs."""
        return self.folder / "runs" / cell.name

    def done(self, cell: Cell) -> dict[int, Done]:
        """Return a cell's runs that are done, by number.

        Of several with one number the first in calibration, otherwise the last one.
        """
        done: dict[int, Done] = {}
        for folder, about in self._folders(cell):
            if about is not None and _is_whole(folder, about) and about.ended_unix_s is not None:
                took = about.ended_unix_s - about.started_unix_s
                known = done.get(about.seed)
                if known is None or known.exit_status == ExitStatus.UNCALIBRATED:
                    done[about.seed] = Done(folder, about.seed, about.exit_status or 0, took)
        return done

    def halves(self) -> list[Path]:
        """Return the folders of runs that were begun and are not done."""
        return [
            folder
            for cell in self.cells
            for folder, about in self._folders(cell)
            if about is None or not _is_whole(folder, about)
        ]

    def todo(self) -> list[Task]:
        """Return the runs left: the first of each cell, then the second, so that a part covers all
        cells.
        """
        done = {cell: self.done(cell) for cell in self.cells}
        return [
            Task(cell, number)
            for number in range(1, self.plan.runs + 1)
            for cell in self.cells
            if number not in done[cell]
        ]

    def save(self) -> None:
        """Write the plan."""
        if not self.folder.exists():
            ownership.make_folder(self.folder)
        write_atomically(
            self.folder / "campaign.json", self.plan.model_dump_json(by_alias=True, indent=1) + "\n"
        )

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the folder's lock. Runs get it as their stdin, which they hand on to nobody: those
        of a killed program keep it until they end, and what they leave behind does not.

        Raises HostError when it is not free in time.
        """
        descriptor = open_lock(self.folder / ".lock")
        try:
            if not wait(lambda: try_lock(descriptor), LOCK_DEADLINE_S):
                raise HostError(
                    f"{self.folder} is in use",
                    "wait for the program that fills it, or choose another one",
                )
            yield descriptor
        finally:
            os.close(descriptor)

    def _folders(self, cell: Cell) -> Iterator[tuple[Path, collect.Manifest | None]]:
        for folder in sorted(self.runs_of(cell).glob("*")):
            try:
                yield folder, collect.manifest(folder)
            except collect.RunFolderError:
                yield folder, None


def _is_whole(folder: Path, about: collect.Manifest) -> bool:
    ended = about.status in ("ok", "failed") and about.exit_status != ExitStatus.HOST
    return ended and (folder / "records.parquet").is_file()


def begin(folder: Path, cells: Sequence[Cell], runs: int) -> Campaign:
    """Return a new campaign; nothing is written yet."""
    return Campaign(
        folder,
        CampaignPlan(
            cells=tuple(cell.name for cell in cells), runs=runs, started_unix_s=time.time()
        ),
    )


def resume(folder: Path, cells: Sequence[Cell] | None, runs: int | None) -> Campaign:
    """Return the campaign of a folder; `cells` and `runs` replace what it had, so that it can grow.

    Raises ConfigError when the folder holds none.
    """
    try:
        plan = CampaignPlan.model_validate_json((folder / "campaign.json").read_bytes())
    except (OSError, ValidationError) as error:
        hint = "--resume takes the folder that an earlier `satlab reproduce` named"
        raise ConfigError(f"{folder} holds no campaign: {error}", hint=hint) from error
    changed = {"cells": tuple(c.name for c in cells)} if cells is not None else {}
    return Campaign(
        folder, plan.model_copy(update=changed | ({"runs": runs} if runs is not None else {}))
    )
