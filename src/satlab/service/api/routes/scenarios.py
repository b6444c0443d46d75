# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios with their versions.

As in OpenBACH, an invalid one is refused with the first fault and its place.
"""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response

from satlab.openbach.json_document import TITLE_RULE, is_title
from satlab.service.api import initial_content, scenario_check
from satlab.service.api.access import Runner, Viewer, owned_project_of, project_of
from satlab.service.api.api_answers import ApiError, conflict, date, not_found, unexpected
from satlab.service.api.dependencies import Body, Context, RequestContext
from satlab.service.api.project_store import Document
from satlab.service.api.scenario_check import RefusalError

router = APIRouter()


def save(context: Context, project: str, document: Document) -> Document:
    """Store a new scenario. Raises ApiError."""
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise ApiError(HTTPStatus.BAD_REQUEST, "You must provide a name to create a Scenario")
    if context.catalog.scenario(project, document["name"]) is not None:
        raise conflict("Scenario", name=document["name"], project=project)
    return _store(context, project, document)


def _store(context: Context, project: str, document: Document) -> Document:
    name = document["name"]
    if not is_title(name):
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            f"The name of a Scenario becomes the name of a file: {TITLE_RULE}",
        )
    if "openbach_function" in [key for function in _functions(document) for key in function]:
        raise unexpected("Unknown OpenBACH Function")
    try:
        scenario_check.check(document, context.inventory.jobs())
    except RefusalError as refusal:
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            "Data of the Scenario are malformed",
            scenario_name=name,
            error_message=refusal.body,
            scenario_data=document,
        ) from refusal
    context.catalog.add_version(project, name, document)
    return scenario_check.normalised(document)


def _functions(document: Document) -> list[Document]:
    functions = document.get("openbach_functions")
    return (
        [each for each in functions if isinstance(each, dict)]
        if isinstance(functions, list)
        else []
    )


@router.get("/project/{project}/scenario/")
def scenarios(project: str, user: Viewer, context: RequestContext) -> list[Document]:
    """List the latest versions of the scenarios of a project."""
    project_of(context, user, project)
    return [
        scenario_check.normalised(document)
        for document in context.catalog.scenarios(project).values()
    ]


@router.post("/project/{project}/scenario/")
def create(project: str, user: Runner, body: Body, context: RequestContext) -> Document:
    project_of(context, user, project)
    return save(context, project, body)


@router.get("/project/{project}/scenario/{name}/")
def scenario(project: str, name: str, user: Viewer, context: RequestContext) -> Document:
    return scenario_check.normalised(_known(context, user, project, name))


@router.put("/project/{project}/scenario/{name}/")
def change(project: str, name: str, user: Runner, body: Body, context: RequestContext) -> Document:
    """Store a new version. Instances keep the version of their launch."""
    _known(context, user, project, name)
    if "name" not in body:
        what = (
            "The Scenario data to modify an existing Scenario does not contain the Scenario name."
        )
        raise ApiError(HTTPStatus.BAD_REQUEST, what, scenario=name)
    if body["name"] != name:
        what = "The name in the Scenario data does not match with the name of the scenario."
        raise ApiError(HTTPStatus.BAD_REQUEST, what, scenario=name, name=body["name"])
    return _store(context, project, body)


@router.delete("/project/{project}/scenario/{name}/")
def remove(project: str, name: str, user: Runner, context: RequestContext) -> Response:
    _known(context, user, project, name)
    if initial_content.is_shipped(context, project, scenario=name):
        owned_project_of(context, user, project)
    context.catalog.remove_scenario(project, name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/project/{project}/scenario/{name}/versions/")
def versions(
    project: str, name: str, user: Viewer, context: RequestContext
) -> list[dict[str, Any]]:
    """List the versions of a scenario (not in OpenBACH)."""
    _known(context, user, project, name)
    return [
        {"version": number, "date": date(when)}
        for number, when in context.catalog.versions(project, name)
    ]


@router.post("/project/{project}/scenario/{name}/")
def favorite(
    project: str, name: str, user: Runner, body: Body, context: RequestContext
) -> Response:
    _known(context, user, project, name)
    if body.get("action") != "favorite":
        raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown action: {body.get('action')}")
    context.catalog.set_favorite(user.login, project, name, favorite=bool(body.get("favorite")))
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _known(context: Context, user: Viewer, project: str, name: str) -> Document:
    project_of(context, user, project, "Scenario")
    document = context.catalog.scenario(project, name)
    if document is None:
        raise not_found("Scenario", scenario_name=name, project_name=project)
    return document
