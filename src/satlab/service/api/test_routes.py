# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes other than those of scenarios: their answers, and the status and body of each refusal."""

import csv
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from satlab.service.api import export, initial_content, project_store
from satlab.service.api.conftest import HOST, PASSWORD, FakeHelper, progress_of
from satlab.service.api.dependencies import Context

PROJECT = {
    "name": "lab",
    "description": "Ours",
    "owners": ["runner"],
    "entity": [{"name": "c", "agent": None}],
}


def refused(answer: Any, status: int, key: str = "error") -> str:
    assert answer.status_code == status, answer.text
    assert set(answer.json()) >= {key}
    return str(answer.json()[key])


# --- session and users ----------------------------------------------------------------------------


def test_login_says_who(anonymous: TestClient) -> None:
    assert anonymous.get("/login/").json() == {
        **dict.fromkeys(("username", "name", "first_name", "last_name", "email")),
        "is_user": False,
        "is_admin": False,
        "favorites": {},
    }
    wrong = anonymous.post("/login/", json={"login": "admin", "password": "wrong"})
    assert (wrong.status_code, wrong.json()) == (401, {"msg": "Wrong Credentials"})
    refused(anonymous.post("/login/", json={"login": "admin"}), 400, "msg")
    good = anonymous.post(
        "/openbach/login/", json={"login": "admin", "password": PASSWORD, "vault_password": None}
    )
    assert good.json()["is_admin"]
    refused(anonymous.post("/login/", json={"login": "admin", "password": PASSWORD}), 409, "msg")
    assert anonymous.request("DELETE", "/login/", json={}).status_code == 204
    assert anonymous.get("/login/").json()["username"] is None


def test_an_account_is_asked_for_and_approved(anonymous: TestClient, admin: TestClient) -> None:
    new = {
        "login": "new",
        "password": "long enough",
        "email": "",
        "first_name": "N",
        "last_name": "W",
    }
    assert anonymous.post("/login/", json={"action": "create", **new}).status_code == 204
    refused(anonymous.post("/login/", json={"action": "create", **new}), 409)
    assert anonymous.post("/login/", json=new).status_code == 401
    approve = {"permissions": [{"login": "new", "active": True, "admin": False}]}
    assert admin.put("/login/users/", json=approve).status_code == 204
    assert anonymous.post("/login/", json=new).json()["name"] == "N W"
    refused(anonymous.put("/login/users/", json=approve), 403)
    refused(admin.put("/login/users/", json={}), 400, "msg")
    refused(admin.put("/login/users/", json={"permissions": [{"login": "nobody"}]}), 404)
    refused(
        admin.put("/login/users/", json={"permissions": [{"login": "admin", "admin": False}]}), 403
    )
    assert (
        admin.request("DELETE", "/login/users/", json={"usernames": ["new", "admin"]}).status_code
        == 204
    )
    assert [user["username"] for user in admin.get("/login/users/").json()] == [
        "admin",
        "runner",
        "viewer",
    ]


def test_p350_the_api_describes_its_routes_to_those_who_have_an_account(
    viewer: TestClient, anonymous: TestClient
) -> None:
    refused(anonymous.get("/openapi.json"), 403)
    document = viewer.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert {"get", "post"} <= document["paths"]["/project/{project}/scenario/"].keys()
    assert document["paths"]["/project/{project}/scenario/"]["get"]["summary"]
    assert len(document["paths"]) > 25
    assert not [path for path in document["paths"] if path.startswith(("/ui", "/openbach"))]


def test_a_profile_is_one_s_own(runner: TestClient, anonymous: TestClient) -> None:
    assert (
        runner.put("/login/", json={"login": "runner", "first_name": "R", "last_name": ""}).json()[
            "name"
        ]
        == "R"
    )
    refused(runner.put("/login/", json={"login": "admin"}), 403)
    refused(anonymous.put("/login/", json={"login": "runner"}), 403)
    refused(runner.put("/login/", json={"login": "runner", "password": "short"}), 400, "msg")


