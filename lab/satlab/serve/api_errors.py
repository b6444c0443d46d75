# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors as OpenBACH's clients know them: a status and a JSON body with the key `error` (or `msg`)."""

from http import HTTPStatus
from typing import Any


class ApiError(Exception):
    """An answer that is an error. Details become further keys of the body."""

    def __init__(self, status: int, error: str, **details: Any) -> None:
        super().__init__(error)
        self.status = status
        self.body: dict[str, Any] = {"error": error, **details}


class ViewError(ApiError):
    """An error that OpenBACH finds before its conductor is asked; its key is `msg`."""

    def __init__(self, status: int, msg: str) -> None:
        super().__init__(status, msg)
        self.body = {"msg": msg}


def not_found(what: str) -> ApiError:
    """Return the 404 of an object that is not in the database."""
    return ApiError(HTTPStatus.NOT_FOUND, f"The requested {what} is not in the database")


def conflict(what: str) -> ApiError:
    """Return the 409 of a name that is taken."""
    return ApiError(HTTPStatus.CONFLICT, f"Trying to create an existing {what}.")
