# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that one file keeps: they add up; what is marked, or of another request, is repeated."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from satlab.campaign import engine, kept_runs, reproduction
from satlab.campaign.kept_runs import KeptRun
from satlab.campaign.task_record import Host
from satlab.common import paths
from satlab.common.errors import ConfigError, ExitStatus
from satlab.papers.scenario_figures import Records
from satlab.papers.test_seed_002 import bulk, load

CELLS = ["geo/0/h1", "geo/0/tcp"]
HOST = Host(name="node-a", stamp="0123456789ab", facts={"cores": 2})


def prepared(tmp_path: Path, **options: Any) -> reproduction.Reproduction:
    asked: dict[str, Any] = {
        "cells": CELLS,
        "runs": 2,
        "keep": tmp_path / "runs.json",
        "out": tmp_path,
    } | options
    return reproduction.prepare(reproduction.Request("seed-002", **asked))


def kept(of: reproduction.Reproduction, cell: str, number: int, **change: Any) -> KeptRun:
    """Return a run of what a reproduction asks for."""
    task = next(t for t in of.engine.plan.tasks if t.id == f"{cell.replace('/', '-')}.{number}")
    rows = bulk(16e5) if cell.endswith("tcp") else load(1200, 3800, 10800)
    figures, curve = Records(rows).kept()
    made: dict[str, Any] = {
        "cell": cell,
        "number": number,
        "asked": kept_runs.asked(task),
        "satlab_version": "0.2.0",
        "commit": "abc",
        "host": HOST,
        "began_unix_s": 1.0,
        "failed": False,
        "is_uncalibrated": False,
        "reason": "",
        "figures": figures,
        "curve": curve,
    }
    return KeptRun(**(made | change))


def left(of: reproduction.Reproduction) -> list[str]:
    return [task.id for task in of.engine.plan.tasks]


@pytest.mark.promise("P89")
def test_with_all_runs_in_the_file_a_reproduction_judges_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "is_installed", lambda: True)
    first = prepared(tmp_path, runs=5)
    runs = [kept(first, cell, number) for cell in CELLS for number in range(1, 6)]
    kept_runs.write(tmp_path / "runs.json", "seed-002", runs)
    again = prepared(tmp_path, runs=5)
    assert left(again) == []
    assert again.run(threading.Event()) == ExitStatus.UNDECIDED  # no conclusion is of these cells
    assert again.results is not None and again.results.planned == 10
    assert json.loads((tmp_path / "runs.json").read_text())["runs"] == [
        run.model_dump(mode="json", by_alias=True) for run in runs
    ]


@pytest.mark.promise("P89")
def test_a_run_is_repeated_if_a_constant_of_its_scenario_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepared(tmp_path, runs=1)
    kept_runs.write(tmp_path / "runs.json", "seed-002", [kept(first, cell, 1) for cell in CELLS])
    assert left(prepared(tmp_path, runs=1)) == []

    def changed(name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((paths.SCENARIOS / f"{name}.json").read_text())
        if name == "tcp":
            document["constants"]["proxy_gw_cc"] = "cubic"
        return document

    monkeypatch.setattr(kept_runs, "shipped_scenario", changed)
    assert left(prepared(tmp_path, runs=1)) == ["geo-0-tcp.1"]


@pytest.mark.promise("P89")
def test_runs_of_the_file_are_not_repeated_unless_marked_or_asked_for_differently(
    tmp_path: Path,
) -> None:
    first = prepared(tmp_path)
    assert left(first) == ["geo-0-tcp.1", "geo-0-h1.1", "geo-0-tcp.2", "geo-0-h1.2"]
    runs = [
        kept(first, "geo/0/h1", 1),
        kept(first, "geo/0/h1", 2, is_uncalibrated=True),
        kept(first, "geo/0/tcp", 1),
        kept(first, "geo/0/tcp", 2, asked="of another link"),
    ]
    kept_runs.write(tmp_path / "runs.json", "seed-002", runs)
    again = prepared(tmp_path)
    assert left(again) == ["geo-0-tcp.2", "geo-0-h1.2"]
    assert [(one.cell, one.number) for one in again.kept] == [
        ("geo/0/h1", 1),
        ("geo/0/h1", 2),
        ("geo/0/tcp", 1),
    ]
    assert left(prepared(tmp_path, runs=3)) == [
        "geo-0-tcp.2",
        "geo-0-h1.2",
        "geo-0-tcp.3",
        "geo-0-h1.3",
    ]


def test_kept_runs_have_the_figures_of_the_records(tmp_path: Path) -> None:
    first = prepared(tmp_path)
    runs = [kept(first, "geo/0/h1", 1), kept(first, "geo/0/tcp", 1)]
    file = tmp_path / "runs.json"
    kept_runs.write(file, "seed-002", runs)
    document = json.loads(file.read_text())
    jsonschema.validate(
        document, json.loads((paths.SCHEMAS / "paper-runs.schema.json").read_text())
    )
    found = [one.run().outcome for one in kept_runs.load(file, "seed-002").runs]
    assert found[0].figure("page_load_time_ms") == 10800
    # 200 kB/s: 2 MB after 10 s, and 1 MB after 5 s.
    assert found[1].reached_s(2_000_000) == pytest.approx(10, abs=0.11)
    assert found[1].early_bytes == pytest.approx(1e6, rel=0.03)
    assert found[1].late_mbps == pytest.approx(1.6)


def test_a_new_run_takes_the_place_of_the_one_of_its_number(tmp_path: Path) -> None:
    first = prepared(tmp_path)
    old = [kept(first, "geo/0/tcp", 1, is_uncalibrated=True), kept(first, "geo/0/h1", 1)]
    new = [kept(first, "geo/0/tcp", 1)]
    assert kept_runs.merged(old, new) == [old[1], new[0]]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "runs.json"
    file.write_text("{}")
    with pytest.raises(ConfigError, match="holds no runs"):
        prepared(tmp_path)
    kept_runs.write(file, "seed-004", [])
    with pytest.raises(ConfigError, match="runs of seed-004"):
        prepared(tmp_path)
    with pytest.raises(ConfigError, match="papers of scenarios"):
        reproduction.prepare(reproduction.Request("seed-003", keep=file))


@pytest.mark.parametrize(
    "change",
    [
        {"curve": []},
        {"curve": [float("nan")] * 150},
        {"figures": [{"metric": "page_load_time_ms"}]},
        {"figures": [{"metric": "x", "value": 1e300, "t_s": None, "status": "ok", "labels": {}}]},
    ],
    ids=["short", "no number", "shape", "huge"],
)
def test_t75_kept_runs_of_another_shape_are_refused_before_any_run(
    change: dict[str, Any], tmp_path: Path
) -> None:
    """Else they end a reproduction after all its runs, which are then not kept."""
    first = prepared(tmp_path)
    run = kept(first, "geo/0/tcp", 1).model_dump(mode="json")
    (tmp_path / "runs.json").write_text(
        json.dumps({"schema": "satlab/paper-runs/1", "paper": "seed-002", "runs": [run | change]})
    )
    with pytest.raises(ConfigError, match="holds no runs"):
        prepared(tmp_path)


def test_t75_kept_runs_are_read_from_a_plain_file_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "runs.json")
    with pytest.raises(ConfigError, match="is not a plain file"):
        prepared(tmp_path)
