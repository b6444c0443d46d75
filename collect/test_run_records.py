# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole run folders: complete, damaged, cut off, tampered with."""

import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from pydantic import BaseModel

import collect
from collect import link_samples
from collect.fixtures import example_run
from collect.fixtures.example_run import Example

SCHEMAS = Path(__file__).parents[1] / "schemas"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return example_run.write(
        tmp_path, Example(duration_s=6.0, loads={"h1": 3, "h3": 3}, censored=1)
    )


def summary(frame: pl.DataFrame, metric: str, **labels: str) -> list[dict[str, Any]]:
    rows = [row for row in collect.summaries(frame) if row["metric"] == metric]
    return [row for row in rows if labels.items() <= row["labels"].items()]


def value(frame: pl.DataFrame, metric: str, **labels: str) -> float | None:
    (row,) = summary(frame, metric, **labels)
    found: float | None = row["value"]
    return found


def test_a_complete_run_has_every_figure(run: Path) -> None:
    frame = collect.gather(run)
    assert frame.schema == collect.SCHEMA
    assert value(frame, "goodput_bps") is not None
    assert value(frame, "calibration_ok") == 1.0
    assert len(summary(frame, "calibration_check_ok")) == 4
    assert value(frame, "page_load_time_ms", protocol="h1", stat="median") is not None
    assert value(frame, "link_release_late_p99_us", direction="forward") == pytest.approx(41.2)
    (median,) = summary(frame, "page_load_time_ms", protocol="h3", stat="median")
    assert {"n": "2", "censored": "1"}.items() <= median["labels"].items()


