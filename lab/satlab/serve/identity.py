# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is asking: the cookie `sessionid`, and the role that a route demands (as FastAPI dependencies)."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request, Response

from satlab.serve.accounts import Accounts, Role, User
from satlab.serve.api_errors import ApiError
from satlab.serve.settings import Settings

COOKIE = "sessionid"


def user_of(request: Request) -> User | None:
    """Return the account of the request's session, None for a stranger."""
    accounts: Accounts = request.app.state.accounts
    token = request.cookies.get(COOKIE)
    return accounts.session(token) if token else None


class Requires:
    """Dependency: an account with at least this role; 403 otherwise."""

    def __init__(self, role: Role) -> None:
        self.role = role

    def __call__(self, request: Request) -> User:
        """Return the account."""
        user = user_of(request)
        if user is None:
            raise forbidden("You must be logged in to do this", "")
        if user.role < self.role:
            raise forbidden(f"This needs the role {self.role.name.lower()}", user.login)
        return user


Anybody = Annotated[User | None, Depends(user_of)]
Viewer = Annotated[User, Depends(Requires(Role.VIEWER))]
Runner = Annotated[User, Depends(Requires(Role.RUNNER))]
Admin = Annotated[User, Depends(Requires(Role.ADMIN))]


def forbidden(error: str, login: str) -> ApiError:
    """Return a 403 with the key that OpenBACH adds to it."""
    return ApiError(HTTPStatus.FORBIDDEN, error, originated_by=login)


def log_in(request: Request, response: Response, user: User) -> None:
    """Begin a session and give its cookie: until the browser ends, for this site alone, out of scripts' reach."""
    settings: Settings = request.app.state.settings
    accounts: Accounts = request.app.state.accounts
    token = accounts.open_session(user.login)
    response.set_cookie(COOKIE, token, path="/", httponly=True, samesite="strict", secure=settings.secure)


def log_out(request: Request, response: Response) -> None:
    """End the session."""
    accounts: Accounts = request.app.state.accounts
    if token := request.cookies.get(COOKIE):
        accounts.close_session(token)
    response.delete_cookie(COOKIE, path="/")
