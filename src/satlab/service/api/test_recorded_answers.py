# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that a real OpenBACH 2.7.0 was seen to answer: 55 scenarios to save, 41 others.

Answers are those of the real controller. Where ours is another on purpose, docs/api.md has a row with
both statuses and the reason.
"""

import copy
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from satlab.common import paths
from satlab.openbach.fixtures import upstream_shapes
from satlab.service.api.settings import Settings

Document = dict[str, Any]
SCENARIOS = "/project/satlab/scenario/"
GOOD: Document = {
    "name": "recorded",
    "description": "d",
    "arguments": {"duration": "s"},
    "constants": {"srv": "198.18.4.2", "port": "5201"},
    "openbach_functions": [
        {
            "id": 1,
            "label": "srv",
            "start_job_instance": {
                "entity_name": "server",
                "offset": 0,
                "iperf3": {"port": "$port", "metrics_interval": 1, "server": {"exit": True}},
            },
        },
        {
            "id": 2,
            "start_job_instance": {
                "entity_name": "client",
                "offset": 0,
                "iperf3": {
                    "port": "$port",
                    "metrics_interval": 1,
                    "num_flows": 1,
                    "client": {
                        "server_ip": "$srv",
                        "duration_time": "$duration",
                        "tcp": {"cong_control": "cubic"},
                    },
                },
            },
            "wait": {"launched_ids": [1], "time": 2},
            "on_fail": {"policy": "Retry", "retry": 2, "delay": 5},
        },
        {
            "id": 3,
            "stop_job_instances": {"openbach_function_ids": [1]},
            "wait": {"finished_ids": [2], "time": 1},
        },
    ],
}
DROP: Any = object()
AT = "openbach_functions"
SERVER = f"{AT}.0.start_job_instance.iperf3"
CLIENT = f"{AT}.1.start_job_instance.iperf3"


def _wrong(kind: str, expected: str) -> str:
    return f"[\"value has an invalid type '{kind}' should be '{expected}'\"]"


def _typed(value: Any, expected: str) -> Document:
    return {"offending_value": value, "expected_type": expected}


def third(**function: Any) -> dict[str, Any]:
    """Return the change that puts a function in place of the third."""
    return {f"{AT}.2": {"id": 3, "wait": {"finished_ids": [2], "time": 1}, **function}}


LITERAL = {
    "type": "=",
    "left_operand": {"type": "value", "value": 1},
    "right_operand": {"type": "value", "value": 1},
}
IF = {
    "condition": LITERAL,
    "openbach_functions_true_ids": [],
    "openbach_functions_false_ids": [],
}
REFUSED: dict[str, tuple[dict[str, Any], str, str, Document]] = {
    "unused_arg": ({"arguments.foo": ""}, "An argument is unused", "arguments.foo", {}),
    "unused_const": ({"constants.bar": ""}, "An argument is unused", "arguments.bar", {}),
    "undefined_placeholder": (
        {f"{CLIENT}.client.duration_time": "$dur", "arguments": {}},
        "This argument is used as a placeholder value but is not defined",
        "arguments.'dur'",
        {},
    ),
    "both": (
        {"arguments.port": "p"},
        "Some constants are named the same than some arguments",
        "constants.port",
        {},
    ),
    "const_int": (
        {"constants.port": 5201},
        "Type error",
        "constants.port",
        _typed(5201, "<class 'str'>"),
    ),
    "const_null": ({"constants.port": None}, "Missing entry", "constants.port", {}),
    "args_list": (
        {"arguments": ["duration"]},
        "Type error",
        "arguments",
        _typed(["duration"], "<class 'dict'>"),
    ),
    "id_missing": ({f"{AT}.0.id": DROP}, "Missing entry", f"{AT}.0.id", {}),
    "id_text": ({f"{AT}.0.id": "1"}, "Type error", f"{AT}.0.id", _typed("1", "<class 'int'>")),
    "float_id": ({f"{AT}.0.id": 1.0}, "Type error", f"{AT}.0.id", _typed(1.0, "<class 'int'>")),
    "huge_id": (
        {
            f"{AT}.0.id": 1 << 40,
            f"{AT}.1.wait.launched_ids": [1 << 40],
            f"{AT}.2.stop_job_instances.openbach_function_ids": [1 << 40],
        },
        "integer out of range\n",
        f"{AT}.0.start_job_instance",
        {},
    ),
    "label_int": ({f"{AT}.0.label": 5}, "Type error", f"{AT}.0.label", _typed(5, "<class 'str'>")),
    "function_null": ({f"{AT}.0": None}, "Missing entry", f"{AT}.0", {}),
    "functions_missing": ({AT: DROP}, "Missing entry", AT, {}),
    "functions_object": ({AT: {}}, "Type error", AT, _typed({}, "<class 'list'>")),
    "no_function": (
        {f"{AT}.0.start_job_instance": DROP},
        "The content of the OpenBACH function to launch is missing",
        f"{AT}.0",
        _typed({"id": 1, "label": "srv", "wait": {}, "on_fail": {}}, "None"),
    ),
    "two_functions": (
        {f"{AT}.2": {"id": 3, "reboot": {"entity_name": "server"}, "fly": {}}},
        "Too much OpenBACH functions configured: reboot, fly",
        f"{AT}.2",
        _typed(
            {
                "id": 3,
                "reboot": {"entity_name": "server"},
                "fly": {},
                "wait": {},
                "on_fail": {},
            },
            "None",
        ),
    ),
    "unknown_function": (third(fly_away={}), "Unknown OpenBACH Function", f"{AT}.2.fly_away", {}),
    "wait_unknown_id": (
        {f"{AT}.1.wait.launched_ids": [9]},
        "The referenced openbach function does not exist",
        f"{AT}.1.wait.launched_ids.0",
        _typed(9, "None"),
    ),
    "wait_text_id": (
        {f"{AT}.2.wait.finished_ids": ["2"]},
        "Type error",
        f"{AT}.2.wait.finished_ids.0",
        _typed("2", "<class 'int'>"),
    ),
    "wait_list": (
        {f"{AT}.1.wait": [1]},
        "Type error",
        f"{AT}.1.wait",
        _typed([1], "<class 'dict'>"),
    ),
    "wait_time_text": (
        {f"{AT}.1.wait.time": "soon"},
        _wrong("str", "float"),
        f"{AT}.1.start_job_instance",
        {},
    ),
    "policy": (
        {f"{AT}.1.on_fail.policy": "Explode"},
        "Unknown failure policy 'Explode'",
        f"{AT}.1.on_fail",
        {},
    ),
    "retry_missing": (
        {f"{AT}.1.on_fail.retry": DROP},
        "Missing entry",
        f"{AT}.1.on_fail.retry",
        {},
    ),
    "retry_text": (
        {f"{AT}.1.on_fail.retry": "2"},
        "Type error",
        f"{AT}.1.on_fail.retry",
        _typed("2", "<class 'int'>"),
    ),
    "entity_missing": (
        {f"{AT}.0.start_job_instance.entity_name": DROP},
        "Missing entry ''entity_name''",
        f"{AT}.0.start_job_instance",
        {},
    ),
    "offset_text": (
        {f"{AT}.0.start_job_instance.offset": "soon"},
        _wrong("str", "float"),
        f"{AT}.0.start_job_instance",
        {},
    ),
    "interval_float": (
        {f"{AT}.0.start_job_instance.interval": 1.5},
        "Type error",
        f"{AT}.0.start_job_instance.interval",
        _typed(1.5, "<class 'int'>"),
    ),
    "no_job": (
        {SERVER: DROP},
        "The name of the job to start is missing",
        f"{AT}.0.start_job_instance",
        {},
    ),
    "two_jobs": (
        {f"{AT}.0.start_job_instance.fping": {}},
        "Too much job names to start",
        f"{AT}.0.start_job_instance",
        {},
    ),
    "unknown_job": (
        {SERVER: DROP, f"{AT}.0.start_job_instance.iperf9": {}},
        "No such job in the controller database: iperf9",
        f"{AT}.0.start_job_instance.iperf9",
        {},
    ),
    "unknown_arg": (
        {f"{SERVER}.speed": 1},
        "The configured job does not accept the given argument",
        f"{SERVER}.speed",
        {},
    ),
    "required_missing": (
        {f"{CLIENT}.client.server_ip": DROP},
        "Missing required argument",
        f"{CLIENT}.server_ip",
        {},
    ),
    "group_missing": (
        {f"{SERVER}.server": DROP},
        "Missing subcommand for required group",
        f"{SERVER}.mode",
        {},
    ),
    "two_subcommands": (
        {f"{SERVER}.client": {"server_ip": "$srv"}},
        "Several subcommands provided for the group",
        f"{SERVER}.mode",
        {},
    ),
    "wrong_type": (
        {f"{SERVER}.port": "http"},
        _wrong("str", "int"),
        f"{SERVER}.port",
        _typed("http", "int"),
    ),
    "wrong_ip": (
        {f"{CLIENT}.client.server_ip": "server.example"},
        _wrong("str", "IPv4Address or IPv6Address"),
        f"{CLIENT}.server_ip",
        _typed("server.example", "ip"),
    ),
    "bad_dollar": (
        {f"{SERVER}.port": "$$5"},
        _wrong("str", "int"),
        f"{SERVER}.port",
        _typed("$$5", "int"),
    ),
    "null_in_list": (
        {f"{SERVER}.port": [None]},
        "An array of value contains gaps for the given argument",
        f"{SERVER}.port",
        {},
    ),
    "push_text": (
        third(push_file={"entity_name": "server", "local_path": "a", "remote_path": ["b"]}),
        "Type error",
        f"{AT}.2.push_file.local_path",
        _typed("a", "<class 'list'>"),
    ),
    "if_literal": (third(**{"if": IF}), "'property' object is not callable", f"{AT}.2.if", {}),
    "subargs_text": (
        third(start_scenario_instance={"scenario_name": "x", "arguments": "none"}),
        _wrong("str", "dict"),
        f"{AT}.2.start_scenario_instance",
        {},
    ),
}
"""Changes of GOOD, and the refusal: `error`, `offending_entry`, further keys. Status 400."""

BEGINNINGS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "id_twice": (
        {f"{AT}.1.id": 1},
        "duplicate key value violates unique constraint",
        f"{AT}.1.start_job_instance",
        "scenario with an `id` twice",
    ),
    "sub_no_arguments": (
        third(start_scenario_instance={"scenario_name": "x"}),
        'null value in column "arguments"',
        f"{AT}.2.start_scenario_instance",
        "`start_scenario_instance` without `arguments`",
    ),
}
"""Refusals whose text goes on with PostgreSQL's names: changes of GOOD, its beginning,
`offending_entry`, the row in docs/api.md.
"""

OURS: dict[str, tuple[Any, int, int, str]] = {
    "dollar_end": (
        {f"{CLIENT}.client.tcp.cong_control": "abc$"},
        500,
        400,
        "value that ends with a single `$`",
    ),
    "nul_text": ({"description": "a\0b"}, 500, 400, "text with NUL"),
    "stop_ids_scalar": (
        {f"{AT}.2.stop_job_instances.openbach_function_ids": 1},
        500,
        400,
        "`openbach_function_ids` is a number",
    ),
    "body_list": (None, 500, 400, "scenario is a list"),
    "name_int": ({"name": 7}, 200, 400, "`name` of a scenario is a number"),
    "bool_id": ({f"{AT}.0.id": True}, 200, 400, "`id` is `true`"),
    "entity_int": (
        {f"{AT}.0.start_job_instance.entity_name": 3},
        200,
        400,
        "`entity_name` is a number",
    ),
    "nan_time": ({f"{AT}.1.wait.time": float("nan")}, 200, 400, "`time` is NaN"),
}
"""Changes of GOOD (None: a list in its place), OpenBACH's status, ours, the row in docs/api.md."""


