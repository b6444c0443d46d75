# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs through a stand-in that answers as the real OpenBACH 2.7.0 was recorded to: figures,
archive, races.
"""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import polars
import pytest

import collect
from collect.fixtures import example_run
from collect.fixtures.example_run import Example
from satlab.common import paths, topology
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError
from satlab.link.options import LinkOptions
from satlab.link.plan import plan_link
from satlab.run.run_folder import RunResult
from satlab.vm import controller_client, controller_run, provision, vm_run
from satlab.vm.controller_client import Controller
from satlab.vm.provision import VmFolder
from satlab.vm.vm_lab import VmLab
from tests.replayed_controller import Replayed, serve

AGENTS = {"client": "198.19.0.11", "server": "198.19.0.15"}
Start = Callable[[Replayed], Controller]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Yield a function that serves a recording and returns its client."""
    for module in (controller_client, controller_run):
        monkeypatch.setattr(module, "POLL_S", 0.02)
    with ExitStack() as servers:
        yield lambda replayed: Controller("127.0.0.1", servers.enter_context(serve(replayed)))


def execute(
    through: Controller, scenario: str, settings: dict[str, str], folder: Path
) -> RunResult:
    here, vm = topology.load(), VmFolder(folder / "lab")
    vm.make()
    config = provision.link_config(here, LinkOptions())
    vm.plan.write_text(plan_link(config).to_json())
    vm.link.write_text(config.to_json())
    file = paths.SCENARIOS / f"{scenario}.json"
    prepared = vm_run.prepare(file, settings, VmLab(vm, here), through)
    return vm_run.execute(prepared, folder / "runs", ProgressLog(quiet=True), threading.Event(), 30)


def figures(records: polars.DataFrame, metric: str) -> list[float]:
    rows = records.filter((polars.col("metric") == metric) & polars.col("t_s").is_null())
    assert set(rows["status"]) == {"ok"}, rows["reason"].to_list()
    return rows["value"].to_list()


def stored(run: Path, statistic: str, first_job: int) -> list[tuple[int, str, Path]]:
    """Return the stored files of an example run, by the numbers that they have on the controller."""
    found = sorted(
        (run / "raw/files").glob(f"*/{statistic}*.json"),
        key=lambda path: (str(path.parent), len(path.stem)),
    )
    return [
        (int(path.parent.name.rpartition("-")[2]) + first_job - 1, statistic, path)
        for path in found
    ]


def test_bulk_tcp_has_the_figures_of_its_files(start: Start, tmp_path: Path) -> None:
    example = example_run.write(tmp_path, Example(duration_s=10))
    replayed = Replayed(AGENTS, stored(example, "iperf3_json", 3), first_job=3)
    outcome = execute(start(replayed), "bulk_tcp", {"duration": "10"}, tmp_path)
    assert figures(outcome.records.lazy().collect(), "goodput_bps") == figures(
        collect.gather(example), "goodput_bps"
    )
    jobs = [
        json.loads(line) for line in (outcome.folder / "raw/jobs.jsonl").read_text().splitlines()
    ]
    assert {job["job_instance_id"]: job["status"] for job in jobs} == {
        3: "Stopped",
        4: "Not Running",
    }
    assert jobs[0]["argv"][-4:] == [
        "server",
        "-B",
        "198.18.4.2",
        "-1",
    ], "a server, by its arguments"
    verdicts = (
        outcome.records.lazy()
        .collect()
        .filter(polars.col("metric") == "job_ok")["status"]
        .to_list()
    )
    assert verdicts == ["censored", "ok"]  # the server was stopped, the client has ended


def test_page_load_has_the_figures_of_its_files(start: Start, tmp_path: Path) -> None:
    example = example_run.write(tmp_path, Example(duration_s=0, loads={"h3": 3}))
    loads = stored(example, "page_load_json", 3)  # the third job of the scenario
    assert len(loads) == 3
    replayed = Replayed(AGENTS, loads)
    outcome = execute(start(replayed), "page_load", {"protocol": "h3"}, tmp_path)
    expected = figures(collect.gather(example), "page_load_time_ms")
    assert figures(outcome.records.lazy().collect(), "page_load_time_ms") == expected


def test_nothing_is_launched_before_the_agents_list_their_jobs(
    start: Start, tmp_path: Path
) -> None:
    example = example_run.write(tmp_path, Example(duration_s=2))
    replayed = Replayed(AGENTS, stored(example, "iperf3_json", 1), asks_before_listed=4)
    outcome = execute(start(replayed), "bulk_tcp", {"duration": "2"}, tmp_path)
    assert figures(outcome.records.lazy().collect(), "goodput_bps")
    launch = next(
        number for number, each in enumerate(replayed.asked) if each.endswith("/scenario_instance/")
    )
    for address in AGENTS.values():
        asked = [each for each in replayed.asked[:launch] if f"address={address}&update" in each]
        assert len(asked) > 4


def test_the_deadline_of_an_update_follows_the_number_of_agents(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_client, "LOOK_DEADLINE_S", 0.2)
    monkeypatch.setattr(controller_client, "TRIES", 1)
    many = AGENTS | {f"other-{number}": f"198.19.0.{100 + number}" for number in range(6)}
    patient = start(Replayed(many, [], update_s=0.5))
    monkeypatch.setattr(controller_client, "UPDATE_S_PER_AGENT", 10.0)
    assert patient.agents(set(AGENTS)) == AGENTS
    monkeypatch.setattr(controller_client, "UPDATE_S_PER_AGENT", 0.0)
    with pytest.raises(HostError, match="does not answer"):
        patient.agents(set(AGENTS))


def test_a_job_that_never_settles_is_reported_as_it_is(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_run, "SETTLE_S", 0.1)
    example = example_run.write(tmp_path, Example(duration_s=2))
    replayed = Replayed(AGENTS, stored(example, "iperf3_json", 1), asks_before_settled=10**9)
    outcome = execute(start(replayed), "bulk_tcp", {"duration": "2"}, tmp_path)
    rows = (
        outcome.records.lazy()
        .collect()
        .filter((polars.col("metric") == "job_ok") & (polars.col("status") == "failed"))
    )
    assert "Unknown" in rows["reason"].item()
    shutil.rmtree(outcome.folder)
