# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of answers as OpenBACH's clients expect them: errors, dates, operations in the background."""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from fastapi.responses import JSONResponse, Response


class ApiError(Exception):
    """An error with an HTTP status and a JSON body whose key `error` holds the message; `details`
    are further keys.
    """

    def __init__(self, status: int, error: str, **details: Any) -> None:
        super().__init__(error)
        self.status = status
        self.body: dict[str, Any] = {"error": error, **details}


class ViewError(ApiError):
    """An error of OpenBACH's views (log-in, missing parameters): the key of the message is `msg`."""

    def __init__(self, status: int, msg: str) -> None:
        super().__init__(status, msg)
        self.body = {"msg": msg}


def not_found(what: str, **names: Any) -> ApiError:
    """Return the refusal of an unknown object; `names` are OpenBACH's further keys, such as
    `job_name`.
    """
    return ApiError(HTTPStatus.NOT_FOUND, f"The requested {what} is not in the database", **names)


def unexpected(error: str) -> ApiError:
    """Return the answer that OpenBACH gives if its own code fails on a request."""
    details = {"message": "Unexpected exception appeared"}
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, error, **details)


def conflict(what: str, **names: Any) -> ApiError:
    """Return the refusal of a name that is taken; `names` as in `not_found`."""
    return ApiError(HTTPStatus.CONFLICT, f"Trying to create an existing {what}.", **names)


def date(unix_s: float | None) -> str | None:
    """Format a time, given in s since the epoch, as ISO 8601 in UTC with ms."""
    if unix_s is None:
        return None
    return (
        datetime.fromtimestamp(unix_s, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def attachment(name: str) -> dict[str, str]:
    """Return the header of an answer that a browser stores as a file."""
    return {"content-disposition": f'attachment; filename="{name}"'}


def accepted() -> Response:
    """Return the answer to an operation that OpenBACH does in the background; this server has
    already done it.
    """
    return JSONResponse({}, HTTPStatus.ACCEPTED)


def completed(now_unix_s: float) -> dict[str, Any]:
    """Return the state of such an operation."""
    return {"response": None, "returncode": 204, "last_operation_date": date(now_unix_s)}
