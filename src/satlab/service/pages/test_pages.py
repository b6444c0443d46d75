# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages without a browser: who sees what, what forms do, and that nothing hostile becomes
markup.
"""

import html
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI, Request
from starlette.testclient import TestClient

from satlab.run import scenario_run
from satlab.service.api.account_store import Role, User
from satlab.service.api.conftest import (
    HOST,
    PASSWORD,
    Clock,
    FakeHelper,
    client_of,
    progress_of,
    start,
)
from satlab.service.api.dependencies import Context
from satlab.service.api.project_store import Project
from satlab.service.api.queue import Instance
from satlab.service.pages import run_pages, run_routes
from satlab.service.pages.link_curves import Curves
from satlab.service.pages.rendering import POLICY

ORIGIN = {"origin": f"http://{HOST}"}
LINK = {"link.profile": "geo", "link.loss": "0"}
PING = {"argument.count": "3", **LINK}


def post(client: TestClient, path: str, **form: str) -> Any:
    return client.post(f"/ui{path}", data=form, headers=ORIGIN, follow_redirects=False)


def launch(client: TestClient, name: str = "ping", **form: str) -> int:
    answer = post(client, f"/scenarios/satlab/{name}", **{**PING, **form})
    assert answer.status_code == 303, answer.text
    return int(answer.headers["location"].rpartition("/")[2])


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def ended(
    context: Context,
    helper: FakeHelper,
    number: int,
    exit_status: int = 0,
    folder: Path | None = None,
) -> None:
    """Carry an instance to its end; its run folder is a copy of `folder`."""
    run_id = start(context, number)
    if folder is not None:
        shutil.copytree(folder, context.settings.runs / run_id)
    helper.end(run_id, exit_status)
    context.queue.step()


# --- who sees what --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/runs", "/runs/1", "/scenarios/satlab/ping", "/account", "/compare"]
)
def test_strangers_are_led_to_the_login(anonymous: TestClient, path: str) -> None:
    answer = anonymous.get(f"/ui{path}", follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/ui/login")


def test_the_root_leads_to_the_pages(anonymous: TestClient) -> None:
    assert anonymous.get("/", follow_redirects=False).headers["location"] == "/ui/"


@pytest.mark.parametrize(
    ("back", "place"),
    [
        ("/ui/runs/7", "/ui/runs/7"),
        *[
            (b, "/ui/")
            for b in (
                "",
                "//evil.example",
                "https://evil.example/ui/",
                "/ui/../x?y",
                "/ui//evil",
                "/uix",
            )
        ],
    ],
)
def test_t01_a_login_leads_back_to_pages_of_ours_alone(
    anonymous: TestClient, back: str, place: str
) -> None:
    answer = post(anonymous, "/login", login="viewer", password=PASSWORD, back=back)
    assert (answer.status_code, answer.headers["location"]) == (303, place)
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_a_wrong_password_is_reported_and_rate_limited(anonymous: TestClient) -> None:
    for _ in range(5):
        answer = post(anonymous, "/login", login="viewer", password="wrong")  # noqa: S106
        assert answer.status_code == 401
        assert "Login or password are wrong" in answer.text
        assert 'value="viewer"' in answer.text
    answer = post(anonymous, "/login", login="viewer", password=PASSWORD)
    assert answer.status_code == 429
    assert "Too many wrong logins" in answer.text


def test_logging_out_ends_the_session(viewer: TestClient) -> None:
    assert viewer.get("/ui/").status_code == 200
    post(viewer, "/logout")
    assert viewer.get("/ui/", follow_redirects=False).status_code == 303


def test_the_first_token_opens_and_a_password_can_be_set(
    anonymous: TestClient, context: Context, app: Any
) -> None:
    context.accounts.remove("admin")
    assert (
        post(
            anonymous, "/login", login="admin", password=context.accounts.first_token()
        ).status_code
        == 303
    )
    assert (
        "not the same"
        in post(anonymous, "/account", password="a new password", again="another").text  # noqa: S106
    )
    assert "8 to 256" in post(anonymous, "/account", password="short", again="short").text  # noqa: S106
    answer = post(anonymous, "/account", password="a new password", again="a new password")  # noqa: S106
    answer = anonymous.get(answer.headers["location"], follow_redirects=False)
    assert (answer.status_code, "The password was changed" in answer.text) == (200, True), (
        "this session goes on"
    )
    other = client_of(app)
    assert post(other, "/login", login="admin", password="a new password").status_code == 303  # noqa: S106


def test_t01_a_viewer_looks_and_does_not_launch(viewer: TestClient, runner: TestClient) -> None:
    number = launch(runner)
    page = viewer.get("/ui/scenarios/satlab/ping")
    assert "cannot launch scenarios" in page.text
    assert post(viewer, "/scenarios/satlab/ping", **PING).status_code == 403
    assert post(viewer, f"/runs/{number}/stop").status_code == 403
    assert ">Stop<" not in viewer.get(f"/ui/runs/{number}").text


def test_t01_forms_of_other_pages_are_refused(runner: TestClient, context: Context) -> None:
    for headers in (
        {},
        {"origin": "http://evil.example"},
        {**ORIGIN, "sec-fetch-site": "cross-site"},
    ):
        answer = runner.post("/ui/scenarios/satlab/ping", data=PING, headers=headers)
        assert answer.status_code == 403
    assert context.queue.instances() == []


def test_t01_projects_of_others_are_out_of_reach(
    runner: TestClient, admin: TestClient, context: Context
) -> None:
    number = launch(runner)
    context.accounts.put(User("somebody", Role.RUNNER))
    project = context.catalog.project("satlab")
    assert project is not None
    context.catalog.put_project(Project(project.name, "", ("somebody",), project.entities))
    for path in (
        "/scenarios/satlab/ping",
        f"/runs/{number}",
        f"/runs/{number}/live",
        f"/runs/{number}/events",
        f"/runs/{number}/report",
    ):
        assert runner.get(f"/ui{path}").status_code == 403
    assert post(runner, f"/runs/{number}/stop").status_code == 403
    assert post(runner, "/scenarios/satlab/ping", **PING).status_code == 403
    assert "ping" not in text_of(runner.get("/ui/runs").text)
    assert "no project" in text_of(runner.get("/ui/").text)
    assert admin.get(f"/ui/runs/{number}").status_code == 200


# --- pages ----------------------------------------------------------------------------------------

PAGES = ("/", "/runs", "/scenarios/satlab/ping", "/scenarios/satlab/seed_002_cell", "/account")


@pytest.mark.parametrize("path", PAGES)
def test_t14_pages_have_a_strict_policy_and_nothing_inline(runner: TestClient, path: str) -> None:
    answer = runner.get(f"/ui{path}")
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=|javascript:", answer.text)
    assert re.findall(r'(?:src|href|action)="(?!/ui|#)[^"]*"', answer.text) == []


@pytest.mark.parametrize("name", ["base.css", "ui.css", "ui.js", "icon.svg"])
def test_static_files_need_no_login(anonymous: TestClient, name: str) -> None:
    answer = anonymous.get(f"/ui/static/{name}")
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["", "..%2frendering.py", "none.css", "%2e%2e/rendering.py"])
def test_t04_nothing_else_is_given(anonymous: TestClient, name: str) -> None:
    assert anonymous.get(f"/ui/static/{name}").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/runs/999",
        "/runs/999/live",
        "/runs/999/events",
        "/runs/999/report",
        "/scenarios/satlab/none",
        "/scenarios/none/ping",
    ],
)
def test_a_missing_object_is_reported_by_a_page(runner: TestClient, path: str) -> None:
    answer = runner.get(f"/ui{path}")
    assert answer.status_code == 404
    assert "<h1>Not found</h1>" in answer.text


HOSTILE = "\"><script>alert(1)</script>'&lt;\x1b[31m\u202e"


def test_t14_hostile_names_are_text(
    runner: TestClient, context: Context, helper: FakeHelper
) -> None:
    document = {
        "name": "hostile",
        "description": HOSTILE,
        "arguments": {"x": HOSTILE},
        "constants": {"c": HOSTILE},
        "openbach_functions": [
            {"id": 1, "start_job_instance": {"entity_name": "client", "satlab_ping": {}}}
        ],
    }
    context.catalog.add_version("satlab", "hostile", document)
    context.catalog.put_project(Project("<b>p</b>", HOSTILE, (), ()))
    number = launch(runner)
    run_id = start(context, number)
    top = progress_of(number, "ping", {"status": "Error", "reason": HOSTILE})
    top["functions"][0]["label"] = HOSTILE
    helper.end(run_id, 1, phase="ended", reason=HOSTILE, instance=top)
    context.queue.step()
    paths = ("/", "/scenarios/satlab/hostile", "/runs", f"/runs/{number}", f"/runs/{number}/live")
    for path in (
        *paths,
        f"/login?back={quote(HOSTILE)}",
        f"/scenarios/satlab/hostile?argument.x={quote(HOSTILE)}",
    ):
        page = runner.get(f"/ui{path}").text
        assert "<script>alert" not in page
        assert "<b>p" not in page
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", page), (
            "controls are shown as what they are not"
        )
    assert "<script>alert(1)</script>" in text_of(runner.get(f"/ui/runs/{number}").text)


# --- a run ----------------------------------------------------------------------------------------


def test_a_launch_that_is_wrong_keeps_what_was_filled_in(
    runner: TestClient, context: Context
) -> None:
    form = {**PING, "argument.count": "many", "link.loss": "7", "link.seed": "42"}
    answer = post(runner, "/scenarios/satlab/ping", **form)
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert answer.text.count('aria-invalid="true"') == 2
    assert 'value="many"' in answer.text
    assert 'value="42"' in answer.text
    assert "<details open><summary>More of the link" not in answer.text
    assert context.queue.instances() == []


def test_a_run_from_launch_to_report(
    runner: TestClient, context: Context, helper: FakeHelper, clock: Clock, measured: Path
) -> None:
    number = launch(runner, **{"link.loss": "0.01"})
    page = runner.get(f"/ui/runs/{number}").text
    assert "Next in the queue" in text_of(page)
    assert '<noscript><meta http-equiv="refresh"' in page
    run_id = start(context, number)
    assert helper.requests[run_id].link.loss == 0.01
    assert helper.requests[run_id].arguments == {"count": "3"}
    clock.now += 5
    assert "Preparing the run" in text_of(runner.get(f"/ui/runs/{number}/live").text)
    shutil.copytree(measured, context.settings.runs / run_id)
    live = runner.get(f"/ui/runs/{number}/live?since=1&until=3").text
    assert 'role="img"' in live and 'data-span="1.0 3.0"' in live
    assert "&amp;since=1&amp;until=3#path" in live, "a hop is chosen within the same time"
    lab = scenario_run.lab_id(run_id)
    assert f"sudo ./satlab shell proxy-gw --lab {lab}</code>" in live
    assert " style=" not in live, "the policy of the pages refuses it"
    assert runner.get(f"/ui/runs/{number}/live?since=<script>").status_code == 400
    helper.end(run_id, 0)
    context.queue.step()
    page = text_of(runner.get(f"/ui/runs/{number}").text)
    metrics = ("Response Start", "First Contentful Paint", "Page Load Time")
    for expected in ("Finished", *metrics, "Mbit/s", "Failed or cut off", "timeout 33 s"):
        assert expected in page
    assert "refresh" not in page
    report = runner.get(f"/ui/runs/{number}/report")
    policy = report.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts allow-downloads;"), (
        "a report is not one of satlab's own pages"
    )
    assert "allow-same-origin" not in policy
    assert "script-src 'x'" in policy


def test_what_moves_is_pushed_up_to_the_end(
    app: FastAPI, runner: TestClient, context: Context, helper: FakeHelper, clock: Clock
) -> None:
    number = launch(runner)
    run_id = start(context, number)
    app.state.listeners.period_s = 0.01
    curves: Callable[[Path], Curves] = app.state.link_curves.curves

    def end_meanwhile(folder: Path) -> Curves:
        clock.now += 1
        if clock.now > began + 2:
            helper.end(run_id, 0)
            context.queue.step()
        return curves(folder)

    began = clock.now
    (context.settings.runs / run_id).mkdir(parents=True)
    app.state.link_curves.curves = end_meanwhile
    answer = runner.get(f"/ui/runs/{number}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    parts = [event.replace("data: ", "").strip() for event in answer.text.split("\n\n") if event]
    assert len(parts) >= 3
    assert all("data-running" in each for each in parts[:-1])
    assert "data-running" not in parts[-1]
    assert "Finished" in parts[-1]
    assert app.state.listeners.count == 0


def test_a_stream_ends_with_the_session_the_right_and_the_server(
    app: FastAPI, runner: TestClient, anonymous: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = launch(runner)
    assert anonymous.get(f"/ui/runs/{number}/events", follow_redirects=False).status_code == 303
    assert runner.get("/ui/runs/999/events").status_code == 404
    app.state.listeners.period_s = 0.01

    def log_out_meanwhile(
        _: Request, context: Context, instance: Instance, choice: run_routes.CurveChoice
    ) -> dict[str, object]:
        runner.post("/ui/logout", headers=ORIGIN)
        return live(_, context, instance, choice)

    live = run_routes._live
    monkeypatch.setattr(run_routes, "_live", log_out_meanwhile)
    assert runner.get(f"/ui/runs/{number}/events").text.count("\n\n") == 1
    app.state.listeners.close()
    assert client_of(app, "runner").get(f"/ui/runs/{number}/events").text == ""


def test_t15_there_is_room_for_so_many_listeners(app: FastAPI, runner: TestClient) -> None:
    number = launch(runner)
    app.state.listeners.count = app.state.listeners.most
    assert runner.get(f"/ui/runs/{number}/events").status_code == 503
    assert runner.get(f"/ui/runs/{number}/live").status_code == 200
    assert app.state.listeners.count == app.state.listeners.most


def test_an_instance_is_stopped(runner: TestClient, context: Context) -> None:
    number = launch(runner)
    assert post(runner, f"/runs/{number}/stop").headers["location"] == f"/ui/runs/{number}"
    page = text_of(runner.get(f"/ui/runs/{number}").text)
    assert "Stopped" in page
    assert "stopped before it ran" in page
    instance = context.queue.find(number)
    assert instance is not None
    assert instance.ended


def test_constants_are_replaced_for_one_run(runner: TestClient, context: Context) -> None:
    number = launch(runner, **{"constant.interval": "0.5"})
    instance = context.queue.find(number)
    assert instance is not None
    assert instance.request.documents["ping"]["constants"]["interval"] == "0.5"
    stored = context.catalog.scenario("satlab", "ping")
    assert stored is not None
    assert stored["constants"]["interval"] == "1.0"
    again = re.search(
        r'href="([^"]*\?[^"]*)">Launch again',
        (post(runner, f"/runs/{number}/stop"), runner.get(f"/ui/runs/{number}").text)[1],
    )
    assert again is not None
    page = runner.get(html.unescape(again[1])).text
    assert re.search(r'name="constant.interval" value="0.5"', page)
    assert re.search(r'name="argument.count" value="3"', page)


def test_runs_are_compared(
    runner: TestClient, context: Context, helper: FakeHelper, measured: Path
) -> None:
    numbers = [launch(runner), launch(runner)]
    for number in numbers:
        ended(context, helper, number, folder=measured)
    waiting = launch(runner)
    page = runner.get(f"/ui/compare?run={numbers[0]}&run={numbers[1]}")
    assert page.status_code == 200
    assert "Comparison of 2 runs" in text_of(page.text)
    assert "Page Load Time" in page.text
    report = runner.get(f"/ui/compare/report?run={numbers[0]}&run={numbers[1]}")
    assert "sandbox" in report.headers["content-security-policy"]
    assert "plotly" in report.text.lower()
    for query, status in {
        f"run={numbers[0]}": 400,
        "": 400,
        f"run={numbers[0]}&run={numbers[0]}": 400,
        f"run={numbers[0]}&run={waiting}": 409,
        f"run={numbers[0]}&run=999": 404,
        "run=x&run=y": 404,
        "run=..&run=%2e%2e%2fapi": 404,
        "&".join(f"run={number}" for number in range(21)): 400,
    }.items():
        assert runner.get(f"/ui/compare?{query}").status_code == status, query


def test_a_comparison_shows_filmstrips(
    runner: TestClient, context: Context, helper: FakeHelper, measured: Path
) -> None:
    numbers = [launch(runner), launch(runner)]
    for number in numbers:
        ended(context, helper, number, folder=measured)
    alone = runner.get(f"/ui/runs/{numbers[0]}").text
    both = runner.get(f"/ui/compare?run={numbers[0]}&run={numbers[1]}").text
    assert re.search(r'<img alt="HTTP/1.1 after [\d.]+ s: 50% of the final picture"', alone)
    assert len(re.findall(r"<small>Speed Index [\d,]+ ms</small>", both)) == 2, (
        "both are copies of one run"
    )
    sources = set(re.findall(r'<img [^>]*src="([^"]*)"', both))
    assert sources
    assert all(source.startswith("data:image/jpeg;base64,/9j/") for source in sources)
    assert "img-src 'self' data:;" in POLICY


def test_many_runs_are_listed_in_pages(runner: TestClient, context: Context) -> None:
    numbers = [launch(runner) for _ in range(51)]
    first, second = (runner.get(f"/ui/runs?page={n}").text for n in (1, 2))
    assert f"/ui/runs/{numbers[-1]}" in first
    assert f'/ui/runs/{numbers[0]}"' not in first
    assert f'/ui/runs/{numbers[0]}"' in second
    assert "Older" in first
    assert "Newer" in second


def test_the_host_s_pressure_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cpu"
    assert run_pages.host_pressure(path) is None
    path.write_text("nonsense")
    assert run_pages.host_pressure(path) is None
    path.write_text(
        "some avg10=12.34 avg60=1.00 avg300=0.50 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00"
        " total=0\n"
    )
    assert run_pages.host_pressure(path) == 12.34
