# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions and users (OpenBACH: `/login/`, `/login/users/`), and `/version/`."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from satlab.common.errors import ConfigError
from satlab.service.api.access import (
    NEEDS_RUNNER,
    Admin,
    Anybody,
    Viewer,
    address_of,
    forbidden,
    log_in,
    log_out,
)
from satlab.service.api.account_store import PendingError, Role, TakenError, User
from satlab.service.api.api_answers import ApiError, ViewError, conflict
from satlab.service.api.dependencies import Body, Context, RequestContext, list_in, text_in

OPENBACH_VERSION = "2.7.0"

router = APIRouter()


def user_json(user: User | None, context: Context, *, favorites: bool = True) -> dict[str, Any]:
    """Return an account as OpenBACH does; null values without one."""
    name = f"{user.first_name} {user.last_name}".strip() if user else None
    shown: dict[str, Any] = {
        "username": user.login if user else None,
        "name": name,
        "first_name": user.first_name if user else None,
        "last_name": user.last_name if user else None,
        "is_user": bool(user and user.active),
        "is_admin": bool(user and user.role is Role.ADMIN),
        "email": user.email if user else None,
    }
    if favorites:
        shown["favorites"] = context.catalog.favorites(user.login) if user else {}
    return shown


@router.get("/version/")
def version() -> dict[str, str]:
    """Return the OpenBACH version of this API."""
    return {"openbach_version": OPENBACH_VERSION}


@router.get("/login/")
def who(user: Anybody, context: RequestContext) -> dict[str, Any]:
    return user_json(user, context)


@router.post("/login/")
def login(request: Request, user: Anybody, body: Body, context: RequestContext) -> Response:
    """Log in, or request an account."""
    if body.get("action") == "create":
        return _request_account(body, context, request)
    name, password = (text_in(body, key) for key in ("login", "password"))
    if user is not None:
        what = "A user is already connected. Please logout first and then log back in."
        raise ViewError(HTTPStatus.CONFLICT, what)
    account = context.logins.authenticate(name, password, address_of(request))
    response = JSONResponse(user_json(account, context))
    log_in(request, response, account)
    return response


def _request_account(body: dict[str, Any], context: Context, request: Request) -> Response:
    """Create an account that an administrator has to approve."""
    keys = ("login", "password", "email", "first_name", "last_name")
    name, password, email, first, last = (text_in(body, key) for key in keys)
    caller = context.logins.count_account_request(address_of(request))
    try:
        context.accounts.request(
            User(name, Role.RUNNER, False, first, last, email), password, caller
        )
    except ConfigError as error:
        raise ViewError(HTTPStatus.BAD_REQUEST, str(error)) from error
    except TakenError as error:
        raise conflict("User") from error
    except PendingError as error:
        raise ViewError(
            HTTPStatus.TOO_MANY_REQUESTS, f"{error}; {error.hint}".capitalize()
        ) from error
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.put("/login/")
def profile(user: Viewer, body: Body, context: RequestContext) -> dict[str, Any]:
    """Change the names and the password of one's own account."""
    if text_in(body, "login") != user.login:
        raise forbidden("You can only change your own profile", user.login)
    first, last, email = (str(body.get(key, "")) for key in ("first_name", "last_name", "email"))
    changed = User(user.login, user.role, user.active, first, last, email)
    password = text_in(body, "password") if body.get("password") else None
    try:
        context.accounts.put(changed, password)
    except ConfigError as error:
        raise ViewError(HTTPStatus.BAD_REQUEST, str(error)) from error
    return user_json(changed, context)


@router.delete("/login/")
def logout(request: Request) -> Response:
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    log_out(request, response)
    return response


@router.get("/login/users/", dependencies=NEEDS_RUNNER)
def users(context: RequestContext) -> list[dict[str, Any]]:
    return [user_json(each, context, favorites=False) for each in context.accounts.users()]


@router.put("/login/users/")
def permissions(user: Admin, body: Body, context: RequestContext) -> Response:
    """Approve accounts and make administrators."""
    for change in list_in(body, "permissions", dict):
        known = context.accounts.find(text_in(change, "login"))
        if known is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "The requested User is not in the database")
        if known.login == user.login:
            raise forbidden("You cannot change your own permissions", user.login)
        role = Role.ADMIN if change.get("admin") else min(known.role, Role.RUNNER)
        names = (known.first_name, known.last_name, known.email)
        context.accounts.put(
            User(known.login, role, bool(change.get("active", known.active)), *names)
        )
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.delete("/login/users/")
def remove(user: Admin, body: Body, context: RequestContext) -> Response:
    """Remove accounts; one's own is left out."""
    for name in list_in(body, "usernames", object):
        if name != user.login:
            context.accounts.remove(str(name))
    return Response(status_code=HTTPStatus.NO_CONTENT)
