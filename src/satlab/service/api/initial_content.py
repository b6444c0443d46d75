# SPDX-License-Identifier: GPL-3.0-or-later
"""Content of a new server: the shipped jobs, and a project with an entity per node and the shipped
scenarios.
"""

import json

from satlab.common import paths
from satlab.service.api.dependencies import Context
from satlab.service.api.project_store import Entity, Project

PROJECT = "satlab"


def is_shipped(context: Context, project: str, *, entity: str = "", scenario: str = "") -> bool:
    """Return whether an entity or a scenario of a project is one that `fill` adds."""
    shipped = {path.stem for path in paths.SCENARIOS.glob("*.json")}
    return project == PROJECT and (
        entity in context.inventory.agents.values() or scenario in shipped
    )


def fill(context: Context) -> None:
    """Add the shipped jobs, project, entities and scenarios that are missing."""
    with context.store.transaction():
        for folder in sorted(paths.JOBS.iterdir()):
            if (folder / "files" / f"{folder.name}.yml").is_file():
                context.inventory.add_job(folder.name, folder)
        project = context.catalog.project(PROJECT)
        if project is None:
            project = Project(PROJECT, "The embedded lab", (), ())
            context.catalog.put_project(project)
        present = {entity.name for entity in project.entities}
        for address, name in context.inventory.agents.items():
            if name not in present:
                context.catalog.put_entity(PROJECT, Entity(name, "", address))
        stored = context.catalog.scenarios(PROJECT)
        for path in sorted(paths.SCENARIOS.glob("*.json")):
            if path.stem not in stored:
                context.catalog.add_version(PROJECT, path.stem, json.loads(path.read_bytes()))
