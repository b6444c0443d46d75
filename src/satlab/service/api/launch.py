# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches: a request of a client is checked as a whole, then queued, or refused in OpenBACH's
words.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import astuple
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from satlab.common import paths, terminals
from satlab.common.errors import ConfigError, Fault, SatlabError
from satlab.openbach import scenario
from satlab.openbach.descriptor import Descriptor
from satlab.openbach.model import BoundScenario, Policy, StartJob, StartScenario
from satlab.openbach.terminal_functions import uses_terminals, written_out
from satlab.run import scenario_value_checks
from satlab.service.api import scenario_check
from satlab.service.api.api_answers import ApiError, not_found, unexpected
from satlab.service.api.dependencies import Context
from satlab.service.api.project_store import Document, Project
from satlab.service.api.queue import Instance, Kind, LaunchRequest, QueueFailedError, QueueFullError
from satlab.service.api.scenario_check import RefusalError
from satlab.service.root_helper.protocol import RunLink, ScenarioRequest, faults_of

_WRONG = "Arguments of an OpenbachFunction have the wrong type of values."


def scenario_instance(
    context: Context,
    project: Project,
    name: str,
    arguments: Mapping[str, Any],
    link: RunLink,
    login: str,
    constants: Mapping[str, str] | None = None,
) -> Instance:
    """Queue a scenario of a project. `constants` replaces constants for this launch only.

    Raises ApiError: OpenBACH refuses the request, the run would hang, the request is too large, the
    queue is full.
    """
    scenarios = context.catalog.scenarios(project.name)
    if name not in scenarios:
        raise not_found("Scenario", scenario_name=name, project_name=project.name)
    if constants:
        scenarios[name] = {
            **scenarios[name],
            "constants": {**scenarios[name].get("constants", {}), **constants},
        }
    values = {key: str(value) for key, value in arguments.items()}
    for argument in values:
        if argument not in scenarios[name].get("arguments", {}):
            raise ApiError(
                HTTPStatus.BAD_REQUEST,
                "A value was provided for an Argument that is not defined for this Scenario.",
                scenario_name=scenarios[name]["name"],
                project_name=project.name,
                argument_name=argument,
            )
    documents = _with_sub_scenarios(scenarios, name)
    jobs = context.inventory.jobs()
    _check_values(scenarios[name], jobs, values)
    entities = _entities(context, project, name, documents)
    if uses_terminals(documents[name]):
        documents[name], further = _for_terminals(documents[name], link)
        entities = further | entities
    request = {
        "scenario": name,
        "documents": documents,
        "arguments": values,
        "entities": entities,
        "link": link,
    }
    return _queue(context, request, jobs, project.name, login, "scenario")


def _for_terminals(document: Document, link: RunLink) -> tuple[Document, dict[str, str]]:
    """Return the scenario of all terminals of the lab, and the nodes that play their entities.

    Raises ApiError: 400.

    It is written out before it is queued, so that the numbers of its jobs are reserved.
    """
    try:
        topology = link.options().topology()
    except SatlabError as error:
        faults = [str(fault) for fault in getattr(error, "faults", ())]
        raise ApiError(
            HTTPStatus.BAD_REQUEST, f"This cannot run: {error}", faults=faults
        ) from error
    count = len(terminals.clients(topology))
    return (written_out(document, count) if count > 1 else document), terminals.entities(topology)


def job_instance(
    context: Context, agent: str, job: str, arguments: Document, login: str
) -> Instance:
    """Queue one job as a scenario that is not listed. Raises ApiError."""
    jobs = context.inventory.jobs()
    if job not in jobs:
        raise not_found("Job", job_name=job)
    context.inventory.check_agent(agent)
    node = context.inventory.agents[agent]
    start = {"entity_name": node, job: arguments}
    document = {
        "name": job,
        "openbach_functions": [{"id": 1, "label": job, "start_job_instance": start}],
    }
    try:
        scenario_check.check(document, jobs)
    except RefusalError as refusal:
        raise ApiError(
            HTTPStatus.BAD_REQUEST, _WRONG, **{"error_message": refusal.body["error"]}
        ) from refusal
    request = {
        "scenario": job,
        "documents": {job: document},
        "entities": {node: node},
        "endless": True,
    }
    return _queue(context, request, jobs, "", login, "job")


def _check_values(
    document: Document, jobs: Mapping[str, Descriptor], values: Mapping[str, str]
) -> None:
    try:
        scenario_check.check(document, jobs, {**document.get("constants", {}), **values})
    except RefusalError as refusal:
        entry = str(refusal.body["offending_entry"]).split(".")
        function = entry[2].replace("_", " ") if len(entry) > 2 else "start job instance"
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            _WRONG,
            openbach_function_name=function,
            error_message=refusal.body["error"],
        ) from refusal


def _functions(document: Document, kind: str) -> list[Document]:
    return [function[kind] for function in document["openbach_functions"] if kind in function]


