# SPDX-License-Identifier: GPL-3.0-or-later
"""The application: every route under `/` and `/openbach/`, as behind OpenBACH's own port and its
nginx.
"""

import logging
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from satlab import __version__
from satlab.common import paths, topology
from satlab.common.errors import ConfigError
from satlab.service.api import initial_content, uploads
from satlab.service.api.api_answers import ApiError
from satlab.service.api.context import Context, make_context
from satlab.service.api.passwords import BusyError
from satlab.service.api.queue import Helper
from satlab.service.api.queue_thread import QueueThread
from satlab.service.api.request_guard import RequestGuard
from satlab.service.api.routes import (
    agents,
    description,
    instances,
    job_instances,
    jobs,
    login,
    metrics,
    projects,
    scenarios,
    statistics,
)
from satlab.service.api.settings import Settings
from satlab.service.api.store import Store

PREFIXES = ("", "/openbach")
_LOG = logging.getLogger("satlab.service.api")


def create_app(
    store: Store,
    helper: Helper,
    settings: Settings,
    clock: Callable[[], float] = time.time,
    *,
    runs_queue: bool = True,
    pages: Callable[[FastAPI], None] = lambda _: None,
) -> FastAPI:
    """Return the application; `app.state.context` holds its parts.

    `runs_queue`: a thread runs the queue; otherwise the caller calls `Queue.step`. `pages` adds the
    web pages.
    """
    app = FastAPI(
        title="satlab",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=_lifespan,
    )
    context = make_context(settings, store, helper, topology.load(paths.LAB_FILE), clock)
    app.state.context, app.state.runs_queue = context, runs_queue
    uploads.sweep(settings.jobs)
    initial_content.fill(context)
    app.include_router(description.router)
    app.include_router(metrics.router)
    for prefix in PREFIXES:
        for routes in (
            login,
            projects,
            scenarios,
            instances,
            agents,
            jobs,
            job_instances,
            statistics,
        ):
            app.include_router(routes.router, prefix=prefix)
    pages(app)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _query_error)
    app.add_exception_handler(BusyError, _busy)
    app.add_exception_handler(ConfigError, _wrong_file)
    app.add_exception_handler(sqlite3.OperationalError, _no_storage)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(
        RequestGuard, settings=settings, tally=context.tally, is_session=context.logins.is_session
    )
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: Context = app.state.context
    context.queue.recover()
    thread = QueueThread(context.queue, _end_process)
    if app.state.runs_queue:
        thread.start()
    yield
    if app.state.runs_queue:
        thread.stop()


def _end_process() -> None:
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


async def _busy(_: Request, error: Exception) -> Response:
    return JSONResponse({"msg": str(error).capitalize()}, HTTPStatus.SERVICE_UNAVAILABLE)


async def _wrong_file(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, HTTPStatus.BAD_REQUEST)


async def _no_storage(request: Request, error: Exception) -> Response:
    """Answer that the database cannot be written, for example on a full disk."""
    _LOG.error("%s %s: %s", request.method, request.url.path, error)
    return JSONResponse(
        {"error": f"The server cannot write its database: {error}"}, HTTPStatus.SERVICE_UNAVAILABLE
    )


async def _unexpected(request: Request, error: Exception) -> Response:
    """Answer without details; the traceback is in the server's log."""
    _LOG.error("%s %s", request.method, request.url.path, exc_info=error)
    body = {
        "message": "Unexpected exception appeared",
        "error": "internal error, see the server's log",
    }
    return JSONResponse(body, HTTPStatus.INTERNAL_SERVER_ERROR)
