# SPDX-License-Identifier: GPL-3.0-or-later
"""Saving and launching scenarios: each row of OpenBACH's tables of refusals, with its status and
its body.
"""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from satlab.common import paths
from satlab.openbach.descriptor import load_job
from satlab.service.api import project_store, scenario_check
from satlab.service.api.conftest import FakeHelper
from satlab.service.api.dependencies import Context
from satlab.service.api.scenario_check import RefusalError

Document = dict[str, Any]
SCENARIOS = "/project/satlab/scenario/"
GOOD: Document = {
    "name": "transfer",
    "description": "A server, a client, and the end of the server",
    "arguments": {"duration": "Seconds"},
    "constants": {"server_ip": "198.18.4.2"},
    "openbach_functions": [
        {
            "id": 1,
            "start_job_instance": {
                "entity_name": "server",
                "offset": 0,
                "satlab_iperf3": {"server": {}},
            },
        },
        {
            "id": 2,
            "label": "client",
            "wait": {"launched_ids": [1], "time": 2},
            "on_fail": {"policy": "Fail"},
            "start_job_instance": {
                "entity_name": "client",
                "satlab_iperf3": {
                    "port": 5201,
                    "client": {"server_ip": "$server_ip", "duration_s": "$duration"},
                },
            },
        },
        {"id": 3, "wait": {"finished_ids": [2]}, "stop_job_instance": {"openbach_function_id": 1}},
    ],
}
JOBS = {name: load_job(paths.JOBS / name) for name in ("satlab_iperf3", "satlab_ping")}


def changed(*path: str | int, to: Any = None, drop: bool = False) -> Document:
    """Return the good scenario with one entry changed or dropped."""
    document = copy.deepcopy(GOOD)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return document


F = "openbach_functions"
JOB = (F, 1, "start_job_instance", "satlab_iperf3")
AT_JOB = "openbach_functions.1.start_job_instance.satlab_iperf3"
UNUSED = {"duration": "s", "more": "unused"}

