# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs of a paper's scenarios in one file, `satlab reproduce --keep FILE`
(schemas/paper-runs.schema.json).

A run in calibration that the file has is not repeated, so the file collects runs from several days
and hosts. A run of another request is left out.
"""

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from collect import raw
from collect.records import MOST, Status
from satlab.campaign.plan_file import Plan, Task
from satlab.campaign.task_record import Host, TaskRecord
from satlab.campaign.task_request import Strict, shipped_scenario
from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.common.files import write_atomically
from satlab.papers.cell_run import Run
from satlab.papers.scenario_figures import EARLY_S, STEP_S, Records

EARLY = round(EARLY_S / STEP_S)
Number = Annotated[float, Field(gt=-MOST, lt=MOST)]


class Figure(Strict):
    """One sample of a run."""

    metric: str
    value: Number | None
    t_s: None
    status: Status
    labels: Mapping[str, str]


class KeptRun(Strict):
    """One run of a cell. `figures` are its samples, and `curve` the bytes received at each 0.1 s.
    null: censored.
    """

    cell: str
    number: int = Field(ge=1)
    asked: str = Field(
        description="SHA-256 of the request without its seed, with the scenario's constants"
    )
    satlab_version: str
    commit: str = Field(description="of the sources; empty outside a clone")
    host: Host
    began_unix_s: float
    failed: bool
    is_uncalibrated: bool
    reason: str
    figures: Sequence[Figure]
    curve: Annotated[Sequence[Number], Field(min_length=EARLY)] | None

    def run(self) -> Run:
        """Return it for the judgement."""
        records = Records.of_kept([one.model_dump() for one in self.figures], self.curve)
        return Run(self.number, records, self.failed, self.is_uncalibrated)


class KeptRuns(Strict):
    """All runs of a paper that were kept."""

    schema_: Literal["satlab/paper-runs/1"] = Field(default="satlab/paper-runs/1", alias="schema")
    paper: str
    runs: Sequence[KeptRun] = ()


def load(file: Path, paper: str) -> KeptRuns:
    """Read a file of runs; none from a missing one. Raises ConfigError for one of another kind."""
    if not file.exists():
        return KeptRuns(paper=paper)
    found = raw.read_json(file.parent, file.name, KeptRuns.model_validate_json)
    if isinstance(found, raw.Unreadable):
        raise ConfigError(f"{file} holds no runs: {found.reason}", hint="name another file")
    if found.paper != paper:
        raise ConfigError(f"{file} has runs of {found.paper}", hint="name another file")
    return found


def asked(task: Task) -> str:
    """Return the digest of what a task asks for, with the constants of its scenario; the same for
    each of its seeds.
    """
    document = task.request.model_dump(mode="json", by_alias=True)
    document["constants"] = shipped_scenario(document["scenario"]).get("constants", {})
    link = {name: value for name, value in document.get("link", {}).items() if name != "seed"}
    text = json.dumps(document | {"link": link}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def current(kept: KeptRuns, plan: Plan, cells: Mapping[str, str]) -> list[KeptRun]:
    """Return the runs that a plan would ask for in the same way. `cells`: the paper's id of each
    cell of the plan.
    """
    digests = {cells[task.cell]: asked(task) for task in plan.tasks}
    return [one for one in kept.runs if digests.get(one.cell, one.asked) == one.asked]


def without(plan: Plan, kept: Sequence[KeptRun], cells: Mapping[str, str]) -> Plan:
    """Return a plan without the tasks whose runs were kept in calibration."""
    done = {(one.cell, one.number) for one in kept if not one.is_uncalibrated}
    left = tuple(task for task in plan.tasks if (cells[task.cell], task.number) not in done)
    return plan.model_copy(update={"tasks": left})


def of_task(task: Task, cell: str, record: TaskRecord, run: Run) -> KeptRun:
    """Return the run of a task for the file."""
    figures, curve = run.outcome.kept()
    return KeptRun(
        cell=cell,
        number=task.number,
        asked=asked(task),
        satlab_version=record.satlab_version,
        commit=_commit(),
        host=record.last.host,
        began_unix_s=round(record.last.began_unix_s, 1),
        failed=run.failed,
        is_uncalibrated=run.is_uncalibrated,
        reason=record.last.reason,
        figures=[Figure.model_validate(one) for one in figures],
        curve=curve,
    )


def merged(kept: Sequence[KeptRun], new: Sequence[KeptRun]) -> list[KeptRun]:
    """Return the kept runs and the new ones; a new run takes the place of one of its number."""
    runs = {(one.cell, one.number): one for one in (*kept, *new)}
    return [runs[name] for name in sorted(runs)]


def write(file: Path, paper: str, runs: Sequence[KeptRun]) -> None:
    """Write a file of runs."""
    document = KeptRuns(paper=paper, runs=runs).model_dump(mode="json", by_alias=True)
    lines = ",\n".join(json.dumps(one, allow_nan=False) for one in document.pop("runs"))
    head = json.dumps(document)[:-1]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, f'{head}, "runs": [\n{lines}\n]}}\n')


def _commit() -> str:
    argv = ["git", "-C", str(paths.ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip()
