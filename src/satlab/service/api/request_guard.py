# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of every request before its route (ASGI): Host, Origin, content type, size, time; and
headers of answers.
"""

from collections.abc import Callable
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from satlab.service.api.counters import Counters
from satlab.service.api.limits import SESSION, LimitedBody, RequestRefusedError
from satlab.service.api.settings import Settings

COOKIE = "sessionid"
PAGES = "/ui"
"""Prefix of the web pages, which accept forms; every other path is of the API, which accepts JSON.
"""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of answers; a route may set others."""


class RequestGuard:
    """Wraps the application, and counts its answers.

    There is no CORS: no answer allows another origin.

    `is_session` takes a token and an address and returns whether this is a valid session. A request
    without one has a small body that comes at a minimum rate. `page_of` returns the page that says
    why a request for a page is refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        counters: Counters,
        is_session: Callable[[str, str], bool],
        page_of: Callable[[Request, int, str], Response],
    ) -> None:
        self._app, self._settings, self._page_of = app, settings, page_of
        self._counters, self._is_session = counters, is_session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answered = False

        async def send_safely(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                self._counters.add("requests", f"{message['status'] // 100}xx")
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            request = HTTPConnection(scope)
            token = request.cookies.get(COOKIE, "")
            address = request.client.host if request.client else ""
            known = bool(token) and await run_in_threadpool(self._is_session, token, address)
            scope.setdefault("state", {})[SESSION] = known
            most = self._check(scope, request.headers, known=known)
            if known:
                limited = LimitedBody(receive, most, self._settings.body_s)
            else:
                seconds, rate = self._settings.stranger_s, self._settings.stranger_rate
                limited = LimitedBody(receive, most, seconds, rate)
            await self._app(scope, limited, send_safely)
        except RequestRefusedError as refused:
            if not answered:
                answer: Response = JSONResponse({"error": str(refused)}, refused.status)
                if _is_page(scope):
                    said = Request(scope), refused.status, str(refused)
                    answer = await run_in_threadpool(self._page_of, *said)
                await answer(scope, receive, send_safely)
        except Exception:
            if not answered:  # Starlette answers with 500 outside of this
                self._counters.add("requests", "5xx")
            raise

    def _check(self, scope: Scope, headers: Headers, *, known: bool) -> int:
        """Check the headers of a request; return the largest size of its body, bytes."""
        for name in ("host", "origin", "content-type", "content-length"):
            if len(headers.getlist(name)) > 1:  # programs differ in which they use
                raise RequestRefusedError(HTTPStatus.BAD_REQUEST, f"The header {name} is repeated")
        if headers.get("host", "").lower() not in self._settings.hosts | self._settings.allowed:
            raise RequestRefusedError(
                HTTPStatus.MISDIRECTED_REQUEST,
                "This server has another name: the header Host is not one of its own",
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        uploads = kind == "multipart/form-data"
        if scope["method"] not in SAFE_METHODS:
            self._check_origin(headers, is_json=kind == "application/json")
            if kind != "application/json" and not _is_page(scope) and not uploads:
                raise RequestRefusedError(
                    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                    "The content type of a request must be application/json",
                )
        most = self._settings.upload_bytes if uploads else self._settings.body_bytes
        most = most if known else self._settings.stranger_bytes
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > most:
            raise RequestRefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"This is larger than {most / 1e6:.3g} MB"
            )
        return most

    def _check_origin(self, headers: Headers, *, is_json: bool) -> None:
        """Refuse requests of other sites.

        Content types of forms need the header Origin, which browsers set.
        """
        scheme = "https" if self._settings.secure else "http"
        own = {f"{scheme}://{host}" for host in self._settings.hosts}
        own |= {f"{each}://{host}" for host in self._settings.allowed for each in ("http", "https")}
        origin = headers.get("origin")
        foreign = origin is not None and origin.lower() not in own
        foreign = foreign or headers.get("sec-fetch-site", "same-origin") not in (
            "same-origin",
            "none",
        )
        if foreign or (origin is None and not is_json):
            raise RequestRefusedError(
                HTTPStatus.FORBIDDEN,
                "Only this server's own pages may send this request (the header Origin is missing,"
                " or of another site)",
            )


def _is_page(scope: Scope) -> bool:
    path: str = scope["path"]
    return path == PAGES or path.startswith(f"{PAGES}/")
