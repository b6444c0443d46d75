# SPDX-License-Identifier: GPL-3.0-or-later
"""What routes depend on: the parts of the server, and the JSON body of a request."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from satlab.common.topology import Topology
from satlab.service.api.account_store import Accounts
from satlab.service.api.api_answers import ApiError, ViewError
from satlab.service.api.counters import Counters, RunningLink
from satlab.service.api.database import Store
from satlab.service.api.job_inventory import Inventory
from satlab.service.api.logins import Logins
from satlab.service.api.project_store import Catalog
from satlab.service.api.queue import Helper, Queue
from satlab.service.api.run_notes import RunNotes
from satlab.service.api.settings import Settings
from satlab.service.api.strict_json import loads


class Context:
    """The parts of the server.

    `clock` returns s since the epoch; `started`: when the parts were made, by it.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        helper: Helper,
        topology: Topology,
        clock: Callable[[], float],
    ) -> None:
        self.settings, self.store, self.topology, self.clock = settings, store, topology, clock
        self.counters, self.running_link, self.started = Counters(), RunningLink(), clock()
        self.accounts = Accounts(store, clock, settings.session_s)
        self.logins = Logins(self.accounts, clock, self.counters)
        self.catalog = Catalog(store, clock)
        self.inventory = Inventory(store, topology, settings.jobs, settings.further_jobs)
        self.queue = Queue(store, helper, clock, settings.most_queued, self.counters)
        self.run_notes = RunNotes(store)


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


_T = TypeVar("_T")


def text_in(body: dict[str, Any], key: str) -> str:
    """Return a text of a body. Raises ViewError: 400."""
    value = body.get(key)
    if not isinstance(value, str):
        raise ViewError(HTTPStatus.BAD_REQUEST, f"POST data malformed: '{key}' missing")
    return value


def list_in(body: dict[str, Any], key: str, kind: type[_T]) -> list[_T]:
    """Return a list of a body, all of one type. Raises ViewError: 400."""
    value = body.get(key)
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise ViewError(HTTPStatus.BAD_REQUEST, f"POST data malformed: '{key}' missing")
    return value


RequestContext = Annotated[Context, Depends(context_of)]
Body = Annotated[dict[str, Any], Depends(body_of)]