LITERAL_IF = {
    "condition": {
        "type": "not",
        "condition": {
            "type": "=",
            "left_operand": {"type": "value", "value": 1},
            "right_operand": {
                "type": "database",
                "name": "agent",
                "key": "198.18.1.2",
                "attribute": "name",
            },
        },
    },
    "openbach_functions_true_ids": [],
    "openbach_functions_false_ids": [],
}
REFUSED: list[tuple[Document, str, str]] = [
    (changed("arguments", to=UNUSED), "An argument is unused", "arguments.more"),
    (
        changed("constants", to={"server_ip": "1", "more": "1"}),
        "An argument is unused",
        "arguments.more",
    ),
    (
        changed(*JOB, "port", to="$port"),
        "This argument is used as a placeholder value but is not defined",
        "arguments.'port'",
    ),
    (
        changed("constants", to={"server_ip": "1", "duration": "1"}),
        "Some constants are named the same than some arguments",
        "constants.duration",
    ),
    (changed("constants", "server_ip", to=5), "Type error", "constants.server_ip"),
    (changed("arguments", "duration", to=None), "Missing entry", "arguments.duration"),
    (changed(F, 0, "id", drop=True), "Missing entry", "openbach_functions.0.id"),
    (changed(F, 0, "id", to="1"), "Type error", "openbach_functions.0.id"),
    (
        changed(F, 1, "id", to=1),
        "duplicate key value violates unique constraint",
        "openbach_functions.1.start_job_instance",
    ),
    (
        changed(F, 2, to={"id": 3}),
        "The content of the OpenBACH function to launch is missing",
        "openbach_functions.2",
    ),
    (
        changed(F, 2, to={"id": 3, "reboot": {}, "while": {}}),
        "Too much OpenBACH functions configured: reboot, while",
        "openbach_functions.2",
    ),
    (
        changed(F, 2, to={"id": 3, "dance": {}}),
        "Unknown OpenBACH Function",
        "openbach_functions.2.dance",
    ),
    (
        changed(F, 1, "wait", "launched_ids", to=[9]),
        "The referenced openbach function does not exist",
        "openbach_functions.1.wait.launched_ids.0",
    ),
    (
        changed(F, 2, "wait", "finished_ids", to=[9]),
        "The referenced openbach function does not exist",
        "openbach_functions.2.wait.launched_ids.0",
    ),
    (
        changed(F, 2, "wait", "finished_ids", to=["2"]),
        "Type error",
        "openbach_functions.2.wait.finished_ids.0",
    ),
    (
        changed(F, 1, "wait", "time", to="soon"),
        "[\"value has an invalid type 'str' should be 'float'\"]",
        "openbach_functions.1.start_job_instance",
    ),
    (
        changed(F, 1, "on_fail", "policy", to="Panic"),
        "Unknown failure policy 'Panic'",
        "openbach_functions.1.on_fail",
    ),
    (
        changed(F, 1, "on_fail", to={"policy": "Retry"}),
        "Missing entry",
        "openbach_functions.1.on_fail.retry",
    ),
    (
        changed(F, 1, "on_fail", to={"policy": "retry", "retry": "$duration"}),
        "Type error",
        "openbach_functions.1.on_fail.retry",
    ),
    (
        changed(F, 0, "start_job_instance", "entity_name", drop=True),
        "Missing entry ''entity_name''",
        "openbach_functions.0.start_job_instance",
    ),
    (
        changed(F, 0, "start_job_instance", to={"entity_name": "server"}),
        "The name of the job to start is missing",
        "openbach_functions.0.start_job_instance",
    ),
    (
        changed(F, 0, "start_job_instance", "more", to={}),
        "Too much job names to start",
        "openbach_functions.0.start_job_instance",
    ),
    (
        changed(F, 0, "start_job_instance", to={"entity_name": "server", "nojob": {}}),
        "No such job in the controller database: nojob",
        "openbach_functions.0.start_job_instance.nojob",
    ),
    (
        changed(*JOB, "colour", to="red"),
        "The configured job does not accept the given argument",
        f"{AT_JOB}.colour",
    ),
    (
        changed(*JOB, "client", "server_ip", drop=True),
        "Missing required argument",
        f"{AT_JOB}.server_ip",
    ),
    (changed(*JOB, "client", drop=True), "Missing subcommand for required group", f"{AT_JOB}.mode"),
    (
        changed(*JOB, "server", to={}),
        "Several subcommands provided for the group",
        f"{AT_JOB}.mode",
    ),
    (
        changed(*JOB, "port", to="http"),
        "[\"value has an invalid type 'str' should be 'int'\"]",
        f"{AT_JOB}.port",
    ),
    (
        changed(*JOB, "port", to="$$5"),
        "[\"value has an invalid type 'str' should be 'int'\"]",
        f"{AT_JOB}.port",
    ),
    (
        changed(*JOB, "port", to=[1, None]),
        "An array of value contains gaps for the given argument",
        f"{AT_JOB}.port",
    ),
    (
        changed(*JOB, "client", "server_ip", to="server.example"),
        "[\"value has an invalid type 'str' should be 'IPv4Address or IPv6Address'\"]",
        f"{AT_JOB}.server_ip",
    ),
    (
        changed(F, 2, to={"id": 3, "start_scenario_instance": {"scenario_name": "x"}}),
        'null value in column "arguments" violates not-null constraint',
        "openbach_functions.2.start_scenario_instance",
    ),
    (
        changed(
            F,
            2,
            to={
                "id": 3,
                "restart_job_instance": {
                    "instance_id": 1,
                    "arguments": {},
                    "date": None,
                    "interval": 1,
                },
            },
        ),
        'null value in column "date" violates not-null constraint',
        "openbach_functions.2.restart_job_instance",
    ),
    (
        changed(
            F,
            2,
            to={
                "id": 3,
                "push_file": {"entity_name": "server", "local_path": "a", "remote_path": ["b"]},
            },
        ),
        "Type error",
        "openbach_functions.2.push_file.local_path",
    ),
    (
        changed(F, 2, to={"id": 3, "if": LITERAL_IF}),
        "'property' object is not callable",
        "openbach_functions.2.if",
    ),
]


@pytest.mark.parametrize(("document", "error", "entry"), REFUSED)
@pytest.mark.promise("P53")
def test_what_openbach_refuses_is_refused_in_its_words(
    runner: TestClient, document: Document, error: str, entry: str
) -> None:
    answer = runner.post(SCENARIOS, json=document)
    assert answer.status_code == 400, answer.json()
    body = answer.json()
    assert body["scenario_name"] == "transfer"
    assert body["error"] == "Data of the Scenario are malformed"
    assert body["scenario_data"] == document
    assert body["error_message"]["error"].startswith(error), body["error_message"]
    assert body["error_message"]["offending_entry"] == entry, body["error_message"]
    assert runner.get(f"{SCENARIOS}transfer/").status_code == 404


def test_a_type_error_says_what_it_met(runner: TestClient) -> None:
    answer = runner.post(SCENARIOS, json=changed("constants", "server_ip", to=5)).json()[
        "error_message"
    ]
    assert (answer["offending_value"], answer["expected_type"]) == (5, "<class 'str'>")


