# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue: no launch is lost or run twice, whenever the server is killed."""

import errno
import random
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satlab.common.errors import HostError
from satlab.service.api import queue
from satlab.service.api.conftest import DOCUMENT, SCENARIO_REQUEST, Clock, FakeHelper
from satlab.service.api.database import Store
from satlab.service.api.queue import (
    LOST,
    MAX_PAUSE_S,
    POLL_S,
    Instance,
    LaunchRequest,
    Queue,
    QueueFailedError,
    QueueFullError,
)
from satlab.service.root_helper.protocol import HelperError, RunStatus


def launch(subs: int = 0, jobs: int = 1, user: str = "runner", size: int = 0) -> LaunchRequest:
    document = DOCUMENT | {"description": "x" * size}
    request = SCENARIO_REQUEST.model_copy(update={"documents": {"nothing": document}})
    return LaunchRequest("satlab", user, request, subs, jobs)


class Server:
    """A server that can be killed at any time and started again on the same file."""

    def __init__(self, path: Path, most_queued: int = 1000) -> None:
        self.path, self.most_queued = path, most_queued
        self.clock = Clock()
        self.started: list[str] = []
        self.boot()

    def boot(self) -> None:
        """Start anew; the helper of the killed server is gone with all that it ran."""
        self.helper = FakeHelper()
        self.store = Store(self.path)
        self.queue = Queue(self.store, self.helper, self.clock, self.most_queued)
        self.queue.recover()

    def step(self) -> None:
        self.clock.now += 1
        before = set(self.helper.runs)
        self.queue.step()
        self.started += sorted(set(self.helper.runs) - before)

    def running(self) -> str | None:
        return next(
            (run_id for run_id, run in self.helper.runs.items() if run.phase == "running"), None
        )

    def everything(self) -> list[Instance]:
        return sorted(self.queue.instances(), key=lambda instance: instance.id)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "queue.sqlite")


def test_one_runs_at_a_time_in_the_order_of_the_launches(server: Server) -> None:
    numbers = [server.queue.launch(launch()).id for _ in range(3)]
    for number in numbers:
        server.step()
        found = {each.id: each.status for each in server.everything()}
        assert found[number] == "Running"
        assert [str(status) for status in found.values()].count("Running") == 1
        server.helper.end(str(server.running()), 0)
        server.step()
    assert [each.status for each in server.everything()] == ["Finished Ok"] * 3


def test_t30_ended_instances_are_forgotten_in_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_BYTES", 3 * queue.LEAST_BYTES)
    waiting = server.queue.launch(launch()).id
    for _ in range(5):
        number = server.queue.launch(launch()).id
        server.queue.stop(number)
    last = server.queue.launch(launch()).id
    assert [each.id for each in server.everything()] == [waiting, *range(last - 3, last + 1)]


@pytest.mark.parametrize(
    ("exit_status", "status"),
    [
        (0, "Finished Ok"),
        (4, "Finished Ok"),
        (1, "Finished Ko"),
        (2, "Finished Ko"),
        (3, "Finished Ko"),
        (130, "Stopped"),
    ],
)
def test_labels_of_runs_that_ended(server: Server, exit_status: int, status: str) -> None:
    server.queue.launch(launch())
    server.step()
    server.helper.end(str(server.running()), exit_status, reason="because")
    server.step()
    (found,) = server.everything()
    assert (found.status, found.reason) == (status, "because")


def test_a_worker_that_was_killed_is_a_failure(server: Server) -> None:
    server.queue.launch(launch())
    server.step()
    server.helper.runs[str(server.running())] = RunStatus(phase="ended")
    server.step()
    (found,) = server.everything()
    assert (found.status, found.reason) == ("Finished Ko", "the run's process is gone")


def test_a_refused_start_fails_that_instance_alone(server: Server) -> None:
    server.queue.launch(launch())
    server.queue.launch(launch())
    server.helper.refuse = "no"
    server.step()
    server.helper.refuse = ""
    server.step()
    assert [(each.status, each.reason) for each in server.everything()] == [
        ("Finished Ko", "no"),
        ("Running", ""),
    ]


def test_t20_a_start_that_goes_wrong_fails_that_instance_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        server.queue.launch(launch())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(server.helper, "start", full)
        server.step()
    server.step()
    assert [(each.status, each.reason) for each in server.everything()] == [
        ("Finished Ko", "OSError: [Errno 28] No space left on device"),
        ("Running", ""),
    ]


