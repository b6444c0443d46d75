# SPDX-License-Identifier: GPL-3.0-or-later
"""T17 of the threat table: a full disk ends no part of the service; what cannot be done is refused with a reason."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from satlab.serve import accounts, queue
from satlab.serve.accounts import Role, User
from satlab.serve.app import create_app
from satlab.serve.conftest import HOST, PASSWORD, FakeHelper
from satlab.serve.settings import Settings
from satlab.serve.store import Store

LAUNCH = "/project/satlab/scenario/ping/scenario_instance/"
ARGUMENTS = {"arguments": {"count": "3"}}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a folder with a file system of 4 MB."""
    folder = tmp_path / "state"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "satlab-test", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def fill(path: Path) -> None:
    """Write until not one more block is free."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_t17_on_a_full_disk_launches_are_refused_and_the_queue_goes_on_afterwards(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(accounts.SCRYPT, "n", 16)
    monkeypatch.setattr(queue, "MOST_PAUSE_S", 0.5)
    settings, helper = Settings(small_disk, frozenset({HOST})), FakeHelper()
    store = Store(settings.database)
    app = create_app(store, helper, settings)
    app.state.accounts.put(User("runner", Role.RUNNER), PASSWORD)
    with TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False) as client:
        assert client.post("/login/", json={"login": "runner", "password": PASSWORD}).status_code == 200
        first, second = (client.post(LAUNCH, json=ARGUMENTS).json()["scenario_instance_id"] for _ in range(2))
        until(lambda: helper.runs)
        fill(small_disk / "filler")
        helper.end(next(iter(helper.runs)), 0, reason="x" * 100_000)

        def is_refused() -> bool:
            answer = client.post(LAUNCH, json=ARGUMENTS)
            return answer.status_code == 503 and "the queue cannot go on" in answer.json()["error"]

        until(is_refused)
        answer = client.post("/project/", json={"name": "more", "description": "x" * 5000})
        assert answer.status_code == 503
        assert answer.json() == {"error": "The server cannot write its database: database or disk is full"}
        assert client.get(f"/scenario_instance/{first}/").json()["status"] == "Running"
        (small_disk / "filler").unlink()
        until(lambda: client.get(f"/scenario_instance/{first}/").json()["status"] == "Finished Ok")
        until(lambda: client.get(f"/scenario_instance/{second}/").json()["status"] == "Running")
        assert client.post(LAUNCH, json=ARGUMENTS).status_code == 200
    store.close()
