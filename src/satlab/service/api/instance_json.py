# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances as OpenBACH returns them, from the request and the progress of a run."""

from collections.abc import Iterator
from string import Template
from typing import Any

from satlab.openbach.engine import FunctionStatus, JobStatus
from satlab.service.api.api_answers import date
from satlab.service.api.dependencies import Context
from satlab.service.api.queue import Instance
from satlab.service.api.scenario_check import normalised
from satlab.service.root_helper.progress_file import Function, Job, Scenario

NOT_YET = "Not programmed yet"


def scenario_tree(instance: Instance) -> Iterator[Scenario]:
    """Yield the progress of the scenario instance and of its sub-scenarios, each before those that
    it started.
    """
    pending = [instance.tree] if instance.tree else []
    while pending:
        node = pending.pop(0)
        yield node
        pending += [function["scenario"] for function in node["functions"] if function["scenario"]]


def job_progress(instance: Instance) -> Iterator[Job]:
    """Yield the progress of every job instance of a run."""
    for node in scenario_tree(instance):
        yield from (function["job"] for function in node["functions"] if function["job"])


def short(instance: Instance, number: int | None = None) -> dict[str, Any]:
    """Return the short form of a scenario instance, or of the one below it with this id."""
    node = _node(instance, number)
    return {
        "scenario_name": node["scenario"],
        "scenario_instance_id": node["id"],
        "status": node["status"],
        "start_date": date(node["start_unix_s"]),
        "sub_scenario_instance_ids": [
            f["scenario"]["id"] for f in node["functions"] if f["scenario"]
        ],
    }


def full(context: Context, instance: Instance, number: int | None = None) -> dict[str, Any]:
    """Return a scenario instance, or the one below it with this id, with its functions, jobs and
    sub-scenarios.

    `user`, `reason`, `run_id` and `link` are not in OpenBACH.
    """
    return _full(context, instance, _node(instance, number))


def job(context: Context, instance: Instance, number: int) -> dict[str, Any] | None:
    """Return a job instance by its id; None if it has not been created."""
    for node in scenario_tree(instance):
        for function in node["functions"]:
            if function["job"] and function["job"]["id"] == number:
                return _job(context, instance, node, function, function["job"])
    if instance.tree or instance.kind != "job" or instance.fault:
        return None
    return _waiting_job(context, instance)


def _node(instance: Instance, number: int | None) -> Scenario:
    """Return the progress of one scenario instance. The outermost has the status of the launch."""
    requested = instance.id if number is None else number
    node = next((each for each in scenario_tree(instance) if each["id"] == requested), None)
    if node is not None and requested != instance.id:
        return node
    return {
        **(node or _not_started(instance)),
        "status": instance.status,
        "reason": instance.reason,
        "start_unix_s": instance.launched,
        "stop_unix_s": instance.stopped,
    }


def _not_started(instance: Instance) -> Scenario:
    document = instance.request.documents[instance.scenario]
    functions: list[Function] = [
        {
            "id": each["id"],
            "label": "",
            "status": FunctionStatus.SCHEDULED,
            "reason": "",
            "launch_unix_s": None,
            "job": None,
            "scenario": None,
        }
        for each in document["openbach_functions"]
    ]
    return {
        "id": instance.id,
        "owner_id": instance.id,
        "scenario": instance.scenario,
        "arguments": {**document.get("constants", {}), **instance.request.arguments},
        "status": instance.status,
        "reason": instance.reason,
        "start_unix_s": None,
        "stop_unix_s": None,
        "functions": functions,
    }


def _full(context: Context, instance: Instance, node: Scenario) -> dict[str, Any]:
    below = [function["scenario"]["id"] for function in node["functions"] if function["scenario"]]
    texts = {
        each["id"]: each
        for each in normalised(instance.request.documents[node["scenario"]])["openbach_functions"]
    }
    ordered = sorted(
        node["functions"], key=lambda f: (f["launch_unix_s"] is None, f["launch_unix_s"] or 0.0)
    )
    return {
        "project_name": instance.project,
        "scenario_name": node["scenario"],
        "scenario_instance_id": node["id"],
        "owner_scenario_instance_id": instance.id,
        "sub_scenario_instance_ids": below,
        "status": node["status"],
        "start_date": date(node["start_unix_s"]),
        "stop_date": date(node["stop_unix_s"]),
        "arguments": [{"name": name, "value": value} for name, value in node["arguments"].items()],
        "openbach_functions": [
            _function(context, instance, node, each, texts[each["id"]]) for each in ordered
        ],
        "reason": node["reason"],
        "run_id": instance.run_id,
        "user": instance.user,
        "link": instance.request.link.model_dump(),
    }


def _function(
    context: Context, instance: Instance, node: Scenario, function: Function, text: dict[str, Any]
) -> dict[str, Any]:
    shown = {**text, "status": function["status"], "launch_date": date(function["launch_unix_s"])}
    if function["job"]:
        shown["job"] = _job(context, instance, node, function, function["job"])
    if function["scenario"]:
        shown["scenario"] = _full(context, instance, function["scenario"])
    return shown


def _job(
    context: Context, instance: Instance, node: Scenario, function: Function, progress: Job
) -> dict[str, Any]:
    document = normalised(instance.request.documents[node["scenario"]])
    start = next(
        f["start_job_instance"] for f in document["openbach_functions"] if f["id"] == function["id"]
    )
    stop = date(progress["stop_unix_s"]) or NOT_YET
    return {
        **_place(context, instance, progress["entity"]),
        "name": progress["job"],
        "id": progress["id"],
        "arguments": _flat(_filled(start[progress["job"]], node["arguments"])),
        "update_status": date(context.clock()),
        "status": progress["status"],
        "start_date": date(progress["start_unix_s"]),
        "stop_date": stop,
        "reason": progress["reason"],
    }


def _waiting_job(context: Context, instance: Instance) -> dict[str, Any]:
    """Return a job without a scenario that has not run."""
    start = normalised(instance.request.documents[instance.scenario])["openbach_functions"][0][
        "start_job_instance"
    ]
    return {
        **_place(context, instance, start["entity_name"]),
        "name": instance.scenario,
        "id": instance.first_job,
        "arguments": _flat(start[instance.scenario]),
        "update_status": date(context.clock()),
        "status": JobStatus.NOT_SCHEDULED if instance.ended else JobStatus.SCHEDULED,
        "start_date": date(instance.launched),
        "stop_date": date(instance.stopped) or NOT_YET,
        "reason": instance.reason,
    }


def _place(context: Context, instance: Instance, entity: str) -> dict[str, Any]:
    node = instance.request.entities[entity]
    return {"agent": context.inventory.address_of(node), "agent_name": node, "entity": entity}


def _flat(value: Any) -> Any:
    """Return arguments as OpenBACH shows those of a job instance: a list of values, not of
    occurrences with values.
    """
    if isinstance(value, dict):
        return {key: _flat(each) for key, each in value.items()}
    occurrences = value if isinstance(value, list) else [value]
    return [each for one in occurrences for each in (one if isinstance(one, list) else [one])]


def _filled(value: Any, values: dict[str, str]) -> Any:
    """Replace the placeholders in a document."""
    if isinstance(value, dict):
        return {key: _filled(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    return Template(value).safe_substitute(values) if isinstance(value, str) else value
