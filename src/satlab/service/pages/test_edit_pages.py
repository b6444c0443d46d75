# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios are edited as text: who may, what is stored, and how a fault is shown."""

import html
import json
import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from satlab.common import paths
from satlab.service.api.dependencies import Context
from satlab.service.pages import scenario_graph
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


# --- graph ----------------------------------------------------------------------------------------

GRAPH = "/scenarios/satlab/ping/graph"


def drawn(**document: Any) -> str:
    return str(scenario_graph.drawing(document))


def test_the_graph_shows_who_waits_for_whom_and_who_stops_whom(runner: TestClient) -> None:
    scenario = json.loads((paths.SCENARIOS / "page_load.json").read_text())
    found = {one.number: one for one in scenario_graph.functions(scenario)}
    assert (found[1].name, found[1].what) == ("web server", "satlab_web_server on server")
    assert found[4].waits == (("launched_ids", 1),) and found[2].waits == (("finished_ids", 4),)
    assert found[3].stops == (1,)
    text = drawn(**scenario)
    boxes = re.findall(r'<rect x="(\d+)" y="(\d+)"', text)
    rows = [int(y) for _, y in boxes]
    assert rows[0] < rows[1] < rows[2] < rows[3], "each below what it waits for"
    assert text.count('stroke="var(--bad)"') == 1 and text.count('stroke="var(--c1)"') == 3
    page = runner.get(f"/ui{EDIT}").text
    assert '<div id="graph"' in page and "<svg" in page
    assert " style=" not in page and "onload" not in page


@pytest.mark.parametrize(
    "listed",
    [
        None,
        7,
        [7, {"id": "x"}, {"id": True}, {}],
        [
            {"id": 1, "wait": {"finished_ids": [2, "a", 99]}},
            {"id": 2, "wait": {"finished_ids": [1]}},
        ],
        [
            {
                "id": 1,
                "wait": 3,
                "stop_job_instances": [],
                "label": {"a": 1},
                "start_job_instance": 4,
            }
        ],
        [{"id": number, "wait": {"finished_ids": [number - 1]}} for number in range(500)],
        [
            {"id": n, "label": "x" * 9999, "wait": {"ended_ids": [*range(200)] * 9}}
            for n in range(99)
        ],
    ],
    ids=["none", "number", "no ids", "circle", "odd", "many", "all wait for all"],
)
def test_a_graph_of_anything_is_drawn(listed: object) -> None:
    text = drawn(openbach_functions=listed)
    assert text.startswith(("<svg", "<p"))
    assert text.count("<rect") <= scenario_graph.MOST_FUNCTIONS
    assert len(text) < 300_000


def test_the_graph_follows_the_text_and_says_what_is_wrong_with_it(
    runner: TestClient, viewer: TestClient, anonymous: TestClient
) -> None:
    hostile = {"id": 1, "label": "<script>alert(1)</script>", "start_job_instance": {}}
    answer = post(runner, GRAPH, document=json.dumps({"openbach_functions": [hostile]}))
    assert answer.status_code == 200
    assert "<script" not in answer.text and "&lt;script&gt;" in answer.text
    broken = post(runner, GRAPH, document='{"a": 1,\n oops}')
    assert "line 2, column 2" in text_of(broken.text) and "<svg" not in broken.text
    for client in (viewer, anonymous):
        assert post(client, GRAPH, document="{}").status_code == 403


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
