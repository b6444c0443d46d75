# SPDX-License-Identifier: GPL-3.0-or-later
"""The application: every route under `/` and `/openbach/`, as behind OpenBACH's own port and its nginx."""

import logging
import os
import signal
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from satlab.common import paths, topology
from satlab.rootd.verbs import HelperError
from satlab.serve import initial_content
from satlab.serve.accounts import Accounts, LoginThrottle
from satlab.serve.api_errors import ApiError
from satlab.serve.catalog import Catalog
from satlab.serve.context import Context
from satlab.serve.queue import Helper, Queue
from satlab.serve.request_guard import RequestGuard
from satlab.serve.routes import agents, instances, job_instances, jobs, login, projects, scenarios, statistics
from satlab.serve.settings import Settings
from satlab.serve.store import Store

PREFIXES = ("", "/openbach")
_LOG = logging.getLogger("satlab.serve")


def create_app(
    store: Store,
    helper: Helper,
    settings: Settings,
    clock: Callable[[], float] = time.time,
    *,
    stepped: bool = True,
    pages: Callable[[FastAPI], None] = lambda _: None,
) -> FastAPI:
    """Return the application. `stepped`: a thread of its own steps the queue, else the caller does. `pages` adds pages.

    `app.state.context` holds the parts (`satlab.serve.context.Context`).
    """
    app = FastAPI(title="satlab", docs_url=None, redoc_url=None, openapi_url=None, lifespan=_lifespan)
    accounts = Accounts(store, clock, settings.session_s)
    catalog = Catalog(store, clock)
    queue = Queue(store, helper, clock, settings.most_queued)
    here = topology.load(paths.LAB_FILE)
    context = Context(settings, store, accounts, catalog, queue, LoginThrottle(), here, clock)
    app.state.context, app.state.settings, app.state.accounts, app.state.stepped = context, settings, accounts, stepped
    initial_content.fill(context)
    for prefix in PREFIXES:
        for routes in (login, projects, scenarios, instances, agents, jobs, job_instances, statistics):
            app.include_router(routes.router, prefix=prefix)
    pages(app)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _query_error)
    app.add_exception_handler(sqlite3.OperationalError, _no_storage)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(RequestGuard, settings=settings)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Take up the queue where the last server has left it, and carry it on."""
    queue: Queue = app.state.context.queue
    queue.recover()
    over = threading.Event()
    thread = threading.Thread(target=_carry_on, args=(queue, over), name="queue", daemon=True)
    if app.state.stepped:
        thread.start()
    yield
    over.set()
    if app.state.stepped:
        thread.join()


def _carry_on(queue: Queue, over: threading.Event) -> None:
    """Step the queue; without the helper the server has nothing to live for, and ends."""
    try:
        queue.run_until(over)
    except HelperError as error:
        _LOG.error("%s", error)
        os.kill(os.getpid(), signal.SIGTERM)


async def _api_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return JSONResponse(error.body, error.status)


async def _http_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)


async def _query_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    places = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors())
    return JSONResponse({"msg": f"Wrong parameters: {places}"}, HTTPStatus.BAD_REQUEST)


async def _no_storage(request: Request, error: Exception) -> Response:
    """Answer that the database cannot be written, above all on a full disk; what was asked is not done."""
    _LOG.error("%s %s: %s", request.method, request.url.path, error)
    return JSONResponse({"error": f"The server cannot write its database: {error}"}, HTTPStatus.SERVICE_UNAVAILABLE)


async def _unexpected(request: Request, error: Exception) -> Response:
    """Answer without any detail; the trace is in the server's log."""
    _LOG.error("%s %s", request.method, request.url.path, exc_info=error)
    body = {"message": "Unexpected exception appeared", "error": "internal error, see the server's log"}
    return JSONResponse(body, HTTPStatus.INTERNAL_SERVER_ERROR)