def test_names_on_post_and_put(runner: TestClient) -> None:
    assert runner.post(SCENARIOS, json=changed("name", drop=True)).json() == {
        "error": "You must provide a name to create a Scenario"
    }
    assert runner.post(SCENARIOS, json=GOOD).status_code == 200
    again = runner.post(SCENARIOS, json=GOOD)
    assert (again.status_code, again.json()["error"]) == (
        409,
        "Trying to create an existing Scenario.",
    )
    for document, error in (
        (changed("name", drop=True), "does not contain the Scenario name."),
        (changed("name", to="other"), "does not match with the name of the scenario."),
    ):
        answer = runner.put(f"{SCENARIOS}transfer/", json=document)
        assert answer.status_code == 400
        assert answer.json()["error"].endswith(error)
    for method, path in (("GET", "nothing/"), ("PUT", "nothing/"), ("DELETE", "nothing/")):
        answer = runner.request(method, SCENARIOS + path, json={"name": "nothing"})
        assert (answer.status_code, answer.json()["error"]) == (
            404,
            "The requested Scenario is not in the database",
        )
    answer = runner.put(
        f"{SCENARIOS}transfer/", json=changed(F, 2, to={"id": 3, "openbach_function": {}})
    )
    assert (answer.status_code, set(answer.json())) == (500, {"message", "error"})


def test_strangers_and_viewers_save_nothing(anonymous: TestClient, viewer: TestClient) -> None:
    for client in (anonymous, viewer):
        answer = client.post(SCENARIOS, json=GOOD)
        assert answer.status_code == 403
        assert "originated_by" in answer.json()


def test_a_scenario_is_returned_normalised_and_can_be_saved_as_such(runner: TestClient) -> None:
    saved = runner.post(SCENARIOS, json=GOOD).json()
    functions = saved[F]
    assert [function["label"] for function in functions] == ["1", "client", "3"]
    assert functions[1]["start_job_instance"]["satlab_iperf3"]["port"] == [[5201]]
    assert "wait" not in functions[0]
    assert "on_fail" not in functions[0]
    assert runner.get(f"{SCENARIOS}transfer/").json() == saved
    assert runner.put(f"{SCENARIOS}transfer/", json=saved).json() == saved
    versions = runner.get(f"{SCENARIOS}transfer/versions/").json()
    assert [version["version"] for version in versions] == [1, 2]


def test_t30_the_latest_versions_are_kept(
    runner: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_store, "MOST_VERSIONS", 3)
    saved = runner.post(SCENARIOS, json=GOOD).json()
    for _ in range(4):
        assert runner.put(f"{SCENARIOS}transfer/", json=saved).status_code == 200
    assert [each["version"] for each in runner.get(f"{SCENARIOS}transfer/versions/").json()] == [
        3,
        4,
        5,
    ]
    assert runner.get(f"{SCENARIOS}transfer/").json() == saved


@pytest.mark.parametrize("path", sorted(paths.SCENARIOS.glob("*.json")), ids=lambda path: path.stem)
def test_shipped_scenarios_are_accepted(path: Any) -> None:
    scenario_check.check(
        json.loads(path.read_text()),
        {job.name: load_job(job) for job in paths.JOBS.iterdir() if (job / "files").is_dir()},
    )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=3)
    | st.sampled_from(["$duration", "entity_name"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
PLACES = [
    ("arguments",),
    ("constants",),
    (F,),
    (F, 0),
    (F, 1),
    (F, 1, "wait"),
    (F, 1, "on_fail"),
    JOB[:3],
    JOB,
]
PLACES += [
    (*JOB, "client"),
    (*JOB, "port"),
    (F, 1, "wait", "launched_ids"),
    (F, 2, "stop_job_instance"),
]


@settings(max_examples=200)
@given(st.sampled_from(PLACES), JSON)
def test_any_json_is_accepted_or_refused(place: tuple[str | int, ...], value: Any) -> None:
    document = changed(*place, to=value)
    try:
        scenario_check.check(document, JOBS)
    except RefusalError as refusal:
        assert refusal.body["offending_entry"]
    else:
        scenario_check.normalised(document)


# --- launching ------------------------------------------------------------------------------------

INSTANCES = f"{SCENARIOS}transfer/scenario_instance/"
WRONG = "Arguments of an OpenbachFunction have the wrong type of values."


@pytest.fixture
def saved(runner: TestClient) -> TestClient:
    assert runner.post(SCENARIOS, json=GOOD).status_code == 200
    return runner


def no_ghost(context: Context) -> None:
    assert context.queue.instances() == []


def test_an_argument_that_is_not_defined(saved: TestClient, context: Context) -> None:
    answer = saved.post(INSTANCES, json={"arguments": {"duration": "5", "speed": "9"}})
    assert answer.status_code == 400
    assert answer.json() == {
        "error": "A value was provided for an Argument that is not defined for this Scenario.",
        "scenario_name": "transfer",
        "project_name": "satlab",
        "argument_name": "speed",
    }
    no_ghost(context)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "value contains a placeholder ('duration') that is not found in provided parameters"),
        ({"duration": "long"}, "value has an invalid type 'str' should be 'int'"),
    ],
)
def test_a_value_that_is_missing_or_wrong(
    saved: TestClient, context: Context, arguments: dict[str, str], expected: str
) -> None:
    answer = saved.post(INSTANCES, json={"arguments": arguments})
    assert answer.status_code == 400
    body = {
        "error": WRONG,
        "openbach_function_name": "start job instance",
        "error_message": f'["{expected}"]',
    }
    assert answer.json() == body
    no_ghost(context)


