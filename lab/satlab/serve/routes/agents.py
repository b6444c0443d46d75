# SPDX-License-Identifier: GPL-3.0-or-later
"""Agents and collectors: every node of the lab is an agent that is there; the collector is the server itself."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from satlab.serve import launch
from satlab.serve.api_errors import ApiError, ViewError, not_found
from satlab.serve.context import Body, Context, Here
from satlab.serve.identity import Admin, Viewer
from satlab.serve.initial_content import agents
from satlab.serve.instance_view import date

router = APIRouter()
COLLECTOR = "127.0.0.1"


def done(here: Context) -> dict[str, Any]:
    """Return the state of an operation that is over, as every one here is at once."""
    return {"response": None, "returncode": 204, "last_operation_date": date(here.clock())}


def known(here: Context, address: str) -> str:
    """Return an address that is an agent's. Raises ApiError."""
    if address not in agents(here.topology):
        raise not_found("Agent")
    return address


def accepted() -> Response:
    """Answer to what OpenBACH does in the background, and what is done here."""
    return JSONResponse({}, HTTPStatus.ACCEPTED)


@router.get("/agent/")
def every(request: Request, user: Viewer, here: Here) -> list[dict[str, Any]]:
    """List the agents."""
    del user
    more: dict[str, Any] = {"services": [], "errors": []} if "services" in request.query_params else {}
    return [launch.agent_json(here, address) | more for address in agents(here.topology)]


@router.post("/agent/")
def install(user: Admin, body: Body, here: Here) -> Response:
    """Accept an agent that is there anyway; any other host is out of reach."""
    del user
    for key in ("name", "address", "collector_ip"):
        if not isinstance(body.get(key), str):
            raise ViewError(HTTPStatus.BAD_REQUEST, f"Missing parameter: {key}")
    if body["address"] not in agents(here.topology):
        raise ApiError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "Agent unreachable: the agents are the nodes of the lab",
            address=body["address"],
        )
    return accepted()


@router.get("/agent/{address}/")
def agent(address: str, user: Viewer, here: Here) -> dict[str, Any]:
    """Return an agent."""
    del user
    return launch.agent_json(here, known(here, address))


@router.put("/agent/{address}/")
def change(address: str, user: Admin, here: Here) -> dict[str, Any]:
    """Change nothing: names and addresses are the lab's."""
    del user
    return launch.agent_json(here, known(here, address))


@router.post("/agent/{address}/")
def act(address: str, user: Admin, body: Body, here: Here) -> Response:
    """Accept what has no meaning for a node of the lab."""
    del user
    known(here, address)
    actions = ("assign_collector", "log_severity", "log_refresh", "reserve_project")
    if body.get("action", "assign_collector") not in actions:
        raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown action: {body['action']}")
    return accepted()


@router.delete("/agent/{address}/")
def detach(address: str, user: Admin, here: Here) -> Response:
    """Refuse: the lab has the nodes that it has."""
    del user
    known(here, address)
    raise ApiError(HTTPStatus.CONFLICT, "The agents are the nodes of the lab, they cannot be removed")


@router.get("/agent/{address}/state/")
def state(address: str, user: Viewer, here: Here) -> dict[str, Any]:
    """Tell that everything asked of an agent is done."""
    del user
    known(here, address)
    return {key: done(here) for key in ("install", "uninstall", "assign_collector", "log_severity")}


@router.get("/collector/")
def collectors(user: Viewer) -> list[dict[str, Any]]:
    """List the one collector."""
    del user
    return [_collector()]


@router.get("/collector/{address}/")
def collector(address: str, user: Viewer) -> dict[str, Any]:
    """Return the collector."""
    del user
    if address != COLLECTOR:
        raise not_found("Collector")
    return _collector()


@router.get("/collector/{address}/state/")
def collector_state(address: str, user: Viewer, here: Here) -> dict[str, Any]:
    """Tell that everything asked of the collector is done."""
    del user
    if address != COLLECTOR:
        raise not_found("Collector")
    return {key: done(here) for key in ("add", "modify", "del")}


def _collector() -> dict[str, Any]:
    return {
        "address": COLLECTOR,
        "logs_port": None,
        "logs_query_port": None,
        "logs_database_name": "",
        "stats_mode": "file",
        "stats_port": None,
        "stats_query_port": None,
        "stats_database_name": "",
        "stats_database_precision": "ms",
        "logstash_broadcast_mode": "",
        "logstash_broadcast_port": None,
    }
