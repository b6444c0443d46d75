# SPDX-License-Identifier: GPL-3.0-or-later
"""The application: the REST API below `/` and `/openbach/`, as behind OpenBACH's own port and its
nginx, and the web pages below `/ui`.
"""

import logging
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from satlab import __version__
from satlab.common import paths, topology
from satlab.common.errors import ConfigError
from satlab.service.api import api_answers, initial_content, uploads
from satlab.service.api.access import NEEDS_VIEWER
from satlab.service.api.api_answers import ApiError
from satlab.service.api.database import Store
from satlab.service.api.dependencies import Context
from satlab.service.api.passwords import BusyError
from satlab.service.api.queue import Helper, QueueThread
from satlab.service.api.request_guard import PAGES, RequestGuard
from satlab.service.api.routes import (
    agents,
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
from satlab.service.pages import (
    rendering,
    run_list_routes,
    run_routes,
    scenario_routes,
    session_routes,
)
from satlab.service.pages.link_curves import LinkCurves
from satlab.service.pages.run_list import KeyFigures
from satlab.service.pages.server_sent_events import Listeners
from satlab.service.pages.time_left import EarlierRuns

OPENBACH = "/openbach"
API = (login, projects, scenarios, instances, agents, jobs, job_instances, statistics)
_LOG = logging.getLogger("satlab.service.api")


def create_app(
    store: Store,
    helper: Helper,
    settings: Settings,
    clock: Callable[[], float] = time.time,
    *,
    runs_queue: bool = True,
) -> FastAPI:
    """Return the application; `app.state.context` holds its parts.

    `runs_queue`: a thread runs the queue; otherwise the caller calls `Queue.step`.
    """
    app = FastAPI(
        title="satlab",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=_lifespan,
    )
    context = Context(settings, store, helper, topology.load(paths.LAB_FILE), clock)
    app.state.context, app.state.runs_queue = context, runs_queue
    app.state.link_curves = LinkCurves()
    app.state.listeners = Listeners()
    app.state.key_figures = KeyFigures()
    app.state.earlier_runs = EarlierRuns(context.queue)
    uploads.sweep(settings.jobs)
    initial_content.fill(context)

    @app.get("/openapi.json", include_in_schema=False, dependencies=NEEDS_VIEWER)
    def openapi() -> dict[str, Any]:
        """Return the OpenAPI 3.1 document of the API, without its second prefix and the pages."""
        document = app.openapi()
        others = (OPENBACH, PAGES)
        paths = {
            path: each for path, each in document["paths"].items() if not path.startswith(others)
        }
        return document | {"paths": paths}

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    def home() -> RedirectResponse:
        return RedirectResponse(f"{PAGES}/", status_code=HTTPStatus.SEE_OTHER)

    app.include_router(metrics.router)
    for prefix in ("", OPENBACH):
        for routes in API:
            app.include_router(routes.router, prefix=prefix)
    for pages in (session_routes, scenario_routes, run_list_routes, run_routes):
        app.include_router(pages.router, prefix=PAGES)
    _answer_errors(app)
    app.add_middleware(
        RequestGuard,
        settings=settings,
        counters=context.counters,
        is_session=context.logins.is_session,
        page_of=rendering.problem,
    )
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: Context = app.state.context
    context.queue.recover()
    thread = QueueThread(context.queue, lambda: os.kill(os.getpid(), signal.SIGTERM))
    if app.state.runs_queue:
        thread.start()
    yield
    if app.state.runs_queue:
        thread.stop()


def _answer_errors(app: FastAPI) -> None:
    """Answer exceptions of routes as JSON. The text of an unexpected one stays in the log."""

    @app.exception_handler(ApiError)
    async def api_error(_: Request, error: ApiError) -> Response:
        return JSONResponse(error.body, error.status)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            return Response(status_code=error.status_code, headers=error.headers)
        if request.url.path.startswith(f"{PAGES}/"):  # of no route: those have pages of their own
            return rendering.problem(request, error.status_code, rendering.NO_SUCH_PAGE)
        return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        if any(fault["loc"][0] == "path" for fault in error.errors()):
            return JSONResponse({"error": "Not Found"}, HTTPStatus.NOT_FOUND)
        places = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors())
        return JSONResponse({"msg": f"Wrong parameters: {places}"}, HTTPStatus.BAD_REQUEST)

    @app.exception_handler(BusyError)
    async def busy(_: Request, error: BusyError) -> Response:
        return JSONResponse({"msg": str(error).capitalize()}, HTTPStatus.SERVICE_UNAVAILABLE)

    @app.exception_handler(ConfigError)
    async def wrong_file(_: Request, error: ConfigError) -> Response:
        return JSONResponse({"error": str(error)}, HTTPStatus.BAD_REQUEST)

    @app.exception_handler(sqlite3.OperationalError)
    async def no_storage(request: Request, error: sqlite3.OperationalError) -> Response:
        """The database cannot be written, for example on a full disk."""
        _LOG.error("%s %s: %s", request.method, request.url.path, error)
        text = f"The server cannot write its database: {error}"
        return JSONResponse({"error": text}, HTTPStatus.SERVICE_UNAVAILABLE)

    @app.exception_handler(Exception)
    async def any_other(request: Request, error: Exception) -> Response:
        _LOG.error("%s %s", request.method, request.url.path, exc_info=error)
        answer = api_answers.unexpected("internal error, see the server's log")
        return JSONResponse(answer.body, answer.status)
