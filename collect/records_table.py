# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of records: one row per sample, long format."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source
from pydantic import Field

from collect.raw import Model
from collect.records import Record, Series, Status


class Row(Model):
    """One row of records.parquet, and one JSON line of --json (summaries only: `t_s` is null)."""

    run_id: str
    scenario: str
    profile: str
    lab: str
    metric: str = Field(description="name of the metric with its unit (docs/metrics.md)")
    value: float | None = Field(description="null if the sample has no value")
    t_s: float | None = Field(description="time since the start of the run, s; null in a summary")
    status: Status
    reason: str
    labels: dict[str, str] = Field(description="a JSON string in the Parquet file")


SCHEMA = pl.Schema(
    {
        name: pl.Float64() if field.annotation == float | None else pl.String()
        for name, field in Row.model_fields.items()
    }
)
_OWN = pl.Schema(
    {name: SCHEMA[name] for name in ("metric", "value", "t_s", "status", "reason", "labels")}
)
"""Columns of a record; the others are the run's."""
_BLOCK = 50_000
"""Number of times of a series that become rows together."""


@dataclass(frozen=True)
class Identity:
    """The columns that all records of a run share."""

    run_id: str
    scenario: str
    profile: str
    lab: str


def tables(identity: Identity, records: Iterable[Record | Series]) -> Iterator[pl.DataFrame]:
    """Yield records as rows of `SCHEMA`, some at a time, in the order given.

    Labels become JSON text with sorted keys.

    A series gives one row per column for its first time, then for the next time, and so on.
    """
    shared = [pl.lit(getattr(identity, name)).alias(name) for name in SCHEMA if name not in _OWN]
    single: list[Record] = []
    for record in records:
        if isinstance(record, Record):
            single.append(record)
        if isinstance(record, Series) or len(single) == _BLOCK:
            series = _long(record) if isinstance(record, Series) else ()
            yield from (
                part.with_columns(shared).select(list(SCHEMA)) for part in (_rows(single), *series)
            )
            single = []
    yield _rows(single).with_columns(shared).select(list(SCHEMA))


def _rows(rows: Sequence[Record]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "metric": [r.metric for r in rows],
            "value": [None if r.value is None else float(r.value) for r in rows],
            "t_s": [None if r.t_s is None else float(r.t_s) for r in rows],
            "status": [r.status for r in rows],
            "reason": [r.reason for r in rows],
            "labels": [_labels(r.labels) for r in rows],
        },
        schema=_OWN,
    )


def _long(series: Series) -> Iterator[pl.DataFrame]:
    """Yield the rows of a series, a block at a time."""
    fixed = {"status": pl.lit("ok"), "reason": pl.lit(""), "labels": pl.lit(_labels(series.labels))}
    for first in range(0, len(series.t_s), _BLOCK):
        block = slice(first, first + _BLOCK)
        columns = {
            metric: pl.Series(values[block], dtype=pl.Float64)
            for metric, values in series.columns.items()
        }
        wide = pl.DataFrame(
            {"t_s": pl.Series(series.t_s[block], dtype=pl.Float64), **columns}
        ).with_row_index("row")
        rows = wide.unpivot(index=["row", "t_s"], variable_name="metric", value_name="value")
        rows = rows.filter(pl.col("value").is_not_nan()).sort("row", maintain_order=True)
        yield rows.with_columns(**fixed).select(list(_OWN))


def _labels(labels: Mapping[str, str]) -> str:
    return json.dumps(dict(labels), sort_keys=True, ensure_ascii=False)


def write(parts: Iterator[pl.DataFrame], path: Path) -> None:
    """Write a table of `SCHEMA` as Parquet, part by part.

    A reader of the file sees the old table or the new one.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        register_io_source(lambda *_: parts, schema=SCHEMA).sink_parquet(
            scratch, engine="streaming"
        )
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


Table = pl.DataFrame | pl.LazyFrame
"""Rows of `SCHEMA`; the rows of a long run are read from disk as needed."""


def summaries(frame: Table) -> list[dict[str, Any]]:
    """Return the rows without a time as JSON-ready objects of schemas/records.schema.json."""
    rows = frame.lazy().filter(pl.col("t_s").is_null()).collect(engine="streaming").to_dicts()
    return [row | {"labels": json.loads(row["labels"])} for row in rows]