def test_t20_a_run_that_cannot_be_followed_is_stopped_and_fails_alone(server: Server) -> None:
    for _ in range(2):
        server.queue.launch(launch())
    server.step()
    server.helper.runs[str(server.running())] = RunStatus(
        phase="running", progress={"not": float("nan")}
    )
    server.step()
    server.step()
    first, second = server.everything()
    assert (first.status, second.status) == ("Finished Ko", "Running")
    assert "not JSON compliant" in first.reason


def test_t20_an_order_that_cannot_be_read_fails_alone(server: Server) -> None:
    first, second = (server.queue.launch(launch()).id for _ in range(2))
    server.store.write(
        "UPDATE instances SET request = ? WHERE id = ?", '{"of": "another version"}', first
    )
    server.step()
    row = server.store.row("SELECT status, reason FROM instances WHERE id = ?", first)
    assert row is not None
    assert row["status"] == "Finished Ko"
    assert "validation error" in row["reason"]
    assert [each.id for each in server.queue.live()] == [second]
    assert server.running()


def test_t20_a_queue_that_cannot_write_tries_again_and_takes_nothing_meanwhile(
    server: Server,
) -> None:
    server.queue.launch(launch())
    server.store._connection.execute("PRAGMA query_only = ON")
    pauses = [POLL_S]
    while pauses[-1] < MAX_PAUSE_S:
        pauses.append(server.queue.step_or_back_off(pauses[-1]))
    assert pauses[1] == 2 * POLL_S
    assert server.queue.step_or_back_off(pauses[-1]) == MAX_PAUSE_S
    assert not server.helper.runs
    with pytest.raises(
        QueueFailedError,
        match="the database cannot be written: attempt to write a readonly database",
    ):
        server.queue.launch(launch())
    server.store._connection.execute("PRAGMA query_only = OFF")
    assert server.queue.step_or_back_off(pauses[-1]) == POLL_S
    assert server.running()
    server.queue.launch(launch())


def test_a_failed_commit_leaves_no_transaction_open(server: Server) -> None:
    """The next one would join it, and never be written."""
    server.store.write("CREATE TABLE one (id INTEGER PRIMARY KEY) STRICT")
    server.store.write(
        "CREATE TABLE two (id INTEGER REFERENCES one DEFERRABLE INITIALLY DEFERRED) STRICT"
    )
    with pytest.raises(sqlite3.IntegrityError):
        server.store.write("INSERT INTO two VALUES (1)")
    server.store.write("INSERT INTO one VALUES (7)")
    assert Store(server.path).row("SELECT id FROM one") is not None


def test_without_the_helper_the_queue_ends(server: Server) -> None:
    server.queue.launch(launch())
    server.helper.gone = True
    with pytest.raises(HelperError):
        server.step()


def test_stop_before_and_while_running(server: Server) -> None:
    first, second = (server.queue.launch(launch()).id for _ in range(2))
    server.step()
    for number in (first, second, first):
        server.queue.stop(number)
    server.step()
    server.step()
    assert [(each.status, each.run_id is None) for each in server.everything()] == [
        ("Stopped", False),
        ("Stopped", True),
    ]


def test_t15_the_queue_is_bounded(tmp_path: Path) -> None:
    server = Server(tmp_path / "queue.sqlite", most_queued=2)
    server.queue.launch(launch())
    server.queue.launch(launch(user="other"))
    with pytest.raises(QueueFullError):
        server.queue.launch(launch(user="third"))
    server.step()
    server.queue.launch(launch())


def test_t76_an_account_leaves_room_in_the_queue_for_others(tmp_path: Path) -> None:
    server = Server(tmp_path / "queue.sqlite", most_queued=4)
    for _ in range(2):
        server.queue.launch(launch())
    with pytest.raises(QueueFullError, match="2 instances of runner"):
        server.queue.launch(launch())
    server.queue.launch(launch(user="other"))


