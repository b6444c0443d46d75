# SPDX-License-Identifier: GPL-3.0-or-later
"""All tasks of a campaign as one Parquet dataset, with a file for each cell.

The files are `dataset/cell=ID/part.parquet`. Each task has a row of the metric `task_s`, even if it
failed or is not done. A task whose files differ from its worker's record has no other row.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from collect import raw
from satlab.campaign import task_record, task_samples
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.plan_file import Plan, Task, Value
from satlab.campaign.task_record import TaskRecord
from satlab.campaign.task_samples import Sample
from satlab.common import plain_files, scratch
from satlab.common.errors import ConfigError
from satlab.common.files import write_atomically

NAME, DICTIONARY = "dataset", "data-dictionary.csv"
TASK_METRIC = "task_s"
SERIES = "series"
"""Column of `measured`, which the dataset on disk does not have."""
COLUMNS: Mapping[str, tuple[type[pl.DataType], str]] = {
    "campaign": (pl.String, "name of the campaign"),
    "cell": (pl.String, "id of the cell: one combination of factors"),
    "task": (pl.String, "id of the task: one run of the cell"),
    "number": (pl.Int64, "number of the task in its cell, from 1"),
    "seed": (pl.Int64, "seed of losses, jitter and start times"),
    "metric": (
        pl.String,
        "what was measured, with its unit; task_s is the time that the task took",
    ),
    "value": (pl.Float64, "the value; null when the sample has none"),
    "labels": (pl.String, "what distinguishes values of one metric, as a JSON object"),
    "status": (
        pl.String,
        "ok, failed, censored (larger than measured), unsupported, out of calibration, missing",
    ),
    "reason": (pl.String, "why the sample is not ok"),
    "calibrated": (pl.Boolean, "whether the task was in calibration; null when it was not done"),
    "host": (pl.String, "name of the host, or Slurm's name of the node"),
    "stamp": (
        pl.String,
        "digest of the host's processor, cores, memory, kernel and system, and satlab's version",
    ),
    "attempts": (pl.Int64, "attempts at the task; the last one counts"),
    "began_unix_s": (pl.Float64, "begin of the attempt that counts, s since the epoch"),
    "cpu_s": (pl.Float64, "CPU time of the command of that attempt, s"),
    "exit_status": (pl.Int64, "of the command; negative after a signal"),
    "satlab_version": (pl.String, "version on the host"),
}
"""Columns of every row, with their meaning; a column `factor_NAME` follows for each factor, as
text.
"""


@dataclass(frozen=True)
class Collected:
    """The dataset, and the tasks' records by id; None for a task that is not done. `changed`:
    faults of the tasks' files. `outcomes`: output of the commands of flows, by task, unless its
    files changed.
    """

    frame: pl.DataFrame
    records: Mapping[str, TaskRecord | None]
    changed: Mapping[str, str]
    outcomes: Mapping[str, Any]


def collect(plan: Plan, folder: CampaignFolder) -> Collected:
    """Read all tasks, check their files' hashes, and write dataset and data dictionary."""
    records = {task.id: folder.read(task) for task in plan.tasks}
    changed: dict[str, str] = {}
    outcomes: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for task in plan.tasks:
        found = records[task.id]
        parsed, fault = None, "" if found is None else _changed(found, folder.of(task))
        if fault:
            changed[task.id] = fault
        elif found is not None:
            parsed, fault = _output(task, found, folder)
        made = list(_rows(plan, task, found, (parsed, fault)))
        if task.rule == "flows" and isinstance(parsed, dict) and len(made) > 1:
            outcomes[task.id] = parsed
        rows += made
    frame = pl.DataFrame(rows, schema=_schema(plan), strict=False)
    _write(frame, folder.path)
    return Collected(frame, records, changed, outcomes)


