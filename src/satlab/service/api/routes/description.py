# SPDX-License-Identifier: GPL-3.0-or-later
"""A description of the REST API (OpenAPI 3.1) for those who have an account, made from its routes."""

from typing import Any

from fastapi import APIRouter, Request

from satlab.service.api.access import Viewer

router = APIRouter()
OTHERS = ("/openbach", "/ui")
"""Paths that are left out: the API again below a prefix, and the web pages."""


@router.get("/openapi.json", include_in_schema=False)
def description(request: Request, user: Viewer) -> dict[str, Any]:
    """Return the OpenAPI document."""
    del user
    document: dict[str, Any] = request.app.openapi()
    described = {
        path: methods for path, methods in document["paths"].items() if not path.startswith(OTHERS)
    }
    return document | {"paths": described}