def with_samples(run: Path, changes: Mapping[str, Mapping[str, float] | None]) -> Path:
    """Change each sample of the link's metrics: counters of a direction, or None in its place;
    return their path.
    """
    path = run / "raw" / "link.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for sample in (line for line in lines if line["type"] == "sample"):
        sample.update(
            {name: counters and sample[name] | counters for name, counters in changes.items()}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_directions_of_another_emulator_have_no_records(run: Path) -> None:
    path = with_samples(run, {"forward": None, "return": None})
    schema = json.loads((SCHEMAS / "link-metrics.schema.json").read_text())
    jsonschema.validate(json.loads(path.read_text().splitlines()[5]), schema)
    rows = [row for row in collect.gather(run).to_dicts() if row["metric"].startswith("link_")]
    assert {json.loads(row["labels"]).get("direction") for row in rows} == {
        "terrestrial_down",
        "terrestrial_up",
        None,
    }
    assert {row["status"] for row in rows} == {"ok"}


def test_parquet_holds_the_table_and_no_scratch_file_is_left(run: Path) -> None:
    frame = collect.collect(run).collect()
    assert frame.equals(collect.gather(run))
    assert pl.read_parquet(run / "records.parquet").equals(frame)
    assert sorted(p.name for p in run.iterdir()) == [
        "manifest.json",
        "plan.json",
        "raw",
        "records.parquet",
    ]


@pytest.mark.promise("P26")
def test_collecting_twice_results_in_the_same_bytes(run: Path) -> None:
    collect.collect(run)
    first = (run / "records.parquet").read_bytes()
    collect.collect(run)
    assert (run / "records.parquet").read_bytes() == first


def test_all_records_follow_their_schema(run: Path) -> None:
    (run / "raw" / "link.jsonl").unlink()
    validator = jsonschema.Draft202012Validator(
        json.loads((SCHEMAS / "records.schema.json").read_text())
    )
    frame = collect.gather(run)
    for row in [*collect.summaries(frame), *series(frame)]:
        validator.validate(row)


def series(frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    for row in frame.filter(pl.col("t_s").is_not_null()).to_dicts():
        yield row | {"labels": json.loads(row["labels"])}


def test_calibration_s_own_drops_are_not_counted(run: Path) -> None:
    frame = collect.gather(run)
    in_series = sum(
        row["value"]
        for row in series(frame)
        if row["metric"] == "link_dropped_packets" and row["t_s"] < 12
    )
    assert in_series == 30 * 30
    lines = (run / "raw" / "link.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines if '"sample"' in line]
    later = sum(
        s["forward"]["dropped_packets"] for s in samples if s["t_unix_s"] >= example_run.START + 12
    )
    assert value(frame, "link_dropped_packets", direction="forward") == later


def test_jobs_that_run_between_two_samples_have_the_counters_of_that_interval(run: Path) -> None:
    path = run / "raw" / "jobs.jsonl"
    jobs = [json.loads(line) for line in path.read_text().splitlines()]
    short = {"start_unix_s": example_run.START + 12.02, "stop_unix_s": example_run.START + 12.04}
    path.write_text("".join(json.dumps(job | short) + "\n" for job in jobs))
    lines = [json.loads(line) for line in (run / "raw" / "link.jsonl").read_text().splitlines()]
    (sample,) = (
        x
        for x in lines
        if x["type"] == "sample" and abs(x["t_unix_s"] - example_run.START - 12.1) < 0.01
    )
    assert (
        value(collect.gather(run), "link_in_packets", direction="forward")
        == sample["forward"]["in_packets"]
    )


COUNTED = {
    "link_in_packets": "in_packets",
    "link_out_bytes": "out_bytes",
    "link_dropped_packets": "dropped_packets",
    "link_lost_packets": "lost_packets",
    "link_late_packets": "late_packets",
}


def planted(
    run: Path, source: str = "link.jsonl", target: str = "link.jsonl"
) -> dict[str, dict[str, int]]:
    """Write three samples while the jobs run, each counter of each direction with its own value;
    return the sums.
    """
    lines = [json.loads(line) for line in (run / "raw" / source).read_text().splitlines()]
    during = [
        line
        for line in lines
        if line["type"] == "sample" and line["t_unix_s"] > example_run.START + 12.5
    ][:3]
    numbers = itertools.count(1)
    chosen = {
        d: {name: 1000 * next(numbers) for name in COUNTED.values()}
        for d in link_samples.DIRECTIONS
    }
    for line in lines:
        for direction, values in chosen.items() if line["type"] == "sample" else ():
            line[direction] |= values if line in during else dict.fromkeys(values, 0)
    (run / "raw" / target).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {
        direction: {name: 3 * value for name, value in values.items()}
        for direction, values in chosen.items()
    }


def test_each_counter_of_each_direction_is_summed_as_itself(run: Path) -> None:
    sums, frame = planted(run), collect.gather(run)
    for direction, values in sums.items():
        found = {
            counter: value(frame, metric, direction=direction)
            for metric, counter in COUNTED.items()
        }
        assert found == values, direction
    assert value(frame, "link_cpu_s") == 4.2


def test_each_series_is_of_the_counter_that_it_is_named_after(run: Path) -> None:
    counters = {
        metric: metric.removeprefix("link_").removeprefix("release_")
        for metric in link_samples.SERIES
    }
    counters["link_slots_used"] = "frames"
    values = {counter: number for number, counter in enumerate(counters.values(), 1)} | {
        "frame_fill_ratio": 0.5
    }
    with_samples(run, {"return": values})
    rows = [
        row for row in series(collect.gather(run)) if row["labels"].get("direction") == "return"
    ]
    assert {(row["metric"], row["value"]) for row in rows} == {
        (m, values[c]) for m, c in counters.items()
    }


def test_the_lan_s_directions_are_those_of_its_own_emulator(run: Path) -> None:
    """Down is towards the client; the LAN's satlink carries it as its terrestrial segment."""
    sums, frame = planted(run, target="lan.jsonl"), collect.gather(run)
    for way in ("down", "up"):
        found = {
            counter: value(frame, metric, direction=f"lan_{way}")
            for metric, counter in COUNTED.items()
        }
        assert found == sums[f"terrestrial_{way}"], way
    lan = {row["labels"]["direction"] for row in summary(frame, "link_in_packets")} - {
        *link_samples.DIRECTIONS
    }
    assert lan == {"lan_down", "lan_up"}


RAW_FILES = [
    ("raw/calibration.json", "calibration_ok"),
    ("raw/files/satlab_iperf3-2/iperf3_json.json", "goodput_bps"),
    ("raw/files/satlab_page_load-3/page_load_json.json", "page_load_time_ms"),
    ("raw/link.jsonl", "link_cpu_s"),
    ("raw/jobs.jsonl", "job_ok"),
]


@pytest.mark.parametrize(("name", "metric"), RAW_FILES)
@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda p: p.write_bytes(b"\xff\x00{"), lambda p: p.write_text("[]\n")]
)
def test_any_damaged_raw_file_is_a_failed_sample(
    run: Path, name: str, metric: str, damage: Callable[[Path], None]
) -> None:
    folder = (run / name).parent
    damage(run / name)
    if "page_load" in name and not (run / name).exists():
        shutil.rmtree(folder)
    frame = collect.gather(run)
    assert [row for row in summary(frame, metric) if row["status"] == "failed" and row["reason"]], (
        name
    )


@pytest.mark.parametrize("name", ["raw/link.jsonl", "raw/jobs.jsonl"])
def test_a_cut_off_last_line_is_tolerated_and_noted(run: Path, name: str) -> None:
    content = (run / name).read_bytes()
    (run / name).write_bytes(content[:-20])
    (note,) = summary(collect.gather(run), "raw_file_ok")
    assert (note["status"], note["labels"]["file"]) == ("censored", name)
    assert "last line is incomplete" in note["reason"]


def test_a_job_that_did_not_end_normally_is_a_failed_sample(run: Path) -> None:
    change_job(run, 2, status="Error", exit_code=1, log="boom\n")
    rows = summary(collect.gather(run), "job_ok", instance="2")
    assert [(r["value"], r["status"], r["reason"]) for r in rows] == [
        (None, "failed", "Error: ended with status 1: boom")
    ]


@pytest.mark.parametrize(
    ("job", "role", "stored", "status"),
    [
        ("satlab_web_server", "server", False, "ok"),
        ("satlab_iperf3", "server", True, "ok"),
        ("satlab_iperf3", "server", False, "censored"),
        ("satlab_iperf3", "client", True, "censored"),
    ],
)
def test_to_be_stopped_is_the_ordinary_end_of_servers_only(
    run: Path, job: str, role: str, stored: bool, status: str
) -> None:
    change_job(run, 2, status="Stopped", exit_code=None, job=job, argv=["x", role])
    if not stored:
        shutil.rmtree(run / "raw" / "files" / "satlab_iperf3-2")
    (row,) = summary(collect.gather(run), "job_ok", instance="2")
    assert row["status"] == status


def test_results_without_a_job_line_are_named(run: Path) -> None:
    (run / "raw" / "files" / "satlab_ping-99").mkdir()
    (row,) = summary(collect.gather(run), "job_ok", file="raw/files/satlab_ping-99")
    assert row["status"] == "failed"


@pytest.mark.parametrize(
    ("status", "expected"),
    [("failed", "failed"), ("interrupted", "failed"), ("running", "censored")],
)
def test_how_the_run_ended_is_a_record(run: Path, status: str, expected: str) -> None:
    about = json.loads((run / "manifest.json").read_text()) | {
        "status": status,
        "reason": "out of disk",
    }
    (run / "manifest.json").write_text(json.dumps(about))
    (row,) = summary(collect.gather(run), "run_ok")
    assert row["status"] == expected


@pytest.mark.parametrize("text", [None, "", "{}", "[1]"])
def test_a_folder_without_manifest_is_not_a_run(run: Path, text: str | None) -> None:
    (run / "manifest.json").unlink() if text is None else (run / "manifest.json").write_text(text)
    with pytest.raises(collect.RunFolderError, match=r"is not a run folder: manifest\.json"):
        collect.gather(run)


def test_ping_results_in_median_and_losses(run: Path) -> None:
    content = {
        "schema": "satlab/ping/1",
        "destination": "198.18.4.2",
        "sent": 4,
        "received": 3,
        "rtt_ms": [583.0, 581.0, 590.0],
        "start_unix_s": 1.0,
    }
    add_ping(run, content)
    frame = collect.gather(run)
    assert value(frame, "rtt_ms", stat="median") == 583.0
    assert value(frame, "ping_lost_packets") == 1


def test_ping_without_replies_is_a_failed_sample(run: Path) -> None:
    add_ping(
        run,
        {
            "schema": "satlab/ping/1",
            "destination": "198.18.4.2",
            "sent": 4,
            "received": 0,
            "rtt_ms": [],
            "start_unix_s": 1.0,
        },
    )
    calibrated, echoed = summary(collect.gather(run), "rtt_ms")
    assert (calibrated["labels"]["source"], calibrated["status"]) == ("calibration", "ok")
    assert (echoed["status"], echoed["reason"]) == ("failed", "none of 4 echoes came back")


def test_t16_a_figure_that_no_run_measures_is_a_failed_sample(run: Path) -> None:
    """A page or program under test may report it; sums and axes would overflow."""
    content = {"schema": "satlab/ping/1", "destination": "198.18.4.2", "sent": 1, "received": 1}
    add_ping(run, content | {"rtt_ms": [1.7e308], "start_unix_s": 1.0})
    _, echoed = summary(collect.gather(run), "rtt_ms")
    assert (echoed["status"], "rtt_ms is out of range" in echoed["reason"]) == ("failed", True)


def change_job(run: Path, instance: int, **change: Any) -> None:
    path = run / "raw" / "jobs.jsonl"
    jobs = [json.loads(line) for line in path.read_text().splitlines()]
    jobs = [job | change if job["job_instance_id"] == instance else job for job in jobs]
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs))