def measured(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the values in calibration, without the states of tasks and of their parts (`*_ok`).

    `series` has the labels that differ between values of one metric within a task, such as the
    direction or the number of a page load; other labels describe the run, such as times and
    versions.
    """
    is_state = (pl.col("metric") == TASK_METRIC) | pl.col("metric").str.ends_with("_ok")
    kept = frame.filter(
        pl.col("value").is_not_null()
        & (pl.col("status") == "ok")
        & pl.col("calibrated")
        & ~is_state
    )
    labels = [json.loads(text) for text in kept["labels"]]
    seen: dict[tuple[str, str, str], set[str]] = {}
    for task, metric, of_row in zip(kept["task"], kept["metric"], labels, strict=True):
        for name, value in of_row.items():
            seen.setdefault((task, metric, name), set()).add(value)
    varying = {(metric, name) for (_, metric, name), values in seen.items() if len(values) > 1}
    series = [
        json.dumps({name: value for name, value in of_row.items() if (metric, name) in varying})
        for metric, of_row in zip(kept["metric"], labels, strict=True)
    ]
    return kept.with_columns(pl.Series(SERIES, series, dtype=pl.String))


def place_in(folder: Path, name: str, file: Path) -> None:
    """Put a file into a campaign's folder, over no link of it. Raises ConfigError."""
    try:
        plain_files.put(folder.resolve(), name, file)
    except OSError as error:
        raise ConfigError(
            f"{folder / name}: {error.strerror}", hint="copy the campaign to a folder of your own"
        ) from error


def _changed(found: TaskRecord, place: Path) -> str:
    """Return the files that have changed since the task ended; empty if none has."""
    try:
        now = task_record.hashes(place / found.counts)
    except ValueError as error:
        return f"is not what an attempt leaves: {error}"
    names = sorted(
        name for name in now.keys() | found.files.keys() if now.get(name) != found.files.get(name)
    )
    return f"changed since the task's end: {', '.join(names[:3])}" if names else ""


def _output(task: Task, found: TaskRecord, folder: CampaignFolder) -> tuple[Any, str]:
    """Return the output of a task's command, and the reason if it cannot be read (else empty)."""
    place = folder.of(task).relative_to(folder.path) / found.counts
    try:
        return task_samples.parse(
            task.rule, folder.content(place / task_record.OUTPUT).decode()
        ), ""
    except (OSError, raw.RefusedError, ValueError, RecursionError) as error:
        return None, _unreadable(error)


def _rows(
    plan: Plan, task: Task, found: TaskRecord | None, output: tuple[Any, str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a task.

    `output`: output of the task's command, and the reason if it must not be used.
    """
    common: dict[str, Any] = {
        "campaign": plan.name,
        "cell": task.cell,
        "task": task.id,
        "number": task.number,
    }
    common |= {
        "seed": task.seed,
        **{f"factor_{name}": str(value) for name, value in plan.cells[task.cell].items()},
    }
    if found is None:
        yield common | _values(Sample(TASK_METRIC, None, "missing", "not done"))
        return
    last = found.last
    common |= {
        "calibrated": found.status != "out of calibration",
        "host": last.host.name,
        "stamp": last.host.stamp,
        "attempts": len(found.attempts),
        "began_unix_s": last.began_unix_s,
        "cpu_s": last.cpu_s,
        "exit_status": last.exit_status,
        "satlab_version": found.satlab_version,
    }
    parsed, fault = output
    measured, fault = ([], fault) if fault else _samples(task, plan.cells[task.cell], parsed)
    status = "failed" if fault else found.status
    yield common | _values(
        Sample(TASK_METRIC, last.ended_unix_s - last.began_unix_s, status, fault or last.reason)
    )
    for sample in measured:
        yield common | _values(sample)


def _samples(task: Task, factors: Mapping[str, Value], parsed: Any) -> tuple[list[Sample], str]:
    try:
        return task_samples.of(task.rule, factors, parsed), ""
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        return [], _unreadable(error)


def _unreadable(error: Exception) -> str:
    return f"no output that can be read: {type(error).__name__}"


def _values(sample: Sample) -> dict[str, Any]:
    return asdict(sample) | {"labels": json.dumps(dict(sample.labels), sort_keys=True)}


def _schema(plan: Plan) -> dict[str, type[pl.DataType]]:
    factors = dict.fromkeys(name for factors in plan.cells.values() for name in factors)
    return {name: kind for name, (kind, _) in COLUMNS.items()} | {
        f"factor_{name}": pl.String for name in factors
    }


def _write(frame: pl.DataFrame, folder: Path) -> None:
    """Replace the dataset as a whole, over no link of a folder that may be somebody else's."""
    new, target = folder / f".{NAME}", folder / NAME
    for link in (new, target):
        if link.is_symlink():
            link.unlink()
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()  # also if there are no rows
    with scratch.folder("dataset") as own:
        for (cell,), part in frame.group_by(["cell"], maintain_order=True):
            part.write_parquet(own / "part.parquet")
            place_in(folder, f"{new.name}/cell={cell}/part.parquet", own / "part.parquet")
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)
    lines = [f'{name},{kind.__name__},"{text}"' for name, (kind, text) in COLUMNS.items()]
    lines += [
        f'{name},String,"factor of the campaign"' for name in frame.columns if name not in COLUMNS
    ]
    write_atomically(folder / DICTIONARY, "\n".join(["column,type,meaning", *lines]) + "\n")
