# SPDX-License-Identifier: GPL-3.0-or-later
"""T22 of the threat table: clients, jobs and a full disk use up no resource that others or the
service need.
"""

import contextlib
import http.client
import io
import json
import os
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from satlab.service.api import account_store, limits, passwords, queue
from satlab.service.api.account_store import Role, User
from satlab.service.api.conftest import HOST, PASSWORD, SCENARIO_REQUEST, FakeHelper
from satlab.service.api.dependencies import Context
from satlab.service.api.limits import LimitedProtocol, peer_network
from satlab.service.api.passwords import BusyError, Caller, Rank
from satlab.service.api.queue import Queue, QueueThread
from satlab.service.api.request_guard import COOKIE
from satlab.service.api.settings import Settings
from satlab.service.root_helper.protocol import (
    MAX_REQUEST,
    HelperClient,
    RefusedError,
    RunStatus,
    StatusRequest,
)
from satlab.service.root_helper.server import MAX_PROGRESS, Helper, listen
from satlab.service.root_helper.test_server import Answering
from tests.polling import until

LAUNCH = "/project/satlab/scenario/ping/scenario_instance/"
ARGUMENTS = {"arguments": {"count": "3"}}
HUGE = 1 << 70
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(autouse=True)
def _cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(passwords.SCRYPT, "n", 16)
    monkeypatch.setattr(passwords, "_NO_PASSWORD", passwords.make_hash("of nobody"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path, frozenset({HOST}), body_s=0.5, stranger_s=0.5, archive_bytes=10_000)


def client_at(app: FastAPI, address: str = "192.0.2.1") -> TestClient:
    return TestClient(
        app, base_url=f"http://{HOST}", raise_server_exceptions=False, client=(address, 50000)
    )


def log_in(client: TestClient, password: str = PASSWORD, login: str = "admin") -> int:
    return client.post("/login/", json={"login": login, "password": password}).status_code


@pytest.fixture
def admin(app: FastAPI) -> TestClient:
    client = client_at(app)
    assert log_in(client) == 200
    return client


def launch(client: TestClient) -> int:
    return int(client.post(LAUNCH, json=ARGUMENTS).json()["scenario_instance_id"])


# --- the root helper ------------------------------------------------------------------------------


@ROOT_ONLY
def test_t22_a_start_without_a_free_inode_is_answered(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=20", "satlab-test", state], check=True
    )
    helper = Answering(state, "raise SystemExit(0)")
    try:
        with pytest.raises(OSError, match="No space left"):
            for number in range(20):
                (state / f"filler{number}").touch()
        with pytest.raises(RefusedError, match="No space left"):
            helper.client.start("r1", SCENARIO_REQUEST)
        (state / "filler0").unlink()
        helper.client.start("r1", SCENARIO_REQUEST)
    finally:
        helper.close()
        subprocess.run(["umount", "-l", state], check=True)


@ROOT_ONLY
@pytest.mark.parametrize(
    "content", [b"{", b'{"x":"' + b"x" * (3 << 20) + b'"}'], ids=["invalid", "large"]
)
def test_t22_a_progress_that_cannot_be_sent_is_left_out(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    helper = Helper(tmp_path, 10)
    (tmp_path / "progress" / "r1.json").write_bytes(content)
    answer = helper.answer(StatusRequest(run_id="r1").model_dump_json().encode())
    assert (answer.error, answer.status) == ("", RunStatus(phase="ended"))
    assert ("more than 2097152 bytes" in caplog.text) == (len(content) > MAX_PROGRESS)
    helper.close()


def test_t22_a_request_that_the_helper_would_drop_is_refused_by_its_client(tmp_path: Path) -> None:
    listener = listen(tmp_path / "h.sock", os.geteuid())
    arguments = {str(number): "x" * 65536 for number in range(MAX_REQUEST // 65536 + 1)}
    with listener, pytest.raises(RefusedError, match="the root helper accepts"):
        HelperClient(tmp_path / "h.sock").start(
            "r1", SCENARIO_REQUEST.model_copy(update={"arguments": arguments})
        )


# --- launches and the queue -----------------------------------------------------------------------


def test_t22_a_launch_that_is_too_large_is_refused_with_a_reason(
    admin: TestClient, context: Context
) -> None:
    for number in range(4):
        start = {
            "entity_name": "client",
            "satlab_ping": {"destination_ip": "198.18.4.2", "count": "1"},
        }
        functions: list[dict[str, Any]] = [
            {"id": 1, "label": "x" * 900_000, "start_job_instance": start}
        ]
        if number:
            below = {"scenario_name": f"large{number - 1}", "arguments": {}}
            functions.append({"id": 2, "start_scenario_instance": below})
        document = {"name": f"large{number}", "openbach_functions": functions}
        assert admin.post("/project/satlab/scenario/", json=document).status_code == 200
    answer = admin.post(LAUNCH.replace("ping", "large3"), json={})
    assert answer.status_code == 400
    assert "at most 2097152 bytes" in answer.json()["error"]
    assert context.queue.instances() == []
    assert admin.post(LAUNCH.replace("ping", "large0"), json={}).status_code == 200


def test_t22_an_instance_of_another_version_is_shown_and_ends_alone(
    admin: TestClient, context: Context
) -> None:
    first, second, job = launch(admin), launch(admin), {"action": "start", "agent_ip": "198.18.1.2"}
    job |= {"job_name": "satlab_ping", "instance_args": {"destination_ip": "198.18.4.2"}}  # type: ignore[dict-item]
    third = admin.post("/job_instance/", json=job).json()["job_instance_id"]
    for instance in (first, first + 2):
        context.store.write(
            "UPDATE instances SET request = ? WHERE id = ?", '{"of": "another version"}', instance
        )

    def statuses() -> list[str]:
        return [each["status"] for each in admin.get("/project/satlab/scenario_instance/").json()]

    assert statuses() == ["Scheduling", "Scheduling"]
    for path in (
        f"/scenario_instance/{first}/",
        f"/scenario_instance/{first}/?quiet",
        "/job_instance/?address=x",
    ):
        assert admin.get(path).status_code in (200, 202)
    assert admin.get(f"/job_instance/{third}/").status_code == 404
    context.queue.step()
    assert statuses() == ["Running", "Finished Ko"]
    assert "validation error" in admin.get(f"/scenario_instance/{first}/").json()["reason"]
    assert admin.post(f"/scenario_instance/{second}/", json={}).status_code == 204


def test_t22_whatever_a_step_raises_the_queue_goes_on(
    context: Context, admin: TestClient, helper: FakeHelper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "POLL_S", 0.01)
    failures = iter([SystemExit("no reason"), MemoryError()])
    step = Queue.step

    def fail_twice(queue: Queue) -> None:
        for error in failures:
            raise error
        step(queue)

    monkeypatch.setattr(Queue, "step", fail_twice)
    launch(admin)
    thread = QueueThread(context.queue, lambda: pytest.fail("the helper is there"))
    thread.start()
    until(lambda: helper.runs)
    thread.stop()
    assert launch(admin)


def test_t22_a_refused_status_ends_that_instance_alone(
    context: Context, admin: TestClient, helper: FakeHelper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        launch(admin)
    context.queue.step()
    status, refusals = helper.status, iter([True])

    def refuse_once(run_id: str) -> RunStatus:
        if next(refusals, False):
            raise RefusedError("Input/output error")
        return status(run_id)

    monkeypatch.setattr(helper, "status", refuse_once)
    context.queue.step()
    second, first = context.queue.instances()
    assert (first.status, second.status) == ("Finished Ko", "Running")
    assert "Input/output error" in first.reason


# --- values and files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"/scenario_instance/{HUGE}/", 404),
        ("GET", f"/scenario_instance/-{HUGE}/", 404),
        ("DELETE", f"/scenario_instance/{HUGE}/", 404),
        ("GET", f"/scenario_instance/{HUGE}/csv/", 404),
        ("GET", f"/job_instance/{HUGE}/", 404),
        ("GET", f"/statistic/{HUGE}/", 404),
        ("GET", f"/project/satlab/scenario_instance/?offset={HUGE}", 400),
    ],
)
def test_t22_ids_that_no_database_holds(
    admin: TestClient, method: str, path: str, status: int
) -> None:
    headers = {"content-type": "application/json"}
    assert admin.request(method, path, headers=headers).status_code == status


def test_t22_ids_in_a_body(admin: TestClient) -> None:
    stop = {"action": "stop", "job_instance_ids": [HUGE]}
    assert admin.post("/job_instance/", json=stop).status_code == 404


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", r'"\ud800"', r'{"\udfff": 1}'])
def test_t22_json_that_is_none_is_a_bad_request(admin: TestClient, value: str) -> None:
    headers = {"content-type": "application/json"}
    for method, path in (
        ("POST", "/project/"),
        ("PUT", "/login/"),
        ("POST", "/job_instance/"),
        ("POST", LAUNCH),
    ):
        body = (
            f'{{"name": "x", "login": "admin", "description": {value}, "first_name": {value},'
            f' "arguments": {value}}}'
        )
        assert admin.request(method, path, content=body, headers=headers).status_code == 400


@pytest.fixture
def raw(admin: TestClient, context: Context, helper: FakeHelper) -> Path:
    """Return the `raw` folder of an instance that has ended."""
    launch(admin)
    context.queue.step()
    (run_id,) = helper.runs
    folder = context.settings.runs / run_id / "raw"
    (folder / "files").mkdir(parents=True)
    helper.end(run_id, 0)
    context.queue.step()
    return folder


def record(*, is_file: bool = False, **values: Any) -> str:
    meta = {"job_name": "satlab_ping", "agent_name": "client", "time": 1_800_000_000_001}
    ids = ("job_instance_id", "scenario_instance_id", "owner_scenario_instance_id", "flag")
    meta |= {"is_file": is_file} | dict.fromkeys(ids, 1)
    return json.dumps({**values, "_metadata": meta}) + "\n"


def test_t22_an_archive_is_limited_and_sent_in_pieces(admin: TestClient, raw: Path) -> None:
    names = ["one", "two", "a\0b", "x" * 5000]
    (raw / "stats.jsonl").write_text(
        "".join(record(is_file=True, log=f"files/{name}") for name in names)
    )
    for name in names[:2]:
        (raw / "files" / name).write_bytes(os.urandom(4000))
    with admin.stream("GET", "/scenario_instance/1/archive/?satlab_ping=log") as answer:
        assert "content-length" not in answer.headers
        data = answer.read()
    found = []
    with tarfile.open(fileobj=io.BytesIO(data)) as outer:
        for packed in outer.getnames()[1:]:
            inner = outer.extractfile(packed)
            assert inner is not None
            with tarfile.open(fileobj=io.BytesIO(inner.read())) as files:
                found += [Path(name).name for name in files.getnames()]
    assert found == names[:2]
    os.truncate(raw / "files" / "two", 10_000)
    answer = admin.get("/scenario_instance/1/archive/?satlab_ping=log")
    assert (answer.status_code, "at most 10000" in answer.json()["error"]) == (413, True)


@pytest.mark.parametrize(
    "value", ["NaN", "1e999", "1e200", "9" * 400, r'"\ud800"', '"' + "x" * (2 << 20) + '"']
)
def test_t22_records_of_hostile_jobs_break_no_answer(
    admin: TestClient, raw: Path, value: str
) -> None:
    hostile = record(rtt_ms=0).replace('"rtt_ms": 0', f'"rtt_ms": {value}')
    (raw / "stats.jsonl").write_text(hostile + hostile + record(rtt_ms=580.0))
    for path in (
        "/scenario_instance/1/csv/",
        "/statistics/satlab/",
        "/statistic/1/",
        "/statistic/1/?name=rtt_ms",
    ):
        answer = admin.get(path)
        assert answer.status_code == 200
        assert "580" in answer.text or "name" not in path
        assert len(answer.text) < 10_000
    assert admin.get("/statistic/1/?name=rtt_ms&comparative").json() == {
        "mean": 580.0,
        "variance": 0.0,
    }
    assert admin.get("/statistic/1/?name=rtt_ms&histogram=1").json()["counts"] == [1]


# --- accounts -------------------------------------------------------------------------------------


def test_t22_wrong_passwords_from_elsewhere_lock_nobody_out(app: FastAPI) -> None:
    for number in range(5):
        anonymous = client_at(app, f"198.51.100.{number}")
        assert [log_in(anonymous, "wrong") for _ in range(6)] == [401] * 5 + [429]
    assert log_in(client_at(app)) == 200


def test_t22_a_peer_has_few_tries_over_all_accounts(app: FastAPI) -> None:
    anonymous = client_at(app)
    wrong = ({"login": f"user{number}", "password": "wrong"} for number in range(21))
    assert [anonymous.post("/login/", json=each).status_code for each in wrong] == [401] * 20 + [
        429
    ]
    assert log_in(client_at(app, "192.0.2.2")) == 200


def test_t22_addresses_of_one_host_are_one_peer() -> None:
    assert peer_network("2001:db8::1") == peer_network("2001:db8::ffff:1")
    assert peer_network("2001:db8::1") != peer_network("2001:db8:0:1::1")
    assert (
        peer_network("::ffff:192.0.2.1") == peer_network("192.0.2.1") != peer_network("192.0.2.2")
    )
    assert peer_network("127.0.0.1") == peer_network("127.8.9.1") == peer_network("::1")
    assert peer_network("::ffff:127.0.0.1") == peer_network("::1")
    assert peer_network("") == ""


def test_t22_tries_count_before_their_password_is_hashed(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []

    def slowly(password: str, stored: str | None, _: Caller) -> bool:
        hashed.append(password)
        time.sleep(0.2)
        return bool(stored) and False

    monkeypatch.setattr(account_store, "matches", slowly)
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda _: log_in(client_at(app), "wrong"), range(20)))
    assert sorted(results) == [401] * 5 + [429] * 15
    assert len(hashed) == 5


def test_t22_log_ins_from_many_addresses_leave_threads_for_others(app: FastAPI) -> None:
    with ThreadPoolExecutor(40) as pool:
        with passwords.hashing.turn(Caller("192.0.2.9", Rank.STRANGER)):
            tries = [
                pool.submit(log_in, client_at(app, f"198.51.100.{number}")) for number in range(40)
            ]
            until(lambda: sum(each.done() for each in tries) == 41 - passwords.MAX_HASHING)
            assert {each.result() for each in tries if each.done()} == {503}
            assert client_at(app).get("/version/").status_code == 200
        results = sorted(each.result(20) for each in tries)
    assert results == [200] * (passwords.MAX_HASHING - 1) + [503] * (41 - passwords.MAX_HASHING)


@pytest.mark.parametrize(
    "flood_from", ["198.51.100.{}", "127.0.0.{}"], ids=["many peers", "the same peer"]
)
def test_t22_a_flood_of_log_ins_locks_out_nobody_who_has_logged_in_before(
    app: FastAPI, flood_from: str
) -> None:
    assert log_in(client_at(app, "127.0.0.1")) == 200
    with ThreadPoolExecutor(50) as pool:
        with passwords.hashing.turn(Caller("192.0.2.9", Rank.STRANGER)):
            flood = [client_at(app, flood_from.format(number)) for number in range(1, 41)]
            tries = [
                pool.submit(log_in, client, "wrong", f"user{number}")
                for number, client in enumerate(flood)
            ]
            until(lambda: len(passwords.hashing) > 2 and sum(each.done() for each in tries) >= 30)
            admins = [pool.submit(log_in, client_at(app, f"127.0.0.{number}")) for number in (1, 2)]
            until(lambda: passwords.hashing.waiting(Rank.KNOWN_ACCOUNT) == 2)
        assert [each.result(20) for each in admins] == [200, 200]
        assert {each.result(20) for each in tries} <= {401, 429, 503}


def test_t22_a_peer_has_a_share_of_the_hashes() -> None:
    queue = passwords.Queue()
    flood = Caller("192.0.2.1", Rank.STRANGER)
    with queue._changed:
        places = [queue._place(flood) for _ in range(passwords.MAX_OF_PEER)]
        with pytest.raises(BusyError):
            queue._place(flood)
        other = queue._place(Caller("192.0.2.2", Rank.STRANGER))
        queue._turns["192.0.2.1"] = 1
        assert queue._next() is other
        while len(queue) < passwords.MAX_HASHING:
            queue._place(Caller(f"198.51.100.{len(queue)}", Rank.STRANGER))
        known = queue._place(Caller("192.0.2.3", Rank.KNOWN_PEER))
        assert queue._next() is known
        assert [place.is_lost for place in places] == [False, True]
        with pytest.raises(BusyError):
            queue._place(Caller("192.0.2.4", Rank.STRANGER))


NEW = {"action": "create", "login": "new", "password": "long enough"}
NEW |= dict.fromkeys(("email", "first_name", "last_name"), "")


@pytest.mark.parametrize("field", ["email", "first_name", "last_name", "password", "login"])
def test_t22_fields_of_an_account_are_limited(app: FastAPI, context: Context, field: str) -> None:
    answer = client_at(app).post("/login/", json={**NEW, field: "x" * 300})
    assert answer.status_code == 400
    assert {user.login for user in context.accounts.users()} == {"admin", "runner", "viewer"}


def test_t22_few_accounts_wait_for_approval(
    app: FastAPI, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_store, "MAX_PENDING", 3)

    def request(number: int) -> int:
        body = {**NEW, "login": f"new{number}"}
        return client_at(app, f"198.51.100.{number}").post("/login/", json=body).status_code

    assert [request(number) for number in range(4)] == [204] * 3 + [429]
    context.accounts.put(replace(User("new0", Role.RUNNER), active=True))
    assert request(4) == 204


def test_t22_a_request_never_replaces_an_account(app: FastAPI, context: Context) -> None:
    assert client_at(app).post("/login/", json={**NEW, "login": "admin"}).status_code == 409
    assert context.accounts.check("admin", PASSWORD)


# --- connections ----------------------------------------------------------------------------------


@pytest.fixture
def server(app: FastAPI) -> Iterator[uvicorn.Server]:
    """Serve with the limits of the API process."""
    with socket.create_server(("127.0.0.1", 0), backlog=300) as listener:
        config = uvicorn.Config(
            app,
            log_level="critical",
            http=LimitedProtocol,
            limit_concurrency=limits.MAX_CONNECTIONS,
        )
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: running.started)
        yield running
        running.should_exit = True
        thread.join(20)


@pytest.fixture
def port(server: uvicorn.Server) -> int:
    return int(server.servers[0].sockets[0].getsockname()[1])


def answer_of(connection: socket.socket) -> bytes:
    """Return what the server sends until it closes."""
    connection.settimeout(10)
    data = b""
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(65536):
            data += chunk
    return data


def get_version(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            f"GET /version/ HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n".encode()
        )
        return answer_of(connection).partition(b"\r\n")[0]


def post_without_body(port: int, headers: str = "") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    kind = "content-type: application/json\r\ncontent-length: 9\r\n"
    connection.sendall(f"POST /login/ HTTP/1.1\r\nhost: {HOST}\r\n{kind}{headers}\r\n".encode())
    return connection


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nx: "], ids=["nothing", "half of the headers"]
)
def test_t22_idle_connections_keep_nobody_out(port: int, sent: bytes) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(250):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", port)))
            with contextlib.suppress(ConnectionError):
                connection.sendall(sent)
        assert get_version(port) == b"HTTP/1.1 200 OK"


