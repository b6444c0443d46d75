# SPDX-License-Identifier: GPL-3.0-or-later
"""The page on which a scenario is edited as JSON. What the REST API refuses is shown with its place, and not stored."""

import json
from http import HTTPStatus
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from satlab.serve import access, strict_json
from satlab.serve.access import Runner
from satlab.serve.api_answers import ApiError, not_found
from satlab.serve.context import RequestContext
from satlab.serve.routes import scenarios
from satlab.web import pages
from satlab.web.pages import Page, render, see
from satlab.web.ui_routes import Filled

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/scenarios/{project}/{name}/edit")
def edit(request: Request, project: str, name: str, user: Runner, context: RequestContext) -> Response:
    """Show a scenario as text that can be changed."""
    known = context.catalog.scenarios(access.project_of(context, user, project, "Scenario").name)
    if name not in known:
        raise not_found("Scenario")
    text = json.dumps(known[name], indent=1, ensure_ascii=False)
    return render(request, "edit.html", project=project, name=name, text=text, fault="")


@router.post("/scenarios/{project}/{name}/edit")
def save(request: Request, project: str, name: str, user: Runner, context: RequestContext, filled: Filled) -> Response:
    """Store a new version of a scenario or, under another name, a new one; or show what is wrong with it."""
    text = filled.get("document", "")
    try:
        document = strict_json.loads(text)
        if not isinstance(document, dict):
            raise ValueError("a scenario is an object")
        if document.get("name") == name:
            scenarios.change(project, name, user, document, context)
        else:
            scenarios.create(project, user, document, context)
    except ValueError as error:
        fault, status = f"it is not JSON: {error}", HTTPStatus.BAD_REQUEST
    except ApiError as error:
        fault, status = pages.words_of(error), HTTPStatus(error.status)
    else:
        return see(f"/scenarios/{quote(project, safe='')}/{quote(document['name'], safe='')}")
    return render(request, "edit.html", status, project=project, name=name, text=text, fault=fault)