def _with_sub_scenarios(scenarios: Mapping[str, Document], name: str) -> dict[str, Document]:
    """Return a scenario and everything that it starts.

    A missing scenario is reported by the check of the whole.
    """
    documents: dict[str, Document] = {}
    pending = [name]
    while pending:
        current = pending.pop()
        if current in scenarios and current not in documents:
            documents[current] = scenarios[current]
            pending += [
                start["scenario_name"]
                for start in _functions(scenarios[current], "start_scenario_instance")
            ]
    return documents


def _entities(
    context: Context, project: Project, name: str, documents: Mapping[str, Document]
) -> dict[str, str]:
    """Return the node of each entity that starts a job.

    Raises ApiError: 500 (as OpenBACH) for an unknown entity, 422 for one without an agent or with a
    job missing on it.
    """
    inventory, known = context.inventory, {entity.name: entity for entity in project.entities}
    starts = [
        start
        for document in documents.values()
        for start in _functions(document, "start_job_instance")
    ]
    without_agent: list[str] = []
    missing: dict[str, dict[str, Any]] = {}
    nodes: dict[str, str] = {}
    for start in starts:
        entity = known.get(start["entity_name"])
        if entity is None:
            raise unexpected("Entity matching query does not exist.")
        job = next(key for key in start if key not in ("entity_name", "offset", "interval"))
        if entity.agent is None or entity.agent not in inventory.agents:
            without_agent.append(entity.name)
            continue
        nodes[entity.name] = inventory.agents[entity.agent]
        if not inventory.is_installed(job, entity.agent):
            missing.setdefault(entity.name, {"agent": inventory.agent(entity.agent), "jobs": []})[
                "jobs"
            ].append(job)
    if without_agent:
        what = f"Cannot start scenario {name}: some entities are missing an attached agent."
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, what, entities=sorted(set(without_agent)))
    if missing:
        what = f"Cannot start scenario {name}: some jobs are missing on agents."
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, what, entities=missing)
    return nodes


def _queue(
    context: Context,
    fields: Document,
    jobs: Mapping[str, Descriptor],
    project: str,
    login: str,
    kind: Kind,
) -> Instance:
    """Check a request as the runner will, and queue it with the number of instances that it can
    start.
    """
    try:
        request = ScenarioRequest.model_validate(
            {**fields, "first_scenario_id": 1, "first_job_id": 1}
        )
        size, most = len(request.model_dump_json()), context.settings.launch_bytes
        if size > most:
            raise ConfigError(
                f"the scenarios and arguments of a launch have at most {most} bytes, these have"
                f" {size}"
            )
        request.link.options().request()
        bound = _bind(request, jobs)
        scenario_value_checks.check(bound, request.deadline_s)
    except ValidationError as error:
        faults = faults_of(error)
        raise ApiError(HTTPStatus.BAD_REQUEST, "This cannot run", faults=faults) from error
    except ConfigError as error:
        faults = [str(fault) for fault in error.faults]
        raise ApiError(
            HTTPStatus.BAD_REQUEST, f"This cannot run: {error}", faults=faults
        ) from error
    subs, count = _count_instances(bound)
    try:
        return context.queue.launch(LaunchRequest(project, login, request, subs, count, kind))
    except QueueFullError as error:
        raise ApiError(HTTPStatus.TOO_MANY_REQUESTS, f"{error}: {error.hint}") from error
    except QueueFailedError as error:
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}: {error.hint}") from error


def _bind(request: ScenarioRequest, jobs: Mapping[str, Descriptor]) -> BoundScenario:
    """Read the documents as the run will. Raises ConfigError."""
    with tempfile.TemporaryDirectory() as folder:
        for name, document in request.documents.items():
            (Path(folder) / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
        path = Path(folder) / f"{request.scenario}.json"
        try:
            has_further = any(not job.files.is_relative_to(paths.JOBS) for job in jobs.values())
            warnings: list[Fault] | None = [] if has_further else None
            loaded = scenario.load(
                path, jobs, request.entities, endless=request.endless, warnings=warnings
            )
            return scenario.bind(loaded, request.arguments)
        except ConfigError as error:  # the temporary folder means nothing to the client
            faults = [
                Fault(*(text.replace(f"{folder}/", "") for text in astuple(fault)))
                for fault in error.faults
            ]
            raise ConfigError(str(error).replace(f"{folder}/", ""), faults) from error


def _count_instances(bound: BoundScenario) -> tuple[int, int]:
    """Return the largest number of sub-scenario and job instances that a scenario can start."""
    subs = count = 0
    for function in bound.functions:
        match function.action:
            case StartScenario(scenario=below):
                inside = _count_instances(below)
                subs, count = subs + 1 + inside[0], count + inside[1]
            case StartJob():
                count += 1 + (
                    function.on_fail.retry if function.on_fail.policy is Policy.RETRY else 0
                )
    return subs, count
