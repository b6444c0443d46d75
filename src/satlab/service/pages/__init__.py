# SPDX-License-Identifier: GPL-3.0-or-later
"""The web pages of `satlab serve`, under `/ui`: choose and edit a scenario, launch, watch, stop,
read results, compare.

The server renders them; JavaScript only updates the page of an active run, and everything else
works without it. The pages use the same parts as the REST API
(`satlab.service.api.context.Context`) and have no further privileges.
"""

from fastapi import FastAPI
from fastapi.responses import RedirectResponse
from starlette.requests import Request

from satlab.service.api.request_guard import PAGES
from satlab.service.pages import edit_routes, list_routes, ui_routes
from satlab.service.pages.events import Listeners
from satlab.service.pages.live_link import Watcher
from satlab.service.pages.live_view import EarlierRuns
from satlab.service.pages.run_list import KeyFigures


def mount(app: FastAPI) -> None:
    """Add the pages to the application; `/` redirects to them."""
    app.state.watcher, app.state.listeners, app.state.key_figures = (
        Watcher(),
        Listeners(),
        KeyFigures(),
    )
    app.state.earlier_runs = EarlierRuns(app.state.context.queue)
    for routes in (list_routes, ui_routes, edit_routes):
        app.include_router(routes.router, prefix=PAGES)

    async def home(_: Request) -> RedirectResponse:
        return RedirectResponse(f"{PAGES}/", status_code=303)

    app.add_route("/", home, methods=["GET"])
