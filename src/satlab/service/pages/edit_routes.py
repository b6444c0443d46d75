# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages on which scenarios are edited as JSON or uploaded.

What the REST API refuses is shown, and not stored.
"""

import json
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from starlette.datastructures import UploadFile

from satlab.service.api import access, strict_json
from satlab.service.api.access import Runner
from satlab.service.api.account_store import User
from satlab.service.api.api_answers import ApiError, not_found
from satlab.service.api.context import Context, RequestContext
from satlab.service.api.routes import scenarios
from satlab.service.pages import pages
from satlab.service.pages.pages import Page, render, see
from satlab.service.pages.ui_routes import Filled

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/scenarios/{project}/{name}/edit")
def edit(
    request: Request, project: str, name: str, user: Runner, context: RequestContext
) -> Response:
    """Show a scenario as text that can be changed."""
    known = context.catalog.scenarios(access.project_of(context, user, project, "Scenario").name)
    if name not in known:
        raise not_found("Scenario")
    text = json.dumps(known[name], indent=1, ensure_ascii=False)
    return render(request, "edit.html", project=project, name=name, text=text, fault="")


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
        values = {"project": project, "name": name, "text": text, "fault": pages.words_of(error)}
        return render(request, "edit.html", error.status, **values)


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
            raise ApiError(HTTPStatus.BAD_REQUEST, f"it has more than {most} bytes")
        return _store(project, "", user, data, context)
    except ApiError as error:
        fault = pages.words_of(error)
        return render(request, "upload.html", error.status, project=project, fault=fault)


def _store(project: str, name: str, user: User, text: str | bytes, context: Context) -> Response:
    """Store a scenario as a version of `name`, or as a new one, and show it. Raises ApiError."""
    try:
        document = strict_json.loads(text)
        if not isinstance(document, dict):
            raise ValueError("a scenario is an object")
    except ValueError as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, f"it is not JSON: {error}") from error
    if name and document.get("name") == name:
        scenarios.change(project, name, user, document, context)
    else:
        scenarios.create(project, user, document, context)
    return see(f"/scenarios/{quote(project, safe='')}/{quote(str(document['name']), safe='')}")
