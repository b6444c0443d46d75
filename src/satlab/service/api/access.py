# SPDX-License-Identifier: GPL-3.0-or-later
"""Access control: sessions, the roles that routes require, the projects and instances that an
account may use.
"""

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request, Response

from satlab.service.api.account_store import Role, User
from satlab.service.api.api_answers import ApiError, not_found
from satlab.service.api.dependencies import Context, RequestContext, context_of
from satlab.service.api.project_store import Project
from satlab.service.api.queue import Instance
from satlab.service.api.request_guard import COOKIE


def user_of(request: Request) -> User | None:
    """Return the account of the request's session, None without a valid session."""
    token = request.cookies.get(COOKIE)
    return context_of(request).accounts.session(token) if token else None


def address_of(request: Request) -> str:
    """Return the peer's IP address; '' for a peer on a Unix socket."""
    return request.client.host if request.client else ""


class Requires:
    """Dependency: an account with at least this role; 403 otherwise."""

    def __init__(self, role: Role) -> None:
        self.role = role

    def __call__(self, request: Request) -> User:
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

NEEDS_VIEWER = [Depends(Requires(Role.VIEWER))]
NEEDS_RUNNER = [Depends(Requires(Role.RUNNER))]
NEEDS_ADMIN = [Depends(Requires(Role.ADMIN))]
"""Of a route that does not use the account itself."""


def forbidden(error: str, login: str) -> ApiError:
    """Return a 403 with OpenBACH's further key `originated_by`."""
    return ApiError(HTTPStatus.FORBIDDEN, error, originated_by=login)


def log_in(request: Request, response: Response, user: User) -> None:
    """Open a session and set its cookie: for the browser's session, same-site requests only, hidden
    from scripts.
    """
    context = context_of(request)
    token = context.accounts.open_session(user.login)
    response.set_cookie(
        COOKIE, token, path="/", httponly=True, samesite="strict", secure=context.settings.secure
    )


def log_out(request: Request, response: Response) -> None:
    if token := request.cookies.get(COOKIE):
        context_of(request).accounts.close_session(token)
    response.delete_cookie(COOKIE, path="/")


def may_use(user: User, project: Project) -> bool:
    return user.role is Role.ADMIN or not project.owners or user.login in project.owners


def project_of(context: Context, user: User, name: str, what: str = "Project") -> Project:
    """Return a project that an account may use. Raises ApiError: 404 that names `what`, 403."""
    project = context.catalog.project(name)
    if project is None:
        raise not_found(what, project_name=name)
    if not may_use(user, project):
        raise forbidden("You are not an owner of this project", user.login)
    return project


def owned_project_of(context: Context, user: User, name: str) -> Project:
    """Return a project that an account may remove, and whose owners it may change.

    Raises ApiError: 404, 403.
    """
    project = project_of(context, user, name)
    if user.role is not Role.ADMIN and user.login not in project.owners:
        raise forbidden("Only an owner of this project or an administrator may do this", user.login)
    return project


def may_see(context: Context, user: User, instance: Instance) -> bool:
    """Return whether an account may use the instance's project or, if there is none, has launched
    the instance.
    """
    project = context.catalog.project(instance.project)
    return (
        may_use(user, project)
        if project
        else user.role is Role.ADMIN or user.login == instance.user
    )


def scenario_instance(context: Context, user: User, number: int) -> Instance:
    """Return the launch that a scenario instance belongs to. Raises ApiError: 404, 403."""
    instance = context.queue.find(number)
    if instance is None or instance.kind != "scenario":
        raise not_found("Scenario Instance", scenario_instance_id=number)
    return _visible(context, user, instance)


def _for_viewer(number: int, user: Viewer, context: RequestContext) -> Instance:
    return scenario_instance(context, user, number)


def _for_runner(number: int, user: Runner, context: RequestContext) -> Instance:
    return scenario_instance(context, user, number)


ViewedInstance = Annotated[Instance, Depends(_for_viewer)]
RunInstance = Annotated[Instance, Depends(_for_runner)]
"""The instance of the path's number, for accounts that may view it, or stop and remove it."""


def job_instance(context: Context, user: User, number: int) -> Instance:
    """Return the launch that a job instance belongs to. Raises ApiError: 404, 403."""
    instance = context.queue.find_job(number)
    if instance is None:
        raise not_found("Job Instance", job_instance_id=number)
    return _visible(context, user, instance)


def _visible(context: Context, user: User, instance: Instance) -> Instance:
    if not may_see(context, user, instance):
        raise forbidden("This instance belongs to others", user.login)
    return instance
