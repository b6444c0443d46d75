# SPDX-License-Identifier: GPL-3.0-or-later
"""Projects and their entities."""

import re
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response

from satlab.serve import launch
from satlab.serve.acceptance import normalised
from satlab.serve.accounts import User
from satlab.serve.api_errors import ApiError, ViewError, conflict, not_found
from satlab.serve.catalog import Entity, Project
from satlab.serve.context import Body, Context, Here
from satlab.serve.identity import Anybody, Runner, Viewer
from satlab.serve.initial_content import agents
from satlab.serve.routes.access import may, project_of
from satlab.serve.routes.scenarios import save

router = APIRouter()

MOST_TEXT = 10_000
_NAME = re.compile(r"[^/\x00-\x1f\x7f]{1,64}")


def project_json(here: Context, project: Project) -> dict[str, Any]:
    """Return a project as OpenBACH does; the lab's networks are those of its nodes."""
    scenarios = [normalised(document) for document in here.catalog.scenarios(project.name).values()]
    networks = {name: str(network.subnet) for name, network in here.topology.networks.items()}
    return {
        "name": project.name,
        "description": project.description,
        "owners": list(project.owners),
        "entity": [entity_json(here, entity) for entity in project.entities],
        "scenario": scenarios,
        "network": [{"name": name, "address": address} for name, address in networks.items()],
        "hidden_network": [],
        "reserved_agents": [],
    }


def entity_json(here: Context, entity: Entity) -> dict[str, Any]:
    """Return an entity as OpenBACH does."""
    node = agents(here.topology).get(entity.agent or "")
    ends = here.topology.nodes[node].interfaces.items() if node else ()
    networks = [
        {
            "name": end.network,
            "address": str(here.topology.networks[end.network].subnet),
            "interface": interface,
            "ip": str(end.address),
        }
        for interface, end in ends
    ]
    agent = launch.agent_json(here, entity.agent) if node and entity.agent else None
    return {"name": entity.name, "description": entity.description, "agent": agent, "networks": networks}


@router.get("/project/")
def projects(user: Anybody, here: Here) -> list[dict[str, Any]]:
    """List what the account may see; a stranger sees nothing."""
    return [project_json(here, each) for each in here.catalog.projects() if user is not None and may(user, each)]


@router.post("/project/")
def create(user: Runner, body: Body, here: Here) -> dict[str, Any]:
    """Make a project with entities and scenarios, or nothing of it."""
    name = _name(body, "Project")
    if name.isdecimal():
        raise ApiError(HTTPStatus.BAD_REQUEST, "The name of a Project cannot be composed of digits only")
    with here.store.transaction():
        if here.catalog.project(name) is not None:
            raise conflict("Project")
        here.catalog.put_project(_read(here, body, name))
        for document in _list(body, "scenario"):
            save(here, name, document)
    return project_json(here, project_of(here, user, name))


@router.get("/project/{name}/")
def project(name: str, user: Viewer, here: Here) -> dict[str, Any]:
    """Return a project."""
    return project_json(here, project_of(here, user, name))


@router.put("/project/{name}/")
def change(name: str, user: Runner, body: Body, here: Here) -> dict[str, Any]:
    """Replace description, owners and entities."""
    project_of(here, user, name)
    if body.get("name", name) != name:
        raise ApiError(HTTPStatus.BAD_REQUEST, "The name in the Project data does not match with the name.")
    here.catalog.put_project(_read(here, body, name))
    return project_json(here, project_of(here, user, name))


@router.post("/project/{name}/")
def topology(name: str, user: Runner, here: Here) -> dict[str, Any]:
    """Do nothing: the topology is the lab's, and known."""
    return project_json(here, project_of(here, user, name))


@router.delete("/project/{name}/")
def remove(name: str, user: Runner, here: Here) -> Response:
    """Remove a project with its entities and scenarios."""
    project_of(here, user, name)
    here.catalog.remove_project(name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.get("/project/{name}/entity/")
def entities(name: str, user: Viewer, here: Here) -> list[dict[str, Any]]:
    """List the entities."""
    return [entity_json(here, entity) for entity in project_of(here, user, name).entities]


@router.post("/project/{name}/entity/")
def add_entity(name: str, user: Runner, body: Body, here: Here) -> dict[str, Any]:
    """Add an entity."""
    known = project_of(here, user, name)
    entity = _entity(here, body)
    if entity.name in [each.name for each in known.entities]:
        raise conflict("Entity")
    here.catalog.put_entity(name, entity)
    return project_json(here, project_of(here, user, name))


@router.get("/project/{name}/entity/{entity}/")
def entity(name: str, entity: str, user: Viewer, here: Here) -> dict[str, Any]:
    """Return an entity."""
    return entity_json(here, _known(here, user, name, entity))


@router.put("/project/{name}/entity/{entity}/")
def change_entity(name: str, entity: str, user: Runner, body: Body, here: Here) -> dict[str, Any]:
    """Replace an entity."""
    _known(here, user, name, entity)
    changed = _entity(here, {**body, "name": entity})
    here.catalog.put_entity(name, changed)
    return entity_json(here, changed)


@router.delete("/project/{name}/entity/{entity}/")
def remove_entity(name: str, entity: str, user: Runner, here: Here) -> Response:
    """Remove an entity."""
    _known(here, user, name, entity)
    here.catalog.remove_entity(name, entity)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _known(here: Context, user: User, project: str, name: str) -> Entity:
    for each in project_of(here, user, project).entities:
        if each.name == name:
            return each
    raise not_found("Entity")


def _name(body: dict[str, Any], what: str) -> str:
    name = body.get("name")
    if not isinstance(name, str):
        raise ViewError(HTTPStatus.BAD_REQUEST, "Missing parameter: name")
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise ApiError(HTTPStatus.BAD_REQUEST, f"The name of a {what} is 1 to 64 printable characters without '/'")
    return name


def _read(here: Context, body: dict[str, Any], name: str) -> Project:
    owners = [str(owner) for owner in _list(body, "owners")]
    missing = [owner for owner in owners if here.accounts.find(owner) is None]
    if missing:
        raise not_found("User")
    entities = [_entity(here, entity) for entity in _list(body, "entity")]
    if len({entity.name for entity in entities}) < len(entities):
        raise conflict("Entity")
    return Project(name, str(body.get("description", ""))[:MOST_TEXT], tuple(owners), tuple(entities))


def _entity(here: Context, body: Any) -> Entity:
    if not isinstance(body, dict):
        raise ViewError(HTTPStatus.BAD_REQUEST, "Missing parameter: entity")
    agent = body.get("agent")
    address = str(agent.get("address", "")) if isinstance(agent, dict) else None
    if address is not None and address not in agents(here.topology):
        raise not_found("Agent")
    return Entity(_name(body, "Entity"), str(body.get("description", ""))[:MOST_TEXT], address)


def _list(body: dict[str, Any], key: str) -> list[Any]:
    value = body.get(key, [])
    if not isinstance(value, list):
        raise ViewError(HTTPStatus.BAD_REQUEST, f"Wrong parameter: {key}")
    return value
