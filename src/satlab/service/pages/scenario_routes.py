# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes below `/ui`: scenarios are listed, launched, edited as JSON, and uploaded.

What the REST API refuses is shown, and not stored.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from starlette.datastructures import UploadFile

from satlab.common import paths
from satlab.service.api import access, launch, strict_json
from satlab.service.api.access import Runner
from satlab.service.api.account_store import User
from satlab.service.api.api_answers import ApiError, not_found
from satlab.service.api.dependencies import Context, RequestContext
from satlab.service.api.project_store import Document
from satlab.service.api.routes import scenarios as api_scenarios
from satlab.service.pages import launch_form, rendering, scenario_graph
from satlab.service.pages.rendering import Filled, Page, Viewer, render, see

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/")
def scenarios(request: Request, user: Viewer, context: RequestContext) -> Response:
    """List the scenarios that can be launched."""
    listed = [
        (project, context.catalog.scenarios(project.name))
        for project in context.catalog.projects()
        if access.may_use(user, project)
    ]
    return render(request, "scenarios.html", projects=listed)


@router.get("/scenarios/{project}/{name}")
def scenario(
    request: Request, project: str, name: str, user: Viewer, context: RequestContext
) -> Response:
    """Show the launch form of a scenario."""
    document, form = _form(context, user, project, name)
    given = {field.id: request.query_params.get(field.id, field.value) for field in form.fields}
    return _launch_page(request, project, document, form, given, {})


@router.post("/scenarios/{project}/{name}")
def launch_scenario(
    request: Request, project: str, name: str, user: Runner, context: RequestContext, filled: Filled
) -> Response:
    """Launch a scenario, or show the faults in the form."""
    document, form = _form(context, user, project, name)
    chosen = launch_form.read(form, filled)
    if chosen.faults or chosen.link is None:
        return _launch_page(request, project, document, form, filled, chosen.faults)
    try:
        used = access.project_of(context, user, project, "Scenario")
        values = chosen.arguments, chosen.link, user.login, chosen.constants
        instance = launch.scenario_instance(context, used, name, *values)
    except ApiError as error:
        return _launch_page(
            request, project, document, form, filled, {"": rendering.words_of(error)}, error.status
        )
    return see(f"/runs/{instance.id}")


def _form(
    context: Context, user: User, project: str, name: str
) -> tuple[launch_form.Document, launch_form.Form]:
    scenarios = _scenarios(context, user, project, name)
    form = launch_form.form_of(scenarios[name], scenarios, context.inventory.jobs(), paths.PROFILES)
    return scenarios[name], form


def _scenarios(context: Context, user: User, project: str, name: str) -> dict[str, Document]:
    """Return the scenarios of a project, one of which is `name`. Raises ApiError: 404, 403."""
    access.project_of(context, user, project, "Scenario")
    scenarios = context.catalog.scenarios(project)
    if name not in scenarios:
        raise not_found("Scenario")
    return scenarios


def _launch_page(
    request: Request,
    project: str,
    document: launch_form.Document,
    form: launch_form.Form,
    given: Mapping[str, str],
    faults: Mapping[str, str],
    status: int = HTTPStatus.OK,
) -> Response:
    code = HTTPStatus.BAD_REQUEST if faults and status == HTTPStatus.OK else status
    values = {
        "project": project,
        "scenario": document,
        "form": form,
        "given": given,
        "faults": faults,
    }
    return render(request, "launch.html", code, **values)


# --- edit and upload ------------------------------------------------------------------------------


@router.get("/scenarios/{project}/{name}/edit")
def edit(
    request: Request, project: str, name: str, user: Runner, context: RequestContext
) -> Response:
    """Show a scenario as text that can be changed."""
    document = _scenarios(context, user, project, name)[name]
    text = json.dumps(document, indent=1, ensure_ascii=False)
    return _edit_page(request, project, name, text)


def _edit_page(
    request: Request,
    project: str,
    name: str,
    text: str,
    fault: str = "",
    status: int = HTTPStatus.OK,
) -> Response:
    values = {"project": project, "name": name, "text": text, "fault": fault, **_graph(text)}
    if fault and values["wrong"]:
        values["wrong"] = "There is no graph of this text."
    return render(request, "edit.html", status, **values)


def _graph(text: str) -> dict[str, object]:
    """Return the graph of a scenario's text, or what is wrong with the text."""
    try:
        return {"graph": scenario_graph.drawing(_parsed(text)), "wrong": ""}
    except ApiError as error:
        return {"graph": "", "wrong": f"{error}."}


@router.post("/scenarios/{project}/{name}/graph")
def graph(request: Request, user: Runner, filled: Filled) -> Response:
    """Return the graph of a scenario's text."""
    return render(request, "graph.html", **_graph(filled.get("document", "")))


@router.post("/scenarios/{project}/{name}/edit")
def save(
    request: Request, project: str, name: str, user: Runner, context: RequestContext, filled: Filled
) -> Response:
    """Store a new version of a scenario or, under another name, a new one; or show what is wrong
    with it.
    """
    text = filled.get("document", "")
    try:
        return _store(project, name, user, text, context)
    except ApiError as error:
        return _edit_page(request, project, name, text, rendering.words_of(error), error.status)


async def file_of(request: Request, context: RequestContext) -> bytes:
    """Read the file of a form, at most one byte more than a request of the API may have."""
    async with request.form(max_files=1, max_fields=4) as form:
        file = form.get("file")
        return (
            await file.read(context.settings.body_bytes + 1)
            if isinstance(file, UploadFile)
            else b""
        )


@router.get("/upload/{project}")
def choose(request: Request, project: str, user: Runner, context: RequestContext) -> Response:
    """Show the form that takes the file of a scenario."""
    access.project_of(context, user, project, "Project")
    return render(request, "upload.html", project=project, fault="")


@router.post("/upload/{project}")
def upload(
    request: Request,
    project: str,
    user: Runner,
    context: RequestContext,
    data: Annotated[bytes, Depends(file_of)],
) -> Response:
    """Store the scenario of a file as a new one, or show what is wrong with it."""
    most = context.settings.body_bytes
    try:
        if len(data) > most:
            raise ApiError(HTTPStatus.BAD_REQUEST, f"The file is larger than {most / 1e6:.3g} MB")
        return _store(project, "", user, data, context)
    except ApiError as error:
        fault = rendering.words_of(error)
        return render(request, "upload.html", error.status, project=project, fault=fault)


def _store(project: str, name: str, user: User, text: str | bytes, context: Context) -> Response:
    """Store a scenario as a version of `name`, or as a new one, and show it. Raises ApiError."""
    document = _parsed(text)
    if name and document.get("name") == name:
        api_scenarios.change(project, name, user, document, context)
    else:
        api_scenarios.create(project, user, document, context)
    return see(f"/scenarios/{quote(project, safe='')}/{quote(str(document['name']), safe='')}")


def _parsed(text: str | bytes) -> dict[str, Any]:
    """Return the object of a scenario's text. Raises ApiError with one sentence."""
    if not text.strip():
        raise ApiError(HTTPStatus.BAD_REQUEST, "It is empty")
    try:
        document = strict_json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ApiError(HTTPStatus.BAD_REQUEST, f"It is not JSON: {error.msg}, {place}") from error
    except UnicodeDecodeError as error:
        what = "It is not text in UTF-8: choose a scenario's JSON file, or save it as UTF-8"
        raise ApiError(HTTPStatus.BAD_REQUEST, what) from error
    except ValueError as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, f"It is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ApiError(HTTPStatus.BAD_REQUEST, "A scenario is a JSON object: { ... }")
    return document
