# SPDX-License-Identifier: GPL-3.0-or-later
"""Session and users (OpenBACH: `/login/`, `/login/users/`), and `/version/`."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from satlab.common.errors import ConfigError
from satlab.serve.accounts import Role, User
from satlab.serve.api_errors import ApiError, ViewError, conflict
from satlab.serve.context import Body, Context, Here
from satlab.serve.identity import Admin, Anybody, Runner, Viewer, forbidden, log_in, log_out

OPENBACH_VERSION = "2.7.0"

router = APIRouter()


def user_json(user: User | None, here: Context, *, favorites: bool = True) -> dict[str, Any]:
    """Return an account as OpenBACH does; a stranger is all nulls."""
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
        shown["favorites"] = here.catalog.favorites(user.login) if user else {}
    return shown


@router.get("/version/")
def version() -> dict[str, str]:
    """Return which OpenBACH this API is that of."""
    return {"openbach_version": OPENBACH_VERSION}


@router.get("/login/")
def who(user: Anybody, here: Here) -> dict[str, Any]:
    """Return who is logged in."""
    return user_json(user, here)


@router.post("/login/")
def login(request: Request, user: Anybody, body: Body, here: Here) -> Response:
    """Log in, or ask for an account."""
    if body.get("action") == "create":
        return _ask_for_account(body, here, request)
    name, password = (_text(body, key) for key in ("login", "password"))
    if user is not None:
        raise ViewError(HTTPStatus.CONFLICT, "User already connected")
    opened = authenticate(here, request, name, password)
    response = JSONResponse(user_json(opened, here))
    log_in(request, response, opened)
    return response


def authenticate(here: Context, request: Request, name: str, password: str) -> User:
    """Return the account that login and password open. Raises ViewError: 401, or 429 after too many wrong ones."""
    keys = [f"from {request.client.host if request.client else ''}", f"to {name[:64]}"]
    now = here.clock()
    if wait := max(here.brake.wait_s(now, key) for key in keys):
        raise ViewError(HTTPStatus.TOO_MANY_REQUESTS, f"Too many wrong logins, wait {wait:.0f} s")
    opened = here.accounts.check(name, password)
    for key in keys:
        if opened is None:
            here.brake.failed(now, key)
        else:
            here.brake.passed(key)
    if opened is None:
        raise ViewError(HTTPStatus.UNAUTHORIZED, "Wrong Credentials")
    return opened


def _ask_for_account(body: dict[str, Any], here: Context, request: Request) -> Response:
    """Make an account that nobody can use until an administrator approves."""
    keys = ("login", "password", "email", "first_name", "last_name")
    name, password, email, first, last = (_text(body, key) for key in keys)
    key = f"account from {request.client.host if request.client else ''}"
    if here.brake.wait_s(here.clock(), key):
        raise ViewError(HTTPStatus.TOO_MANY_REQUESTS, "Too many accounts were asked for")
    here.brake.failed(here.clock(), key)
    if here.accounts.find(name) is not None:
        raise conflict("User")
    _put(here, User(name, Role.RUNNER, False, first, last, email), password)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.put("/login/")
def profile(user: Viewer, body: Body, here: Here) -> dict[str, Any]:
    """Change one's own names and password."""
    if _text(body, "login") != user.login:
        raise forbidden("You can only change your own profile", user.login)
    first, last, email = (str(body.get(key, "")) for key in ("first_name", "last_name", "email"))
    changed = User(user.login, user.role, user.active, first, last, email)
    _put(here, changed, _text(body, "password") if body.get("password") else None)
    return user_json(changed, here)


@router.delete("/login/")
def logout(request: Request) -> Response:
    """Log out."""
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    log_out(request, response)
    return response


@router.get("/login/users/")
def users(user: Runner, here: Here) -> list[dict[str, Any]]:
    """List the accounts."""
    del user
    return [user_json(each, here, favorites=False) for each in here.accounts.users()]


@router.put("/login/users/")
def permissions(user: Admin, body: Body, here: Here) -> Response:
    """Approve accounts and make administrators."""
    changes = body.get("permissions")
    if not isinstance(changes, list) or not all(isinstance(change, dict) for change in changes):
        raise ViewError(HTTPStatus.BAD_REQUEST, "Missing parameter: permissions")
    for change in changes:
        known = here.accounts.find(_text(change, "login"))
        if known is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "The requested User is not in the database")
        if known.login == user.login:
            raise forbidden("You cannot change your own permissions", user.login)
        role = Role.ADMIN if change.get("admin") else min(known.role, Role.RUNNER)
        names = (known.first_name, known.last_name, known.email)
        here.accounts.put(User(known.login, role, bool(change.get("active", known.active)), *names))
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.delete("/login/users/")
def remove(user: Admin, body: Body, here: Here) -> Response:
    """Remove accounts, but never one's own."""
    names = body.get("usernames")
    if not isinstance(names, list):
        raise ViewError(HTTPStatus.BAD_REQUEST, "Missing parameter: usernames")
    for name in names:
        if name != user.login:
            here.accounts.remove(str(name))
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str):
        raise ViewError(HTTPStatus.BAD_REQUEST, f"Missing parameter: {key}")
    return value


def _put(here: Context, user: User, password: str | None) -> None:
    try:
        here.accounts.put(user, password)
    except ConfigError as error:
        raise ViewError(HTTPStatus.BAD_REQUEST, str(error)) from error
