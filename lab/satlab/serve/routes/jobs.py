# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs: the shipped ones, added ones, and where they are installed (everywhere, until somebody says otherwise)."""

import os
from difflib import SequenceMatcher
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import yaml
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.openbach import descriptor
from satlab.openbach.descriptor import Argument, Descriptor, Level
from satlab.openbach.document import is_name
from satlab.serve import launch, uploads
from satlab.serve.api_errors import ApiError, ViewError, not_found
from satlab.serve.context import Context, Here, body_of
from satlab.serve.identity import Admin, Viewer
from satlab.serve.initial_content import agents
from satlab.serve.instance_view import date
from satlab.serve.routes.agents import accepted, done, known

router = APIRouter()


async def form_or_body(request: Request) -> dict[str, Any]:
    """Read JSON, or the fields of a form with a file."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        return dict(await request.form(max_files=1, max_fields=8))
    return await body_of(request)


Posted = Annotated[dict[str, Any], Depends(form_or_body)]


def job_json(job: Descriptor) -> dict[str, Any]:
    """Return a job as OpenBACH does."""
    text: dict[str, Any] = yaml.safe_load((job.files / f"{job.name}.yml").read_text(encoding="utf-8"))
    section = text["platform_configuration"]
    keys = ("ansible_system", "ansible_distribution", "ansible_distribution_release", "command", "command_stop")
    platforms = [{key: own.get(key, section.get(key)) for key in keys} for own in section["supported_platforms"]]
    general = text["general"] | {"name": job.name}
    shown = ("name", "description", "job_version", "keywords", "persistent")
    return {
        "general": {key: general[key] for key in shown},
        "platform_configuration": platforms,
        "arguments": _level_json(job.level),
        "statistics": text.get("statistics") or [],
    }


def _disabled_json(name: str, reason: str) -> dict[str, Any]:
    """Return a job whose files are not valid: nothing of it is known but its name; `disabled` is ours."""
    general = {"name": name, "description": "", "job_version": "", "keywords": [], "persistent": False}
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
    count = ("*" if least == 0 else "+") if most is None else str(least) if least == most else f"{least}-{most}"
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


@router.get("/job/")
def every(
    request: Request, user: Viewer, here: Here, address: str | None = None, string_to_search: str | None = None
) -> Any:
    """List the jobs, those like a text, or those installed on an agent."""
    del user
    found, disabled = launch.catalogue(here)
    if "external" in request.query_params:
        return []
    if address is not None:
        names = [name for name in found if launch.is_installed(here, name, known(here, address))]
        return {"agent": address, "installed_jobs": [_installed(here, name) for name in names]}
    if string_to_search is not None:
        ratio = _ratio(request.query_params.get("ratio", "60"))
        return [job_json(job) for job in found.values() if _alike(job, string_to_search[:100]) >= ratio]
    return [*map(job_json, found.values()), *(_disabled_json(*entry) for entry in disabled.items())]


def _ratio(text: str) -> float:
    if not text.isdecimal():
        raise ViewError(HTTPStatus.BAD_REQUEST, "Wrong parameter: ratio")
    return float(text)


def _alike(job: Descriptor, text: str) -> float:
    return max(SequenceMatcher(None, text.lower(), word).ratio() * 100 for word in (job.name, *job.name.split("_")))


def _installed(here: Context, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "update_status": date(here.clock()),
        "severity": 2,
        "local_severity": 2,
        "default_stat_policy": {"local": True, "storage": True, "broadcast": False},
        "statistic_instances": [],
    }


@router.post("/job/")
def add(user: Admin, body: Posted, here: Here) -> Any:
    """Add a job of the product by name, or an uploaded one; or install jobs on agents."""
    del user
    if body.get("action") in ("install", "uninstall"):
        names, addresses = (_texts(body, key) for key in ("names", "addresses"))
        return _install(here, names, addresses, install=body["action"] == "install")
    name = body.get("name")
    if not isinstance(name, str):
        raise ViewError(HTTPStatus.BAD_REQUEST, "Missing parameter: name")
    if not is_name(name):
        raise ApiError(HTTPStatus.BAD_REQUEST, "The name of a Job is not one", entry_name=name[:100])
    if hasattr(body.get("file"), "file"):
        return job_json(_upload(here, name, body["file"].file))
    job = _checked(paths.JOBS / name)
    here.store.write("INSERT OR REPLACE INTO jobs VALUES (?, ?)", name, str(paths.JOBS / name))
    return job_json(job)


def _upload(here: Context, name: str, file: Any) -> Descriptor:
    if (paths.JOBS / name).exists():
        raise ApiError(HTTPStatus.CONFLICT, "A job of the product cannot be replaced", entry_name=name)
    folder = here.settings.jobs / name
    try:
        uploads.unpack(file, folder, _checked)
    except ConfigError as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, str(error)) from error
    return _checked(folder)


def _checked(folder: Path) -> Descriptor:
    """Read a job. `path` of the request counts for nothing: a controller's paths are not the client's to choose."""
    if not (folder / "files" / f"{folder.name}.yml").is_file():
        raise ApiError(HTTPStatus.BAD_REQUEST, "The configuration file of the Job is not present")
    try:
        return descriptor.load_job(folder)
    except ConfigError as error:
        said = "The configuration file of the Job does not contain valid data"
        raise ApiError(HTTPStatus.BAD_REQUEST, said, faults=[fault.reason for fault in error.faults]) from error


@router.get("/job/{name}/")
def one(name: str, user: Viewer, here: Here, type: str = "json") -> Any:  # noqa: A002 - the contract's name
    """Return a job, or one part of it."""
    del user
    disabled = launch.catalogue(here)[1]
    if name in disabled and type == "json":
        return _disabled_json(name, disabled[name])
    job = _known(here, name)
    match type:
        case "statistics" | "keywords":
            text = job_json(job)
            part = text["statistics"] if type == "statistics" else text["general"]["keywords"]
            return {"job_name": name, type: part}
        case "help":
            return {"job_name": name, "help": _help(job)}
        case "agents":
            places = agents(here.topology).items()
            on = [{"agent__name": n, "agent__address": a} for a, n in places if launch.is_installed(here, name, a)]
            return {"job_name": name, "installed_on": on}
        case "json":
            return job_json(job)
    raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown type: {type[:100]}")


def _help(job: Descriptor) -> str:
    file = job.files / f"{job.name}.help"
    return file.read_text(encoding="utf-8") if file.is_file() else job.description


@router.post("/job/{name}/")
def act(name: str, user: Admin, body: Posted, here: Here) -> Response:
    """Install a job on agents or take it off; severities and policies have no meaning here."""
    del user
    _known(here, name)
    action = body.get("action")
    if action in ("install", "uninstall"):
        return _install(here, [name], _texts(body, "addresses"), install=action == "install")
    if action in ("log_severity", "stat_policy"):
        return accepted()
    raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown action: {action}")


@router.delete("/job/{name}/")
def remove(name: str, user: Admin, here: Here) -> Response:
    """Remove an uploaded job, also a disabled one; forget a shipped one, which is back after the next start."""
    del user
    if not any(name in each for each in launch.catalogue(here)):
        raise not_found("Job")
    here.store.write("DELETE FROM jobs WHERE name = ?", name)
    uploaded = here.settings.jobs / name
    if os.path.lexists(uploaded):
        try:
            uploads.remove(uploaded)
        except OSError as error:
            raise ApiError(HTTPStatus.CONFLICT, f"The files of the Job cannot be removed: {error.strerror}") from error
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/job/{name}/state/")
def state(name: str, user: Viewer, here: Here, address: str = "") -> dict[str, Any]:
    """Tell that everything asked of a job on an agent is done."""
    del user
    _known(here, name)
    known(here, address)
    return {key: done(here) for key in ("install", "uninstall", "log_severity", "stat_policy")}


def _install(here: Context, names: list[str], addresses: list[str], *, install: bool) -> Response:
    for name in names:
        _known(here, name)
    sql = "DELETE FROM uninstalled WHERE job = ? AND agent = ?"
    if not install:
        sql = "INSERT OR IGNORE INTO uninstalled VALUES (?, ?)"
    with here.store.transaction() as connection:
        for address in addresses:
            known(here, address)
            connection.executemany(sql, [(name, address) for name in names])
    return accepted()


def _known(here: Context, name: str) -> Descriptor:
    job = launch.jobs(here).get(name)
    if job is None:
        raise not_found("Job")
    return job


def _texts(body: dict[str, Any], key: str) -> list[str]:
    value = body.get(key)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ViewError(HTTPStatus.BAD_REQUEST, f"Missing parameter: {key}")
    return value
