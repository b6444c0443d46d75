# SPDX-License-Identifier: GPL-3.0-or-later
import json
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collect import gather, observed_page_loads, stored
from collect.fixtures import example_run
from collect.fixtures.example_run import Example, observation
from collect.observed_page_loads import Frame, PageObservation, speed_index_ms
from satlab.common.paths import SCHEMAS

LABELS = {"job": "satlab_page_load", "instance": "1"}


def load(index: int = 0, **change: Any) -> PageObservation:
    content = observation("h3", index, random.Random(1)) | change  # noqa: S311
    jsonschema.validate(content, json.loads((SCHEMAS / "page-observation.schema.json").read_text()))
    return observed_page_loads.PageObservation.model_validate_json(json.dumps(content))


def frames(*progress: tuple[float, float]) -> list[Frame]:
    return [Frame(t_ms=at, visual_completeness=share, jpeg=None) for at, share in progress]


@pytest.mark.promise("P45")
def test_the_speed_index_is_the_area_above_the_visual_progress() -> None:
    assert speed_index_ms(frames((0, 0), (1000, 0.5), (3000, 1.0))) == 1000 + 0.5 * 2000
    progress = frames((0, 0), (1000, 1.0), (2000, 0.9), (2500, 1.0))
    assert speed_index_ms(progress) == pytest.approx(1000 + 0.1 * 500)
    assert speed_index_ms(frames((0, 0))) is None


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1)), min_size=2, max_size=20))
def test_the_speed_index_lies_between_0_and_the_last_change(
    progress: list[tuple[float, float]],
) -> None:
    ordered = sorted(progress)
    found = speed_index_ms(frames(*ordered))
    assert found is not None
    assert 0 <= found <= ordered[-1][0] - ordered[0][0] + 1e-6


def test_an_observed_load_has_its_metrics_and_one_that_failed_has_its_reason() -> None:
    rows = {row.metric: row for row in observed_page_loads.records(load(3), LABELS, "none")}
    one = load(3)
    assert rows["visually_complete_ms"].value == one.page_load_time_ms
    assert rows["speed_index_ms"].value == one.speed_index_ms
    assert {"protocol": "h3", "pep": "none", "load": "3"}.items() <= rows[
        "speed_index_ms"
    ].labels.items()
    lost = observed_page_loads.records(
        load(status="failed", reason="why", frames=[]), LABELS, "none"
    )
    assert [(row.metric, row.value, row.status, row.reason) for row in lost] == [
        (metric, None, "failed", "why") for metric in observed_page_loads.METRICS
    ]


def test_observed_loads_of_a_run_have_a_median_of_their_own(tmp_path: Path) -> None:
    run = example_run.write(tmp_path, Example(duration_s=0, loads={"h1": 3}, observed=2))
    rows = gather(run).to_dicts()
    median = [
        row
        for row in rows
        if row["metric"] == "speed_index_ms" and '"stat":"median"' in row["labels"].replace(" ", "")
    ]
    assert [json.loads(row["labels"])["n"] for row in median] == ["2"]
    times = [
        row for row in rows if row["metric"] == "page_load_time_ms" and '"load"' in row["labels"]
    ]
    assert len(times) == 3, "the times of observed loads do not count"
    assert [one.load.load_index for one in stored(run).observations] == [0, 1]


@pytest.mark.parametrize("damage", ['"jpeg": "<script>"', '"jpeg": 7'])
def test_other_text_than_a_picture_is_a_failed_sample(tmp_path: Path, damage: str) -> None:
    run = example_run.write(tmp_path, Example(duration_s=0, loads={"h1": 1}, observed=1))
    (path,) = run.glob("raw/files/*/page_observation_json.json")
    path.write_text(path.read_text().replace('"jpeg": null', damage, 1))
    rows = [row for row in gather(run).to_dicts() if row["metric"] == "speed_index_ms"]
    assert {row["status"] for row in rows} == {"failed"}
    assert stored(run).observations == []


def test_a_speed_index_below_a_round_trip_is_a_failed_sample(tmp_path: Path) -> None:
    run = example_run.write(tmp_path, Example(duration_s=0, loads={"h1": 1}, observed=1))
    (path,) = run.glob("raw/files/*/page_observation_json.json")
    content = json.loads(path.read_text())
    for number, frame in enumerate(content["frames"]):
        frame["t_ms"] = number * 100.0
    path.write_text(json.dumps(content))
    (row,) = [
        r
        for r in gather(run).to_dicts()
        if r["metric"] == "speed_index_ms" and '"load"' in r["labels"]
    ]
    assert "better than physics" in row["reason"]


