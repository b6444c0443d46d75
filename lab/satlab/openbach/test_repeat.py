# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios that each terminal of a lab has a part in."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.common.terminals import with_terminals
from satlab.common.topology import load
from satlab.openbach import descriptor, scenario
from satlab.openbach.model import BoundScenario, StartJob, Stop
from satlab.openbach.repeat import for_terminals

FAIRNESS = paths.SCENARIOS / "fairness.json"
JOBS = descriptor.load_jobs(paths.JOBS)


def bound(count: int) -> BoundScenario:
    nodes = with_terminals(load(), count).nodes
    return scenario.bind(scenario.load(FAIRNESS, JOBS, nodes, terminals=count), {"duration": "10"})


def test_one_terminal_has_the_scenario_of_the_file() -> None:
    document = json.loads(FAIRNESS.read_text())
    assert for_terminals(document, 1) == document
    assert {job.entity for job in bound(1).jobs()} == {"client", "server"}


def test_each_terminal_has_a_client_and_a_server_with_a_port_of_its_own() -> None:
    found = bound(3)
    jobs = list(found.jobs())
    clients = [job for job in jobs if job.entity.startswith("client")]
    assert [job.entity for job in clients] == ["client", "client-2", "client-3"] * 2
    words = " ".join(str(word) for job in jobs for word in job.words)
    assert set(re.findall(r"\b5[23]\d\d\b", words)) == {"5201", "5202", "5203", "5301", "5302", "5303"}


def test_references_are_those_of_the_same_terminal_or_of_all() -> None:
    found = bound(2)
    ids = [function.id for function in found.functions]
    assert len(set(ids)) == len(ids)
    clients = [f for f in found.functions if isinstance(f.action, StartJob) and f.action.entity.startswith("client")]
    assert len({f.wait.launched for f in clients[:2]}) == 2
    stops = [f for f in found.functions if isinstance(f.action, Stop)]
    assert all(len(f.action.ids) == 2 and len(f.wait.finished) == 2 for f in stops if isinstance(f.action, Stop))


def test_64_terminals_are_within_the_limits_of_a_scenario() -> None:
    assert len(list(bound(64).jobs())) == 64 * 4


def test_a_scenario_without_the_placeholder_stays_what_it_is() -> None:
    document = json.loads((paths.SCENARIOS / "bulk_tcp.json").read_text())
    assert for_terminals(document, 9) == document


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"openbach_functions": {}},
        {"openbach_functions": [1, None, {"id": True}, {"id": "a", "x": "$terminal"}]},
        {"openbach_functions": [{"id": 1, "wait": 3, "stop_job_instances": [], "x": ["${terminal}"]}]},
        {"openbach_functions": [{"id": 1, "wait": {"launched_ids": ["a", None, 7, True]}}]},
    ],
)
def test_malformed_documents_are_left_to_their_reader(document: Any, tmp_path: Path) -> None:
    made = for_terminals(document, 3)
    json.dumps(made)
    file = tmp_path / "x.json"
    file.write_text(json.dumps(document))
    with pytest.raises(ConfigError):
        scenario.load(file, JOBS, load().nodes, terminals=3)


def test_a_dollar_sign_is_not_the_placeholder() -> None:
    document = {"openbach_functions": [{"id": 1, "label": "$$terminal $terminals", "start_job_instance": {}}]}
    assert for_terminals(document, 2) == document