def test_bodies_that_are_no_json(runner: TestClient) -> None:
    expected = "API error: data should be sent as JSON in the request body"
    headers = {"content-type": "application/json"}
    for content in (b"{", b"[]", b"\xff", b"[" * 100_000):
        answer = runner.post("/project/", content=content, headers=headers)
        assert (answer.status_code, answer.json()) == (400, {"error": expected})
    assert (
        refused(runner.post("/project/", content=b"", headers=headers), 400, "msg")
        == "POST data malformed: 'name' missing"
    )


# --- projects -------------------------------------------------------------------------------------


def test_a_project_with_owners_is_theirs(
    runner: TestClient, viewer: TestClient, admin: TestClient
) -> None:
    made = runner.post("/project/?ignore_topology", json=PROJECT).json()
    assert set(made) >= {
        "name",
        "description",
        "owners",
        "entity",
        "scenario",
        "network",
        "hidden_network",
    }
    assert made["entity"] == [{"name": "c", "description": "", "agent": None, "networks": []}]
    assert [each["name"] for each in viewer.get("/project/").json()] == ["satlab"]
    for path in ("", "scenario/", "entity/", "scenario_instance/"):
        refused(viewer.get(f"/project/lab/{path}"), 403)
        assert admin.get(f"/project/lab/{path}").status_code == 200
    refused(runner.post("/project/", json=PROJECT), 409)
    refused(runner.post("/project/", json={**PROJECT, "name": "x", "owners": ["nobody"]}), 404)
    refused(runner.put("/project/lab/", json={**PROJECT, "name": "other"}), 400)
    refused(runner.get("/project/nothing/"), 404)
    changed = {**PROJECT, "description": "More", "owners": ["runner", "viewer"]}
    assert runner.put("/project/lab/", json=changed).json()["description"] == "More"
    assert viewer.get("/project/lab/").status_code == 200
    assert runner.request("DELETE", "/project/lab/", json={}).status_code == 204
    refused(runner.get("/project/lab/"), 404)


SHIPPED = ("/project/satlab/", "/project/satlab/entity/client/", "/project/satlab/scenario/ping/")


@pytest.mark.parametrize("path", SHIPPED)
def test_t66_what_is_shipped_is_removed_by_administrators_alone_and_comes_back(
    runner: TestClient, admin: TestClient, context: Context, path: str
) -> None:
    refused(runner.request("DELETE", path, json={}), 403)
    assert runner.get(path).status_code == 200
    assert admin.request("DELETE", path, json={}).status_code == 204
    assert admin.get(path).status_code == 404
    initial_content.fill(context)
    assert runner.get(path).status_code == 200


def test_t66_a_project_is_removed_and_given_to_others_by_its_owners_alone(
    runner: TestClient, admin: TestClient
) -> None:
    bodies: tuple[dict[str, list[str]], ...] = ({"owners": ["runner"]}, {"entity": []})
    for body in bodies:
        refused(runner.put("/project/satlab/", json=body), 403)
    assert admin.post("/project/", json={**PROJECT, "owners": []}).status_code == 200
    assert (
        runner.put(
            "/project/lab/", json={**PROJECT, "owners": [], "description": "Mine"}
        ).status_code
        == 200
    )
    refused(runner.put("/project/lab/", json=PROJECT), 403)
    refused(runner.request("DELETE", "/project/lab/", json={}), 403)
    assert admin.put("/project/lab/", json=PROJECT).status_code == 200
    assert runner.request("DELETE", "/project/lab/", json={}).status_code == 204


@pytest.mark.parametrize("name", ["12", "a/b", "", ".x", "x" * 65, "a\nb", "a\x1bb", 5])
def test_t04_names_of_projects(runner: TestClient, name: Any) -> None:
    assert runner.post("/project/", json={"name": name}).status_code == 400


