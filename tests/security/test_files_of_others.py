# SPDX-License-Identifier: GPL-3.0-or-later
"""T68 to T71 of the threat table: run folders, checks, images, pages and answers of others do not
lead elsewhere, hang, or take memory without end.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import polars
import pytest

import collect
from collect.fixtures import example_run
from collect.fixtures.example_run import Example
from satlab.campaign import attempt, dataset, reproduction
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.plan_file import Plan
from satlab.campaign.task_request import Flows
from satlab.campaign.test_worker import record_end, run_task
from satlab.check import check_file
from satlab.check.endpoint import interop_image
from satlab.common import plain_files
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, HostError
from satlab.report import measurements
from satlab.run import influx, rebuild_report, sandboxed_reader
from satlab.run.influx import Database
from satlab.run.page_import import wget_folder
from satlab.vm import ssh_job

QUIET = ProgressLog(quiet=True)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A run folder of somebody else."""
    return example_run.write(tmp_path / "theirs", Example(duration_s=0, loads={"h1": 1}))


# --- run folders ----------------------------------------------------------------------------------


def test_t68_a_report_is_not_written_over_a_link_of_a_run_folder(
    theirs: Path, tmp_path: Path
) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "index.html").write_text("ours")
    (theirs / "report").symlink_to(ours)
    with pytest.raises(ConfigError, match=r"report/index\.html") as caught:
        rebuild_report.rebuild([theirs], None, QUIET)
    assert "--out" in caught.value.hint
    assert [file.name for file in ours.iterdir()] == ["index.html"]
    assert (ours / "index.html").read_text() == "ours"


