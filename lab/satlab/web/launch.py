# SPDX-License-Identifier: GPL-3.0-or-later
"""stand-in until the API's own launch is there."""

from collections.abc import Mapping

from satlab.rootd.verbs import Link, Order
from satlab.serve import seed
from satlab.serve.accounts import User
from satlab.serve.context import Context
from satlab.serve.queue import Instance, Launch


def launch(
    here: Context, user: User, project: str, scenario: str, arguments: Mapping[str, str], link: Link
) -> Instance:
    known = here.catalog.scenarios(project)
    here_project = here.catalog.project(project)
    assert here_project is not None
    nodes = seed.agents(here.topology)
    entities = {e.name: nodes[e.agent] for e in here_project.entities if e.agent}
    order = Order(
        scenario=scenario,
        documents=known,
        arguments=dict(arguments),
        entities=entities,
        link=link,
        first_scenario_id=1,
        first_job_id=1,
    )
    return here.queue.launch(Launch(project, user.login, order, 10, 100))
