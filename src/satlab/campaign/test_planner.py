# SPDX-License-Identifier: GPL-3.0-or-later
"""A campaign's file as tasks, and what is reported of a bad one."""

import json
import re
import shutil
import time
from pathlib import Path

import jsonschema
import pytest

from satlab.campaign import engine, kubernetes, planner
from satlab.campaign.plan_file import ID, Plan, digest, load, parse
from satlab.campaign.task_request import FLOWS, LocalRun, files
from satlab.common import paths
from satlab.common.errors import ConfigError

MATRIX = """
scenario: bulk_tcp
profile: [geo, leo]
options: {queue-bdp: [0.5, 2], loss: 0.001, ecn: true, aqm: codel}
values: {duration: [5, 15]}
repetitions: 3
"""


def planned(folder: Path, text: str) -> Plan:
    file = folder / "queues.yml"
    file.write_text(text)
    return planner.plan(file)


def faults(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(folder, text)
    return "\n".join([str(caught.value), *map(str, caught.value.faults), caught.value.hint])


@pytest.mark.promise("P92")
def test_p202_a_matrix_is_every_combination_with_its_command(tmp_path: Path) -> None:
    plan = planned(tmp_path, MATRIX)
    assert plan.name == "queues"
    assert (len(plan.cells), len(plan.tasks)) == (8, 24)
    last = next(task for task in plan.tasks if task.id == "leo-queue-bdp=2-duration=15.3")
    assert (
        " ".join(last.request.words())
        == "satlab run bulk_tcp --profile leo --seed 3 --loss 0.001 --queue-bdp 2.0 --aqm codel"
        " --ecn "
        "--set=duration=15 --runs . --no-report --quiet --json"
    )
    assert (last.rule, last.lab, last.seed, last.number, last.estimate_s) == (
        "run",
        "netns",
        3,
        3,
        35,
    )
    # A part of the tasks covers all cells.
    assert len({task.cell for task in plan.tasks[:8]}) == 8
    assert all(re.fullmatch(ID, task.id) for task in plan.tasks)
    assert len({task.id for task in plan.tasks}) == 24


@pytest.mark.parametrize(
    ("text", "cells", "rule", "lab"),
    [
        ("paper: kosek-2022\ncells: [geo/0/*, leo/1/h3]\nseeds: [7, 9]", 9, "run", "netns"),
        ("paper: seed-003\nquick: true\nseeds: [7, 9]", 8, "flows", "virtual"),
        ("paper: seed-003\nclock: real\ncells: test4/*\nseeds: [7, 9]", 2, "flows", "netns"),
        ("suite: etosat\nseeds: [7, 9]", 10, "check", "virtual"),
        (
            "suite: etosat\ncases: medium\nclock: real\nstack: quiche\nseeds: [7, 9]",
            1,
            "check",
            "netns",
        ),
    ],
)
def test_p202_papers_and_suites_are_planned_by_their_own_cells(
    text: str, cells: int, rule: str, lab: str, tmp_path: Path
) -> None:
    plan = planned(tmp_path, text)
    assert (len(plan.cells), len(plan.tasks)) == (cells, 2 * cells)
    assert {(task.rule, task.lab) for task in plan.tasks} == {(rule, lab)}
    assert {task.seed for task in plan.tasks} == {7, 9}
    for task in plan.tasks:
        words = task.request.words()
        given = (
            files(task.request)[FLOWS]["seed"]
            if rule == "flows"
            else int(words[words.index("--seed") + 1])
        )
        assert given == task.seed


def test_p202_equal_files_have_equal_plans_that_satisfy_their_schema(tmp_path: Path) -> None:
    text = planned(tmp_path, MATRIX).text()
    assert text == planned(tmp_path, MATRIX).text()
    jsonschema.validate(
        json.loads(text), json.loads((paths.SCHEMAS / "campaign-plan.schema.json").read_text())
    )
    (tmp_path / "plan.json").write_text(text)
    assert load(tmp_path / "plan.json", digest(text)).text() == text


@pytest.mark.promise("P92")
def test_p203_every_fault_is_reported_with_its_remedy(tmp_path: Path) -> None:
    text = """
    scenario: [bulk_tcp, nonsense]
    profile: [geo, mars]
    options: {loss: [0.1, 7], colour: red, queue: 3kg}
    values: {durration: 5}
    """
    found = faults(tmp_path, text)
    for part in (
        "nonsense",
        "mars",
        "--loss 7",
        "(0 to 1)",
        "options.colour",
        "--queue 3kg",
        "durration",
    ):
        assert part in found, found
    assert len(found.splitlines()) == len(set(found.splitlines()))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("scenario: bulk_tcp\ncolor: red", "color"),
        ("repetitions: 2", "name one of scenario, paper, suite"),
        ("scenario: bulk_tcp\nsuite: etosat", "there are 2"),
        ("suite: etosat\nquick: true", "quick: only with paper"),
        ("suite: etosat\nrepetitions: 2\nseeds: [1]", "name one of them"),
        ("suite: etosat\nseeds: [1, 1]", "each only once"),
        ("suite: etosat\ncases: giant", "giant is not a case"),
        ("suite: etosat\nstack: quiche", "stack quiche: with clock: real"),
        ("suite: nowhere", "suites are in suites/"),
        ("suite: ../etosat", "suite"),
        ("paper: seed-003\ncells: nowhere/*", "no such cell"),
        ("- suite", "is not a list of fields"),
        ("", "is empty"),
        ("suite: [etosat", "campaigns.md"),
        (
            "scenario: bulk_tcp\nvalues: {duration: [" + "5," * 99 + "5]}\nrepetitions: 10000",
            "at most 100000",
        ),
    ],
)
def test_p203_what_cannot_be_a_campaign_is_refused(text: str, part: str, tmp_path: Path) -> None:
    assert part in faults(tmp_path, text)


