# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of records: one row per sample, long format (schemas/records.schema.json)."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

Status = Literal["ok", "failed", "censored"]

SCHEMA = pl.Schema(
    {
        "run_id": pl.String(),
        "scenario": pl.String(),
        "profile": pl.String(),
        "lab": pl.String(),
        "metric": pl.String(),
        "value": pl.Float64(),
        "t_s": pl.Float64(),
        "status": pl.String(),
        "reason": pl.String(),
        "labels": pl.String(),
    }
)


@dataclass(frozen=True)
class Record:
    """One sample. `metric` carries its unit; `t_s` is seconds since the start of the run, None in a summary."""

    metric: str
    value: float | None
    labels: Mapping[str, str] = field(default_factory=dict)
    t_s: float | None = None
    status: Status = "ok"
    reason: str = ""


@dataclass(frozen=True)
class Identity:
    """The columns that all records of a run share."""

    run_id: str
    scenario: str
    profile: str
    lab: str


def failed(metric: str, labels: Mapping[str, str], reason: str) -> Record:
    """Return the record of a measurement that should be there and is not."""
    return Record(metric, None, labels, status="failed", reason=reason)


def sample(metric: str, value: float | None, labels: Mapping[str, str], reason: str) -> Record:
    """Return the record of a value that may be absent or not finite; then it failed for `reason`."""
    if value is None or not math.isfinite(value):
        return failed(metric, labels, reason)
    return Record(metric, value, labels)


def table(identity: Identity, records: Iterable[Record]) -> pl.DataFrame:
    """Turn records into rows of `SCHEMA`, in the order given. Labels become JSON text with sorted keys."""
    rows = list(records)
    size = len(rows)
    return pl.DataFrame(
        {
            "run_id": [identity.run_id] * size,
            "scenario": [identity.scenario] * size,
            "profile": [identity.profile] * size,
            "lab": [identity.lab] * size,
            "metric": [r.metric for r in rows],
            "value": [None if r.value is None else float(r.value) for r in rows],
            "t_s": [None if r.t_s is None else float(r.t_s) for r in rows],
            "status": [r.status for r in rows],
            "reason": [r.reason for r in rows],
            "labels": [json.dumps(dict(r.labels), sort_keys=True, ensure_ascii=False) for r in rows],
        },
        schema=SCHEMA,
    )


def write(frame: pl.DataFrame, path: Path) -> None:
    """Write the table as Parquet, at once: a reader sees the old table or the new one."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        frame.write_parquet(scratch)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def summaries(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the rows without a time as JSON-ready objects of schemas/records.schema.json."""
    rows = frame.filter(pl.col("t_s").is_null()).to_dicts()
    return [row | {"labels": json.loads(row["labels"])} for row in rows]