@pytest.mark.timing
def test_t22_a_request_must_begin_in_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_S", 0.7)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /version/ HTTP/1.1\r\n")
        assert answer_of(connection) == b""
    kept = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    end = time.monotonic() + 2 * limits.REQUEST_S
    while time.monotonic() < end:  # each answer starts the time anew
        kept.request("GET", "/version/", headers={"host": HOST})
        assert kept.getresponse().read() == b'{"openbach_version":"2.7.0"}'
        time.sleep(0.05)
    kept.sock.sendall(b"G")
    assert answer_of(kept.sock) == b""
    kept.close()


def test_t22_a_body_must_end_in_time(port: int) -> None:
    with post_without_body(port) as connection:
        assert answer_of(connection).startswith(b"HTTP/1.1 408")


def test_t22_slow_bodies_keep_nobody_out(
    server: uvicorn.Server, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each bound by a stepped clock: src/satlab/service/api/test_connections.py."""
    monkeypatch.setattr(limits, "MAX_PER_PEER", 3)
    with contextlib.ExitStack() as held:
        busy = [held.enter_context(post_without_body(port)) for _ in range(2)]
        until(lambda: len(server.server_state.tasks) == 2)
        for _ in range(5):
            busy.append(held.enter_context(post_without_body(port)))
            assert get_version(port) == b"HTTP/1.1 200 OK"
        assert {answer_of(connection)[:12] for connection in busy} <= {b"", b"HTTP/1.1 408"}


@pytest.mark.timing
def test_t22_requests_of_sessions_go_on_and_their_limit_holds(
    server: uvicorn.Server, port: int, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_PER_PEER", 3)
    cookie = f"cookie: {COOKIE}={context.accounts.open_session('admin')}\r\n"
    with contextlib.ExitStack() as held:
        uploads = [
            held.enter_context(post_without_body(port, f"{cookie}connection: close\r\n"))
            for _ in range(3)
        ]

        def sessions() -> int:
            connections = server.server_state.connections
            return sum(getattr(each, "has_session", False) for each in connections)

        until(lambda: sessions() == 3)
        assert get_version(port) == b"HTTP/1.1 503 Service Unavailable"
        for connection in uploads:
            connection.sendall(b'{"a": 12}')
            # A whole body, without a login.
            assert answer_of(connection).startswith(b"HTTP/1.1 400")
        assert get_version(port) == b"HTTP/1.1 200 OK"


def test_t22_headers_are_limited(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET /version/ HTTP/1.1\r\n" + b"x: " + b"y" * (1 << 20))
        assert not answer_of(connection).startswith(b"HTTP/1.1 200")
