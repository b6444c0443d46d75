# SPDX-License-Identifier: GPL-3.0-or-later
"""From a request to an order that can run, or to OpenBACH's refusal of it; nothing is written before all is checked."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import astuple
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from satlab.common.errors import ConfigError, Fault
from satlab.openbach import descriptor, scenario
from satlab.openbach.descriptor import Descriptor
from satlab.openbach.model import BoundScenario, Policy, StartJob, StartScenario
from satlab.rootd.verbs import RunLink, ScenarioRequest
from satlab.serve import acceptance
from satlab.serve.acceptance import RefusalError
from satlab.serve.api_errors import ApiError, not_found
from satlab.serve.catalog import Document, Project
from satlab.serve.context import Context
from satlab.serve.initial_content import agents
from satlab.serve.queue import Instance, Kind, LaunchRequest, QueueFullError, StuckError

_WRONG = "Arguments of an OpenbachFunction have the wrong type of values."


def jobs(here: Context) -> dict[str, Descriptor]:
    """Return the jobs that can run: the shipped ones and those that were uploaded."""
    return catalogue(here)[0]


def catalogue(here: Context) -> tuple[dict[str, Descriptor], dict[str, str]]:
    """Return the jobs that can run, and why others cannot: those are disabled, and hold up nothing else."""
    uploaded = here.settings.jobs.iterdir() if here.settings.jobs.is_dir() else ()
    folders = {path.name: path for path in sorted(uploaded) if not path.name.startswith((".", "_"))}
    known = {row["name"]: Path(row["folder"]) for row in here.store.rows("SELECT * FROM jobs")}
    shipped = {name: folder for name, folder in known.items() if (folder / "files" / f"{name}.yml").is_file()}
    found: dict[str, Descriptor] = {}
    disabled: dict[str, str] = {}
    for name, folder in sorted((folders | shipped).items()):
        try:
            found[name] = _load(folder, (folder / "files" / f"{name}.yml").stat().st_mtime_ns)
        except OSError as error:
            disabled[name] = f"files/{name}.yml: {error.strerror}"
        except ConfigError as error:
            disabled[name] = "; ".join(str(fault).replace(f"{folder}/", "") for fault in error.faults)[:1000]
    return found, disabled


@lru_cache(maxsize=256)
def _load(folder: Path, changed_ns: int) -> Descriptor:
    """Read a descriptor again only when its file has changed."""
    del changed_ns
    return descriptor.load_job(folder)


def scenario_instance(
    here: Context,
    project: Project,
    name: str,
    arguments: Mapping[str, Any],
    link: RunLink,
    login: str,
    constants: Mapping[str, str] | None = None,
) -> Instance:
    """Queue a scenario of a project. Raises ApiError: what OpenBACH refuses, what would hang, a full queue.

    `constants`: other values for some of its constants, which make a version of it for this launch alone.
    """
    known = here.catalog.scenarios(project.name)
    if name not in known:
        raise not_found("Scenario")
    if constants:
        known[name] = {**known[name], "constants": {**known[name].get("constants", {}), **constants}}
    values = {key: str(value) for key, value in arguments.items()}
    _check_arguments(project.name, known[name], values)
    documents = _below(known, name)
    installed = jobs(here)
    _check_values(known[name], installed, values)
    entities = _entities(here, project, name, documents)
    order = {"scenario": name, "documents": documents, "arguments": values, "entities": entities, "link": link}
    return _queue(here, order, installed, project.name, login, "scenario")


def job_instance(here: Context, agent: str, job: str, arguments: Document, login: str) -> Instance:
    """Queue one job, as a scenario of its own that nobody sees. Raises ApiError."""
    installed = jobs(here)
    if job not in installed:
        raise not_found("Job")
    node = agents(here.topology).get(agent)
    if node is None:
        raise not_found("Agent")
    start = {"entity_name": node, job: arguments}
    document = {"name": job, "openbach_functions": [{"id": 1, "label": job, "start_job_instance": start}]}
    try:
        acceptance.check(document, installed)
    except RefusalError as refusal:
        raise ApiError(HTTPStatus.BAD_REQUEST, _WRONG, **{"error_message": refusal.body["error"]}) from refusal
    order = {"scenario": job, "documents": {job: document}, "entities": {node: node}, "endless": True}
    return _queue(here, order, installed, "", login, "job")


def _check_arguments(project: str, document: Document, values: Mapping[str, str]) -> None:
    names = document.get("arguments", {})
    for name in values:
        if name not in names:
            raise ApiError(
                HTTPStatus.BAD_REQUEST,
                "A value was provided for an Argument that is not defined for this Scenario.",
                scenario_name=document["name"],
                project_name=project,
                argument_name=name,
            )


def _check_values(document: Document, installed: Mapping[str, Descriptor], values: Mapping[str, str]) -> None:
    """Check the document with its values, in OpenBACH's words."""
    try:
        acceptance.check(document, installed, {**document.get("constants", {}), **values})
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


