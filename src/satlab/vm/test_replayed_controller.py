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
from satlab.common.errors import HostError, RunError
from satlab.link.options import LinkOptions
from satlab.link.plan import plan_link
from satlab.run.run_folder import RunResult
from satlab.vm import controller_client, controller_run, provision, vm_run
from satlab.vm.controller_client import Controller, RefusedError
from satlab.vm.provision import VmFolder
from satlab.vm.vm_lab import VmLab
from tests.replayed_controller import OVER, Replayed, serve

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
        3: "Not Running",
        4: "Not Running",
    }
    program = "/opt/openbach/agent/jobs/satlab_iperf3/satlab_iperf3.py"
    assert jobs[0]["argv"][1] == program
    assert jobs[0]["argv"][-4:] == ["server", "-B", "198.18.4.2", "-1"]
    verdicts = (
        outcome.records.lazy()
        .collect()
        .filter(polars.col("metric") == "job_ok")["status"]
        .to_list()
    )
    assert verdicts == ["ok", "ok"]


def test_page_load_has_the_figures_of_its_files(start: Start, tmp_path: Path) -> None:
    example = example_run.write(tmp_path, Example(duration_s=0, loads={"h3": 3}))
    loads = stored(example, "page_load_json", 3)  # the third job of the scenario
    assert len(loads) == 3
    replayed = Replayed(AGENTS, loads)
    outcome = execute(start(replayed), "page_load", {"protocol": "h3"}, tmp_path)
    expected = figures(collect.gather(example), "page_load_time_ms")
    assert figures(outcome.records.lazy().collect(), "page_load_time_ms") == expected


@pytest.mark.parametrize("remembers", ["nothing", "unknown", "known"])
def test_nothing_is_launched_before_the_installations_are_over(
    start: Start, tmp_path: Path, remembers: str
) -> None:
    """An agent may list a removed job, without its files."""
    example = example_run.write(tmp_path, Example(duration_s=2))
    replayed = Replayed(AGENTS, stored(example, "iperf3_json", 1))
    if remembers != "nothing":
        replayed.remembered = {("satlab_iperf3", address) for address in AGENTS.values()}
    if remembers == "known":
        replayed.jobs.add("satlab_iperf3")
        replayed.removed = dict.fromkeys(replayed.remembered, "2026-11-29T08:00:00Z")
    outcome = execute(start(replayed), "bulk_tcp", {"duration": "2"}, tmp_path)
    assert figures(outcome.records.lazy().collect(), "goodput_bps")
    assert launches(replayed) == 1
    assert not replayed.unregistered, "asked for the list while an installation ran"
    assert all(asked > OVER for asked in replayed.installed.values())


def launches(replayed: Replayed) -> int:
    return sum(each.endswith("/scenario_instance/") for each in replayed.asked)


def test_an_installation_that_fails_after_its_registration_is_a_failure(
    start: Start, tmp_path: Path
) -> None:
    through = start(Replayed(AGENTS, [], ends_with=422))
    with pytest.raises(RunError, match=r"satlab_iperf3 cannot be installed on 198.19.0.11: 422"):
        execute(through, "bulk_tcp", {"duration": "2"}, tmp_path)


def test_what_a_failed_installation_says_is_bounded(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    through, states = start(Replayed(AGENTS, [])), iter([202, 422])
    monkeypatch.setattr(
        through,
        "_states",
        lambda *_: {"install": {"returncode": next(states, 422), "response": "x" * 10**6}},
    )
    monkeypatch.setattr(through, "_is_removed", lambda *_: False)
    with pytest.raises(RunError, match="cannot be installed") as failed:
        through.install({AGENTS["client"]: {"satlab_ping"}})
    assert len(str(failed.value)) < 1200


@pytest.mark.parametrize(
    "answer",
    [[], {}, {"status": 7}, {"status": "Finished Ok", "openbach_functions": [{"job": {"id": 1}}]}],
)
def test_answers_of_another_form_are_a_failure_of_the_controller(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    through = start(Replayed(AGENTS, []))
    monkeypatch.setattr(through, "instance", lambda _: answer)
    with pytest.raises(HostError, match="another form than OpenBACH's"):
        execute(through, "bulk_tcp", {"duration": "2"}, tmp_path)


def test_files_that_the_controller_does_not_hand_over_are_named(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is 404 whatever the reason, for example an Ansible module that it lacks."""
    example = example_run.write(tmp_path, Example(duration_s=2))
    through = start(Replayed(AGENTS, stored(example, "iperf3_json", 1)))
    read = through.read

    def refuses_archives(path: str) -> bytes:
        if "/archive/" in path:
            raise RefusedError(404, "HTTP 404")
        return read(path)

    monkeypatch.setattr(through, "read", refuses_archives)
    with pytest.raises(HostError, match=r"satlab_iperf3 stored iperf3_json, but the controller"):
        execute(through, "bulk_tcp", {"duration": "2"}, tmp_path)


@pytest.mark.parametrize(("failing", "tried"), [(1, 2), (2, 2)])
def test_a_launch_without_a_job_is_repeated_once(
    start: Start, tmp_path: Path, failing: int, tried: int
) -> None:
    example = example_run.write(tmp_path, Example(duration_s=2))
    files = stored(example, "iperf3_json", 1)
    replayed = Replayed(AGENTS, files if failing == 1 else [], launches_without_job=failing)
    outcome = execute(start(replayed), "bulk_tcp", {"duration": "2"}, tmp_path)
    assert launches(replayed) == tried
    if failing == 1:
        assert figures(outcome.records.lazy().collect(), "goodput_bps")
    else:
        assert "Finished Ko" in outcome.reason or "no reason" in outcome.reason


def test_an_agent_of_another_project_is_named(start: Start) -> None:
    replayed = Replayed(AGENTS, [], owner="other")
    through = start(replayed)
    with pytest.raises(HostError, match=r"client \(198.19.0.11\) belongs to the project 'other'"):
        through.put_entities("satlab", AGENTS)
    assert replayed.asked[-1] == "DELETE /project/satlab/entity/client/", "as it was before"
    with pytest.raises(RefusedError) as refused:
        through.request("POST", "/project/satlab/entity/", {"name": "client"})
    assert str(refused.value).endswith("the controller's database refuses it")


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
    example = example_run.write(tmp_path, Example(duration_s=0, loads={"h3": 1}))
    replayed = Replayed(AGENTS, stored(example, "page_load_json", 3), asks_before_settled=10**9)
    outcome = execute(start(replayed), "page_load", {"protocol": "h3"}, tmp_path)
    rows = (
        outcome.records.lazy()
        .collect()
        .filter((polars.col("metric") == "job_ok") & (polars.col("status") == "failed"))
    )
    assert "Unknown" in rows["reason"].item()
    shutil.rmtree(outcome.folder)
