# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes below `/ui`: log-in, log-out, one's own password, and the files that pages load."""

from http import HTTPStatus

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import FileResponse

from satlab.common.errors import ConfigError
from satlab.report.styles import STATIC as REPORT_STATIC
from satlab.service.api import access
from satlab.service.api.access import Anybody, log_in, log_out
from satlab.service.api.api_answers import ApiError, not_found
from satlab.service.api.dependencies import RequestContext
from satlab.service.api.passwords import BusyError
from satlab.service.pages import rendering
from satlab.service.pages.rendering import Filled, Page, Viewer, render, see

router = APIRouter(route_class=Page, include_in_schema=False)

STATIC = {
    "base.css": (REPORT_STATIC / "report.css", "text/css"),
    "icon.svg": (rendering.FOLDER / "static" / "icon.svg", "image/svg+xml"),
    "ui.css": (rendering.FOLDER / "static" / "ui.css", "text/css"),
    "ui.js": (rendering.FOLDER / "static" / "ui.js", "text/javascript"),
}


@router.get("/static/{name}")
def static(name: str) -> Response:
    """Return a style sheet or script."""
    if name not in STATIC:
        raise not_found("file")
    path, kind = STATIC[name]
    return FileResponse(path, media_type=kind, headers={"cache-control": "max-age=300"})


@router.get("/login")
def login_page(request: Request, user: Anybody, back: str = "") -> Response:
    if user is not None:
        return see(rendering.own_path(back))
    return render(request, "login.html", back=back, login="", fault="")


@router.post("/login")
def login(request: Request, form: Filled, context: RequestContext) -> Response:
    name, back = form.get("login", "").strip(), form.get("back", "")
    try:
        user = context.logins.authenticate(
            name, form.get("password", ""), access.address_of(request)
        )
    except ApiError as error:
        fault = (
            "Login or password are wrong" if error.status == HTTPStatus.UNAUTHORIZED else str(error)
        )
        return render(request, "login.html", error.status, back=back, login=name, fault=fault)
    response = see(rendering.own_path(back))
    log_in(request, response, user)
    return response


@router.post("/logout")
def logout(request: Request) -> Response:
    response = see("/login")
    log_out(request, response)
    return response


@router.get("/account", dependencies=[Depends(rendering.viewer)])
def account(request: Request, done: str = "") -> Response:
    """Show the form that sets a new password."""
    return render(request, "account.html", fault="", done=bool(done))


@router.post("/account")
def set_password(request: Request, user: Viewer, form: Filled, context: RequestContext) -> Response:
    """Change the password of one's own account. All its sessions end, and a new one begins."""
    new = form.get("password", "")
    try:
        if new != form.get("again", ""):
            raise ConfigError("the two passwords are not the same")
        context.accounts.put(user, new)
    except (ConfigError, BusyError) as error:
        return render(request, "account.html", HTTPStatus.BAD_REQUEST, fault=str(error), done=False)
    response = see("/account?done=1")
    log_in(request, response, user)
    return response