def row_of(request: str) -> tuple[int, int]:
    """Return the statuses of OpenBACH and ours in the row of docs/api.md about a request."""
    for line in (paths.ROOT / "docs/api.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 6 and cells[1] == request:
            assert cells[4], "a reason"
            return int(cells[2][:3]), int(cells[3][:3])
    raise AssertionError(f"docs/api.md has no row {request!r}")


def changed(changes: dict[str, Any]) -> Document:
    document = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *above, last = path.split(".")
        place: Any = document
        for key in above:
            place = place[int(key) if isinstance(place, list) else key]
        if value is DROP:
            del place[last]
        else:
            place[int(last) if isinstance(place, list) else last] = value
    return document


@pytest.fixture
def saver(runner: TestClient, settings: Settings) -> TestClient:
    upstream_shapes.write_job(settings.jobs, "iperf3", upstream_shapes.JOBS["iperf3"])
    return runner


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.promise("P53")
def test_refusals_of_scenarios_are_those_that_were_recorded(saver: TestClient, name: str) -> None:
    changes, error, entry, more = REFUSED[name]
    document = changed(changes)
    answer = saver.post(SCENARIOS, json=document)
    assert answer.status_code == 400
    assert answer.json() == {
        "scenario_name": "recorded",
        "error": "Data of the Scenario are malformed",
        "error_message": {"error": error, "offending_entry": entry, **more},
        "scenario_data": document,
    }


@pytest.mark.parametrize("name", BEGINNINGS)
def test_refusals_of_the_database_begin_as_recorded(saver: TestClient, name: str) -> None:
    changes, error, entry, row = BEGINNINGS[name]
    answer = saver.post(SCENARIOS, json=changed(changes))
    said = answer.json()["error_message"]
    assert (answer.status_code, said["offending_entry"]) == (400, entry)
    assert said["error"].startswith(error)
    assert row_of(row) == (400, 400)


@pytest.mark.parametrize("name", OURS)
def test_what_fails_there_later_is_refused_here(saver: TestClient, name: str) -> None:
    changes, theirs, ours, row = OURS[name]
    answer = ask(saver, "POST", SCENARIOS, [1, 2] if changes is None else changed(changes))
    assert answer.status_code == ours != theirs
    assert set(answer.json()) & {"error", "msg"}
    assert row_of(row) == (theirs, ours)


def test_what_was_taken_is_taken(saver: TestClient) -> None:
    assert saver.post(SCENARIOS, json=GOOD).status_code == 200
    negative = changed({"name": "negative", f"{AT}.1.wait.time": -1})
    assert saver.post(SCENARIOS, json=negative).status_code == 200
    nameless = saver.post(SCENARIOS, json=changed({"name": DROP}))
    assert (nameless.status_code, nameless.json()) == (
        400,
        {"error": "You must provide a name to create a Scenario"},
    )


UNKNOWN = {"error": "The requested Scenario Instance is not in the database"}
PING = f"{SCENARIOS}ping/"
LAUNCH = f"{PING}scenario_instance/"
WRONG = {
    "openbach_function_name": "start job instance",
    "error": "Arguments of an OpenbachFunction have the wrong type of values.",
}
MISSING = "[\"value contains a placeholder ('count') that is not found in provided parameters\"]"
NO_INSTANCE = {**UNKNOWN, "scenario_instance_id": 99999}
NO_JOB_INSTANCE = {
    "job_instance_id": 99999,
    "error": "The requested Job Instance is not in the database",
}
NO_AGENT = {"agent_address": "9.9.9.9", "error": "The requested Agent is not in the database"}
NO_PROJECT = {"project_name": "nope", "error": "The requested Project is not in the database"}
NO_SCENARIO = {
    "scenario_name": "nope",
    "project_name": "satlab",
    "error": "The requested Scenario is not in the database",
}
NEW: Document = {"description": "", "owners": [], "entity": [], "network": [], "scenario": []}
NAMES = {"msg": "POST data malformed: 'names' missing"}
JOB_STATES = dict.fromkeys(("install", "uninstall", "log_severity", "stat_policy"))
AGENT_STATES = dict.fromkeys(("install", "uninstall", "assign_collector", "log_severity"))
CONNECTED = {"msg": "A user is already connected. Please logout first and then log back in."}
OTHERS: dict[str, tuple[str, str, Any, int, Any]] = {
    "launch_missing": ("POST", LAUNCH, {"arguments": {}}, 400, WRONG | {"error_message": MISSING}),
    "launch_no_arguments": ("POST", LAUNCH, {}, 400, WRONG | {"error_message": MISSING}),
    "launch_extra": (
        "POST",
        LAUNCH,
        {"arguments": {"count": "2", "zz": "1"}},
        400,
        {
            "scenario_name": "ping",
            "project_name": "satlab",
            "argument_name": "zz",
            "error": "A value was provided for an Argument that is not defined for this Scenario.",
        },
    ),
    "launch_wrong": (
        "POST",
        LAUNCH,
        {"arguments": {"count": "many"}},
        400,
        WRONG | {"error_message": _wrong("str", "int")},
    ),
    "launch_unknown": ("POST", f"{SCENARIOS}nope/scenario_instance/", {}, 404, NO_SCENARIO),
    "launch_unknown_project": (
        "POST",
        "/project/nope/scenario/ping/scenario_instance/",
        {},
        404,
        NO_PROJECT,
    ),
    "instance_unknown": ("GET", "/scenario_instance/99999/", None, 404, NO_INSTANCE),
    "stop_unknown": (
        "POST",
        "/scenario_instance/99999/",
        {},
        404,
        {"response": NO_INSTANCE, "returncode": 404},
    ),
    "delete_unknown": ("DELETE", "/scenario_instance/99999/", {}, 404, NO_INSTANCE),
    "job_unknown": (
        "GET",
        "/job/nope/",
        None,
        404,
        {"job_name": "nope", "error": "The requested Job is not in the database"},
    ),
    "job_state_unknown_agent": (
        "GET",
        "/job/satlab_ping/state/?address=9.9.9.9",
        None,
        200,
        JOB_STATES,
    ),
    "job_state_no_address": (
        "GET",
        "/job/satlab_ping/state/",
        None,
        400,
        {"msg": "POST data malformed: 'address' missing"},
    ),
    "agent_unknown": ("GET", "/agent/9.9.9.9/", None, 404, NO_AGENT),
    "agent_state_unknown": ("GET", "/agent/9.9.9.9/state/", None, 200, AGENT_STATES),
    "entity_unknown": (
        "GET",
        "/project/satlab/entity/nope/",
        None,
        404,
        {
            "project_name": "satlab",
            "entity_name": "nope",
            "error": "The requested Entity is not in the database",
        },
    ),
    "entity_bad_agent": (
        "POST",
        "/project/satlab/entity/",
        {"name": "e9", "description": "", "agent": {"address": "9.9.9.9"}},
        404,
        NO_AGENT,
    ),
    "project_exists": (
        "POST",
        "/project/",
        {"name": "satlab", **NEW},
        409,
        {"name": "satlab", "error": "Trying to create an existing Project."},
    ),
    "project_digits": (
        "POST",
        "/project/",
        {"name": "123", **NEW},
        400,
        {"project_name": 123, "error": "Project name cannot be digits only"},
    ),
    "project_slash": (
        "POST",
        "/project/",
        {"name": "a/b", **NEW},
        400,
        {"project_name": "a/b", "error": "'/' character forbidden in project name"},
    ),
    "scenario_exists": (
        "POST",
        SCENARIOS,
        {"name": "ping", AT: []},
        409,
        {"name": "ping", "project": "satlab", "error": "Trying to create an existing Scenario."},
    ),
    "scenario_put_other_name": (
        "PUT",
        PING,
        {"name": "pong", AT: []},
        400,
        {
            "scenario": "ping",
            "name": "pong",
            "error": "The name in the Scenario data does not match with the name of the scenario.",
        },
    ),
    "scenario_put_no_name": (
        "PUT",
        PING,
        {AT: []},
        400,
        {
            "scenario": "ping",
            "error": "The Scenario data to modify an existing Scenario does not contain the"
            " Scenario name.",
        },
    ),
    "scenario_delete_unknown": ("DELETE", f"{SCENARIOS}nope/", {}, 404, NO_SCENARIO),
    "install_no_names": ("POST", "/job/", {"action": "install", "addresses": []}, 400, NAMES),
    "job_action_unknown": ("POST", "/job/", {"action": "explode"}, 400, NAMES),
    "job_instance_unknown": ("GET", "/job_instance/99999/", None, 404, NO_JOB_INSTANCE),
    "job_instance_no_agent": (
        "POST",
        "/job_instance/",
        {
            "action": "start",
            "agent_ip": "9.9.9.9",
            "job_name": "satlab_ping",
            "instance_args": {},
        },
        404,
        NO_AGENT,
    ),
    "login_wrong": ("POST", "/login/", {"login": "admin", "password": "no"}, 409, CONNECTED),
    "statistics_unknown": ("GET", "/statistics/nope/", None, 404, NO_PROJECT),
    "statistic_unknown": ("GET", "/statistic/99999/", None, 404, NO_JOB_INSTANCE),
    "method": ("DELETE", "/version/", {}, 405, None),
    "patch": ("PATCH", "/project/", {}, 405, None),
    "not_json": (
        "POST",
        "/project/",
        "{bad",
        400,
        {"error": "API error: data should be sent as JSON in the request body"},
    ),
}
"""Method, path, body, status, and answer (None: empty)."""

NOTHING_TO_INSTALL = "`install` of an unknown job, or on an unknown agent"
NO_PAGE = "unknown path, instance that is no number, CSV of an unknown instance"
OTHERS_OURS: dict[str, tuple[str, str, Any, int, int, str]] = {
    "instance_text": ("GET", "/scenario_instance/abc/", None, 404, 404, NO_PAGE),
    "csv_unknown": ("GET", "/scenario_instance/99999/csv/", None, 404, 404, NO_PAGE),
    "page_unknown": ("GET", "/nothing/", None, 404, 404, NO_PAGE),
    "launch_args_list": (
        "POST",
        LAUNCH,
        {"arguments": [1]},
        500,
        400,
        "`arguments` of a launch is a list",
    ),
    "scenario_put_unknown": (
        "PUT",
        f"{SCENARIOS}nope/",
        {"name": "nope", AT: []},
        500,
        404,
        "`PUT` of an unknown scenario",
    ),
    "install_unknown_job": (
        "POST",
        "/job/",
        {"action": "install", "names": ["nope"], "addresses": ["198.18.1.2"]},
        202,
        404,
        NOTHING_TO_INSTALL,
    ),
    "install_unknown_agent": (
        "POST",
        "/job/",
        {"action": "install", "names": ["satlab_ping"], "addresses": ["9.9.9.9"]},
        202,
        404,
        NOTHING_TO_INSTALL,
    ),
    "job_instance_missing_arg": (
        "POST",
        "/job_instance/",
        {
            "action": "start",
            "agent_ip": "198.18.1.2",
            "job_name": "satlab_ping",
            "instance_args": {},
        },
        202,
        400,
        "single job without a required argument",
    ),
}
"""Method, path, body, OpenBACH's status, ours, the row in docs/api.md."""


def ask(client: TestClient, method: str, path: str, body: Any) -> Any:
    content = None if body is None else body if isinstance(body, str) else json.dumps(body)
    headers = {"content-type": "application/json"} if content else {}
    return client.request(method, path, content=content, headers=headers)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.promise("P53")
def test_other_answers_are_those_that_were_recorded(admin: TestClient, name: str) -> None:
    method, path, body, status, said = OTHERS[name]
    answer = ask(admin, method, path, body)
    assert answer.status_code == status
    assert (answer.json() if answer.content else None) == said


@pytest.mark.parametrize("name", OTHERS_OURS)
def test_other_answers_that_are_ours(admin: TestClient, name: str) -> None:
    method, path, body, theirs, status, row = OTHERS_OURS[name]
    answer = ask(admin, method, path, body)
    assert answer.status_code == status
    assert row_of(row) == (theirs, status)
    assert set(answer.json()) & {"error", "msg"}


def test_every_recorded_request_is_asked() -> None:
    taken = ("ok", "negative_time", "name_missing")
    assert len(REFUSED) + len(BEGINNINGS) + len(OURS) + len(taken) == 55
    assert len(OTHERS) + len(OTHERS_OURS) == 41
