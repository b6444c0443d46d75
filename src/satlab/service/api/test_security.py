# SPDX-License-Identifier: GPL-3.0-or-later
"""T1, T14, T15 of the threat table for the API: accounts, hosts and origins, limits."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from satlab.common.errors import ConfigError
from satlab.service.api.account_store import Role, User
from satlab.service.api.conftest import HOST, PASSWORD, Clock, FakeHelper
from satlab.service.api.dependencies import Context
from satlab.service.api.limits import Throttle
from satlab.service.api.settings import Settings
from satlab.service.app import create_app

CREDENTIALS = {"login": "admin", "password": PASSWORD}


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost", "localhost:80", "127.0.0.1:8000.evil.example", ""]
)
def test_t01_another_host_is_refused(anonymous: TestClient, host: str) -> None:
    assert anonymous.get("/version/").status_code == 200
    assert anonymous.get("/version/", headers={"host": host}).status_code == 421


def test_t01_a_proxy_before_the_service_is_called_by_the_names_that_were_allowed(
    context: Context, settings: Settings
) -> None:
    allowed = replace(settings, allowed=frozenset({"lab.example:8080"}))
    app = create_app(context.store, FakeHelper(), allowed, runs_queue=False)
    client = TestClient(app, base_url=f"http://{HOST}")
    assert client.get("/version/", headers={"host": "lab.example:8080"}).status_code == 200
    assert client.get("/version/", headers={"host": "lab.example"}).status_code == 421
    body = {"login": "nobody", "password": "x"}
    for scheme in ("http", "https"):
        own = {"host": "lab.example:8080", "origin": f"{scheme}://lab.example:8080"}
        assert client.post("/login/", json=body, headers=own).status_code == 401
        foreign = own | {"origin": f"{scheme}://evil.example:8080"}
        assert client.post("/login/", json=body, headers=foreign).status_code == 403


@pytest.mark.parametrize("name", ["host", "origin", "content-type", "content-length"])
def test_t01_a_header_that_programs_read_differently_stands_once(
    admin: TestClient, name: str
) -> None:
    body = b'{"login": "admin"}'
    good = {"host": HOST, "origin": f"http://{HOST}", "content-type": "application/json"}
    good["content-length"] = str(len(body))
    assert admin.put("/login/", content=body, headers=good).status_code == 200
    answer = admin.put("/login/", content=body, headers=[*good.items(), (name, good[name])])
    assert (answer.status_code, answer.json()) == (400, {"error": f"The header {name} is repeated"})


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:8080"},
        {"origin": f"https://{HOST}"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_t01_other_origins_change_nothing(admin: TestClient, headers: dict[str, str]) -> None:
    answer = admin.put("/login/", json={"login": "admin"}, headers=headers)
    assert answer.status_code == 403
    assert (
        admin.put(
            "/login/", json={"login": "admin"}, headers={"origin": f"http://{HOST}"}
        ).status_code
        == 200
    )


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
def test_t01_what_a_form_can_send_is_refused(admin: TestClient, kind: str | None) -> None:
    headers = {"content-type": kind} if kind else {}
    answer = admin.put("/login/", content=b'{"login": "admin"}', headers=headers)
    assert answer.status_code in (403, 415)


def test_t01_no_answer_allows_another_origin(admin: TestClient) -> None:
    for answer in (
        admin.get("/login/", headers={"origin": "http://evil.example"}),
        admin.options(
            "/login/",
            headers={"origin": "http://evil.example", "access-control-request-method": "POST"},
        ),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_t01_the_cookie_is_strict_and_out_of_reach(anonymous: TestClient) -> None:
    cookie = anonymous.post("/login/", json=CREDENTIALS).headers["set-cookie"].lower()
    assert cookie.startswith("sessionid=")
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip() for part in cookie.split(";")}


def test_t01_guessing_is_braked(anonymous: TestClient, clock: Clock) -> None:
    wrong = {"login": "admin", "password": "wrong"}
    for _ in range(5):
        assert anonymous.post("/login/", json=wrong).status_code == 401
    assert anonymous.post("/login/", json=CREDENTIALS).status_code == 429
    clock.now += 61
    assert anonymous.post("/login/", json=CREDENTIALS).status_code == 200


def test_t01_the_brake_forgets_keys_beyond_its_bound() -> None:
    throttle = Throttle(keys=10)
    for number in range(100):
        throttle.count(0.0, str(number))
    assert len(throttle._tries) == 10


def test_t01_a_session_ends(viewer: TestClient, clock: Clock) -> None:
    assert viewer.get("/login/").json()["is_user"]
    clock.now += 13 * 3600
    assert viewer.get("/login/").json()["username"] is None


def test_t01_a_new_password_ends_sessions(viewer: TestClient, context: Context) -> None:
    context.accounts.put(User("viewer", Role.VIEWER), "another password")
    assert viewer.get("/login/").json()["username"] is None


def test_t01_a_deactivated_account_has_no_session_and_no_login(
    viewer: TestClient, anonymous: TestClient, context: Context
) -> None:
    token = context.accounts.open_session("viewer")
    context.accounts.put(User("viewer", Role.VIEWER, active=False))
    assert viewer.get("/login/").json()["username"] is None
    assert context.accounts.session(token) is None
    assert (
        anonymous.post("/login/", json={"login": "viewer", "password": PASSWORD}).status_code == 401
    )
    # A session that began at the same moment counts for nothing, and what ended does not come back.
    late = context.accounts.open_session("viewer")
    assert context.accounts.session(late) is None
    context.accounts.remove("viewer")
    context.accounts.put(User("viewer", Role.VIEWER), PASSWORD)
    assert context.accounts.session(token) is None


def test_t01_deactivating_ends_sessions_for_good(viewer: TestClient, context: Context) -> None:
    context.accounts.put(User("viewer", Role.VIEWER, active=False))
    context.accounts.put(User("viewer", Role.VIEWER, active=True))
    assert viewer.get("/login/").json()["username"] is None


def test_t01_the_first_token_opens_once(anonymous: TestClient, context: Context) -> None:
    context.accounts.remove("admin")
    earlier, token = context.accounts.first_token(), context.accounts.first_token()
    assert context.accounts.check("admin", earlier) is None
    assert anonymous.post("/login/", json={"login": "admin", "password": token}).json()["is_admin"]
    assert context.accounts.check("admin", token) is None


@pytest.mark.parametrize("password", ["", "short", "x" * 257])
def test_t01_no_weak_password(context: Context, password: str) -> None:
    with pytest.raises(ConfigError):
        context.accounts.put(User("somebody", Role.RUNNER), password)


def test_t01_no_trace_reaches_a_client(anonymous: TestClient, context: Context) -> None:
    context.store.close()
    answer = anonymous.get("/login/", headers={"cookie": "sessionid=x"})
    assert answer.status_code == 500
    assert answer.json() == {
        "message": "Unexpected exception appeared",
        "error": "internal error, see the server's log",
    }


OWN = {"/login/", "/version/", "/ui/login", "/ui/logout", "/ui/account"}
"""What everybody may change: one's own session and profile."""


