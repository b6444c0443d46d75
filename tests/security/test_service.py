# SPDX-License-Identifier: GPL-3.0-or-later
"""T20 and T21 of the threat table: a full disk does not end the service, an invalid job does not
disable others.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.run import scenario_run
from satlab.service.api import passwords, queue
from satlab.service.api.account_store import Role, User
from satlab.service.api.conftest import HOST, PASSWORD, FakeHelper
from satlab.service.api.database import Store
from satlab.service.api.settings import Settings
from satlab.service.app import create_app
from tests.polling import until
from tests.serve_process import fill

LAUNCH = "/project/satlab/scenario/ping/scenario_instance/"
ARGUMENTS = {"arguments": {"count": "3"}}


def served(store: Store, settings: Settings, helper: FakeHelper) -> TestClient:
    """Return a client of a server with its queue; the client is an administrator once it has logged
    in.
    """
    app = create_app(store, helper, settings)
    app.state.context.accounts.put(User("admin", Role.ADMIN), PASSWORD)
    return TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False)


def log_in(client: TestClient) -> None:
    assert client.post("/login/", json={"login": "admin", "password": PASSWORD}).status_code == 200


@pytest.fixture(autouse=True)
def _cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(passwords.SCRYPT, "n", 16)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with a file system of 4 MB."""
    folder = tmp_path / "state"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "satlab-test", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_t20_on_a_full_disk_launches_are_refused_and_the_queue_goes_on_afterwards(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MAX_PAUSE_S", 0.5)
    settings, helper = Settings(small_disk, frozenset({HOST})), FakeHelper()
    store = Store(settings.database)
    with served(store, settings, helper) as client:
        log_in(client)
        first, second = (
            client.post(LAUNCH, json=ARGUMENTS).json()["scenario_instance_id"] for _ in range(2)
        )
        until(lambda: helper.runs)
        fill(small_disk / "filler")
        helper.end(next(iter(helper.runs)), 0, reason="x" * 100_000)

        def is_refused() -> bool:
            answer = client.post(LAUNCH, json=ARGUMENTS)
            return answer.status_code == 503 and "the queue cannot go on" in answer.json()["error"]

        until(is_refused)
        answer = client.post("/project/", json={"name": "more", "description": "x" * 5000})
        assert answer.status_code == 503
        assert answer.json() == {
            "error": "The server cannot write its database: database or disk is full"
        }
        assert client.get(f"/scenario_instance/{first}/").json()["status"] == "Running"
        (small_disk / "filler").unlink()
        until(lambda: client.get(f"/scenario_instance/{first}/").json()["status"] == "Finished Ok")
        until(lambda: client.get(f"/scenario_instance/{second}/").json()["status"] == "Running")
        assert client.post(LAUNCH, json=ARGUMENTS).status_code == 200
    store.close()


BROKEN: dict[str, Callable[[Path], object]] = {
    "not valid": lambda folder: (folder / "files" / f"{folder.name}.yml").write_text("general: {}"),
    "no descriptor": lambda folder: (folder / "files" / "other.txt").write_text(""),
    "folder": lambda folder: (folder / "files" / f"{folder.name}.yml").mkdir(),
    "link to nothing": lambda folder: (folder / "files" / f"{folder.name}.yml").symlink_to(
        "nowhere"
    ),
}


@pytest.mark.parametrize("break_it", BROKEN.values(), ids=BROKEN)
def test_t21_a_bad_job_on_disk_disables_itself_alone(
    tmp_path: Path, break_it: Callable[[Path], object]
) -> None:
    settings, helper = Settings(tmp_path, frozenset({HOST})), FakeHelper()
    store = Store(settings.database)
    (settings.jobs / "bad" / "files").mkdir(parents=True)
    break_it(settings.jobs / "bad")
    with served(store, settings, helper) as client:
        log_in(client)
        (listed,) = [job for job in client.get("/job/").json() if "disabled" in job]
        assert listed["general"]["name"] == "bad"
        assert "files/bad.yml" in listed["disabled"]
        assert str(tmp_path) not in listed["disabled"]
        assert client.get("/job/bad/").json() == listed
        start = {
            "action": "start",
            "agent_ip": "198.18.0.2",
            "job_name": "bad",
            "instance_args": {},
        }
        assert client.post("/job_instance/", json=start).status_code == 404
        assert client.post(LAUNCH, json=ARGUMENTS).status_code == 200
        until(lambda: helper.requests)
        assert client.request("DELETE", "/job/bad/", json={}).status_code == 204
        assert client.get("/job/bad/").status_code == 404
    assert list(settings.jobs.iterdir()) == []
    store.close()


def test_t21_a_run_leaves_bad_jobs_out(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "bad" / "files").mkdir(parents=True)
    request = scenario_run.RunRequest(
        paths.SCENARIOS / "ping.json",
        settings={"count": "1"},
        runs=tmp_path / "runs",
        jobs=(tmp_path / "jobs",),
    )
    assert scenario_run.prepare(request).scenario.name == "ping"
    using = {
        "name": "using",
        "openbach_functions": [
            {"id": 1, "start_job_instance": {"entity_name": "client", "bad": {}}}
        ],
    }
    (tmp_path / "using.json").write_text(json.dumps(using))
    with pytest.raises(ConfigError, match="using"):
        scenario_run.prepare(
            scenario_run.RunRequest(
                tmp_path / "using.json", runs=tmp_path / "runs", jobs=(tmp_path / "jobs",)
            )
        )