def test_t68_the_page_replaces_a_link_in_the_folder_of_reports(
    theirs: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("ours")
    (theirs / "report").mkdir()
    (theirs / "report" / "index.html").symlink_to(tmp_path / "secret")
    (theirs / "report" / f".index.html.{os.getpid()}").symlink_to(tmp_path / "secret")
    _, page = rebuild_report.rebuild([theirs], None, QUIET)
    assert page.read_text().startswith("<!doctype html>")
    assert (tmp_path / "secret").read_text() == "ours"


def _pipe(plan: Path, _: Path) -> None:
    os.mkfifo(plan)


def _link(plan: Path, secret: Path) -> None:
    secret.write_text('{"options": ["--secret"]}')
    plan.symlink_to(secret)


def _deep(plan: Path, _: Path) -> None:
    plan.write_text('{"link":' * 100_000)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("deed", [_pipe, _link, _deep])
def test_t68_a_plan_is_a_plain_file_of_its_folder(
    theirs: Path, tmp_path: Path, deed: Callable[[Path, Path], None]
) -> None:
    (theirs / "plan.json").unlink(missing_ok=True)
    deed(theirs / "plan.json", tmp_path / "secret")
    assert measurements.plan(theirs) == {}


@pytest.mark.timeout(60)
def test_t68_the_table_of_somebody_else_s_run_is_not_read(theirs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    os.mkfifo(theirs / "records.parquet")
    assert rebuild_report.export([theirs], out, has_series=False) > 1
    (theirs / "records.parquet").unlink()
    polars.DataFrame({"a": [1]}).write_parquet(theirs / "records.parquet")
    assert rebuild_report.export([theirs], out, has_series=False) > 1
    assert sandboxed_reader.without_writing(theirs, is_own=True).records.lazy().collect().width == 1


@pytest.mark.timeout(60)
def test_t68_a_paper_is_judged_from_others_raw_files_and_not_from_their_tables(
    tmp_path: Path,
) -> None:
    cell: Any = {"paper": "seed-002", "clock": "real", "cell": "geo/0/h3"}
    task = run_task(1, "h3")
    plan = Plan(name="theirs", deadline_s=60, cells={task.cell: cell}, tasks=(task,))
    where = CampaignFolder(tmp_path / "theirs")
    sha256 = where.begin(plan)
    place = where.of(task) / "attempt-1"
    run = example_run.write(place, Example(duration_s=0, loads={"h3": 1}))
    false = collect.gather(run).with_columns(value=polars.lit(1.0))
    false.write_parquet(run / "records.parquet")
    record_end(where, task, sha256, "{}")
    found = reproduction.judged(plan, where, dataset.collect(plan, where))
    (figure,) = (one.outcome.figure("page_load_time_ms") for one in found.runs["geo/0/h3"])
    assert figure is not None and figure > 1000


def test_t68_a_file_is_put_below_its_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "content").write_text("new")
    (tmp_path / "root").mkdir()
    with pytest.raises(plain_files.RefusedError, match="outside"):
        plain_files.put(tmp_path / "root", "../content", tmp_path / "content")
    plain_files.put(tmp_path / "root", "a/b/c", tmp_path / "content")
    plain_files.put(tmp_path / "root", "a/b/c", tmp_path / "content")
    assert [file.name for file in (tmp_path / "root/a/b").iterdir()] == ["c"]


def test_t68_what_a_guest_recorded_is_copied_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def receive(_: object, folder: Path) -> None:
        (folder / "job-1").mkdir()
        with (folder / "job-1" / "stats.jsonl").open("wb") as file:
            file.truncate(64 << 20)
        (folder / "job-2" / "stats.jsonl").mkdir(parents=True)

    monkeypatch.setattr(ssh_job, "_receive", receive)
    tracemalloc.start()
    try:
        ssh_job.fetch([], "run", tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "stats.jsonl").stat().st_size == 64 << 20
    assert peak < 8 << 20


# --- answers --------------------------------------------------------------------------------------


def answering(answer: Callable[[socket.socket], None]) -> Database:
    """Serve one connection as a hostile InfluxDB."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(65536)
            try:
                answer(connection)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    return Database("127.0.0.1", listener.getsockname()[1])


def test_t69_an_answer_without_end_is_read_up_to_a_bound() -> None:
    sent = 0

    def endless(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while sent < 256 << 20:
            sent += connection.send(b"x" * 65536)

    with pytest.raises(HostError):
        answering(endless).query("x")
    assert sent < 64 << 20


def test_t69_an_answer_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(influx, "DEADLINE_S", 0.4)
    over = threading.Event()

    def drips(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 204 No Content\r\nX: ")
        while not over.wait(0.05):
            connection.sendall(b"x")

    began = time.monotonic()
    threading.Timer(10, over.set).start()
    with pytest.raises(HostError, match="does not answer"):
        answering(drips).write(["a b=1 1"])
    over.set()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "body", ["[]", '{"results":[[1]]}', '{"results":[5]}', "[" * 100_000, "{}", "x", "null"]
)
def test_t69_an_answer_of_another_shape_is_an_error(body: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
    with pytest.raises(HostError):
        answering(lambda connection: connection.sendall((head + body).encode())).query("x")


# --- campaigns ------------------------------------------------------------------------------------


def test_t70_flows_of_another_host_have_bounded_memory() -> None:
    side = {"rate_mbps": 0.001, "delay_ms": 1, "queue": {"bytes": 1 << 40}}
    flow = {"id": "a", "from": "server1", "to": "client1", "stack": "udp", "start_s": 0}
    file = {
        "schema": "satlab/virtual-flows/1",
        "seed": 1,
        "duration_s": 100,
        "wire": {"forward": side, "return": side},
        "flows": [flow | {"rate_mbps": 100_000}],
    }
    words = attempt.command(Flows(verb="flows", flows=file))
    program = next(number for number, word in enumerate(words) if word.endswith("satvirtual"))
    show = "import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0])"
    said = subprocess.run(
        [*words[:program], sys.executable, "-c", show], capture_output=True, text=True, check=True
    )
    assert int(said.stdout) == attempt.VIRTUAL_BYTES
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != attempt.VIRTUAL_BYTES


# --- checks, images, pages ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"cases": "abc"},
        {"suite": ["a"]},
        {"stack": 5},
        {"cases": [{"id": "a", "verdicts": [{"mark_mb": 1}]}]},
        {
            "cases": [
                {
                    "id": "a",
                    "verdicts": [{"mark_mb": "x", "median_s": 1, "target_s": 1, "result": "pass"}],
                }
            ]
        },
        "deep",
    ],
)
def test_t71_a_check_of_another_shape_is_refused(tmp_path: Path, change: object) -> None:
    whole = {
        "schema": "satlab/check/1",
        "suite": "a",
        "stack": "b",
        "clock": "virtual",
        "marks_mb": [1],
        "cases": [],
    }
    file = tmp_path / "check.json"
    file.write_text(json.dumps(whole | change) if isinstance(change, dict) else "[" * 100_000)
    with pytest.raises(ConfigError, match=r"is no check\.json"):
        check_file.read(file)


@pytest.mark.parametrize("names", [{"w/a": "b", "w/b": "a"}, {"w": "v", "v": "w"}])
def test_t71_links_of_an_image_that_lead_to_each_other_are_left_out(
    tmp_path: Path, names: dict[str, str]
) -> None:
    root = tmp_path / "root"
    (root / "w").mkdir(parents=True)
    for name, target in names.items():
        if (root / name).is_dir():
            (root / name).rmdir()
        (root / name).symlink_to(target)
    held = interop_image._held(root, "/w")
    assert held == ({} if (root / "w").is_dir() else None)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["<a ", "<!--a", "<a =", '<a b="', "<?", "</a", "<![CDATA["])
def test_t71_a_document_is_read_once_however_it_ends(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.html").write_text('<img src="a.png">' + text * ((1 << 20) // len(text)))
    (tmp_path / "a.png").write_bytes(b"1234")
    began = time.process_time()
    found = wget_folder.read(tmp_path, PurePosixPath("index.html"))
    assert [item.size_bytes for item in found.items[1:]] == [4]
    assert time.process_time() - began < 10


def test_t71_a_broken_document_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<![<![")
    with pytest.raises(ConfigError, match="is not HTML"):
        wget_folder.read(tmp_path, PurePosixPath("index.html"))
