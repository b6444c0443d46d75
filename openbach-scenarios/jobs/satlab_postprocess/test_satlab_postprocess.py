# SPDX-License-Identifier: GPL-3.0-or-later
import csv
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture
def job(module: Callable[[str], ModuleType]) -> ModuleType:
    return module("satlab_postprocess")


def record(instance: int, time_ms: int, value: object, **about: object) -> dict[str, Any]:
    known = {
        "job_name": "satlab_ping",
        "agent_name": "client",
        "job_instance_id": instance,
        "time": time_ms,
    }
    return {"rtt_ms": value, "_metadata": known | {"is_file": False} | about}


RECORDS = [
    *(record(1, 1_700_000_000_000 + 1000 * number, 10.0 + number) for number in range(4)),
    record(2, 1_700_000_000_500, 20.0),
    record(2, 1_700_000_001_500, 30.0, suffix=HOSTILE),
    record(2, 1_700_000_001_600, True),
    record(2, 1_700_000_001_600, float("nan")),
    record(2, 1_700_000_001_600, "files/x", is_file=True),
    {"other": 1, "_metadata": {}},
]


def test_series_are_instances_and_suffixes(job: ModuleType) -> None:
    first, second, third = job.collect(iter(RECORDS), "rtt_ms", ())
    assert (first.name, first.times, first.values) == (
        "satlab_ping 1 client",
        [0, 1, 2, 3],
        [10, 11, 12, 13],
    )
    assert (second.times, second.values) == ([0.5], [20])
    assert third.name.endswith(HOSTILE)
    assert first.figures() == {"median": 11.5, "mean": 11.5, "p95": 13, "values": 4}
    assert [one.name for one in job.collect(iter(RECORDS), "rtt_ms", (1,))] == [
        "satlab_ping 1 client"
    ]
    with pytest.raises(job.JobError, match="no job has sent"):
        job.collect(iter(RECORDS), "rtt", ())


def test_bounds_are_kept(job: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "MAX_VALUES", 3)
    with pytest.raises(job.JobError, match="more than 3 values"):
        job.collect(iter(RECORDS), "rtt_ms", ())
    monkeypatch.setattr(job, "MAX_POINTS", 2)
    (series,) = job.collect(iter(RECORDS[:3]), "rtt_ms", ())
    document, rows = job.time_series([series], "t", "v")
    assert (len(document["data"][0]["x"]), len(rows)) == (2, 4), "the table has all"


def test_shares_of_a_histogram_are_those_of_the_values(job: ModuleType) -> None:
    series = job.collect(iter(RECORDS[:5]), "rtt_ms", ())
    document, rows = job.histogram(series, "t", "v", 5, cumulative=False)
    assert [trace["y"] for trace in document["data"]] == [[0.5, 0.5, 0, 0, 0], [0, 0, 0, 0, 1.0]]
    assert rows[1] == ["satlab_ping 1 client", 10.0, 12.0, 2, 0.5]
    document, _ = job.histogram(series, "t", "v", 5, cumulative=True)
    assert [trace["y"] for trace in document["data"]] == [
        [0.5, 1.0, 1.0, 1.0, 1.0],
        [0, 0, 0, 0, 1.0],
    ]
    assert job.edges([job.Series("x", [0], [7])], 1) == [6.5, 7.5], "equal values have a bin, too"


def test_a_comparison_has_quartiles_and_whiskers(job: ModuleType) -> None:
    series = [job.Series("x", [0] * 5, [1, 2, 3, 4, 100]), job.Series("y", [0], [5])]
    document, rows = job.comparison(series, "t", "v")
    box, single = document["data"]
    assert (box["q1"], box["median"], box["q3"], box["mean"]) == ([2], [3], [4], [22])
    assert (box["lowerfence"], box["upperfence"]) == ([1], [4]), "100 is an outlier"
    assert (single["q1"], single["q3"]) == ([5], [5])
    assert rows[1] == ["x", 5, 22, 1, 2, 3, 4, 100, 100]


@pytest.mark.parametrize("kind", [["time_series"], ["histogram", "-b", "4", "-c"], ["comparison"]])
def test_a_figure_and_a_table_are_stored(
    trial: Callable[[str], Any], tmp_path: Path, kind: list[str]
) -> None:
    lines = [json.dumps(each) for each in RECORDS]
    (tmp_path / "stats.jsonl").write_text("\n".join([*lines, "{", "[1]", "null", ""]))
    status, output = trial("satlab_postprocess").run(
        "rtt_ms", "-u", "ms", *kind, JOB_INSTANCE_ID="9"
    )
    assert status == 0, output
    page = (tmp_path / "files/satlab_postprocess-9/figure.html").read_text()
    assert "Plotly.newPlot" in page
    assert HOSTILE not in page
    with (tmp_path / "files/satlab_postprocess-9/table.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    first, second = "satlab_ping 1 client", "satlab_ping 2 client"
    assert {row[0] for row in rows[1:]} == {first, second, f"{second} {HOSTILE}"}
    written = trial("satlab_postprocess").raw / "stats.jsonl"
    last = [json.loads(line) for line in written.read_text().splitlines()[len(lines) + 3 :]]
    (figures,) = [record for record in last if record["_metadata"].get("suffix") == first]
    assert (figures["median"], figures["values"]) == (11.5, 4)


def test_no_value_and_no_run_are_named(trial: Callable[[str], Any], tmp_path: Path) -> None:
    status, output = trial("satlab_postprocess").run("rtt_ms", "comparison")
    assert (status, "stats.jsonl" in output) == (3, True)
    (tmp_path / "stats.jsonl").write_text("")
    status, output = trial("satlab_postprocess").run("rtt_ms", "-j", "4", "comparison")
    assert (status, "no job has sent the statistic rtt_ms" in output) == (1, True)
    status, output = trial("satlab_postprocess").run("rtt_ms", "comparison", SATLAB_RAW="")
    assert status != 0


def test_no_cell_is_a_formula(job: ModuleType) -> None:
    assert [job.cell(each) for each in ("=1+1", "@x", -3.0, "plain", "")] == [
        "'=1+1",
        "'@x",
        -3.0,
        "plain",
        "",
    ]
