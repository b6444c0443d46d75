# SPDX-License-Identifier: GPL-3.0-or-later
"""Shipped and uploaded jobs, and the agents on which they are installed. A job is on all agents
until it is uninstalled.
"""

import os
from difflib import SequenceMatcher
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from satlab.common import paths, yaml_text
from satlab.common.errors import ConfigError
from satlab.openbach import descriptor, upstream_descriptors
from satlab.openbach.descriptor import Argument, Descriptor, Level
from satlab.openbach.json_document import is_name
from satlab.service.api import uploads
from satlab.service.api.access import NEEDS_ADMIN, NEEDS_VIEWER
from satlab.service.api.api_answers import ApiError, ViewError, accepted, completed, date, not_found
from satlab.service.api.dependencies import Context, RequestContext, body_of, list_in, text_in

router = APIRouter()


async def form_or_body(request: Request) -> dict[str, Any]:
    """Read JSON, or the fields of a form with a file."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        return dict(await request.form(max_files=1, max_fields=8))
    return await body_of(request)


Posted = Annotated[dict[str, Any], Depends(form_or_body)]


def job_json(job: Descriptor) -> dict[str, Any]:
    """Return a job as OpenBACH does."""
    own: dict[str, Any] = yaml_text.read(job.files / f"{job.name}.yml")
    text = upstream_descriptors.adapt(own, lambda *_: None)
    section = text["platform_configuration"]
    keys = (
        "ansible_system",
        "ansible_distribution",
        "ansible_distribution_release",
        "command",
        "command_stop",
    )
    platforms = [
        {key: each.get(key, section.get(key)) for key in keys}
        for each in section["supported_platforms"]
    ]
    general = text["general"] | {"name": job.name, "persistent": own["general"]["persistent"]}
    shown = ("name", "description", "job_version", "keywords", "persistent")
    return {
        "general": {key: general[key] for key in shown},
        "platform_configuration": platforms,
        "arguments": _level_json(job.level),
        "statistics": text.get("statistics") or [],
    }


def _disabled_json(name: str, reason: str) -> dict[str, Any]:
    """Return a job with invalid files, of which only the name is known.

    `disabled` is not in OpenBACH.
    """
    general = {
        "name": name,
        "description": "",
        "job_version": "",
        "keywords": [],
        "persistent": False,
    }
    return {
        "general": general,
        "platform_configuration": [],
        "arguments": {"required": [], "optional": []},
        "statistics": [],
        "disabled": reason,
    }


def _level_json(level: Level) -> dict[str, Any]:
    groups = [
        {
            "group_name": group.group_name,
            "optional": group.optional,
            "choices": [{"name": choice.name, **_level_json(choice)} for choice in group.choices],
        }
        for group in level.subcommand
    ]
    shown: dict[str, Any] = {
        "required": [_argument_json(argument) for argument in level.required],
        "optional": [_argument_json(argument) for argument in level.optional],
    }
    return shown | ({"subcommands": groups} if groups else {})


def _argument_json(argument: Argument) -> dict[str, Any]:
    least, most = argument.count.least, argument.count.most
    count = (
        ("*" if least == 0 else "+")
        if most is None
        else str(least)
        if least == most
        else f"{least}-{most}"
    )
    shown: dict[str, Any] = {
        "name": argument.name,
        "type": argument.type,
        "count": count,
        "description": argument.description,
        "password": argument.password,
    }
    if argument.default is not None:
        shown["default"] = argument.default
    if argument.choices:
        shown["choices"] = list(argument.choices)
    if argument.flag is not None:
        shown |= {"flag": argument.flag, "repeatable": argument.repeatable}
    return shown


@router.get("/job/", dependencies=NEEDS_VIEWER)
def every(
    request: Request,
    context: RequestContext,
    address: str | None = None,
    string_to_search: str | None = None,
    ratio: Annotated[int, Query(ge=0)] = 60,
) -> Any:
    """List all jobs, those with a name similar to a text, or those installed on an agent."""
    valid, disabled = context.inventory.all_jobs()
    if "external" in request.query_params:
        return []
    if address is not None:
        context.inventory.check_agent(address)
        names = [name for name in valid if context.inventory.is_installed(name, address)]
        return {"agent": address, "installed_jobs": [_installed(context, name) for name in names]}
    if string_to_search is not None:
        text = string_to_search[:100].lower()
        alike = {
            name: max(
                SequenceMatcher(None, text, word).ratio() * 100 for word in (name, *name.split("_"))
            )
            for name in valid
        }
        return [job_json(job) for name, job in valid.items() if alike[name] >= ratio]
    return [*map(job_json, valid.values()), *(_disabled_json(*entry) for entry in disabled.items())]


def _installed(context: Context, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "update_status": date(context.clock()),
        "severity": 2,
        "local_severity": 2,
        "default_stat_policy": {"local": True, "storage": True, "broadcast": False},
        "statistic_instances": [],
    }


@router.post("/job/", dependencies=NEEDS_ADMIN)
def add(body: Posted, context: RequestContext) -> Any:
    """Add a shipped job by name, or an uploaded one; or install jobs on agents."""
    if "action" in body:
        names, addresses = (list_in(body, key, str) for key in ("names", "addresses"))
        if body["action"] not in ("install", "uninstall"):
            raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown action: {body['action']}")
        context.inventory.install(names, addresses, installed=body["action"] == "install")
        return accepted()
    name = text_in(body, "name")
    if not is_name(name):
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "The name of the Job is invalid", entry_name=name[:100]
        )
    if hasattr(body.get("file"), "file"):
        return job_json(_upload(context, name, body["file"].file))
    job = _checked(paths.JOBS / name)
    context.inventory.add_job(name, paths.JOBS / name)
    return job_json(job)


def _upload(context: Context, name: str, file: Any) -> Descriptor:
    if (paths.JOBS / name).exists():
        raise ApiError(HTTPStatus.CONFLICT, "A shipped job cannot be replaced", entry_name=name)
    folder = context.settings.jobs / name
    try:
        uploads.unpack(file, folder, _checked)
    except ConfigError as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, str(error)) from error
    return _checked(folder)


def _checked(folder: Path) -> Descriptor:
    """Read a job.

    `path` of the request is not used: clients must not choose paths of the controller.
    """
    if not (folder / "files" / f"{folder.name}.yml").is_file():
        raise ApiError(HTTPStatus.BAD_REQUEST, "The configuration file of the Job is not present")
    try:
        return descriptor.load_job(folder, is_upstream=not folder.is_relative_to(paths.JOBS))
    except ConfigError as error:
        what = "The configuration file of the Job does not contain valid data"
        raise ApiError(
            HTTPStatus.BAD_REQUEST, what, faults=[fault.reason for fault in error.faults]
        ) from error


@router.get("/job/{name}/", dependencies=NEEDS_VIEWER)
def one(name: str, context: RequestContext, type: str = "json") -> Any:  # noqa: A002 - the contract's name
    """Return a job, or the part of it that `type` names."""
    disabled = context.inventory.all_jobs()[1]
    if name in disabled and type == "json":
        return _disabled_json(name, disabled[name])
    job = context.inventory.job(name)
    match type:
        case "statistics" | "keywords":
            whole = job_json(job)
            part = whole["statistics"] if type == "statistics" else whole["general"]["keywords"]
            return {"job_name": name, type: part}
        case "help":
            file = job.files / f"{job.name}.help"
            text = file.read_text(encoding="utf-8") if file.is_file() else job.description
            return {"job_name": name, "help": text}
        case "agents":
            places = context.inventory.agents.items()
            on = [
                {"agent__name": n, "agent__address": a}
                for a, n in places
                if context.inventory.is_installed(name, a)
            ]
            return {"job_name": name, "installed_on": on}
        case "json":
            return job_json(job)
    raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown type: {type[:100]}")


@router.post("/job/{name}/", dependencies=NEEDS_ADMIN)
def act(name: str, body: Posted, context: RequestContext) -> Response:
    """Install a job on agents or uninstall it. Severities and policies have no effect."""
    context.inventory.job(name)
    action = body.get("action")
    if action in ("install", "uninstall"):
        context.inventory.install(
            [name], list_in(body, "addresses", str), installed=action == "install"
        )
        return accepted()
    if action in ("log_severity", "stat_policy"):
        return accepted()
    raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown action: {action}")


@router.delete("/job/{name}/", dependencies=NEEDS_ADMIN)
def remove(name: str, context: RequestContext) -> Response:
    """Remove an uploaded job, also a disabled one; or a shipped one, until the next start of the
    server.
    """
    if not any(name in each for each in context.inventory.all_jobs()):
        raise not_found("Job", job_name=name)
    context.inventory.remove_job(name)
    uploaded = context.settings.jobs / name
    if os.path.lexists(uploaded):
        try:
            uploads.remove(uploaded)
        except OSError as error:
            raise ApiError(
                HTTPStatus.CONFLICT, f"The files of the Job cannot be removed: {error.strerror}"
            ) from error
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/job/{name}/state/", dependencies=NEEDS_VIEWER)
def state(name: str, context: RequestContext, address: str | None = None) -> dict[str, Any]:
    """Report every operation as completed; on an unknown agent there was none."""
    context.inventory.job(name)
    if address is None:
        raise ViewError(HTTPStatus.BAD_REQUEST, "POST data malformed: 'address' missing")
    done = completed(context.clock()) if address in context.inventory.agents else None
    return dict.fromkeys(("install", "uninstall", "log_severity", "stat_policy"), done)
