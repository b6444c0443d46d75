# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the server as one FastAPI dependency; and the JSON body of a request."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request

from satlab.common.topology import Topology
from satlab.service.api.account_store import Accounts
from satlab.service.api.api_answers import ApiError
from satlab.service.api.catalog import Catalog
from satlab.service.api.inventory import Inventory
from satlab.service.api.logins import Logins
from satlab.service.api.marks import Marks
from satlab.service.api.queue import Helper, Queue
from satlab.service.api.running_link import RunningLink
from satlab.service.api.settings import Settings
from satlab.service.api.store import Store
from satlab.service.api.strict_json import loads
from satlab.service.api.tally import Tally


@dataclass(frozen=True)
class Context:
    """The parts of the server.

    `clock` returns s since the epoch; `started`: when the parts were made, by it.
    """

    settings: Settings
    store: Store
    accounts: Accounts
    catalog: Catalog
    inventory: Inventory
    queue: Queue
    marks: Marks
    logins: Logins
    topology: Topology
    clock: Callable[[], float]
    tally: Tally
    running_link: RunningLink
    started: float


def make_context(
    settings: Settings, store: Store, helper: Helper, topology: Topology, clock: Callable[[], float]
) -> Context:
    accounts, tally = Accounts(store, clock, settings.session_s), Tally()
    return Context(
        settings=settings,
        store=store,
        accounts=accounts,
        catalog=Catalog(store, clock),
        inventory=Inventory(store, topology, settings.jobs, settings.further_jobs),
        queue=Queue(store, helper, clock, settings.most_queued, tally),
        marks=Marks(store),
        logins=Logins(accounts, clock, tally),
        topology=topology,
        clock=clock,
        tally=tally,
        running_link=RunningLink(),
        started=clock(),
    )


def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def body_of(request: Request) -> dict[str, Any]:
    """Read the JSON body; an empty one counts as {}. Raises ApiError: 400."""
    data = await request.body()
    try:
        value = loads(data) if data.strip() else {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "API error: data should be sent as JSON in the request body"
        )
    return value


RequestContext = Annotated[Context, Depends(context_of)]
Body = Annotated[dict[str, Any], Depends(body_of)]
