# SPDX-License-Identifier: GPL-3.0-or-later
"""What routes work with, as one FastAPI dependency; and the JSON body of a request."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request

from satlab.common.topology import Topology
from satlab.serve.accounts import Accounts, LoginThrottle
from satlab.serve.api_errors import ApiError
from satlab.serve.catalog import Catalog
from satlab.serve.queue import Queue
from satlab.serve.settings import Settings
from satlab.serve.store import Store


@dataclass(frozen=True)
class Context:
    """The parts of the server. `clock` gives s since the epoch."""

    settings: Settings
    store: Store
    accounts: Accounts
    catalog: Catalog
    queue: Queue
    brake: LoginThrottle
    topology: Topology
    clock: Callable[[], float]


def context_of(request: Request) -> Context:
    """Return the parts of the server that answers this request."""
    context: Context = request.app.state.context
    return context


async def body_of(request: Request) -> dict[str, Any]:
    """Read the JSON body; an empty one counts as {}."""
    data = await request.body()
    try:
        value = json.loads(data) if data.strip() else {}
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ApiError(HTTPStatus.BAD_REQUEST, "API error: data should be sent as JSON in the request body")
    return value


Here = Annotated[Context, Depends(context_of)]
Body = Annotated[dict[str, Any], Depends(body_of)]
