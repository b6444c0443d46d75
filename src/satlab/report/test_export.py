# SPDX-License-Identifier: GPL-3.0-or-later
import json
from pathlib import Path

import polars as pl
import pytest

import collect
from collect.fixtures import example_run
from collect.fixtures.example_run import Example
from satlab import report
from satlab.common.errors import ConfigError


@pytest.fixture
def runs(tmp_path: Path) -> dict[Path, collect.Table]:
    examples = (
        Example(run_id="20261121-120000-bulk_tcp-geo-0001", duration_s=6.0),
        Example(
            run_id="20261121-120100-page_load-geo-0002",
            scenario="page_load",
            duration_s=0,
            loads={"h1": 2},
        ),
    )
    folders = [example_run.write(tmp_path, example) for example in examples]
    return {folder: collect.gather(folder) for folder in folders}


@pytest.mark.promise("P33")
def test_each_summary_is_a_row_with_what_distinguishes_its_run(
    runs: dict[Path, collect.Table], tmp_path: Path
) -> None:
    rows = report.export(runs, tmp_path / "all.parquet", has_series=False)
    frame = pl.read_parquet(tmp_path / "all.parquet")
    assert frame.height == rows == sum(len(collect.summaries(table)) for table in runs.values())
    goodput = frame.row(by_predicate=pl.col("metric") == "goodput_bps", named=True)
    folder = next(iter(runs))
    about, plan = collect.manifest(folder), json.loads((folder / "plan.json").read_text())["link"]
    assert (goodput["seed"], goodput["satlab_version"]) == (about.seed, about.satlab_version)
    assert goodput["forward_queue_bytes"] == plan["forward"]["queue_bytes"]
    assert {goodput[f"value_{name}"] for name in about.arguments} == set(about.arguments.values())
    assert goodput["label_direction"] == "download"
    loads = frame.filter(pl.col("metric") == "page_load_time_ms", pl.col("label_stat") == "median")
    assert loads["label_protocol"].to_list() == ["h1"]


def test_p223_labels_that_are_numbers_have_columns_of_numbers(
    runs: dict[Path, collect.Table], tmp_path: Path
) -> None:
    report.export(runs, tmp_path / "all.parquet", has_series=False)
    frame = pl.read_parquet(tmp_path / "all.parquet")
    texts = pl.concat([table.lazy().collect() for table in runs.values()])["labels"].to_list()
    for name, kind in {
        "load": pl.Int64,
        "instance": pl.Int64,
        "start_s": pl.Float64,
        "expected": pl.Float64,
    }.items():
        assert frame.schema[f"label_{name}"] == kind
        written = {
            float(value) for text in texts if (value := json.loads(text).get(name)) is not None
        }
        assert (
            written and {float(value) for value in frame[f"label_{name}"].drop_nulls()} == written
        )
    assert frame.schema["label_protocol"] == pl.String


def test_series_are_there_on_request(runs: dict[Path, collect.Table], tmp_path: Path) -> None:
    rows = report.export(runs, tmp_path / "all.csv", has_series=True)
    frame = pl.read_csv(tmp_path / "all.csv", infer_schema_length=None)
    assert frame.height == rows == sum(table.lazy().collect().height for table in runs.values())
    assert (
        frame.filter(pl.col("metric") == "link_queue_bytes", pl.col("t_s").is_not_null()).height > 0
    )


def test_a_spreadsheet_computes_no_text(runs: dict[Path, collect.Table], tmp_path: Path) -> None:
    folder, table = next(iter(runs.items()))
    hostile = table.lazy().with_columns(pl.lit("=1+1").alias("reason"))
    report.export({folder: hostile}, tmp_path / "all.csv", has_series=False)
    frame = pl.read_csv(tmp_path / "all.csv", infer_schema_length=None)
    assert frame["reason"].unique().to_list() == ["'=1+1"]
    assert frame["value"].dtype == pl.Float64


def test_another_format_is_refused(runs: dict[Path, collect.Table], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown format"):
        report.export(runs, tmp_path / "all.xlsx", has_series=False)
