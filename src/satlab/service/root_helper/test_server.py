# SPDX-License-Identifier: GPL-3.0-or-later
"""T2 of the threat table: what the root helper understands, whom it answers, and what it does with
the rest.
"""

import contextlib
import json
import os
import shutil
import socket
import stat
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from satlab.common.errors import ConfigError
from satlab.lab import privileges
from satlab.link.option_model import options_of
from satlab.link.options import LinkOptions, LocalOptions
from satlab.openbach.engine import Engine, JobLaunched
from satlab.openbach.model import BoundScenario
from satlab.service.api.conftest import DOCUMENT, SCENARIO_REQUEST
from satlab.service.root_helper import run_process, server, uploaded_jobs
from satlab.service.root_helper.progress_file import Progress, ProgressFile
from satlab.service.root_helper.protocol import (
    HelperClient,
    HelperError,
    RefusedError,
    RunLink,
    ScenarioRequest,
    StartRequest,
    StatusRequest,
    StopRequest,
    read_request,
)
from satlab.service.root_helper.server import Helper
from tests.polling import until

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_t02_the_surface_is_this_and_nothing_more() -> None:
    """A change here is a change of what root does for others: review it."""
    assert {
        model.__name__: sorted(model.model_fields)
        for model in (StartRequest, StopRequest, StatusRequest, ScenarioRequest)
    } == {
        "StartRequest": ["order", "run_id", "verb"],
        "StopRequest": ["run_id", "verb"],
        "StatusRequest": ["run_id", "verb"],
        "ScenarioRequest": [
            "arguments",
            "deadline_s",
            "documents",
            "endless",
            "entities",
            "first_job_id",
            "first_scenario_id",
            "link",
            "scenario",
        ],
    }
    assert privileges.CAPABILITIES == {
        "satlab_capture": ("net_raw",),
        "satlab_fec": ("net_admin",),
        "satlab_iperf3": ("net_admin",),
        "satlab_packet_filter": ("net_admin",),
        "satlab_pep": ("net_admin", "net_bind_service", "net_raw"),
        "satlab_ping": ("net_raw",),
        "satlab_rate": ("net_admin",),
        "satlab_satperf": ("net_admin",),
        "satlab_ip_route": ("net_admin",),
        "satlab_set_tos": ("net_admin",),
        "satlab_shape": ("net_admin",),
        "satlab_tcp_conf": ("net_admin",),
        "satlab_vpn": ("net_admin",),
        "satlab_web_server": ("net_bind_service",),
    }
    assert privileges.LINK_CONTROLLERS == ("satlab_link",)


def request(**changes: Any) -> bytes:
    start: dict[str, Any] = StartRequest(run_id="r1", order=SCENARIO_REQUEST).model_dump()
    start["order"] |= changes
    return json.dumps(start).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b'{"verb":"exec","argv":["sh"]}',
        b'{"verb":"status","run_id":"../x"}',
        b'{"verb":"status","run_id":"x","more":1}',
        b'{"verb":"stop","run_id":".hidden"}',
        request(scenario="../etc/passwd"),
        request(documents={"../x": DOCUMENT}),
        request(documents={}),
        request(entities={"client": "../../1"}),
        request(link={"profile": "/etc"}),
        request(link={"profile": "../geo"}),
        request(link={"timeline": "/etc/shadow"}),
        request(link={"loss_model": "trace:/etc/shadow"}),
        request(first_job_id=0),
        request(deadline_s=1e9),
        request(command=["sh"]),
        b"[" * 100_000,
    ],
)
def test_t02_unknown_verbs_and_paths_are_refused(line: bytes) -> None:
    with pytest.raises(RefusedError):
        read_request(line)


@given(st.binary(max_size=200))
def test_t02_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    try:
        read_request(data)
    except RefusedError as error:
        assert str(error)


def test_t02_the_link_names_no_file_and_is_otherwise_that_of_the_command_line() -> None:
    served = options_of(RunLink)
    local = set(LocalOptions.model_fields)
    assert {option.name for option in served} == LinkOptions.model_fields.keys() - local
    everywhere = [option for option in options_of(LinkOptions) if option.name not in local]
    assert [(o.name, o.default, o.help) for o in served] == [
        (o.name, o.default, o.help) for o in everywhere
    ]
    assert local == {"lenient", "timeline", "probes"}


def test_a_link_means_the_same_on_both_sides() -> None:
    assert read_request(
        request(link={"profile": "leo", "loss": 0.01, "queue": "100packets", "aqm": "codel"})
    )
    assert SCENARIO_REQUEST.link.options().request("r").seed == 1