def test_nothing_of_a_faulty_project_is_made(runner: TestClient) -> None:
    refused(runner.post("/project/", json={**PROJECT, "scenario": [{"name": "bad"}]}), 400)
    refused(runner.get("/project/lab/"), 404)


def test_entities(runner: TestClient) -> None:
    entity = {"name": "probe", "description": "", "agent": {"address": "198.18.4.2"}}
    made = runner.post("/project/satlab/entity/", json=entity).json()
    assert "probe" in [each["name"] for each in made["entity"]]
    refused(runner.post("/project/satlab/entity/", json=entity), 409)
    refused(
        runner.post(
            "/project/satlab/entity/",
            json={**entity, "name": "x", "agent": {"address": "192.0.2.1"}},
        ),
        404,
    )
    found = runner.get("/project/satlab/entity/probe/").json()
    assert found["agent"]["name"] == "server"
    assert found["networks"][0]["ip"] == "198.18.4.2"
    assert runner.put("/project/satlab/entity/probe/", json={"agent": None}).json()["agent"] is None
    assert runner.request("DELETE", "/project/satlab/entity/probe/", json={}).status_code == 204
    refused(runner.get("/project/satlab/entity/probe/"), 404)


# --- agents, jobs ---------------------------------------------------------------------------------


def test_agents_are_the_nodes(viewer: TestClient, admin: TestClient) -> None:
    (client,) = [agent for agent in viewer.get("/agent/").json() if agent["name"] == "client"]
    assert (client["address"], client["status"], client["available"]) == (
        "198.18.1.2",
        "Available",
        True,
    )
    assert viewer.get("/agent/198.18.1.2/").json() == client
    refused(viewer.get("/agent/192.0.2.1/"), 404)
    new = {"name": "x", "address": "192.0.2.1", "collector_ip": "127.0.0.1"}
    refused(admin.post("/agent/", json=new), 422)
    refused(admin.post("/agent/", json={}), 400, "msg")
    assert admin.post("/agent/", json={**new, "address": "198.18.1.2"}).status_code == 202
    assert viewer.get("/agent/198.18.1.2/state/").json()["install"]["returncode"] == 204
    refused(admin.request("DELETE", "/agent/198.18.1.2/", json={}), 409)
    refused(admin.post("/agent/198.18.1.2/", json={"action": "explode"}), 400)


def test_jobs(viewer: TestClient, admin: TestClient) -> None:
    found = {job["general"]["name"]: job for job in viewer.get("/job/").json()}
    ping = found["satlab_ping"]
    assert set(ping) == {"general", "platform_configuration", "arguments", "statistics"}
    assert ping["arguments"]["required"][0] | {"description": ""} == {
        "name": "destination_ip",
        "type": "ip",
        "count": "1",
        "description": "",
        "password": False,
    }
    groups = found["satlab_iperf3"]["arguments"]["subcommands"]
    assert [choice["name"] for choice in groups[0]["choices"]] == ["server", "client"]
    assert viewer.get("/job/satlab_ping/?type=keywords").json()["keywords"]
    assert len(viewer.get("/job/satlab_ping/?type=agents").json()["installed_on"]) >= 5
    assert [
        j["general"]["name"] for j in viewer.get("/job/?string_to_search=ping&ratio=90").json()
    ] == ["satlab_ping"]
    on = viewer.get("/job/?address=198.18.1.2").json()
    assert "satlab_ping" in [job["name"] for job in on["installed_jobs"]]
    for answer in (viewer.get("/job/nothing/"), viewer.get("/job/?address=192.0.2.1")):
        refused(answer, 404)
    refused(viewer.get("/job/satlab_ping/?type=colour"), 400)
    assert refused(admin.post("/job/", json={"name": "nothing", "path": "/etc"}), 400) == (
        "The configuration file of the Job is not present"
    )
    refused(admin.post("/job/", json={}), 400, "msg")
    refused(
        admin.post("/job/", json={"action": "install", "names": ["nothing"], "addresses": []}), 404
    )
    assert admin.request("DELETE", "/job/satlab_ping/", json={}).status_code == 204
    refused(viewer.get("/job/satlab_ping/"), 404)
    assert admin.post("/job/", json={"name": "satlab_ping", "path": "/anything"}).status_code == 200


