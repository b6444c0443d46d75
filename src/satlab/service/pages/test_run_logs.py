# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs on the page of a run: their ends as text, the whole as a file, and nothing that is not a log
of the run.
"""

import html
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from satlab.openbach.engine import JobStatus
from satlab.service.api.account_store import Role, User
from satlab.service.api.conftest import PASSWORD, FakeHelper, client_of, progress_of, start
from satlab.service.api.dependencies import Context
from satlab.service.pages import run_logs
from satlab.service.pages.test_pages import launch

HOSTILE = "</pre><script>alert(1)</script>\x1b[31m\u202eevil"


def run_with_logs(
    context: Context, helper: FakeHelper, number: int, status: str = JobStatus.NOT_RUNNING
) -> Path:
    """Run an instance whose job 1 has a status; return its folder of logs."""
    run_id = start(context, number)
    helper.end(run_id, 0, instance=progress_of(number, "ping", {"status": status}))
    context.queue.step()
    context.settings.logs.mkdir(exist_ok=True)
    (context.settings.logs / f"{run_id}.log").write_text("run starts\ncalibrating\n")
    place = context.settings.runs / run_id / "raw" / "logs"
    place.mkdir(parents=True)
    (place / "satlink.log").write_text("satlink: serves 4 directions\n")
    (place / "satlab_ping-1.log").write_text(f"ping: {HOSTILE}\n")
    return place


def details(page: str) -> dict[str, str]:
    """Return the text of each log on a page by its title."""
    found = re.findall(
        r"<details( open)?><summary>(.*?)</summary>\s*(.*?)</details>", page, re.DOTALL
    )
    return {
        re.sub(r"<.*", "", title).strip() + opened: body
        for opened, title, body in found
        if "<pre" in body
    }


@pytest.mark.promise("P61")
def test_p369_the_page_shows_runner_emulator_and_jobs_in_this_order(
    runner: TestClient, context: Context, helper: FakeHelper
) -> None:
    number = launch(runner)
    place = run_with_logs(context, helper, number)
    (place / "satlab_ping-10.log").write_text("ten\n")
    (place / "satlab_ping-9.log").write_text("nine\n")
    (place / "empty-3.log").write_text("")
    shown = details(runner.get(f"/ui/runs/{number}").text)
    names = ["runner", "satlink", "satlab_ping on client", "satlab_ping-9", "satlab_ping-10"]
    assert list(shown) == names
    assert "calibrating" in shown["runner"] and "4 directions" in shown["satlink"]


def test_p369_the_log_of_a_job_that_failed_is_open(
    runner: TestClient, context: Context, helper: FakeHelper
) -> None:
    number = launch(runner)
    run_with_logs(context, helper, number, JobStatus.ERROR)
    assert list(details(runner.get(f"/ui/runs/{number}").text))[2] == "satlab_ping on client open"


def test_p369_the_end_is_shown_and_the_whole_is_a_file(
    runner: TestClient, context: Context, helper: FakeHelper
) -> None:
    number = launch(runner)
    place = run_with_logs(context, helper, number)
    whole = "".join(f"line {line}\n" for line in range(100_000))
    (place / "satlink.log").write_text(whole)
    page = runner.get(f"/ui/runs/{number}").text
    body = details(page)["satlink"]
    assert "line 99999" in body and "line 99000" not in body and "Its end:" in body
    assert body.count("\n") < run_logs.TAIL_LINES + 10 and len(page) < 100_000
    answer = runner.get(f"/ui/runs/{number}/logs/satlink.log")
    assert answer.text == whole
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="satlink.log"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_p369_many_logs_are_limited_in_number_and_size(
    runner: TestClient, context: Context, helper: FakeHelper
) -> None:
    number = launch(runner)
    place = run_with_logs(context, helper, number)
    for each in range(2, 200):
        (place / f"job-{each}.log").write_text("x" * 100_000)
    page = runner.get(f"/ui/runs/{number}").text
    assert len(details(page)) == run_logs.MOST_LOGS
    assert f"{3 + 198 - run_logs.MOST_LOGS} more logs" in page and len(page) < 400_000


def test_p369_logs_of_the_command_line_s_runs_are_shown(
    app: FastAPI, context: Context, tmp_path: Path, measured: Path
) -> None:
    folder = tmp_path / "other" / measured.name
    folder.parent.mkdir()
    shutil.copytree(measured, folder)
    (folder / "raw" / "logs").mkdir(exist_ok=True)
    (folder / "raw" / "logs" / "satlab_iperf3-2.log").write_text("iperf3: busy\n")
    context.settings = replace(context.settings, other_runs=folder.parent)
    viewer = client_of(app, "viewer")
    assert (
        "iperf3: busy" in details(viewer.get(f"/ui/folders/{folder.name}").text)["satlab_iperf3-2"]
    )
    answer = viewer.get(f"/ui/folders/{folder.name}/logs/satlab_iperf3-2.log")
    assert answer.text == "iperf3: busy\n" and "attachment" in answer.headers["content-disposition"]


def test_t14_hostile_lines_are_text(
    runner: TestClient, context: Context, helper: FakeHelper
) -> None:
    number = launch(runner)
    place = run_with_logs(context, helper, number)
    (place / "satlab_ping-1.log").write_bytes(HOSTILE.encode() + b"\xff\x00\n" + b"y" * 9000)
    page = runner.get(f"/ui/runs/{number}").text
    assert "<script>alert" not in page and "\x1b" not in page and "\x00" not in page
    (place / "satlab_ping-1.log").write_bytes(HOSTILE.encode() + b"\xff\x00\n")
    page = runner.get(f"/ui/runs/{number}").text
    assert "<script>alert" not in page and "\x1b" not in page and "\u202e" not in page
    assert "<script>alert(1)</script>" in html.unescape(details(page)["satlab_ping on client"])


@pytest.mark.parametrize(
    "name", ["..%2f..%2fmanifest.json", "manifest.json", "secret.log", "link.log", "a.log%00"]
)
def test_t04_only_logs_of_the_run_are_given_out(
    runner: TestClient, context: Context, helper: FakeHelper, tmp_path: Path, name: str
) -> None:
    number = launch(runner)
    place = run_with_logs(context, helper, number)
    (tmp_path / "secret.log").write_text("secret")
    (place / "link.log").symlink_to(tmp_path / "secret.log")
    (place.parent / "manifest.json").write_text("secret")
    os.mkfifo(place / "pipe.log")
    assert "secret" not in runner.get(f"/ui/runs/{number}").text
    answer = runner.get(f"/ui/runs/{number}/logs/{name}")
    assert answer.status_code == 404 and "secret" not in answer.text


def test_t01_logs_are_for_those_who_may_see_the_run(
    app: FastAPI, context: Context, runner: TestClient, helper: FakeHelper, anonymous: TestClient
) -> None:
    number = launch(runner)
    run_with_logs(context, helper, number)
    path = f"/ui/runs/{number}/logs/runner.log"
    assert runner.get(path).text == "run starts\ncalibrating\n"
    answer = anonymous.get(path, follow_redirects=False)
    assert answer.status_code == 303 and "login" in answer.headers["location"]
    context.accounts.put(User("other", Role.RUNNER), PASSWORD)
    context.catalog.put_project(replace(context.catalog.projects()[0], owners=("runner",)))
    assert client_of(app, "other").get(path).status_code == 403
