# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenario instances: launch, status, stop, remove, export."""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, ValidationError

from satlab.service.api import access, export, instance_json, launch
from satlab.service.api.access import RunInstance, Runner, ViewedInstance, Viewer
from satlab.service.api.api_answers import ApiError, ViewError, attachment, not_found
from satlab.service.api.dependencies import Body, Context, RequestContext
from satlab.service.api.queue import Instance
from satlab.service.root_helper.protocol import RunLink, faults_of

router = APIRouter()


class Paging(BaseModel):
    """Which instances of a list are requested; `offset` has an effect only with `limit`, as in
    OpenBACH.
    """

    offset: int = Field(0, ge=0, le=1 << 40)
    limit: int | None = Field(None, ge=0, le=10_000)


@router.post("/project/{project}/scenario/{name}/scenario_instance/")
def start(
    project: str, name: str, user: Runner, body: Body, context: RequestContext
) -> dict[str, int]:
    """Launch a scenario. `link` (not in OpenBACH) configures the satellite link."""
    used = access.project_of(context, user, project)
    arguments = body.get("arguments") or {}
    if not isinstance(arguments, dict) or not all(
        isinstance(v, str | int | float) for v in arguments.values()
    ):
        raise ViewError(HTTPStatus.BAD_REQUEST, "Wrong parameter: arguments")
    instance = launch.scenario_instance(context, used, name, arguments, _link(body), user.login)
    return {"scenario_instance_id": instance.id}


def _link(body: dict[str, Any]) -> RunLink:
    try:
        return RunLink.model_validate(body.get("link") or {})
    except ValidationError as error:
        faults = [f"link.{fault}" for fault in faults_of(error)]
        raise ApiError(HTTPStatus.BAD_REQUEST, "The link is invalid", faults=faults) from error


@router.get("/project/{project}/scenario_instance/")
def of_project(
    project: str,
    request: Request,
    user: Viewer,
    context: RequestContext,
    paging: Annotated[Paging, Query()],
) -> list[dict[str, Any]]:
    """List the instances of a project, the newest first."""
    access.project_of(context, user, project)
    return _list(context, request, project, None, paging)


@router.get("/project/{project}/scenario/{name}/scenario_instance/")
def of_scenario(
    project: str,
    name: str,
    request: Request,
    user: Viewer,
    context: RequestContext,
    paging: Annotated[Paging, Query()],
) -> list[dict[str, Any]]:
    """List the instances of a scenario, the newest first."""
    access.project_of(context, user, project, "Scenario")
    if context.catalog.scenario(project, name) is None:
        raise not_found("Scenario", scenario_name=name, project_name=project)
    return _list(context, request, project, name, paging)


def _list(
    context: Context, request: Request, project: str, name: str | None, paging: Paging
) -> list[dict[str, Any]]:
    if paging.limit is None:
        listed = context.queue.instances(project, name)
    else:
        listed = context.queue.instances(project, name, paging.offset, paging.limit)
    if "quiet" in request.query_params:
        return [instance_json.short(each) for each in listed]
    return [instance_json.full(context, each) for each in listed]


@router.get("/scenario_instance/{number}/")
def one(
    number: int, request: Request, instance: ViewedInstance, context: RequestContext
) -> dict[str, Any]:
    """Return an instance; with `quiet` its short form, with `files_count` the numbers of its stored
    files.
    """
    if "files_count" in request.query_params:
        return export.files_count(context, instance)
    if "quiet" in request.query_params:
        return instance_json.short(instance, number)
    return instance_json.full(context, instance, number)


@router.post("/scenario_instance/{number}/")
def stop(number: int, user: Runner, context: RequestContext) -> Response:
    """Stop an instance; the id of a sub-scenario stops the whole launch.

    As in OpenBACH, the refusal of an unknown one is the state of the operation.
    """
    try:
        instance = access.scenario_instance(context, user, number)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            error.body = {"response": error.body, "returncode": error.status}
        raise
    context.queue.stop(instance.id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.delete("/scenario_instance/{number}/")
def remove(instance: RunInstance, context: RequestContext) -> Response:
    """Remove an instance that has ended.

    Its run folder stays until there are too many newer ones.
    """
    if not context.queue.remove(instance.id):
        raise ApiError(HTTPStatus.CONFLICT, "Trying to remove a scenario_instance still running")
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/scenario_instance/{number}/csv/")
def csv(number: int, instance: ViewedInstance, context: RequestContext) -> Response:
    """Return the statistics as CSV."""
    _check_ended(instance)
    return _csv(context, instance, f"scenario{number}.csv")


@router.get("/scenario_instance/{number}/archive/")
def archive(
    number: int, request: Request, instance: ViewedInstance, context: RequestContext
) -> Response:
    """Return the CSV with the stored files of the statistics that `JOB=STATISTIC` name; without
    any, only the CSV.
    """
    requested = request.query_params.multi_items()
    _check_ended(instance)
    name = f"scenario{number}.tar.gz"
    if not requested:
        return _csv(context, instance, name)
    packed = export.archive(context, instance, requested)
    return StreamingResponse(packed, media_type="application/gzip", headers=attachment(name))


def _csv(context: Context, instance: Instance, name: str) -> Response:
    export.check_statistics(context, instance)
    return StreamingResponse(
        export.csv_lines(context, instance), media_type="text/csv", headers=attachment(name)
    )


def _check_ended(instance: Instance) -> None:
    """Raises ApiError: 404, as OpenBACH, while the instance runs or waits."""
    if not instance.ended:
        raise ApiError(HTTPStatus.NOT_FOUND, "The scenario_instance is still running")