# --- job instances, statistics, export ------------------------------------------------------------


def test_a_job_by_itself(runner: TestClient, context: Context, helper: FakeHelper) -> None:
    start = {"action": "start", "agent_ip": "198.18.1.2", "job_name": "satlab_ping"}
    refused(runner.post("/job_instance/", json=start), 400)
    start["instance_args"] = {"destination_ip": "198.18.4.2"}  # type: ignore[assignment]
    refused(runner.post("/job_instance/", json={**start, "job_name": "nothing"}), 404)
    refused(runner.post("/job_instance/", json={**start, "agent_ip": "192.0.2.1"}), 404)
    number = runner.post("/job_instance/", json=start).json()["job_instance_id"]
    waiting = runner.get(f"/job_instance/{number}/").json()
    assert (waiting["status"], waiting["stop_date"]) == ("Scheduled", "Not programmed yet")
    assert runner.get("/project/satlab/scenario_instance/").json() == []
    context.queue.step()
    assert next(iter(helper.requests.values())).endless
    assert runner.post(f"/job_instance/{number}/", json={"action": "stop"}).status_code == 202
    context.queue.step()
    context.queue.step()
    assert context.queue.live() == []
    refused(runner.get("/job_instance/99/"), 404)
    refused(runner.post("/job_instance/", json={"action": "dance"}), 400)
    refused(runner.post("/job_instance/", json={"action": "kill"}), 403)


def test_a_scenario_of_each_terminal_has_its_jobs_and_entities(
    runner: TestClient, context: Context, helper: FakeHelper
) -> None:
    def launch(name: str, **body: Any) -> int:
        number: int = runner.post(
            f"/project/satlab/scenario/{name}/scenario_instance/", json=body
        ).json()["scenario_instance_id"]
        return number

    first = launch("fairness", arguments={"duration": "5"}, link={"terminals": 3})
    second = launch("ping", arguments={"count": "2"})
    context.queue.step()
    ((run_id, request),) = helper.requests.items()
    starts = [
        each["start_job_instance"]
        for each in request.documents["fairness"]["openbach_functions"]
        if "start_job_instance" in each
    ]
    entities = [start["entity_name"] for start in starts]
    assert entities.count("server") == 6
    assert {name: request.entities[name] for name in entities} == {name: name for name in entities}
    assert set(entities) == {"server", "client", "client-2", "client-3"}
    found = [context.queue.find(number) for number in (first, second)]
    assert found[0] and found[1] and found[1].first_job == found[0].first_job + 12, (
        "no number is given twice"
    )
    last = request.documents["fairness"]["openbach_functions"][5]
    running = {"status": "Running", "stop_unix_s": None}
    job = {"id": found[0].first_job, "job": "satlab_iperf3", "entity": "client-3", **running}
    arguments = {"duration": "5"}
    node = progress_of(first, "fairness", job, last["id"], arguments=arguments, **running)
    helper.end(run_id, 0, instance=node)
    context.queue.step()
    (shown,) = runner.get(f"/scenario_instance/{first}/").json()["openbach_functions"]
    assert (shown["job"]["entity"], shown["job"]["agent"]) == ("client-3", "client-3")


def stat(job: int, **values: Any) -> dict[str, Any]:
    meta = {"time": 1_800_000_000_000 + job, "is_file": False, "agent_name": "client", "flag": 1}
    meta |= {"job_name": "satlab_ping", "job_instance_id": job}
    meta |= {"scenario_instance_id": 1, "owner_scenario_instance_id": 1}
    return {**values, "_metadata": meta}