def test_p204_ten_thousand_tasks_are_planned_in_time(tmp_path: Path) -> None:
    text = """
    scenario: bulk_tcp
    profile: [geo, leo]
    options: {queue-bdp: [0.5, 0.75, 1, 1.5, 2], loss: [0, 0.001, 0.002, 0.005, 0.01], jitter-ms: [0, 1]}
    values: {duration: [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}
    repetitions: 10
    """
    began = time.process_time()
    plan = planned(tmp_path, text)
    assert len(plan.tasks) == 10_000
    assert time.process_time() - began < 20


LOCAL = {
    "options: {timeline: changes.json}": "options.timeline",
    "options: {loss-model: 'trace:losses'}": "options.loss_model",
    "options: {probes: '192.0.2.1:5361'}": "options.probes",
    "values: {server_ip: 192.0.2.1}": "values.server_ip",
    "profile: mine": "profile",
    "scenario: own.json\nvalues: {duration: 5}": "scenario",
}


@pytest.mark.parametrize(("line", "name"), LOCAL.items(), ids=LOCAL.values())
def test_t55_files_and_addresses_of_the_user_stay_on_his_hosts(
    line: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / "changes.json").write_text(
        '[{"at_s": 1, "set": {"direction": "both", "outage": 2}}]'
    )
    (tmp_path / "losses").write_text("0\n1\n")
    shutil.copytree(paths.PROFILES / "geo", tmp_path / "mine")
    shutil.copy(paths.SCENARIOS / "bulk_tcp.json", tmp_path / "own.json")
    head = "" if name == "scenario" else "scenario: bulk_tcp\n"
    plan = planned(tmp_path, head + line)
    (task,) = plan.tasks
    assert isinstance(task.request, LocalRun) and name in task.request.names
    assert parse(plan.text(), "plan") == plan
    (tmp_path / "hosts.yml").write_text(
        "known_hosts: hosts.yml\nidentity: hosts.yml\nhosts: [{name: a, address: a, satlab: /s}]"
    )
    options = engine.Options("ssh", hosts=tmp_path / "hosts.yml")
    with pytest.raises(ConfigError) as caught:
        engine.choose(plan, tmp_path / "c", options)
    assert name in " ".join(map(str, caught.value.faults))
    with pytest.raises(ConfigError, match="in pods"):
        kubernetes.documents(plan, kubernetes.Cluster("i", "c", 1))


def test_t55_what_other_hosts_take_names_what_ships(tmp_path: Path) -> None:
    for text in (
        MATRIX,
        "paper: seed-002",
        "paper: seed-003",
        "paper: seed-003\nclock: real",
        "suite: etosat",
    ):
        planned(tmp_path, text).for_any_host("anywhere")
    for name in ("seed-000", "seed-001", "seed-004", "rfc-9959"):
        planned(tmp_path, f"paper: {name}").for_any_host("anywhere")


def test_a_seed_that_flows_cannot_have_is_refused_when_planned(tmp_path: Path) -> None:
    assert "4294967296" in faults(tmp_path, "paper: seed-003\nquick: true\nseeds: [4294967296]")
