# SPDX-License-Identifier: GPL-3.0-or-later
"""Exports records of runs as one table, with columns for the settings that distinguish the runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

import collect
from satlab.common import escape
from satlab.common.errors import ConfigError, Fault
from satlab.report import measurements as read

FORMATS = (".parquet", ".csv")
_RUN = ("emulator", "seed", "started_unix_s", "exit_status", "satlab_version")
_LINK = (
    "rate_bps",
    "one_way_delay_ms",
    "queue_bytes",
    "queue_discipline",
    "loss_ratio",
    "jitter_mean_ms",
)
_NUMBERS: Mapping[str, type[pl.DataType]] = {
    **dict.fromkeys(("load", "flow", "terminal", "instance"), pl.Int64),
    **dict.fromkeys(
        ("start_s", "stop_s", "window_s", "expected", "low", "high", "measured"), pl.Float64
    ),
}
"""Labels that are numbers; records have them as texts."""
_DIRECTIONS = ("forward", "return")


def export(runs: Mapping[Path, collect.Table], out: Path, *, has_series: bool) -> int:
    """Write the records of runs (by folder) as one table; return its number of rows.

    Columns: those of schemas/records.schema.json, of each run `emulator`, `seed`, `started_unix_s`,
    `exit_status`, `satlab_version`, `value_NAME` of the scenario, `forward_...` and `return_...` of
    the plan, `version_PROGRAM`; and `label_NAME` of each record, as a number where it is one.
    Without `has_series`, summaries alone. Raises ConfigError.
    """
    if out.suffix not in FORMATS:
        raise ConfigError(
            "unknown format",
            [Fault(str(out), f"its name does not end with {' or '.join(FORMATS)}")],
        )
    frames = []
    for folder, table in runs.items():
        rows = table.lazy() if has_series else table.lazy().filter(pl.col("t_s").is_null())
        frames.append(rows.collect(engine="streaming").with_columns(_columns(folder)))
    frame = pl.concat(frames, how="diagonal_relaxed")
    labels = frame["labels"].unique().to_list()
    names = sorted({name for text in labels for name in json.loads(text)})
    # Each distinct set of labels is parsed once: a series of hours has one.
    wide = pl.DataFrame(
        {
            "labels": labels,
            **{f"label_{name}": [json.loads(text).get(name) for text in labels] for name in names},
        },
        schema={"labels": pl.String, **{f"label_{name}": pl.String for name in names}},
    )
    typed = [
        pl.col(f"label_{name}").cast(_NUMBERS[name], strict=False)
        for name in names
        if name in _NUMBERS
    ]
    wide = wide.with_columns(typed)
    frame = frame.join(wide, on="labels", how="left", maintain_order="left").drop("labels")
    if out.suffix == ".csv":
        _for_spreadsheets(frame).write_csv(out)
    else:
        frame.write_parquet(out)
    return frame.height


def _for_spreadsheets(frame: pl.DataFrame) -> pl.DataFrame:
    """Return texts as cells: reasons and labels come from jobs.

    Each distinct text is looked at once.
    """
    for name in [name for name, kind in frame.schema.items() if kind == pl.String]:
        distinct = frame[name].unique().drop_nulls()
        changed = {text: cell for text in distinct if (cell := escape.csv(text)) != text}
        frame = frame.with_columns(pl.col(name).replace(changed)) if changed else frame
    return frame


def _columns(folder: Path) -> Sequence[pl.Expr]:
    """Return what all rows of a run share."""
    about = collect.manifest(folder)
    values: dict[str, Any] = {name: getattr(about, name) for name in _RUN}
    values |= {f"value_{name}": value for name, value in about.arguments.items()}
    values |= _link(read.plan(folder))
    values |= {f"version_{name}": version for name, version in about.versions.items()}
    return [pl.lit(value).alias(name) for name, value in values.items()]


def _link(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the plan's figures of both directions; nothing where the run has no plan of a link."""
    try:
        link = plan["link"]
        return {
            f"{direction}_{name}": link[direction].get(name)
            for direction in _DIRECTIONS
            for name in _LINK
        }
    except (KeyError, TypeError, AttributeError):
        return {}