@pytest.fixture
def ended(runner: TestClient, context: Context, helper: FakeHelper) -> Path:
    """Return the `raw` folder of an instance that has ended."""
    where = "/project/satlab/scenario/ping/scenario_instance/"
    assert runner.post(where, json={"arguments": {"count": "2"}}).json() == {
        "scenario_instance_id": 1
    }
    context.queue.step()
    (run_id,) = helper.runs
    node = progress_of(1, "ping", {}, arguments={"count": "2"})
    raw = context.settings.runs / run_id / "raw"
    (raw / "files" / "satlab_ping-1").mkdir(parents=True)
    helper.end(run_id, 0, instance=node)
    context.queue.step()
    return raw


def write(raw: Path, *lines: Any) -> None:
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    (raw / "stats.jsonl").write_text(text)


def rows(client: TestClient) -> list[dict[str, str]]:
    answer = client.get("/scenario_instance/1/csv/")
    assert answer.headers["content-disposition"] == 'attachment; filename="scenario1.csv"'
    return list(csv.DictReader(io.StringIO(answer.text)))


@pytest.mark.promise("P53")
def test_csv_has_openbach_s_columns(ended: Path, viewer: TestClient) -> None:
    assert "time" not in rows(viewer)[0]  # no statistic: a row per job
    write(ended, stat(1, rtt_ms=580.0), stat(1, loss=0))
    found = rows(viewer)
    assert list(found[0]) == sorted(found[0])
    assert [(row["rtt_ms"], row["loss"], row["@agent_name"]) for row in found] == [
        ("580.0", "", "client"),
        ("", "0", "client"),
    ]
    assert found[0]["@job_instance_start_date"] == "2027-01-15 08:00:00+00:00"
    assert found[0]["time"].endswith("+00:00")


def test_t12_records_that_are_none_are_left_out(ended: Path, viewer: TestClient) -> None:
    forged = stat(1, rtt_ms=1.0)
    forged["_metadata"]["time"] = 1 << 80
    write(ended, "{", "[]", "null", {"_metadata": 5}, "[" * 100_000, forged, stat(1, rtt_ms=580.0))
    assert [row["rtt_ms"] for row in rows(viewer)] == ["580.0"]


def test_t14_text_is_neither_formula_nor_markup(ended: Path, viewer: TestClient) -> None:
    write(
        ended,
        stat(
            1, title="=HYPERLINK(0)", other="@SUM(1)", more="-2+cmd|'/C calc'!A0", page="<script>"
        ),
    )
    (row,) = rows(viewer)
    assert (row["title"], row["other"], row["page"]) == ("'=HYPERLINK(0)", "'@SUM(1)", "<script>")
    assert row["more"] == "'-2+cmd|'/C calc'!A0"
    answer = viewer.get("/scenario_instance/1/")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_statistics_of_a_job(ended: Path, viewer: TestClient) -> None:
    write(ended, *(stat(1, rtt_ms=float(value)) for value in (1, 2, 3, 3)))
    assert viewer.get("/statistic/1/").json() == {"statistics": ["rtt_ms"], "suffixes": []}
    assert viewer.get("/statistic/1/?origin").json() == 1_800_000_000_001
    assert viewer.get("/statistic/1/?name=rtt_ms&origin=1800000000000").json() == {
        "rtt_ms": [1.0, 2.0, 3.0, 3.0],
        "time": [1] * 4,
    }
    assert viewer.get("/statistic/1/?name=rtt_ms&histogram=2").json() == {
        "counts": [1, 3],
        "buckets": [1.5, 2.5],
    }
    assert viewer.get("/statistic/1/?name=rtt_ms&comparative").json() == {
        "mean": 2.25,
        "variance": 0.6875,
    }
    assert viewer.get("/statistic/1/?name=nothing").json() == []
    assert viewer.get("/statistics/satlab/").json() == {"satlab_ping": ["rtt_ms"]}
    refused(viewer.get("/statistic/9/"), 404)
    refused(viewer.get("/statistic/1/?name=x&origin=abc"), 400)
    refused(viewer.get("/statistic/1/?name=x&histogram=0"), 400, "msg")