def test_further_terminals_play_themselves(tmp_path: Path) -> None:
    link = RunLink(terminals=3)
    request = SCENARIO_REQUEST.model_copy(update={"link": link, "entities": {"client": "client"}})
    found = run_process._run_request(request, "r", tmp_path / "state", tmp_path)
    assert found.entities == {
        node: node for node in ("client", "client-2", "st-2", "client-3", "st-3")
    }
    assert found.link.terminals == 3


def test_t02_uploaded_jobs_are_copied_before_they_are_used(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    files = state / "api" / "jobs" / "mine" / "files"
    files.mkdir(parents=True)
    (files / "mine.yml").write_text("one")
    (files / "program").write_text("#!/bin/sh")
    (files / "program").chmod(0o6775)
    copy.mkdir()
    assert run_process._run_request(SCENARIO_REQUEST, "r", state, copy).jobs[0] == copy / "jobs"
    (files / "mine.yml").write_text("two")
    copied = copy / "jobs" / "mine" / "files"
    assert (copied / "mine.yml").read_text() == "one"
    assert stat.S_IMODE((copied / "program").stat().st_mode) == 0o755


def test_t02_a_link_among_uploaded_jobs_is_refused(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    (jobs / "mine").mkdir(parents=True)
    uploaded_jobs.copy(jobs, tmp_path / "1")
    (jobs / "mine" / "files").symlink_to("/etc")
    with pytest.raises(ConfigError, match="files: is a link"):
        uploaded_jobs.copy(jobs, tmp_path / "2")
    (jobs / "mine" / "files").unlink()
    (jobs / "mine" / "mine.yml").symlink_to("/etc/shadow")
    with pytest.raises(ConfigError, match=r"mine\.yml: is a link"):
        uploaded_jobs.copy(jobs, tmp_path / "3")
    jobs.rename(tmp_path / "elsewhere")
    jobs.symlink_to("/etc")
    with pytest.raises(ConfigError, match="jobs: is a link"):
        uploaded_jobs.copy(jobs, tmp_path / "4")


@pytest.mark.parametrize("at", ["file", "folder"])
def test_t02_what_becomes_a_link_while_it_is_copied_is_not_followed(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a name and its opening it leads elsewhere."""
    jobs, secret = tmp_path / "jobs", tmp_path / "secret"
    for folder in (jobs / "mine", secret):
        folder.mkdir(parents=True)
        (folder / "key").write_text(folder.name)
    victim = jobs / "mine" if at == "folder" else jobs / "mine" / "key"

    def look_then_exchange(path: Path, found: os.stat_result) -> None:
        if path == victim:
            path.rename(tmp_path / "old")
            path.symlink_to(secret if at == "folder" else secret / "key")

    monkeypatch.setattr(uploaded_jobs, "_check", look_then_exchange)
    if at == "file":
        with pytest.raises(ConfigError, match="symbolic links"):
            uploaded_jobs.copy(jobs, tmp_path / "copy")
    else:
        uploaded_jobs.copy(jobs, tmp_path / "copy")
    assert not any(
        path.read_text() == "secret" for path in (tmp_path / "copy").rglob("*") if path.is_file()
    )


def test_t02_special_large_and_deep_files_among_uploaded_jobs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    os.mkfifo(jobs / "pipe")
    with pytest.raises(ConfigError, match="pipe: is neither a file nor a folder"):
        uploaded_jobs.copy(jobs, tmp_path / "1")
    (jobs / "pipe").unlink()
    monkeypatch.setattr(uploaded_jobs, "MOST_BYTES", 9)
    (jobs / "a").write_bytes(b"12345")
    uploaded_jobs.copy(jobs, tmp_path / "2")
    (jobs / "b").write_bytes(b"12345")
    with pytest.raises(ConfigError, match="more than 9 bytes"):
        uploaded_jobs.copy(jobs, tmp_path / "3")
    jobs.joinpath(*"d" * 33).mkdir(parents=True)
    (jobs / "b").unlink()
    with pytest.raises(ConfigError, match="more than 32 folders"):
        uploaded_jobs.copy(jobs, tmp_path / "4")


class Answering:
    """A helper that answers in a thread, with workers that are small scripts."""

    def __init__(self, state: Path, script: str, most_runs: int = 10) -> None:
        self.helper = Helper(state, most_runs, (sys.executable, "-c", script))
        self.socket = state / "h.sock"
        self.listener = server.listen(self.socket, os.geteuid())
        self.over = threading.Event()
        self.listener.settimeout(0.1)
        self.thread = threading.Thread(target=self._answer)
        self.thread.start()
        self.client = HelperClient(self.socket)

    def _answer(self) -> None:
        while not self.over.is_set():
            try:
                server.serve_one(self.listener, self.helper, os.geteuid())
            except TimeoutError:
                continue

    def close(self) -> None:
        self.over.set()
        self.thread.join()
        self.listener.close()
        self.helper.close(5.0)


OBEDIENT = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
sys.stdin.read()
print("up", file=sys.stderr, flush=True)
signal.pause()
"""


@ROOT_ONLY
def test_a_run_starts_stops_and_ends(tmp_path: Path) -> None:
    helper = Answering(tmp_path, OBEDIENT)
    try:
        helper.client.start("r1", SCENARIO_REQUEST)
        with pytest.raises(RefusedError, match="another run"):
            helper.client.start("r2", SCENARIO_REQUEST)
        assert helper.client.status("r1").phase == "running"
        until(lambda: b"up" in (tmp_path / "logs" / "r1.log").read_bytes())
        helper.client.stop("r2")
        assert helper.client.status("r1").phase == "running"
        for _ in range(2):
            helper.client.stop("r1")
        until(lambda: helper.client.status("r1").phase == "ended")
        assert helper.client.status("r1").exit_status == 130
        assert helper.client.status("nobody").phase == "ended"
    finally:
        helper.close()


@ROOT_ONLY
def test_a_run_that_was_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "runs" / "r1").mkdir(parents=True)
    helper = Answering(tmp_path, "raise SystemExit(0)")
    try:
        with pytest.raises(RefusedError, match="before"):
            helper.client.start("r1", SCENARIO_REQUEST)
    finally:
        helper.close()


@ROOT_ONLY
def test_t15_old_run_folders_make_room(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / "runs" / f"2026010{number}-x").mkdir(parents=True)
    helper = Answering(tmp_path, "raise SystemExit(0)", most_runs=3)
    try:
        helper.client.start("r1", SCENARIO_REQUEST)
    finally:
        helper.close()
    assert sorted(folder.name for folder in (tmp_path / "runs").iterdir()) == [
        "20260103-x",
        "20260104-x",
    ]


@ROOT_ONLY
def test_t80_large_run_folders_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        folder = tmp_path / "runs" / f"2026010{number}-x" / "raw"
        folder.mkdir(parents=True)
        (folder / "filler").write_bytes(bytes(1 << 20))
        with (folder / "sparse").open("wb") as sparse:
            sparse.truncate(1 << 40)
    disk = SimpleNamespace(total=5 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk)
    helper = Answering(tmp_path, "raise SystemExit(0)")
    try:
        helper.client.start("r1", SCENARIO_REQUEST)
    finally:
        helper.close()
    kept = sorted(folder.name for folder in (tmp_path / "runs").iterdir())
    assert kept == ["20260102-x", "20260103-x"]


@ROOT_ONLY
def test_t02_a_wrong_peer_is_not_answered(tmp_path: Path) -> None:
    helper = Helper(tmp_path, 10)
    with (
        server.listen(tmp_path / "h.sock", os.geteuid()) as listener,
        socket.socket(socket.AF_UNIX) as peer,
    ):
        peer.connect(str(tmp_path / "h.sock"))
        peer.sendall(b'{"verb":"status","run_id":"x"}\n')
        server.serve_one(listener, helper, os.geteuid() + 1)
        with pytest.raises(HelperError):
            HelperClient(tmp_path / "nobody.sock").status("x")
        peer.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(100) == b""


def test_progress_can_be_read_at_each_step(tmp_path: Path) -> None:
    form = TypeAdapter(Progress)
    file = ProgressFile(tmp_path / "p.json", "r1", lambda: 5.0)
    file.update()
    form.validate_json((tmp_path / "p.json").read_text())
    engine = Engine(BoundScenario("main", {"a": "1"}, ()))
    file.watch(engine.root)
    engine.step(0.0, list[JobLaunched]())
    file.watch(engine.root)
    file.update(phase="ended", exit_status=0)
    instance = form.validate_json((tmp_path / "p.json").read_text())["instance"]
    assert instance is not None
    assert (instance["status"], instance["stop_unix_s"]) == ("Finished Ok", 5.0)
