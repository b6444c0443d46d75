# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenario instances: launch, watch, stop, remove, export."""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import ValidationError

from satlab.rootd.verbs import RunLink
from satlab.serve import export, instance_view, launch
from satlab.serve.accounts import User
from satlab.serve.api_errors import ApiError, ViewError, not_found
from satlab.serve.context import Body, Context, Here
from satlab.serve.identity import Runner, Viewer
from satlab.serve.queue import Instance
from satlab.serve.routes import access

router = APIRouter()

Offset = Annotated[int, Query(ge=0, le=1 << 40)]
Limit = Annotated[int | None, Query(ge=0, le=10_000)]


@router.post("/project/{project}/scenario/{name}/scenario_instance/")
def start(project: str, name: str, user: Runner, body: Body, here: Here) -> dict[str, int]:
    """Launch: the instance waits for the machine, `Scheduling`. `link` (ours) chooses profile and link."""
    known = access.project_of(here, user, project, "Scenario")
    arguments = body.get("arguments") or {}
    if not isinstance(arguments, dict) or not all(isinstance(v, str | int | float) for v in arguments.values()):
        raise ViewError(HTTPStatus.BAD_REQUEST, "Wrong parameter: arguments")
    instance = launch.scenario_instance(here, known, name, arguments, _link(body), user.login)
    return {"scenario_instance_id": instance.id}


def _link(body: dict[str, Any]) -> RunLink:
    try:
        return RunLink.model_validate(body.get("link") or {})
    except ValidationError as error:
        faults = [f"link.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)]
        raise ApiError(HTTPStatus.BAD_REQUEST, "There is no such link", faults=faults) from error


@router.get("/project/{project}/scenario_instance/")
def of_project(
    project: str, request: Request, user: Viewer, here: Here, offset: Offset = 0, limit: Limit = None
) -> list[dict[str, Any]]:
    """List the instances of a project, the newest first."""
    access.project_of(here, user, project)
    return _list(here, request, project, None, offset, limit)


@router.get("/project/{project}/scenario/{name}/scenario_instance/")
def of_scenario(
    project: str, name: str, request: Request, user: Viewer, here: Here, offset: Offset = 0, limit: Limit = None
) -> list[dict[str, Any]]:
    """List the instances of a scenario, the newest first."""
    access.project_of(here, user, project, "Scenario")
    if here.catalog.scenario(project, name) is None:
        raise not_found("Scenario")
    return _list(here, request, project, name, offset, limit)


def _list(
    here: Context, request: Request, project: str, name: str | None, offset: int, limit: int | None
) -> list[dict[str, Any]]:
    """List instances; `offset` counts together with `limit` alone, as in OpenBACH."""
    found = here.queue.instances(project, name, 0 if limit is None else offset, -1 if limit is None else limit)
    if "quiet" in request.query_params:
        return [instance_view.short(each) for each in found]
    return [instance_view.full(here, each) for each in found]


@router.get("/scenario_instance/{number}/")
def one(number: int, request: Request, user: Viewer, here: Here) -> dict[str, Any]:
    """Return an instance, its short form with `quiet`, or the counts of its stored files with `files_count`."""
    instance = _known(here, user, number)
    if "files_count" in request.query_params:
        return export.files_count(here, instance)
    if "quiet" in request.query_params:
        return instance_view.short(instance, number)
    return instance_view.full(here, instance, number)


@router.post("/scenario_instance/{number}/")
def stop(number: int, user: Runner, here: Here) -> Response:
    """Stop an instance; one of a sub-scenario ends with the whole."""
    here.queue.stop(_known(here, user, number).id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.delete("/scenario_instance/{number}/")
def remove(number: int, user: Runner, here: Here) -> Response:
    """Forget an instance that is over. Its run folder stays until it is the oldest of too many."""
    if not here.queue.remove(_known(here, user, number).id):
        raise ApiError(HTTPStatus.CONFLICT, "Trying to remove a scenario_instance still running")
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/scenario_instance/{number}/csv/")
def csv(number: int, user: Viewer, here: Here) -> Response:
    """Return the statistics as CSV."""
    text = "".join(export.csv_lines(here, _ended(here, user, number)))
    return Response(text, media_type="text/csv", headers=_attachment(f"scenario{number}.csv"))


@router.get("/scenario_instance/{number}/archive/")
def archive(number: int, request: Request, user: Viewer, here: Here) -> Response:
    """Return the CSV with the stored files that `JOB=STATISTIC` names; without any, the plain CSV."""
    instance, wanted = _ended(here, user, number), request.query_params.multi_items()
    headers = _attachment(f"scenario{number}.tar.gz")
    if not wanted:
        return Response("".join(export.csv_lines(here, instance)), media_type="text/csv", headers=headers)
    return StreamingResponse(export.archive(here, instance, wanted), media_type="application/gzip", headers=headers)


def _attachment(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


def _known(here: Context, user: User, number: int) -> Instance:
    instance = here.queue.find(number)
    if instance is None or instance.kind != "scenario":
        raise not_found("ScenarioInstance")
    access.check_instance(here, user, instance)
    return instance


def _ended(here: Context, user: User, number: int) -> Instance:
    """Return an instance whose data can be exported. OpenBACH answers 404 whatever is in the way."""
    instance = _known(here, user, number)
    if not instance.over:
        raise ApiError(HTTPStatus.NOT_FOUND, "The scenario_instance is still running")
    return instance