def test_t77_statistics_of_hostile_jobs_take_bounded_memory(
    ended: Path, viewer: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [stat(1, **{f"{n}-{m}": 1 for m in range(100)}) for n in range(30)]
    write(ended, *many)
    monkeypatch.setattr(export, "MAX_COLUMNS", 200)
    assert len(viewer.get("/statistic/1/").json()["statistics"]) == 200
    assert len(viewer.get("/statistics/satlab/").json()["satlab_ping"]) == 200
    assert {f"1-{m}" for m in range(100)} <= set(rows(viewer)[0])
    monkeypatch.setattr(export, "MAX_STATISTICS", 1000)
    for path in (
        "statistic/1/",
        "statistic/1/?name=1-1",
        "scenario_instance/1/csv/",
        "scenario_instance/1/?files_count",
    ):
        assert "at most 1000 are read" in refused(viewer.get(f"/{path}"), 413)
    assert viewer.get("/statistics/satlab/").json() == {}


def test_t77_known_statistics_take_no_place_of_new_ones(
    ended: Path, viewer: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(ended, stat(1, a=1, b=2), stat(1, a=1, b=2, c=3, d=4))
    monkeypatch.setattr(export, "MAX_COLUMNS", 3)
    assert {"a", "b", "c"} <= set(rows(viewer)[0]) and "d" not in rows(viewer)[0]


def test_t78_projects_and_what_is_in_them_are_bounded(
    runner: TestClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(context.catalog.projects())
    large = {"name": "nothing", "description": "x" * 9000, "openbach_functions": []}
    monkeypatch.setattr(project_store, "MOST_OF_PROJECT", 50_000)
    assert runner.post("/project/", json={"name": "a", "scenario": [large]}).status_code == 200
    changes = (runner.put("/project/a/scenario/nothing/", json=large) for _ in range(10))
    assert {answer.status_code for answer in changes} == {200, 413}
    entity = {"name": "e", "description": "x" * 9000}
    refused(runner.post("/project/a/entity/", json=entity), 413)
    monkeypatch.setattr(project_store, "MOST_PROJECTS", before + 1)
    refused(runner.post("/project/", json={"name": "b"}), 413)
    assert len(context.catalog.projects()) == before + 1
    monkeypatch.setattr(project_store, "MOST_BYTES", 40_000)
    refused(runner.put("/project/a/scenario/nothing/", json=large), 413)
    assert runner.delete("/project/a/").status_code in (204, 403)


def test_t04_the_archive_holds_files_of_the_run_alone(
    ended: Path, viewer: TestClient, tmp_path: Path
) -> None:
    (ended / "files" / "satlab_ping-1" / "ping.json").write_text("{}")
    (ended / "files" / "link.json").symlink_to("/etc/passwd")
    stored = [
        stat(1, ping_json=place)
        for place in ("files/satlab_ping-1/ping.json", "../../secret", "/etc/passwd")
    ]
    stored.append(stat(1, ping_json="files/link.json"))
    for record in stored:
        record["_metadata"]["is_file"] = True
    write(ended, *stored)
    assert viewer.get("/scenario_instance/1/?files_count").json() == {
        "satlab_ping": {"ping_json": 4}
    }
    data = viewer.get("/scenario_instance/1/archive/?satlab_ping=ping_json").content
    with tarfile.open(fileobj=io.BytesIO(data)) as outer:
        text, packed = outer.getnames()
        assert text == "scenario_instance_1.csv"
        assert re.fullmatch(r"client\.satlab_ping_\(1\)\.ping_json\.\w{8}\.tar\.gz", packed)
        inner = outer.extractfile(packed)
        assert inner is not None
        with tarfile.open(fileobj=io.BytesIO(inner.read())) as files:
            assert files.getnames() == ["ping.json"]
    plain = viewer.get("/scenario_instance/1/archive/")
    assert plain.headers["content-disposition"] == 'attachment; filename="scenario1.tar.gz"'
    assert plain.text.startswith("@agent_name,")


def test_an_archive_has_one_inner_archive_for_each_instance_and_statistic(
    ended: Path, viewer: TestClient
) -> None:
    """The form that was recorded: several files of one statistic are in folders of their times."""
    folder, stored = ended / "files" / "satlab_ping-1", []
    for number, (statistic, own) in enumerate(
        [("load_json", "load-0000.json"), ("load_json", "load-0001.json"), ("log", "../x")]
    ):
        name = f"{statistic}-{number}.json"
        (folder / name).write_text(str(number))
        stored.append(stat(1, **{statistic: f"files/satlab_ping-1/{name}"}))
        about = {"is_file": True, "time": 1_800_000_000_000 + number}
        stored[-1]["_metadata"] |= about | {"file_names": {statistic: own}}
    write(ended, *stored)
    where = "/scenario_instance/1/archive/?satlab_ping=load_json&satlab_ping=log"
    found = {}
    with tarfile.open(fileobj=io.BytesIO(viewer.get(where).content)) as outer:
        for packed in outer.getnames()[1:]:
            inner = outer.extractfile(packed)
            assert inner is not None
            with tarfile.open(fileobj=io.BytesIO(inner.read())) as files:
                found[packed.split(".")[2]] = files.getnames()
    assert found == {
        "load_json": ["1800000000000/load-0000.json", "1800000000001/load-0001.json"],
        "log": ["log-2.json"],
    }


def test_a_job_instance_shows_lists_of_values(ended: Path, viewer: TestClient) -> None:
    del ended
    shown = viewer.get("/job_instance/1/").json()["arguments"]
    assert shown == {
        "destination_ip": ["$server_ip"],
        "count": ["2"],
        "interval": ["$interval"],
    }  # no constants there
    (function,) = viewer.get("/scenario_instance/1/").json()["openbach_functions"]
    assert function["job"]["arguments"] == shown
    assert function["start_job_instance"]["satlab_ping"]["count"] == [["$count"]]


def test_an_empty_suffix_selects_records_without_one(ended: Path, viewer: TestClient) -> None:
    with_suffix = stat(1, rtt_ms=2.0)
    with_suffix["_metadata"]["suffix"] = "x"
    write(ended, stat(1, rtt_ms=1.0), with_suffix)
    found = {
        suffix: viewer.get(f"/statistic/1/?name=rtt_ms{suffix}").json()["rtt_ms"]
        for suffix in ("", "&suffix=", "&suffix=x")
    }
    assert found == {"": [1.0, 2.0], "&suffix=": [1.0], "&suffix=x": [2.0]}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/project/nope/", {"project_name": "nope"}),
        ("/project/satlab/scenario/nope/", {"scenario_name": "nope", "project_name": "satlab"}),
        ("/project/satlab/entity/nope/", {"entity_name": "nope", "project_name": "satlab"}),
        ("/job/nope/", {"job_name": "nope"}),
        ("/agent/192.0.2.1/", {"agent_address": "192.0.2.1"}),
    ],
)
def test_what_is_unknown_is_named(viewer: TestClient, path: str, names: dict[str, str]) -> None:
    answer = viewer.get(path)
    assert answer.status_code == 404
    assert {key: value for key, value in answer.json().items() if key != "error"} == names


def test_what_is_not_here(viewer: TestClient, admin: TestClient) -> None:
    assert viewer.get("/logs/?level=4&delay=10000").json() == []
    assert viewer.get("/job/?external=true").json() == []
    refused(admin.post("/reboot/", json={"agent_ip": "198.18.1.2"}), 422)
    refused(viewer.get("/nothing/at/all/"), 404)
    refused(viewer.get("/scenario_instance/99/"), 404)
    for path in ("csv/", "archive/"):
        refused(viewer.get(f"/scenario_instance/99/{path}"), 404)
    assert viewer.get("/project/satlab/scenario_instance/?offset=-1").status_code == 400
    assert viewer.get("/version/", headers={"host": HOST}).json() == {"openbach_version": "2.7.0"}
