# SPDX-License-Identifier: GPL-3.0-or-later
"""Projects with their entities, scenarios with their versions, and favorites."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from sqlite3 import Row
from typing import Any

from satlab.service.api.api_answers import ApiError
from satlab.service.api.database import Store, dumps

Document = dict[str, Any]
MOST_VERSIONS = 100
"""Versions of a scenario that are kept."""
MOST_PROJECTS = 200
MOST_BYTES, MOST_OF_PROJECT = 128 << 20, 32 << 20
"""Descriptions, entities and scenarios with their versions: of all projects, and of one."""
_SIZES = """
    SELECT project, sum(size) AS size FROM (
        SELECT name AS project, length(description) + length(owners) AS size FROM projects
        UNION ALL SELECT project, length(name) + length(description) FROM entities
        UNION ALL SELECT project, length(document) FROM scenarios
    ) GROUP BY project
"""


@dataclass(frozen=True)
class Entity:
    """A name for a node in a project's scenarios. `agent`: address of the node, or None."""

    name: str
    description: str
    agent: str | None


@dataclass(frozen=True)
class Project:
    """A project. Owners and administrators may use it; without owners, every account."""

    name: str
    description: str
    owners: tuple[str, ...]
    entities: tuple[Entity, ...]


class Catalog:
    """Projects and scenarios in the store.

    The routes check names. `clock` returns s since the epoch.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.store, self._clock = store, clock

    def projects(self) -> list[Project]:
        """Return every project, sorted by name."""
        return [
            self._project(row) for row in self.store.rows("SELECT * FROM projects ORDER BY name")
        ]

    def project(self, name: str) -> Project | None:
        row = self.store.row("SELECT * FROM projects WHERE name = ?", name)
        return self._project(row) if row else None

    def put_project(self, project: Project) -> None:
        """Create a project or replace its description, owners and entities.

        Raises ApiError: 413.
        """
        with self.store.transaction() as connection:
            owners = dumps(list(project.owners))
            connection.execute(
                "INSERT INTO projects VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
                " description = excluded.description, owners = excluded.owners",
                (project.name, project.description, owners),
            )
            connection.execute("DELETE FROM entities WHERE project = ?", (project.name,))
            for entity in project.entities:
                self._put_entity(project.name, entity)
            self._check_room(project.name)

    def remove_project(self, name: str) -> None:
        """Remove a project with its entities and scenarios, but not its instances."""
        self.store.write("DELETE FROM projects WHERE name = ?", name)

    def put_entity(self, project: str, entity: Entity) -> None:
        """Create or replace an entity. Raises ApiError: 413."""
        with self.store.transaction():
            self._put_entity(project, entity)
            self._check_room(project)

    def _put_entity(self, project: str, entity: Entity) -> None:
        row = (project, entity.name, entity.description, entity.agent)
        self.store.write("INSERT OR REPLACE INTO entities VALUES (?, ?, ?, ?)", *row)

    def remove_entity(self, project: str, name: str) -> None:
        self.store.write("DELETE FROM entities WHERE project = ? AND name = ?", project, name)

    def scenarios(self, project: str) -> dict[str, Document]:
        """Return the latest version of each scenario of a project, by name."""
        sql = (
            "SELECT name, document, MAX(version) FROM scenarios WHERE project = ? GROUP BY name"
            " ORDER BY name"
        )
        return {row["name"]: json.loads(row["document"]) for row in self.store.rows(sql, project)}

    def scenario(self, project: str, name: str) -> Document | None:
        """Return the latest version of a scenario."""
        sql = (
            "SELECT document FROM scenarios WHERE project = ? AND name = ? ORDER BY version DESC"
            " LIMIT 1"
        )
        row = self.store.row(sql, project, name)
        return json.loads(row["document"]) if row else None

    def versions(self, project: str, name: str) -> list[tuple[int, float]]:
        """Return number and time (s since the epoch) of every version of a scenario, the oldest
        first.
        """
        sql = (
            "SELECT version, created FROM scenarios WHERE project = ? AND name = ? ORDER BY version"
        )
        return [(row["version"], row["created"]) for row in self.store.rows(sql, project, name)]

    def add_version(self, project: str, name: str, document: Document) -> int:
        """Store a new version of a scenario and return its number; the latest `MOST_VERSIONS` are
        kept. Raises ApiError: 413.
        """
        with self.store.transaction() as connection:
            earlier = self.versions(project, name)
            version = earlier[-1][0] + 1 if earlier else 1
            row = (project, name, version, dumps(document), self._clock())
            connection.execute("INSERT INTO scenarios VALUES (?, ?, ?, ?, ?)", row)
            sql = "DELETE FROM scenarios WHERE project = ? AND name = ? AND version <= ?"
            connection.execute(sql, (project, name, version - MOST_VERSIONS))
            self._check_room(project)
        return version

    def remove_scenario(self, project: str, name: str) -> None:
        """Remove a scenario with all its versions. Instances have copies of theirs."""
        self.store.write("DELETE FROM scenarios WHERE project = ? AND name = ?", project, name)

    def favorites(self, login: str) -> dict[str, list[str]]:
        """Return an account's favorite scenarios by project."""
        favorites: dict[str, list[str]] = {}
        sql = "SELECT project, scenario FROM favorites WHERE login = ? ORDER BY project, scenario"
        for row in self.store.rows(sql, login):
            favorites.setdefault(row["project"], []).append(row["scenario"])
        return favorites

    def set_favorite(self, login: str, project: str, scenario: str, *, favorite: bool) -> None:
        sql = "DELETE FROM favorites WHERE login = ? AND project = ? AND scenario = ?"
        if favorite:
            sql = "INSERT OR IGNORE INTO favorites VALUES (?, ?, ?)"
        self.store.write(sql, login, project, scenario)

    def _check_room(self, changed: str) -> None:
        """Raise ApiError, 413, if there is too much now; the transaction around it is undone."""
        sizes = {row["project"]: row["size"] for row in self.store.rows(_SIZES)}
        for size, most, what in (
            (len(sizes), MOST_PROJECTS, "There are too many projects"),
            (sizes.get(changed, 0), MOST_OF_PROJECT, "The project is too large"),
            (sum(sizes.values()), MOST_BYTES, "The projects are too large"),
        ):
            if size > most:
                raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{what}: at most {most}")

    def _project(self, row: Row) -> Project:
        sql = "SELECT name, description, agent FROM entities WHERE project = ? ORDER BY name"
        entities = tuple(Entity(*entity) for entity in self.store.rows(sql, row["name"]))
        return Project(row["name"], row["description"], tuple(json.loads(row["owners"])), entities)
