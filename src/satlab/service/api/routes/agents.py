# SPDX-License-Identifier: GPL-3.0-or-later
"""Agents: the nodes of the lab, always reachable. Collectors: the server itself is the only one."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from satlab.service.api.access import NEEDS_ADMIN, NEEDS_VIEWER
from satlab.service.api.api_answers import ApiError, accepted, completed, not_found
from satlab.service.api.dependencies import Body, RequestContext, text_in

router = APIRouter()
COLLECTOR = "127.0.0.1"


@router.get("/agent/", dependencies=NEEDS_VIEWER)
def every(request: Request, context: RequestContext) -> list[dict[str, Any]]:
    more: dict[str, Any] = (
        {"services": [], "errors": []} if "services" in request.query_params else {}
    )
    return [context.inventory.agent(address) | more for address in context.inventory.agents]


@router.post("/agent/", dependencies=NEEDS_ADMIN)
def install(body: Body, context: RequestContext) -> Response:
    """Accept a node of the lab, which needs no installation; refuse any other host."""
    for key in ("name", "address", "collector_ip"):
        text_in(body, key)
    if body["address"] not in context.inventory.agents:
        raise ApiError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "Agent unreachable: the agents are the nodes of the lab",
            address=body["address"],
        )
    return accepted()


@router.get("/agent/{address}/", dependencies=NEEDS_VIEWER)
def agent(address: str, context: RequestContext) -> dict[str, Any]:
    return context.inventory.agent(address)


@router.put("/agent/{address}/", dependencies=NEEDS_ADMIN)
def change(address: str, context: RequestContext) -> dict[str, Any]:
    """Return the agent unchanged: the lab defines names and addresses."""
    return context.inventory.agent(address)


@router.post("/agent/{address}/", dependencies=NEEDS_ADMIN)
def act(address: str, body: Body, context: RequestContext) -> Response:
    """Accept actions that have no effect on a node of the lab."""
    context.inventory.check_agent(address)
    actions = ("assign_collector", "log_severity", "log_refresh", "reserve_project")
    if body.get("action", "assign_collector") not in actions:
        raise ApiError(HTTPStatus.BAD_REQUEST, f"Unknown action: {body['action']}")
    return accepted()


@router.delete("/agent/{address}/", dependencies=NEEDS_ADMIN)
def detach(address: str, context: RequestContext) -> Response:
    """Refuse: the lab's nodes are fixed."""
    context.inventory.check_agent(address)
    raise ApiError(
        HTTPStatus.CONFLICT, "The agents are the nodes of the lab, they cannot be removed"
    )


@router.get("/agent/{address}/state/", dependencies=NEEDS_VIEWER)
def state(address: str, context: RequestContext) -> dict[str, Any]:
    """Report every operation as completed; on an unknown agent there was none."""
    done = completed(context.clock()) if address in context.inventory.agents else None
    return dict.fromkeys(("install", "uninstall", "assign_collector", "log_severity"), done)


@router.get("/collector/", dependencies=NEEDS_VIEWER)
def collectors() -> list[dict[str, Any]]:
    return [_collector()]


@router.get("/collector/{address}/", dependencies=NEEDS_VIEWER)
def collector(address: str) -> dict[str, Any]:
    if address != COLLECTOR:
        raise not_found("Collector")
    return _collector()


@router.get("/collector/{address}/state/", dependencies=NEEDS_VIEWER)
def collector_state(address: str, context: RequestContext) -> dict[str, Any]:
    """Report every operation as completed."""
    if address != COLLECTOR:
        raise not_found("Collector")
    return {key: completed(context.clock()) for key in ("add", "modify", "del")}


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
