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
from satlab.openbach.terminal_functions import for_terminals, uses_terminals, written_out

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
    assert set(re.findall(r"\b5[23]\d\d\b", words)) == {
        "5201",
        "5202",
        "5203",
        "5301",
        "5302",
        "5303",
    }


def test_references_are_those_of_the_same_terminal_or_of_all() -> None:
    found = bound(2)
    ids = [function.id for function in found.functions]
    assert len(set(ids)) == len(ids)
    clients = [
        f
        for f in found.functions
        if isinstance(f.action, StartJob) and f.action.entity.startswith("client")
    ]
    assert len({f.wait.launched for f in clients[:2]}) == 2
    [over] = (f for f in found.functions if isinstance(f.action, Stop))
    assert isinstance(over.action, Stop)
    assert (len(over.action.ids), len(over.wait.finished)) == (2, 4), "both ends of all downloads"
    uploads = [f for f in found.functions if f.wait.launched == (over.id,)]
    assert len(uploads) == 2


def test_64_terminals_are_within_the_limits_of_a_scenario() -> None:
    assert len(list(bound(64).jobs())) == 64 * 4


@pytest.mark.parametrize("name", ["fairness", "page_load_terminals"])
def test_a_scenario_that_is_written_out_means_the_same_and_is_not_repeated(
    name: str, tmp_path: Path
) -> None:
    document = json.loads((paths.SCENARIOS / f"{name}.json").read_text())
    assert uses_terminals(document)
    written = written_out(document, 3)
    assert not uses_terminals(written)
    assert for_terminals(written, 3) == written
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps(written))
    nodes = with_terminals(load(), 3).nodes
    values = {key: "h3" if key == "protocol" else "10" for key in document["arguments"]}
    found = scenario.bind(scenario.load(file, JOBS, nodes, terminals=3), values)
    repeated = scenario.bind(
        scenario.load(paths.SCENARIOS / file.name, JOBS, nodes, terminals=3), values
    )
    expected = [(job.entity, job.job.name, job.words) for job in repeated.jobs()]
    assert [(job.entity, job.job.name, job.words) for job in found.jobs()] == expected


def test_a_page_is_loaded_at_each_terminal_once_the_server_is_ready() -> None:
    nodes = with_terminals(load(), 3).nodes
    file = paths.SCENARIOS / "page_load_terminals.json"
    found = scenario.bind(scenario.load(file, JOBS, nodes, terminals=3), {"protocol": "h3"})
    started = {f.id: f.action for f in found.functions if isinstance(f.action, StartJob)}
    loads = {
        a.entity: (number, a.offset)
        for number, a in started.items()
        if a.job.name == "satlab_page_load"
    }
    assert {client: offset for client, (_, offset) in loads.items()} == {
        "client": 0.01,
        "client-2": 0.02,
        "client-3": 0.03,
    }
    (end,) = (f for f in found.functions if isinstance(f.action, Stop))
    assert set(end.wait.finished) == {number for number, _ in loads.values()}, (
        "the server waits for all"
    )


def test_the_stop_of_a_single_function_stops_those_of_all_terminals() -> None:
    own = {"id": 1, "start_job_instance": {"entity_name": "client", "fping": {"x": "$terminal"}}}
    other = {"id": 2, "start_job_instance": {"entity_name": "server", "fping": {}}}
    stops = [
        {"id": 3 + one, "stop_job_instance": {"openbach_function_id": 1 + one}} for one in range(2)
    ]
    made = for_terminals({"openbach_functions": [own, other, *stops]}, 2)["openbach_functions"]
    assert made[-2] == {"id": 3, "stop_job_instances": {"openbach_function_ids": [1, 6]}}
    assert made[-1] == stops[1]


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
        {
            "openbach_functions": [
                {"id": 1, "wait": 3, "stop_job_instances": [], "x": ["${terminal}"]}
            ]
        },
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
    document = {
        "openbach_functions": [
            {"id": 1, "label": "$$terminal $terminals", "start_job_instance": {}}
        ]
    }
    assert for_terminals(document, 2) == document
