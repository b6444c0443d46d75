# SPDX-License-Identifier: GPL-3.0-or-later
"""Projects and their entities."""

import re
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response

from satlab.service.api import initial_content
from satlab.service.api.access import Anybody, Runner, Viewer, may_use, owned_project_of, project_of
from satlab.service.api.api_answers import ApiError, ViewError, conflict, not_found
from satlab.service.api.dependencies import Body, Context, RequestContext, text_in
from satlab.service.api.project_store import Entity, Project
from satlab.service.api.routes.scenarios import save
from satlab.service.api.scenario_check import normalised

router = APIRouter()

MAX_TEXT = 10_000
_NAME = re.compile(r"[^/\x00-\x1f\x7f]{1,64}")


def project_json(context: Context, project: Project) -> dict[str, Any]:
    """Return a project as OpenBACH does; its networks are those of the lab."""
    scenarios = [
        normalised(document) for document in context.catalog.scenarios(project.name).values()
    ]
    networks = {name: str(network.subnet) for name, network in context.topology.networks.items()}
    return {
        "name": project.name,
        "description": project.description,
        "owners": list(project.owners),
        "entity": [entity_json(context, entity) for entity in project.entities],
        "scenario": scenarios,
        "network": [{"name": name, "address": address} for name, address in networks.items()],
        "hidden_network": [],
        "reserved_agents": [],
    }


def entity_json(context: Context, entity: Entity) -> dict[str, Any]:
    """Return an entity as OpenBACH does."""
    node = context.inventory.agents.get(entity.agent or "")
    interfaces = context.topology.nodes[node].interfaces.items() if node else ()
    networks = [
        {
            "name": interface.network,
            "address": str(context.topology.networks[interface.network].subnet),
            "interface": name,
            "ip": str(interface.address),
        }
        for name, interface in interfaces
    ]
    agent = context.inventory.agent(entity.agent) if node and entity.agent else None
    return {
        "name": entity.name,
        "description": entity.description,
        "agent": agent,
        "networks": networks,
    }


@router.get("/project/")
def projects(user: Anybody, context: RequestContext) -> list[dict[str, Any]]:
    """List the projects that the account may use; none without an account."""
    return [
        project_json(context, each)
        for each in context.catalog.projects()
        if user is not None and may_use(user, each)
    ]


@router.post("/project/")
def create(user: Runner, body: Body, context: RequestContext) -> dict[str, Any]:
    """Create a project with entities and scenarios, completely or not at all."""
    asked = body.get("name")
    if isinstance(asked, str) and "/" in asked:
        what = "'/' character forbidden in project name"
        raise ApiError(HTTPStatus.BAD_REQUEST, what, project_name=asked)
    name = _name(body, "Project")
    if name.isdecimal():
        what = "Project name cannot be digits only"
        raise ApiError(HTTPStatus.BAD_REQUEST, what, project_name=int(name))
    with context.store.transaction():
        if context.catalog.project(name) is not None:
            raise conflict("Project", name=name)
        context.catalog.put_project(_read(context, body, name))
        for document in _list(body, "scenario"):
            save(context, name, document)
    return project_json(context, project_of(context, user, name))


@router.get("/project/{name}/")
def project(name: str, user: Viewer, context: RequestContext) -> dict[str, Any]:
    return project_json(context, project_of(context, user, name))


@router.put("/project/{name}/")
def change(name: str, user: Runner, body: Body, context: RequestContext) -> dict[str, Any]:
    """Replace description, owners and entities.

    Another's or the shipped project keeps its owners.
    """
    known = project_of(context, user, name)
    if body.get("name", name) != name:
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "The name in the Project data does not match with the name."
        )
    changed = _read(context, body, name)
    if changed.owners != known.owners or name == initial_content.PROJECT:
        owned_project_of(context, user, name)
    context.catalog.put_project(changed)
    return project_json(context, changed)


@router.post("/project/{name}/")
def topology(name: str, user: Runner, context: RequestContext) -> dict[str, Any]:
    """Return the project unchanged: the lab defines the topology."""
    return project_json(context, project_of(context, user, name))


@router.delete("/project/{name}/")
def remove(name: str, user: Runner, context: RequestContext) -> Response:
    """Remove a project with its entities and scenarios; the shipped one until the next start of the
    server.
    """
    owned_project_of(context, user, name)
    context.catalog.remove_project(name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/project/{name}/entity/")
def entities(name: str, user: Viewer, context: RequestContext) -> list[dict[str, Any]]:
    return [entity_json(context, entity) for entity in project_of(context, user, name).entities]


@router.post("/project/{name}/entity/")
def add_entity(name: str, user: Runner, body: Body, context: RequestContext) -> dict[str, Any]:
    known = project_of(context, user, name)
    entity = _entity(context, body)
    if entity.name in [each.name for each in known.entities]:
        raise conflict("Entity")
    context.catalog.put_entity(name, entity)
    return project_json(context, project_of(context, user, name))


@router.get("/project/{name}/entity/{entity}/")
def entity(name: str, entity: str, user: Viewer, context: RequestContext) -> dict[str, Any]:
    return entity_json(context, _known(context, user, name, entity))


@router.put("/project/{name}/entity/{entity}/")
def change_entity(
    name: str, entity: str, user: Runner, body: Body, context: RequestContext
) -> dict[str, Any]:
    _known(context, user, name, entity)
    changed = _entity(context, {**body, "name": entity})
    context.catalog.put_entity(name, changed)
    return entity_json(context, changed)


@router.delete("/project/{name}/entity/{entity}/")
def remove_entity(name: str, entity: str, user: Runner, context: RequestContext) -> Response:
    _known(context, user, name, entity)
    if initial_content.is_shipped(context, name, entity=entity):
        owned_project_of(context, user, name)
    context.catalog.remove_entity(name, entity)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _known(context: Context, user: Viewer, project: str, name: str) -> Entity:
    for each in project_of(context, user, project).entities:
        if each.name == name:
            return each
    raise not_found("Entity", project_name=project, entity_name=name)


def _name(body: dict[str, Any], what: str) -> str:
    name = text_in(body, "name")
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            f"The name of a {what} is 1 to 64 printable characters without '/'",
        )
    return name


def _read(context: Context, body: dict[str, Any], name: str) -> Project:
    owners = [str(owner) for owner in _list(body, "owners")]
    missing = [owner for owner in owners if context.accounts.find(owner) is None]
    if missing:
        raise not_found("User")
    entities = [_entity(context, entity) for entity in _list(body, "entity")]
    if len({entity.name for entity in entities}) < len(entities):
        raise conflict("Entity")
    return Project(
        name, str(body.get("description", ""))[:MAX_TEXT], tuple(owners), tuple(entities)
    )


def _entity(context: Context, body: Any) -> Entity:
    if not isinstance(body, dict):
        raise ViewError(HTTPStatus.BAD_REQUEST, "Missing parameter: entity")
    agent = body.get("agent")
    address = str(agent.get("address", "")) if isinstance(agent, dict) else None
    if address is not None and address not in context.inventory.agents:
        raise not_found("Agent", agent_address=address)
    return Entity(_name(body, "Entity"), str(body.get("description", ""))[:MAX_TEXT], address)


def _list(body: dict[str, Any], key: str) -> list[Any]:
    value = body.get(key, [])
    if not isinstance(value, list):
        raise ViewError(HTTPStatus.BAD_REQUEST, f"Wrong parameter: {key}")
    return value