def _below(known: Mapping[str, Document], name: str) -> dict[str, Document]:
    """Return a scenario and everything that it starts; what is missing is left to the check of the whole."""
    found: dict[str, Document] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in known and current not in found:
            found[current] = known[current]
            waiting += [start["scenario_name"] for start in _functions(known[current], "start_scenario_instance")]
    return found


def _entities(here: Context, project: Project, name: str, documents: Mapping[str, Document]) -> dict[str, str]:
    """Find who plays each entity. Raises ApiError: 500 (sic) for one that is not there, 422 without agent or job."""
    nodes, known = agents(here.topology), {entity.name: entity for entity in project.entities}
    starts = [start for document in documents.values() for start in _functions(document, "start_job_instance")]
    lonely: list[str] = []
    lacking: dict[str, dict[str, Any]] = {}
    players: dict[str, str] = {}
    for start in starts:
        entity = known.get(start["entity_name"])
        if entity is None:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            error = ApiError(status, "Entity matching query does not exist.")
            error.body = {"message": "Unexpected exception appeared", **error.body}
            raise error
        job = next(key for key in start if key not in ("entity_name", "offset", "interval"))
        if entity.agent is None or entity.agent not in nodes:
            lonely.append(entity.name)
            continue
        players[entity.name] = nodes[entity.agent]
        if not is_installed(here, job, entity.agent):
            lacking.setdefault(entity.name, {"agent": agent_json(here, entity.agent), "jobs": []})["jobs"].append(job)
    if lonely:
        what = f"Cannot start scenario {name}: some entities are missing an attached agent."
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, what, entities=sorted(set(lonely)))
    if lacking:
        what = f"Cannot start scenario {name}: some jobs are missing on agents."
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, what, entities=lacking)
    return players


def is_installed(here: Context, job: str, agent: str) -> bool:
    """Return whether an agent has a job: every agent has every job, until it is uninstalled."""
    return here.store.row("SELECT 1 FROM uninstalled WHERE job = ? AND agent = ?", job, agent) is None


def agent_json(here: Context, address: str) -> dict[str, Any]:
    """Return an agent as OpenBACH does. A node of the lab is always there."""
    row = here.store.row("SELECT project FROM entities WHERE agent = ? ORDER BY project LIMIT 1", address)
    return {
        "name": agents(here.topology)[address],
        "address": address,
        "port": 1112,
        "collector_ip": "127.0.0.1",
        "reachable": True,
        "available": True,
        "status": "Available",
        "project": row["project"] if row else None,
        "reserved": None,
    }


def _queue(
    here: Context, order: Document, installed: Mapping[str, Descriptor], project: str, login: str, kind: Kind
) -> Instance:
    """Check the whole as the runner will, count what can come of it, and queue it."""
    try:
        made = ScenarioRequest.model_validate({**order, "first_scenario_id": 1, "first_job_id": 1})
        made.link.options().request()
        bound = _bound(made, installed)
    except ValidationError as error:
        places = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)]
        raise ApiError(HTTPStatus.BAD_REQUEST, "This cannot run", faults=places) from error
    except ConfigError as error:
        faults = [str(fault) for fault in error.faults]
        raise ApiError(HTTPStatus.BAD_REQUEST, f"This cannot run: {error}", faults=faults) from error
    subs, count = _extent(bound)
    try:
        return here.queue.launch(LaunchRequest(project, login, made, subs, count, kind))
    except QueueFullError as error:
        raise ApiError(HTTPStatus.TOO_MANY_REQUESTS, f"{error}: {error.hint}") from error
    except StuckError as error:
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}: {error.hint}") from error


def _bound(order: ScenarioRequest, installed: Mapping[str, Descriptor]) -> BoundScenario:
    """Read the documents as the run will. Raises ConfigError."""
    with tempfile.TemporaryDirectory() as folder:
        for name, document in order.documents.items():
            (Path(folder) / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
        path = Path(folder) / f"{order.scenario}.json"
        try:
            loaded = scenario.load(path, installed, order.entities, endless=order.endless)
            return scenario.bind(loaded, order.arguments)
        except ConfigError as error:  # where the copy lies means nothing to the client
            faults = [Fault(*(text.replace(f"{folder}/", "") for text in astuple(fault))) for fault in error.faults]
            raise ConfigError(str(error).replace(f"{folder}/", ""), faults) from error


def _extent(bound: BoundScenario) -> tuple[int, int]:
    """Return how many sub-scenario and job instances can come of a scenario at the most."""
    subs = count = 0
    for function in bound.functions:
        match function.action:
            case StartScenario(scenario=below):
                inside = _extent(below)
                subs, count = subs + 1 + inside[0], count + inside[1]
            case StartJob():
                count += 1 + (function.on_fail.retry if function.on_fail.policy is Policy.RETRY else 0)
    return subs, count