def add_ping(run: Path, content: dict[str, Any]) -> None:
    path = run / "raw" / "jobs.jsonl"
    job = json.loads(path.read_text().splitlines()[0]) | {
        "job": "satlab_ping",
        "job_instance_id": 50,
    }
    path.write_text(path.read_text() + json.dumps(job) + "\n")
    folder = run / "raw" / "files" / "satlab_ping-50"
    folder.mkdir()
    (folder / "ping_json.json").write_text(json.dumps(content))


# --- the interface: models and schemas agree ------------------------------------------------------


def test_link_models_have_the_fields_of_their_schema() -> None:
    schema = json.loads((SCHEMAS / "link-metrics.schema.json").read_text())
    kinds = schema["oneOf"]
    models: list[type[BaseModel]] = [
        link_samples.Header,
        link_samples.Sample,
        link_samples.End,
        link_samples.Change,
    ]
    for model, kind in zip(models, kinds, strict=True):
        assert set(model.model_json_schema()["properties"]) == set(kind["properties"])
    assert set(link_samples.Counters.model_json_schema()["required"]) <= set(
        schema["$defs"]["Direction"]["required"]
    )


def test_example_runs_are_readable(run: Path) -> None:
    schema = json.loads((SCHEMAS / "link-plan.schema.json").read_text())
    jsonschema.validate(json.loads((run / "plan.json").read_text())["link"], schema)
    metrics = jsonschema.Draft202012Validator(
        json.loads((SCHEMAS / "link-metrics.schema.json").read_text())
    )
    for line in (run / "raw" / "link.jsonl").read_text().splitlines()[-30:]:
        metrics.validate(json.loads(line))
    rows = collect.summaries(collect.gather(run))
    assert not [row for row in rows if row["metric"] == "raw_file_ok"]