def test_t76_large_requests_of_an_account_leave_room_for_others(tmp_path: Path) -> None:
    server = Server(tmp_path / "queue.sqlite")
    with pytest.raises(QueueFullError, match="of runner"):
        for _ in range(100):
            server.queue.launch(launch(size=1 << 20))
    server.queue.launch(launch(user="other", size=1 << 20))
    rows = server.store.rows("SELECT length(request) AS size FROM instances")
    assert sum(row["size"] for row in rows) < queue.MOST_BYTES


def test_t76_ended_instances_of_one_account_do_not_displace_those_of_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_BYTES", 8 * queue.LEAST_BYTES)

    def end(user: str, size: int = 0) -> int:
        number = server.queue.launch(launch(user=user, size=size)).id
        server.queue.stop(number)
        return number

    quiet = [end("quiet") for _ in range(3)]
    for _ in range(20):
        end("loud", 2 * queue.LEAST_BYTES)
    found = server.everything()
    assert quiet == [each.id for each in found if each.user == "quiet"]
    assert len(found) < 8


def test_ids_are_never_given_twice(server: Server) -> None:
    first = server.queue.launch(launch(subs=2, jobs=5))
    second = server.queue.launch(launch())
    assert (second.id, second.first_job) == (first.id + 3, first.first_job + 5)
    found = [server.queue.find(number) for number in range(first.id, first.id + 3)]
    assert [each.id for each in found if each] == [first.id] * 3
    server.queue.stop(second.id)
    assert server.queue.remove(second.id)
    assert server.queue.launch(launch()).id == second.id + 1


def test_a_running_run_is_reported_as_ended_after_a_kill(server: Server) -> None:
    server.queue.launch(launch())
    server.step()
    job = {"id": 1, "entity": "client", "status": "Running"}
    node = {
        "status": "Running",
        "functions": [{"status": "Finished", "job": job}, {"status": "Running", "job": None}],
    }
    server.helper.runs[str(server.running())] = RunStatus(
        phase="running", progress={"instance": node}
    )
    server.step()
    server.boot()
    (found,) = server.everything()
    assert (found.status, found.reason) == ("Finished Ko", LOST)
    after: Any = found.tree
    assert after["status"] == "Stopped"
    assert [function["status"] for function in after["functions"]] == ["Finished", "Stopped"]
    assert after["functions"][0]["job"]["status"] == "Unknown"


def test_run_ids_are_never_given_twice(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(["a", "a", "a", "b"])
    monkeypatch.setattr(queue, "new_run_id", lambda *_: next(ids))
    for _ in range(2):
        server.queue.launch(launch())
        server.step()
        server.helper.end(str(server.running()), 0)
        server.step()
    assert [each.run_id for each in server.everything()] == ["a", "b"]


@settings(max_examples=3)
@given(st.integers(0, 1 << 32))
@pytest.mark.promise("P58")
def test_200_launches_survive_kills(seed: int) -> None:
    """Launches, steps, stops, ends and kills in any order: each launch is there, and ran at most
    once.
    """
    chance = random.Random(seed)  # noqa: S311 - a seed repeats a failure
    with tempfile.TemporaryDirectory(
        dir="/dev/shm"
    ) as memory:  # a disk would wait for every one of its writes
        live_and_die(chance, Server(Path(memory) / "queue.sqlite"))


def live_and_die(chance: random.Random, server: Server) -> None:
    launched: list[int] = []
    stopped: set[int] = set()
    kills = 0
    while len(launched) < 200 or server.queue.live():
        deed = chance.random()
        run_id = server.running()
        if deed < 0.3 and len(launched) < 200:
            launched.append(server.queue.launch(launch()).id)
        elif deed < 0.35 and launched:
            stopped.add(chance.choice(launched))
            server.queue.stop(chance.choice(sorted(stopped)))
        elif deed < 0.37:
            kills += 1
            server.boot()
        elif deed < 0.6 and run_id is not None:
            server.helper.end(run_id, chance.choice([0, 1, 4]))
        else:
            server.step()
    found = server.everything()
    assert [each.id for each in found] == launched
    assert all(each.ended for each in found)
    assert len(server.started) == len(set(server.started))
    ran = [each for each in found if each.run_id is not None]
    assert {each.run_id for each in ran} == set(server.started)
    assert all(each.run_id is not None for each in found if each.id not in stopped)
    assert sum(each.reason == LOST for each in found) <= kills


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.write("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(HostError, match="later satlab"):
        Store(tmp_path / "s")
