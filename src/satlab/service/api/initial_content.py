# SPDX-License-Identifier: GPL-3.0-or-later
"""Content of a new server: the shipped jobs, and a project with an entity per node and the shipped
scenarios.
"""

import json

from satlab.common import paths
from satlab.service.api.catalog import Entity, Project
from satlab.service.api.context import Context

PROJECT = "satlab"


def fill(context: Context) -> None:
    """Create the project in an empty store; add shipped jobs and scenarios that are missing."""
    with context.store.transaction():
        for folder in sorted(paths.JOBS.iterdir()):
            if (folder / "files" / f"{folder.name}.yml").is_file():
                context.inventory.add_job(folder.name, folder)
        if not context.catalog.projects():
            entities = (
                Entity(name, "", address) for address, name in context.inventory.agents.items()
            )
            context.catalog.put_project(Project(PROJECT, "The embedded lab", (), tuple(entities)))
        if context.catalog.project(PROJECT) is None:
            return
        stored = context.catalog.scenarios(PROJECT)
        for path in sorted(paths.SCENARIOS.glob("*.json")):
            if path.stem not in stored:
                context.catalog.add_version(PROJECT, path.stem, json.loads(path.read_bytes()))