# --- HAR ------------------------------------------------------------------------------------------

NEEDED: dict[str, dict[str, type | tuple[type, ...]]] = {
    "log": {"version": str, "creator": dict, "entries": list},
    "page": {"startedDateTime": str, "id": str, "title": str, "pageTimings": dict},
    "entry": {
        "startedDateTime": str,
        "time": (int, float),
        "request": dict,
        "response": dict,
        "cache": dict,
        "timings": dict,
    },
    "request": {
        "method": str,
        "url": str,
        "httpVersion": str,
        "cookies": list,
        "headers": list,
        "queryString": list,
        "headersSize": int,
        "bodySize": int,
    },
    "response": {
        "status": int,
        "statusText": str,
        "httpVersion": str,
        "cookies": list,
        "headers": list,
        "content": dict,
        "redirectURL": str,
        "headersSize": int,
        "bodySize": int,
    },
    "content": {"size": int, "mimeType": str},
    "timings": {"send": (int, float), "wait": (int, float), "receive": (int, float)},
}
"""The fields that HAR 1.2 requires, with their types."""
OPTIONAL = {
    "log": {"browser", "pages", "comment"},
    "page": {"comment"},
    "entry": {"pageref", "serverIPAddress", "connection", "comment"},
    "request": {"postData", "comment"},
    "response": {"comment"},
    "content": {"compression", "text", "encoding", "comment"},
    "timings": {"blocked", "dns", "connect", "ssl", "comment"},
}
"""Those that it allows further; others begin with an underscore."""


def follows(kind: str, what: dict[str, Any]) -> None:
    for name, types in NEEDED[kind].items():
        assert isinstance(what[name], types), (kind, name, what[name])
    for name in what.keys() - NEEDED[kind].keys() - OPTIONAL[kind]:
        assert name.startswith("_"), (kind, name)


@pytest.mark.promise("P45")
def test_a_har_has_the_fields_of_version_1_2() -> None:
    one = load(4)
    document = json.loads(
        json.dumps(
            observed_page_loads.har([("run 1", one), ("run 2", load(5))], "0.1.0"), allow_nan=False
        )
    )
    log = document["log"]
    follows("log", log)
    assert log["version"] == "1.2"
    assert (
        {entry["pageref"] for entry in log["entries"]}
        == {page["id"] for page in log["pages"]}
        == {"run 1", "run 2"}
    )
    assert len(log["entries"]) == 2 * len(one.requests)
    for page in log["pages"]:
        follows("page", page)
        assert datetime.fromisoformat(page["startedDateTime"]).tzinfo is not None
    for entry in log["entries"]:
        for kind, what in (
            ("entry", entry),
            ("request", entry["request"]),
            ("response", entry["response"]),
        ):
            follows(kind, what)
        follows("content", entry["response"]["content"])
        follows("timings", entry["timings"])
        whole = sum(
            value for name, value in entry["timings"].items() if name != "ssl" and value >= 0
        )
        assert entry["time"] == pytest.approx(whole)
        assert entry["timings"]["ssl"] <= entry["timings"]["connect"], "connect contains ssl"


def test_a_job_with_observed_loads_alone_has_no_others_and_without_them_failed_samples(
    tmp_path: Path,
) -> None:
    run = example_run.write(tmp_path, Example(duration_s=0, loads={"h1": 1}, observed=1))
    jobs = run / "raw" / "jobs.jsonl"
    lines = [json.loads(line) for line in jobs.read_text().splitlines()]
    for line in lines:
        line["argv"] += ["-n", "0"] if line["job"] == "satlab_page_load" else []
    jobs.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (load,) = run.glob("raw/files/*/page_load_json.json")
    load.unlink()
    states = {(row["metric"], row["status"]) for row in gather(run).to_dicts()}
    assert ("speed_index_ms", "ok") in states
    assert not any(metric == "page_load_time_ms" for metric, _ in states)
    (observed,) = run.glob("raw/files/*/page_observation_json.json")
    observed.unlink()
    states = {(row["metric"], row["status"]) for row in gather(run).to_dicts()}
    assert states >= {(metric, "failed") for metric in observed_page_loads.METRICS}
