# SPDX-License-Identifier: GPL-3.0-or-later
"""What people get wrong in the forms: each is answered by a page with one sentence that says what
to do, and nothing is launched or stored.
"""

import html
import re
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from satlab.service.api.dependencies import Context
from satlab.service.pages.test_edit_pages import EDIT, upload
from satlab.service.pages.test_pages import PING, post

PAGE = {"argument.protocol": "h3"}


def sentences(answer: Any) -> list[str]:
    """Return what a page says in its list of faults, and at its fields."""
    assert answer.headers["content-type"].startswith("text/html")
    listed = re.findall(r"<li>(?:<a[^>]*>[^<]*</a>: )?(.*?)</li>", answer.text)
    alerts = re.findall(r'class="alert"[^>]*>(?:<strong>[^<]*</strong> )?([^<]+)</p>', answer.text)
    return [html.unescape(each).strip() for each in (*listed, *alerts)]


@pytest.mark.promise("P59")
@pytest.mark.parametrize(
    ("scenario", "form", "said"),
    [
        (
            "page_load",
            PAGE | {"constant.page": "kelper"},
            "Choose one of article, kepler, shop, video",
        ),
        (
            "ping",
            PING | {"link.queue": "60000bytes", "link.queue_bdp": "1"},
            'This and "Queue limit in BDP" both set the limit of the queue (leave one out)',
        ),
        (
            "bulk_tcp",
            {"argument.duration": "100000"},
            "duration=100000: is longer than the run may last, 3600 s (less, or a longer deadline)",
        ),
        ("ping", PING | {"link.loss": "-0.1"}, "This must be 0 to 1"),
        ("ping", PING | {"link.loss": "1%"}, "This is not a number: write 0.01"),
        ("ping", PING | {"link.queue_bdp": "0,5"}, "This is not a number: write 0.5"),
        ("ping", PING | {"link.jitter_ms": "5 ms"}, "This is not a number: write 5"),
        (
            "ping",
            PING | {"link.loss_model": "bursts"},
            "This is not of the form that is asked for (Loss process besides independent losses:"
            " gilbert-elliott:P,R[,STEP_MS[,MIN_BURST_MS]], bursts:PERIOD_MS,DURATION_MS or"
            " trace:FILE)",
        ),
        (
            "ping",
            PING | {"link.profile": "geoo"},
            "Choose one of geo, geo-acm, geo-aloha, geo-dama, geo-scpc, geo-spots, geo-terminals,"
            " leo",
        ),
    ],
    ids=[
        "page",
        "two queues",
        "duration",
        "negative",
        "percent",
        "comma",
        "unit",
        "form",
        "profile",
    ],
)
def test_a_wrong_launch_is_explained(
    scenario: str, form: dict[str, str], said: str, runner: TestClient, context: Context
) -> None:
    answer = post(runner, f"/scenarios/satlab/{scenario}", **form)
    assert answer.status_code == 400
    assert sentences(answer) == [said]
    assert context.queue.instances() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" ", "It is empty"),
        ('{"name": "x",\n', "It is not JSON: Expecting property name enclosed in double quotes"),
        ("[]", "A scenario is a JSON object: { ... }"),
    ],
    ids=["empty", "JSON", "list"],
)
def test_a_wrong_text_is_explained(
    text: str, said: str, runner: TestClient, context: Context
) -> None:
    before = context.catalog.scenario("satlab", "ping")
    answer = post(runner, EDIT, document=text)
    assert answer.status_code == 400
    (sentence,) = sentences(answer)
    assert sentence.startswith(said)
    assert context.catalog.scenario("satlab", "ping") == before


def test_a_file_that_is_no_text_is_explained(runner: TestClient) -> None:
    said = ["It is not text in UTF-8: choose a scenario's JSON file, or save it as UTF-8"]
    for content in (b"\x89PNG\r\n", '{"name": "caf\xe9"}'.encode("latin-1")):
        answer = upload(runner, content)
        assert (answer.status_code, sentences(answer)) == (400, said)


def test_an_address_without_a_page_is_explained(runner: TestClient, anonymous: TestClient) -> None:
    for client in (runner, anonymous):
        answer = client.get("/ui/nowhere")
        assert answer.status_code == 404
        (said,) = sentences(answer)
        assert said.startswith("There is no such page")
    assert runner.get("/nowhere").json() == {"error": "Not Found"}, "programs get JSON"


def test_what_is_too_large_is_explained(runner: TestClient) -> None:
    assert sentences(upload(runner, b" " * (2 << 20))) == ["The file is larger than 1.05 MB"]
    for answer in (
        upload(runner, b" " * (20 << 20)),
        post(runner, EDIT, document="x" * (3 << 20)),
    ):
        assert answer.status_code == 413
        (said,) = sentences(answer)
        assert said.startswith("This is larger than")
        assert "<h1>Too large</h1>" in answer.text
    api = runner.post("/scenario/", json={"name": "x" * (2 << 20)})
    assert api.json() == {"error": "This is larger than 1.05 MB"}, "programs get JSON"


def test_an_expired_session_is_explained(app: FastAPI, anonymous: TestClient) -> None:
    answer = post(anonymous, EDIT, document="{}")
    assert answer.status_code == 403
    (said,) = sentences(answer)
    assert said.startswith("Your session has ended. Log in, then go back")
    assert "<h1>Log in first</h1>" in answer.text


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("?page=x", "The address says page=x: page must be a whole number."),
        ("?page=0", "The address says page=0: page must be 1 or more."),
        ("?page=100001", "The address says page=100001: page must be 100000 or less."),
        (
            "?sort=size",
            "The address says sort=size: sort must be run, status, launched, elapsed, user, or one"
            " of them with - in front.",
        ),
        ("?q=" + "x" * 201, "The address is too long: q must be at most 200 characters long."),
        (
            "/1/live?since=1h",
            "The address says since=1h: since must be a number of seconds, with at most 7 digits"
            " and 3 decimals.",
        ),
        (
            "/1/live?hop=up",
            "The address says hop=up: hop must be '', 'forward', 'return' or 'terrestrial'.",
        ),
    ],
)
def test_a_wrong_address_is_explained(path: str, said: str, runner: TestClient) -> None:
    post(runner, "/scenarios/satlab/ping", **PING)
    answer = runner.get(f"/ui/runs{path}")
    assert answer.status_code == 400
    assert said in html.unescape(answer.text)


def test_the_address_of_no_run_is_no_page(runner: TestClient) -> None:
    answer = runner.get("/ui/runs/first")
    assert answer.status_code == 404 and "There is no such page" in answer.text