# --- T12: tampered or mixed-up results ------------------------------------------------------------


def test_untouched_run_verifies(run: Path) -> None:
    assert collect.verify(run) == []


def test_t12_a_flipped_byte_is_named(run: Path) -> None:
    path = run / "raw" / "files" / "satlab_iperf3-2" / "iperf3_json.json"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    (found,) = collect.verify(run)
    assert found.startswith("raw/files/satlab_iperf3-2/iperf3_json.json: changed")


def test_a_missing_file_is_named(run: Path) -> None:
    (run / "raw" / "calibration.json").unlink()
    assert collect.verify(run) == ["raw/calibration.json: missing"]


def test_t12_files_of_another_run_are_named(run: Path, tmp_path: Path) -> None:
    other = example_run.write(tmp_path, Example(run_id="other", duration_s=7.0, seed=9))
    shutil.copy(other / "raw" / "link.jsonl", run / "raw" / "link.jsonl")
    shutil.copy(other / "raw" / "jobs.jsonl", run / "raw" / "jobs-2.jsonl")
    found = collect.verify(run)
    assert [line.split(":")[0] for line in found] == ["raw/jobs-2.jsonl", "raw/link.jsonl"]


def test_a_link_out_of_the_folder_is_not_a_plain_file(run: Path) -> None:
    path = run / "raw" / "link.jsonl"
    moved = path.rename(run / "elsewhere.jsonl")
    path.symlink_to(moved)
    assert collect.verify(run) == ["raw/link.jsonl: is not a plain file"]


def test_page_loads_name_the_proxy_on_their_path(tmp_path: Path) -> None:
    folder = example_run.write(tmp_path, Example(duration_s=0, loads={"h1": 1}, pep="haproxy"))
    assert summary(collect.gather(folder), "page_load_time_ms", load="1", pep="haproxy")
    path = folder / "raw" / "jobs.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for changes, pep in (({"argv": []}, "unknown"), ({"stop_unix_s": 0.0}, "none")):
        changed = [line | (changes if line["job"] == "satlab_pep" else {}) for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in changed))
        assert summary(collect.gather(folder), "page_load_time_ms", load="1", pep=pep)