def test_a_job_that_is_not_installed(
    saved: TestClient, admin: TestClient, context: Context
) -> None:
    off = {"action": "uninstall", "names": ["satlab_iperf3"], "addresses": ["198.18.1.2"]}
    assert admin.post("/job/", json=off).status_code == 202
    answer = saved.post(INSTANCES, json={"arguments": {"duration": "5"}})
    assert answer.status_code == 422
    assert (
        answer.json()["error"] == "Cannot start scenario transfer: some jobs are missing on agents."
    )
    assert answer.json()["entities"]["client"]["jobs"] == ["satlab_iperf3"]
    assert answer.json()["entities"]["client"]["agent"]["address"] == "198.18.1.2"
    no_ghost(context)
    assert admin.post("/job/", json=off | {"action": "install"}).status_code == 202
    assert saved.post(INSTANCES, json={"arguments": {"duration": "5"}}).status_code == 200


def test_an_entity_without_an_agent_and_one_that_is_not_there(
    saved: TestClient, context: Context
) -> None:
    launch = {"arguments": {"duration": "5"}}
    saved.put(
        "/project/satlab/entity/client/", json={"name": "client", "description": "", "agent": None}
    )
    answer = saved.post(INSTANCES, json=launch)
    assert answer.status_code == 422
    assert answer.json() == {
        "error": "Cannot start scenario transfer: some entities are missing an attached agent.",
        "entities": ["client"],
    }
    context.catalog.remove_entity("satlab", "client")
    answer = saved.post(INSTANCES, json=launch)
    assert answer.status_code == 500
    assert answer.json() == {
        "message": "Unexpected exception appeared",
        "error": "Entity matching query does not exist.",
    }
    no_ghost(context)


ENDLESS: Document = {
    "condition": {},
    "openbach_functions_while_ids": [],
    "openbach_functions_end_ids": [],
}
HANGS = [
    changed(F, 1, "wait", "finished_ids", to=[2]),
    changed(F, 0, "on_fail", to={"policy": "Ignore"}),
    changed(F, 2, to={"id": 3, "while": ENDLESS}),
    changed(
        F, 2, to={"id": 3, "start_scenario_instance": {"scenario_name": "nowhere", "arguments": {}}}
    ),
]


@pytest.mark.parametrize("document", HANGS)
def test_what_would_hang_is_refused_at_launch(
    runner: TestClient, context: Context, document: Document
) -> None:
    assert runner.post(SCENARIOS, json=document).status_code == 200
    answer = runner.post(INSTANCES, json={"arguments": {"duration": "5"}})
    assert answer.status_code == 400
    assert answer.json()["faults"]
    assert "/tmp" not in answer.text
    no_ghost(context)


@pytest.mark.parametrize(
    "link",
    [
        {"profile": "meo"},
        {"profile": "../../etc"},
        {"loss": 2},
        {"timeline": "/etc/passwd"},
        {"loss_model": "trace:/x"},
    ],
)
def test_a_link_that_is_none(saved: TestClient, context: Context, link: Document) -> None:
    answer = saved.post(INSTANCES, json={"arguments": {"duration": "5"}, "link": link})
    assert answer.status_code == 400
    no_ghost(context)


def test_a_launch_waits_runs_and_ends(
    saved: TestClient, context: Context, helper: FakeHelper
) -> None:
    number = saved.post(INSTANCES, json={"arguments": {"duration": "5"}, "date": None}).json()[
        "scenario_instance_id"
    ]
    at = f"/scenario_instance/{number}/"
    assert saved.get(at).json()["status"] == "Scheduling"
    assert [f["status"] for f in saved.get(at).json()[F]] == ["Scheduled"] * 3
    context.queue.step()
    assert saved.get(f"{at}?quiet").json()["status"] == "Running"
    assert saved.request("DELETE", at, json={}).status_code == 409
    assert saved.get(f"{at}csv/").status_code == 404
    (run_id,) = helper.runs
    assert helper.requests[run_id].entities == {"client": "client", "server": "server"}
    helper.end(run_id, 0)
    context.queue.step()
    assert saved.get(f"/openbach{at}").json()["status"] == "Finished Ok"
    assert saved.request("DELETE", at, json={}).status_code == 204
    assert saved.get(at).status_code == 404
