# SPDX-License-Identifier: GPL-3.0-or-later
"""Which projects and instances an account may use."""

from satlab.serve.accounts import Role, User
from satlab.serve.api_errors import not_found
from satlab.serve.catalog import Project
from satlab.serve.context import Context
from satlab.serve.identity import forbidden
from satlab.serve.queue import Instance


def may(user: User, project: Project) -> bool:
    """Return whether an account may use a project."""
    return user.role is Role.ADMIN or not project.owners or user.login in project.owners


def project_of(here: Context, user: User, name: str, what: str = "Project") -> Project:
    """Return a project that an account may use; `what` is said to be missing without it. Raises ApiError: 404, 403."""
    project = here.catalog.project(name)
    if project is None:
        raise not_found(what)
    if not may(user, project):
        raise forbidden("You are not an owner of this project", user.login)
    return project


def may_see(here: Context, user: User, instance: Instance) -> bool:
    """Return whether an instance is of a project that the account may use, or its own."""
    project = here.catalog.project(instance.project)
    return may(user, project) if project else user.role is Role.ADMIN or user.login == instance.user


def check_instance(here: Context, user: User, instance: Instance) -> None:
    """Refuse what belongs to others. Raises ApiError: 403."""
    if not may_see(here, user, instance):
        raise forbidden("This instance belongs to others", user.login)
