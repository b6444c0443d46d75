# SPDX-License-Identifier: GPL-3.0-or-later
"""The application without a network: a fake helper, a clock that tests set, a client of each role."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from satlab.service.api import passwords
from satlab.service.api.account_store import Role, User
from satlab.service.api.database import Store
from satlab.service.api.dependencies import Context
from satlab.service.api.settings import Settings
from satlab.service.app import create_app
from satlab.service.root_helper.protocol import (
    HelperError,
    RefusedError,
    RunStatus,
    ScenarioRequest,
)

HOST = "localhost:8000"
PASSWORD = "correct horse battery"  # noqa: S105 - of a server that lives for one test

DOCUMENT: dict[str, Any] = {"name": "nothing", "openbach_functions": []}
SCENARIO_REQUEST = ScenarioRequest(
    scenario="nothing",
    documents={"nothing": DOCUMENT},
    entities={},
    first_scenario_id=1,
    first_job_id=1,
)


@dataclass
class FakeHelper:
    """Runs nothing.

    `runs`: started runs by id; `refuse`: reason of refusal; `gone`: it does not answer.
    """

    runs: dict[str, RunStatus] = field(default_factory=dict)
    requests: dict[str, ScenarioRequest] = field(default_factory=dict)
    refuse: str = ""
    gone: bool = False

    def start(self, run_id: str, request: ScenarioRequest) -> None:
        self._check()
        if self.refuse:
            raise RefusedError(self.refuse)
        assert run_id not in self.runs
        assert all(run.phase == "ended" for run in self.runs.values())
        self.runs[run_id], self.requests[run_id] = RunStatus(phase="running"), request

    def stop(self, run_id: str) -> None:
        self._check()
        if self.runs[run_id].phase == "running":
            self.end(run_id, 130)

    def status(self, run_id: str) -> RunStatus:
        self._check()
        return self.runs.get(run_id, RunStatus(phase="ended"))

    def end(self, run_id: str, exit_status: int, **progress: Any) -> None:
        """End a run."""
        self.runs[run_id] = RunStatus(
            phase="ended", exit_status=exit_status, progress=progress or None
        )

    def _check(self) -> None:
        if self.gone:
            raise HelperError("the root helper is gone")


@dataclass
class Clock:
    """Time in s since the epoch; tests set it."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(passwords.SCRYPT, "n", 16)


@pytest.fixture
def helper() -> FakeHelper:
    return FakeHelper()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path, frozenset({HOST}))


@pytest.fixture
def app(settings: Settings, helper: FakeHelper, clock: Clock) -> Iterator[FastAPI]:
    store = Store(settings.database)
    made = create_app(store, helper, settings, clock, runs_queue=False)
    for role in Role:
        made.state.context.accounts.put(User(role.name.lower(), role), PASSWORD)
    yield made
    store.close()


@pytest.fixture
def context(app: FastAPI) -> Context:
    context: Context = app.state.context
    return context


def start(context: Context, number: int) -> str:
    """Start the instance that is next in the queue, `number`; return the id of its run."""
    context.queue.step()
    instance = context.queue.find(number)
    assert instance is not None and instance.run_id is not None
    return instance.run_id


def progress_of(
    number: int, scenario: str, job: dict[str, Any], function: int = 1, **changes: Any
) -> dict[str, Any]:
    """Return the progress of a scenario instance that has started one job."""
    times = {"start_unix_s": 1.8e9, "stop_unix_s": 1.8e9 + 2}
    started = {"id": 1, "job": "satlab_ping", "entity": "client", "arguments": [], **times}
    started |= {"status": "Not Running", "reason": "", **job}
    starter = {"id": function, "label": "ping", "status": "Finished", "reason": ""}
    starter |= {"launch_unix_s": 1.8e9, "job": started, "scenario": None}
    top = {"id": number, "owner_id": number, "scenario": scenario, "arguments": {}, **times}
    return {**top, "status": "Finished Ok", "reason": "", "functions": [starter], **changes}


def client_of(app: FastAPI, login: str = "") -> TestClient:
    """Return a client that is logged in; without `login`, an anonymous one."""
    client = TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False)
    if login:
        assert (
            client.post("/login/", json={"login": login, "password": PASSWORD}).status_code == 200
        )
    return client


@pytest.fixture
def anonymous(app: FastAPI) -> TestClient:
    return client_of(app)


@pytest.fixture
def viewer(app: FastAPI) -> TestClient:
    return client_of(app, "viewer")


@pytest.fixture
def runner(app: FastAPI) -> TestClient:
    return client_of(app, "runner")


@pytest.fixture
def admin(app: FastAPI) -> TestClient:
    return client_of(app, "admin")
