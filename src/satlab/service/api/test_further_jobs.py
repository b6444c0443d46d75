# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs in the forms of OpenBACH's own in the service: named by the operator (`--jobs`), or
uploaded.
"""

import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from satlab.common.errors import ConfigError
from satlab.openbach.fixtures.executor_shapes import SCENARIOS
from satlab.openbach.fixtures.upstream_shapes import JOBS, write_job
from satlab.run.scenario_run import JOBS_VARIABLE, PRIVILEGES_VARIABLE
from satlab.service import root_process
from satlab.service.api.account_store import Role, User
from satlab.service.api.conftest import HOST, PASSWORD, FakeHelper, client_of
from satlab.service.api.database import Store
from satlab.service.api.settings import Settings
from satlab.service.app import create_app
from satlab.service.listen import ServeRequest


@pytest.fixture
def further(tmp_path: Path) -> Path:
    for name in ("fping", "iperf3", "time_series", "histogram"):
        write_job(tmp_path / "core/network", name, JOBS[name])
    return tmp_path / "core"


@pytest.fixture
def admin(tmp_path: Path, further: Path) -> TestClient:
    settings = Settings(tmp_path / "state", frozenset({HOST}), further_jobs=further)
    app: FastAPI = create_app(Store(settings.database), FakeHelper(), settings, runs_queue=False)
    app.state.context.accounts.put(User("admin", Role.ADMIN), PASSWORD)
    return client_of(app, "admin")


def test_a_job_in_the_list_form_is_shown_as_openbach_shows_jobs(admin: TestClient) -> None:
    shown = admin.get("/job/fping/").json()
    releases = [each["ansible_distribution_release"] for each in shown["platform_configuration"]]
    assert releases == ["focal", "jammy", "noble"]
    assert shown["general"]["persistent"] is True  # a hint for its users
    names = {job["general"]["name"] for job in admin.get("/job/").json()}
    assert {"fping", "iperf3", "satlab_ping"} <= names


def test_an_upstream_scenario_is_saved_and_launched(admin: TestClient) -> None:
    document = {"name": "Service VPN test", **SCENARIOS["service_data_transfer"]}
    assert admin.post("/project/satlab/scenario/", json=document).status_code == 200, (
        "names may have spaces"
    )
    where = "/project/satlab/scenario/Service%20VPN%20test/scenario_instance/"
    answer = admin.post(where, json={"arguments": {"duration": "5"}})
    assert answer.status_code == 200, answer.json()


def test_a_job_in_the_list_form_is_uploaded(
    admin: TestClient, further: Path, tmp_path: Path
) -> None:
    packed = io.BytesIO()
    folder = write_job(tmp_path / "up", "apache2", JOBS["apache2"])
    with tarfile.open(fileobj=packed, mode="w:gz") as content:
        for path in sorted(folder.rglob("*")):
            content.add(path, str(path.relative_to(folder)), recursive=False)
    files = {"file": ("x.tar.gz", packed.getvalue())}
    answer = admin.post(
        "/job/", data={"name": "apache2"}, files=files, headers={"origin": f"http://{HOST}"}
    )
    assert answer.status_code == 200, answer.json()
    shutil.rmtree(further)  # a folder that has gone takes its own jobs along, and no others
    assert admin.get("/job/apache2/").status_code == 200
    assert admin.get("/job/fping/").status_code == 404
    assert admin.get("/job/satlab_ping/").status_code == 200


def test_what_the_operator_names_is_checked_and_named_to_the_workers(
    tmp_path: Path, further: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (JOBS_VARIABLE, PRIVILEGES_VARIABLE):
        monkeypatch.setenv(variable, "")  # put back afterwards
    privileges = tmp_path / "privileges.yml"
    privileges.write_text("fping: [net_raw]")
    request = ServeRequest("127.0.0.1:8000", None, tmp_path, jobs=further, privileges=privileges)
    root_process.name_jobs(request)
    assert (os.environ[JOBS_VARIABLE], os.environ[PRIVILEGES_VARIABLE]) == (
        str(further),
        str(privileges),
    )
    privileges.write_text("fping: [sys_admin]")
    with pytest.raises(ConfigError):
        root_process.name_jobs(request)