def writing_routes(app: FastAPI) -> list[tuple[str, str]]:
    def walk(routes: list[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
        for route in routes:
            if hasattr(route, "original_router"):
                yield from walk(route.original_router.routes, prefix + route.include_context.prefix)
            elif isinstance(route, APIRoute):
                path = prefix + re.sub(r"{[^}]*}", "1", route.path)
                yield from (
                    (method, path) for method in sorted((route.methods or set()) - {"GET", "HEAD"})
                )

    return [
        (method, path)
        for method, path in walk(app.routes)
        if path.removeprefix("/openbach") not in OWN
    ]


def test_t01_a_viewer_writes_nowhere(
    app: FastAPI, viewer: TestClient, anonymous: TestClient
) -> None:
    routes = writing_routes(app)
    assert len(routes) >= 4
    for method, path in routes:
        for client in (viewer, anonymous):
            assert client.request(method, path, json={}).status_code == 403, (method, path)


def test_t15_large_bodies_are_refused(anonymous: TestClient) -> None:
    assert anonymous.post("/login/", json={"login": "x" * (1 << 20)}).status_code == 413

    chunks = (b" " * 65536 for _ in range(17))
    answer = anonymous.post("/login/", content=chunks, headers={"content-type": "application/json"})
    assert answer.status_code == 413
