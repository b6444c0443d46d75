# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new server starts with: the shipped jobs, the project `satlab` with an entity per node, its scenarios."""

import json

from satlab.common import paths
from satlab.common.topology import Topology
from satlab.serve.catalog import Entity, Project
from satlab.serve.context import Context

PROJECT = "satlab"


def agents(topology: Topology) -> dict[str, str]:
    """Return the nodes that run jobs by the address that stands for them: the first interface's."""
    return {node.address: name for name, node in topology.nodes.items()}


def fill(here: Context) -> None:
    """Make the project in an empty store; add the shipped jobs and scenarios that are lacking."""
    with here.store.transaction() as connection:
        for folder in sorted(paths.JOBS.iterdir()):
            if (folder / "files" / f"{folder.name}.yml").is_file():
                connection.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?)", (folder.name, str(folder)))
        if not here.catalog.projects():
            entities = (Entity(name, "", address) for address, name in agents(here.topology).items())
            here.catalog.put_project(Project(PROJECT, "The embedded lab", (), tuple(entities)))
        if here.catalog.project(PROJECT) is None:
            return
        known = here.catalog.scenarios(PROJECT)
        for path in sorted(paths.SCENARIOS.glob("*.json")):
            if path.stem not in known:
                here.catalog.add_version(PROJECT, path.stem, json.loads(path.read_bytes()))
