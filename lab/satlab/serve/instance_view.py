# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances as OpenBACH gives them, from the order and the progress of a run. Dates are ISO 8601 in UTC."""

from collections.abc import Iterator
from datetime import UTC, datetime
from string import Template
from typing import Any

from satlab.openbach.engine import FunctionStatus, JobStatus
from satlab.serve.acceptance import normalised
from satlab.serve.context import Context
from satlab.serve.initial_content import agents
from satlab.serve.queue import Instance, Progress

NOT_YET = "Not programmed yet"


def date(unix_s: float | None) -> str | None:
    """Write a time, given in s since the epoch."""
    if unix_s is None:
        return None
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def scenario_tree(instance: Instance) -> Iterator[Progress]:
    """Yield the progress of the scenario instance and of every one below it, each before what it started."""
    root = (instance.progress or {}).get("instance")
    waiting = [root] if root else []
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting += [function["scenario"] for function in node["functions"] if function["scenario"]]


def job_progress(instance: Instance) -> Iterator[Progress]:
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
        "sub_scenario_instance_ids": [f["scenario"]["id"] for f in node["functions"] if f["scenario"]],
    }


def full(here: Context, instance: Instance, number: int | None = None) -> dict[str, Any]:
    """Return a scenario instance, or the one below it with this id, with its functions, jobs and sub-scenarios.

    `queue_user`, `reason`, `run_id` and `link` are ours.
    """
    return _full(here, instance, _node(instance, number))


def job(here: Context, instance: Instance, number: int) -> dict[str, Any] | None:
    """Return a job instance by its id; None when there is none (yet, where ids were reserved)."""
    for node in scenario_tree(instance):
        for function in node["functions"]:
            if function["job"] and function["job"]["id"] == number:
                return _job(here, instance, node, function)
    if (instance.kind == "job" and instance.progress is None) or _unstarted(instance):
        return _waiting_job(here, instance) if instance.kind == "job" else None
    return None


def _unstarted(instance: Instance) -> bool:
    return instance.progress is not None and instance.progress.get("instance") is None


def _node(instance: Instance, number: int | None) -> Progress:
    """Return the progress of one scenario instance; the outermost bears the label of the whole."""
    wanted = instance.id if number is None else number
    for node in scenario_tree(instance):
        if node["id"] == wanted:
            own = {"status": instance.status, "reason": instance.reason, "stop_unix_s": instance.stopped}
            return {**node, "start_unix_s": instance.launched, **own} if wanted == instance.id else node
    document = instance.order.documents[instance.scenario]
    functions = [
        {"id": each["id"], "status": FunctionStatus.SCHEDULED, "launch_unix_s": None, "job": None, "scenario": None}
        for each in document["openbach_functions"]
    ]
    return {
        "id": instance.id,
        "scenario": instance.scenario,
        "arguments": {**document.get("constants", {}), **instance.order.arguments},
        "status": instance.status,
        "reason": instance.reason,
        "start_unix_s": instance.launched,
        "stop_unix_s": instance.stopped,
        "functions": functions,
    }


def _full(here: Context, instance: Instance, node: Progress) -> dict[str, Any]:
    below = [function["scenario"]["id"] for function in node["functions"] if function["scenario"]]
    texts = {each["id"]: each for each in normalised(instance.order.documents[node["scenario"]])["openbach_functions"]}
    ordered = sorted(node["functions"], key=lambda f: (f["launch_unix_s"] is None, f["launch_unix_s"] or 0.0))
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
        "openbach_functions": [_function(here, instance, node, each, texts[each["id"]]) for each in ordered],
        "reason": node["reason"],
        "run_id": instance.run_id,
        "user": instance.user,
        "link": instance.order.link.model_dump(),
    }


def _function(
    here: Context, instance: Instance, node: Progress, function: Progress, text: dict[str, Any]
) -> dict[str, Any]:
    shown = {**text, "status": function["status"], "launch_date": date(function["launch_unix_s"])}
    if function["job"]:
        shown["job"] = _job(here, instance, node, function)
    if function["scenario"]:
        shown["scenario"] = _full(here, instance, function["scenario"])
    return shown


def _job(here: Context, instance: Instance, node: Progress, function: Progress) -> dict[str, Any]:
    found = function["job"]
    document = normalised(instance.order.documents[node["scenario"]])
    start = next(f["start_job_instance"] for f in document["openbach_functions"] if f["id"] == function["id"])
    stop = date(found["stop_unix_s"]) or NOT_YET
    return {
        **_place(here, instance, found["entity"]),
        "name": found["job"],
        "id": found["id"],
        "arguments": _filled(start[found["job"]], node["arguments"]),
        "update_status": date(here.clock()),
        "status": found["status"],
        "start_date": date(found["start_unix_s"]),
        "stop_date": stop,
        "reason": found["reason"],
    }


def _waiting_job(here: Context, instance: Instance) -> dict[str, Any]:
    """Return a job that was started by itself and has not come to run."""
    start = normalised(instance.order.documents[instance.scenario])["openbach_functions"][0]["start_job_instance"]
    return {
        **_place(here, instance, start["entity_name"]),
        "name": instance.scenario,
        "id": instance.first_job,
        "arguments": start[instance.scenario],
        "update_status": date(here.clock()),
        "status": JobStatus.NOT_SCHEDULED if instance.over else JobStatus.SCHEDULED,
        "start_date": date(instance.launched),
        "stop_date": date(instance.stopped) or NOT_YET,
        "reason": instance.reason,
    }


def _place(here: Context, instance: Instance, entity: str) -> dict[str, Any]:
    node = instance.order.entities[entity]
    address = next(address for address, name in agents(here.topology).items() if name == node)
    return {"agent": address, "agent_name": node, "entity": entity}


def _filled(value: Any, values: dict[str, str]) -> Any:
    """Put the values of an instance where its document has placeholders."""
    if isinstance(value, dict):
        return {key: _filled(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    return Template(value).safe_substitute(values) if isinstance(value, str) else value
