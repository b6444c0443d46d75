# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios are edited as text: who may, what is stored, and how a fault is shown."""

import html
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from satlab.service.api.dependencies import Context
from satlab.service.pages.test_pages import ORIGIN, post, text_of

EDIT = "/scenarios/satlab/ping/edit"


def ping(context: Context) -> dict[str, Any]:
    return dict(context.catalog.scenarios("satlab")["ping"])


@pytest.mark.promise("P59")
def test_p352_a_changed_scenario_is_stored_as_a_new_version(
    runner: TestClient, context: Context
) -> None:
    page = runner.get(f"/ui{EDIT}").text
    shown = html.unescape(
        page.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0]
    )
    assert json.loads(shown) == ping(context)
    before = len(context.catalog.versions("satlab", "ping"))
    answer = post(runner, EDIT, document=json.dumps(ping(context) | {"description": "<b>mine"}))
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/scenarios/satlab/ping")
    assert ping(context)["description"] == "<b>mine"
    assert len(context.catalog.versions("satlab", "ping")) == before + 1
    assert "<b>mine" not in runner.get(f"/ui{EDIT}").text


def test_p352_another_name_makes_another_scenario_unless_it_is_taken(
    runner: TestClient, context: Context
) -> None:
    copy = json.dumps(ping(context) | {"name": "ping-mine"})
    assert post(runner, EDIT, document=copy).headers["location"] == "/ui/scenarios/satlab/ping-mine"
    assert "ping-mine" in context.catalog.scenarios("satlab")
    assert ping(context)["name"] == "ping"
    assert post(runner, EDIT, document=copy).status_code == 409


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {
                "openbach_functions": [
                    {"id": 1, "start_job_instance": {"entity_name": "x", "nothing": {}}}
                ]
            },
            "malformed",
        ),
        ({"name": "../up"}, "name of a file"),
        ({"name": 7}, "name"),
    ],
    ids=["unknown job", "path", "no name"],
)
def test_p352_what_is_wrong_is_shown_and_not_stored(
    change: dict[str, Any], said: str, runner: TestClient, context: Context
) -> None:
    before = ping(context)
    document = json.dumps(before | change)
    answer = post(runner, EDIT, document=document)
    assert answer.status_code == 400
    assert "The scenario was not stored:" in text_of(answer.text) and said in text_of(answer.text)
    assert html.escape(document[:20]) in answer.text.replace("&#34;", "&quot;"), "the text is kept"
    assert ping(context) == before


@pytest.mark.parametrize("document", ["", "[]", "{", '{"name": NaN}', "[" * 100_000])
def test_p352_what_is_not_a_scenario_is_refused(
    document: str, runner: TestClient, context: Context
) -> None:
    before = ping(context)
    assert post(runner, EDIT, document=document).status_code == 400
    assert ping(context) == before


UPLOAD = "/upload/satlab"


def upload(client: TestClient, content: bytes) -> Any:
    files = {"file": ("../mine.json", content, "application/json")}
    return client.post(f"/ui{UPLOAD}", files=files, headers=ORIGIN, follow_redirects=False)


def test_p352_a_file_is_uploaded_as_a_new_scenario(runner: TestClient, context: Context) -> None:
    assert UPLOAD in runner.get("/ui/").text
    assert 'type="file"' in runner.get(f"/ui{UPLOAD}").text
    answer = upload(runner, json.dumps(ping(context) | {"name": "mine"}).encode())
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/scenarios/satlab/mine")
    assert context.catalog.scenarios("satlab")["mine"]["name"] == "mine"
    again = upload(
        runner, json.dumps(ping(context) | {"name": "mine", "description": "another"}).encode()
    )
    assert again.status_code == 409 and "existing Scenario" in text_of(again.text)
    assert context.catalog.scenarios("satlab")["mine"]["description"] != "another"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff\xfe", b'{"name": "../up"}', b" " * (2 << 20)]
)
def test_p352_what_is_wrong_with_a_file_is_shown_and_not_stored(
    content: bytes, runner: TestClient, context: Context
) -> None:
    before = context.catalog.scenarios("satlab")
    answer = upload(runner, content)
    assert answer.status_code == 400 and "The scenario was not stored:" in text_of(answer.text)
    assert context.catalog.scenarios("satlab") == before


def test_p352_a_form_without_a_file_is_refused(runner: TestClient) -> None:
    assert post(runner, UPLOAD, file="{}").status_code == 400
    answer = runner.post(
        f"/ui{UPLOAD}", files={"file": ("a", b"{}"), "b": ("b", b"{}")}, headers=ORIGIN
    )
    assert answer.status_code == 400
    assert (
        runner.post(f"/ui{UPLOAD}", files={"file": ("a", b"{}")}).status_code == 403
    )  # of another origin


def test_p352_viewers_and_strangers_edit_nothing(viewer: TestClient, anonymous: TestClient) -> None:
    assert UPLOAD not in viewer.get("/ui/").text
    for client in (viewer, anonymous):
        assert client.get(f"/ui{UPLOAD}").status_code == 403
        assert upload(client, b"{}").status_code == 403
        assert client.get(f"/ui{EDIT}").status_code == 403
        assert post(client, EDIT, document="{}").status_code == 403
    assert "/edit" not in viewer.get("/ui/scenarios/satlab/ping").text
