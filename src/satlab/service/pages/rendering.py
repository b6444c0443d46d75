# SPDX-License-Identifier: GPL-3.0-or-later
"""What all pages share: templates with automatic escaping, a strict content security policy, errors
as pages instead of JSON, and the fields of a form.
"""

import html
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import jinja2
from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from satlab.report.html import environment
from satlab.service.api.access import user_of
from satlab.service.api.account_store import Role, User
from satlab.service.api.api_answers import ApiError, not_found
from satlab.service.api.request_guard import PAGES

FOLDER = Path(__file__).parent
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src"
    " 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Scripts, styles and images only from this server, nothing inline."""

_REPORT_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
_TITLES = {
    403: "Not allowed",
    404: "Not found",
    409: "Not possible",
    413: "Too large",
    429: "Too many requests",
}
NO_SUCH_PAGE = "There is no such page, scenario, run or report. It may have been removed."
SESSION_ENDED = (
    "Your session has ended. Log in, then go back in the browser: it has kept what you typed."
)


class LoginNeededError(Exception):
    """The page needs an account, and the request has no session."""


class Page(APIRoute):
    """A route that answers errors as pages, and redirects requests without a session to the login."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except LoginNeededError:
                path = request.url.path
                back = "" if path == f"{PAGES}/" else f"?{urlencode({'back': path})}"
                return see(f"/login{back}")
            except ApiError as error:
                if error.status == HTTPStatus.FORBIDDEN and user_of(request) is None:
                    return problem(request, error.status, SESSION_ENDED, "Log in first")
                message = error.body.get("error") or error.body.get("msg") or ""
                if error.status == HTTPStatus.NOT_FOUND:  # OpenBACH's words name tables
                    message = NO_SUCH_PAGE
                return problem(request, error.status, str(message))
            except RequestValidationError as error:
                return _wrong_address(request, error.errors())
            except HTTPException as error:
                return problem(request, error.status_code, str(error.detail))

        return answer


_ALLOWED = {
    "int_parsing": "a whole number",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
    "string_too_long": "at most {max_length} characters long",
    "too_long": "there at most {max_length} times",
    "value_error": "{error}",
}
"""What an address may say, by the kind of fault (pydantic's usage errors)."""


def _wrong_address(request: Request, faults: Sequence[Mapping[str, Any]]) -> HTMLResponse:
    if any(fault["loc"][0] == "path" for fault in faults):
        return problem(request, HTTPStatus.NOT_FOUND, NO_SUCH_PAGE)
    return problem(request, HTTPStatus.BAD_REQUEST, " ".join(map(_of_address, faults)))


def _of_address(fault: Mapping[str, Any]) -> str:
    """Say what is wrong with a value in the address: its name, what it is, and what it may be."""
    name, given = fault["loc"][1], str(fault["input"])
    allowed = _ALLOWED.get(fault["type"], "{}").format(fault["msg"], **fault.get("ctx", {}))
    says = "" if fault["type"] in ("string_too_long", "too_long") else f" says {name}={given[:40]}"
    return f"The address{says or ' is too long'}: {name} must be {allowed}."


def render(
    request: Request, template: str, status: int = HTTPStatus.OK, /, **values: Any
) -> HTMLResponse:
    """Return a page. Every template has `user`, `path` and `can_launch`."""
    user = user_of(request)
    known = {
        "user": user,
        "path": request.url.path,
        "can_launch": user is not None and user.role >= Role.RUNNER,
    }
    text = _TEMPLATES.get_template(template).render({**known, **values})
    return HTMLResponse(text, status, {"content-security-policy": POLICY})


def problem(request: Request, status: int, message: str, title: str = "") -> HTMLResponse:
    """Return a page that says what is wrong in one sentence."""
    title = title or _TITLES.get(status, "The request failed")
    return render(request, "problem.html", status, title=title, message=message)


def words_of(error: ApiError) -> str:
    """Return the message of an answer of the API, with its details. If it has faults of a run, return
    only these: they say what to change.
    """
    if faults := error.body.get("faults"):
        return "; ".join(map(str, faults))
    details = error.body.get("error_message") or []
    if isinstance(details, dict):
        details = [f"{name}: {value}" for name, value in details.items()]
    return "; ".join(
        [str(error).rstrip("."), *([details] if isinstance(details, str) else map(str, details))]
    )


def report(text: str) -> Response:
    """Return a report with its own content security policy (sandbox), so that it has no access to
    the session of this server.
    """
    match = _REPORT_POLICY.search(text, 0, 4096)
    own = html.unescape(match[1]) if match else "default-src 'none'"
    policy = f"sandbox allow-scripts allow-downloads; frame-ancestors 'none'; {own}"
    return HTMLResponse(text, headers={"content-security-policy": policy})


def stored_report(folder: Path | None) -> Response:
    """Return the report of a run folder. Raises ApiError: 404."""
    path = report_file(folder)
    if path is None:
        raise not_found("report")
    return report(path.read_text(encoding="utf-8"))


def report_file(folder: Path | None) -> Path | None:
    """Return the file of a run's report; None if there is none."""
    path = folder / "report" / "index.html" if folder else None
    return path if path is not None and path.is_file() else None


def see(path: str) -> RedirectResponse:
    """Redirect the browser to a page below `/ui`."""
    return RedirectResponse(f"{PAGES}{path}", HTTPStatus.SEE_OTHER)


def own_path(text: str) -> str:
    """Return the path below `/ui` to which a log-in redirects;

    `/` for a path that is not one of the pages.
    """
    return (
        text.removeprefix(PAGES)
        if re.fullmatch(rf"{PAGES}(/[A-Za-z0-9_%-][A-Za-z0-9_.%-]*)+", text)
        else "/"
    )


def viewer(request: Request) -> User:
    """Dependency: the account of the session. Raises LoginNeededError."""
    user = user_of(request)
    if user is None:
        raise LoginNeededError
    return user


Viewer = Annotated[User, Depends(viewer)]


async def form_of(request: Request) -> dict[str, str]:
    """Read the text fields of a form; files are ignored."""
    async with request.form(max_files=0, max_fields=1000) as form:
        values = {name: value for name, value in form.items() if isinstance(value, str)}
    try:
        "".join((*values, *values.values())).encode()
    except UnicodeEncodeError as error:
        raise ApiError(HTTPStatus.BAD_REQUEST, "The form holds text that is not Unicode") from error
    return values


Filled = Annotated[dict[str, str], Depends(form_of)]


def _when(unix_s: float | None) -> str:
    return (
        ""
        if unix_s is None
        else datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    )


def span(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = max(0, round(seconds))
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


def _amount(size: int) -> str:
    """Write a number of bytes with its unit."""
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1e3:.1f} kB" if size < 1_000_000 else f"{size / 1e6:.1f} MB"


def _environment() -> jinja2.Environment:
    made = environment(FOLDER / "templates")
    made.filters |= {
        "when": _when,
        "span": span,
        "segment": lambda text: quote(text, safe=""),
        "amount": _amount,
    }
    made.globals["ui"] = PAGES
    return made


_TEMPLATES = _environment()
