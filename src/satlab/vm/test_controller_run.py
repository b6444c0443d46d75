# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario through a controller: `satlab serve`, whose contract is OpenBACH's, with a helper that
runs nothing.
"""

import contextlib
import json
import socket
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars
import pytest
import uvicorn

from satlab.common import paths, topology
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, HostError, RunError
from satlab.link.options import LinkOptions
from satlab.link.plan import plan_link
from satlab.openbach import descriptor, scenario
from satlab.openbach.model import BoundScenario
from satlab.openbach.runner import JobProgress, ScenarioResult
from satlab.service.api import passwords
from satlab.service.api.account_store import Role, User
from satlab.service.api.conftest import PASSWORD, FakeHelper
from satlab.service.api.database import Store
from satlab.service.api.settings import Settings
from satlab.service.app import create_app
from satlab.service.root_helper.protocol import ScenarioRequest
from satlab.vm import controller_run, provision, vm_run
from satlab.vm.controller_client import Controller, RefusedError
from satlab.vm.provision import VmFolder
from satlab.vm.vm_lab import VmLab
from tests.archives import archive

PING = paths.SCENARIOS / "ping.json"
BEGAN = 1_800_000_000.0


@dataclass
class Helper(FakeHelper):
    """Ends each run at once with one job, its statistics and a stored file; `exit_status` None:
    waits for the stop.
    """

    state: Path = Path()
    exit_status: int | None = 0

    def start(self, run_id: str, order: ScenarioRequest) -> None:
        super().start(run_id, order)
        good = self.exit_status == 0
        job = {
            "id": order.first_job_id,
            "job": "satlab_ping",
            "entity": "client",
            "arguments": [],
            "reason": "",
        }
        job |= {
            "status": "Not Running" if good else "Error",
            "start_unix_s": BEGAN,
            "stop_unix_s": BEGAN + 3,
        }
        function = {
            "id": 1,
            "label": "ping",
            "status": "Finished",
            "reason": "",
            "launch_unix_s": BEGAN,
            "job": job,
        }
        root = {
            "id": order.first_scenario_id,
            "owner_id": order.first_scenario_id,
            "scenario": order.scenario,
        }
        root |= {
            "arguments": dict(order.arguments),
            "status": "Finished Ok" if good else "Finished Ko",
            "reason": "",
        }
        root |= {
            "start_unix_s": BEGAN,
            "stop_unix_s": BEGAN + 4,
            "functions": [function | {"scenario": None}],
        }
        self._record(run_id, order)
        if self.exit_status is not None:
            self.end(run_id, self.exit_status, instance=root)

    def _record(self, run_id: str, order: ScenarioRequest) -> None:
        folder = (
            self.state / "runs" / run_id / "raw" / "files" / f"satlab_ping-{order.first_job_id}"
        )
        folder.mkdir(parents=True)
        echoes = {"schema": "satlab/ping/1", "destination": "198.18.4.2", "sent": 3, "received": 3}
        (folder / "ping_json.json").write_text(
            json.dumps(echoes | {"rtt_ms": [580.5] * 3, "start_unix_s": BEGAN})
        )
        about = {
            "time": 1_800_000_001_500,
            "is_file": False,
            "job_name": "satlab_ping",
            "agent_name": "client",
        }
        about |= {
            "job_instance_id": order.first_job_id,
            "scenario_instance_id": order.first_scenario_id,
        }
        about |= {"owner_scenario_instance_id": order.first_scenario_id, "flag": 1}
        stored = {
            "ping_json": f"files/{folder.name}/ping_json.json",
            "_metadata": about | {"is_file": True},
        }
        records = [{"rtt_ms": 580.5, "_metadata": about | {"suffix": "=x"}}, stored]
        (folder.parent.parent / "stats.jsonl").write_text(
            "".join(json.dumps(each) + "\n" for each in records)
        )


@dataclass
class Served:
    """A controller that answers."""

    controller: Controller
    helper: Helper

    def run(
        self, scenario_: BoundScenario, raw: Path, stop: threading.Event, deadline_s: float = 30
    ) -> ScenarioResult:
        return controller_run.run(
            self.controller, scenario_, PING, raw, lambda _: None, stop, deadline_s
        )


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setitem(passwords.SCRYPT, "n", 16)
    monkeypatch.setattr(controller_run, "POLL_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        settings = Settings(tmp_path / "state", frozenset({f"127.0.0.1:{port}"}))
        store, helper = Store(settings.database), Helper(state=settings.state)
        app = create_app(store, helper, settings)
        app.state.context.accounts.put(User("admin", Role.ADMIN), PASSWORD)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield Served(Controller("127.0.0.1", port, "/openbach", "admin", PASSWORD), helper)
        server.should_exit = True
        thread.join()
        store.close()


def ping(**settings: str) -> BoundScenario:
    loaded = scenario.load(PING, descriptor.load_jobs(paths.JOBS), topology.load().nodes)
    return scenario.bind(loaded, {"count": "3", **settings})


@pytest.mark.promise("P98")
def test_a_run_leaves_what_the_runner_leaves(served: Served, tmp_path: Path) -> None:
    events: list[JobProgress] = []
    raw = tmp_path / "run" / "raw"
    result = controller_run.run(
        served.controller, ping(interval="0.5"), PING, raw, events.append, threading.Event(), 30
    )
    assert (result.outcome, result.status, result.reason) == ("ok", "Finished Ok", "")
    (order,) = served.helper.requests.values()
    assert order.arguments == {"count": "3"}
    assert order.documents["ping"]["constants"] == {"interval": "0.5", "server_ip": "198.18.4.2"}
    (record,) = [json.loads(line) for line in (raw / "jobs.jsonl").read_text().splitlines()]
    assert (record["job"], record["entity"], record["status"]) == (
        "satlab_ping",
        "client",
        "Not Running",
    )
    assert (record["start_unix_s"], record["stop_unix_s"], record["exit_code"]) == (
        BEGAN,
        BEGAN + 3,
        0,
    )
    number = record["job_instance_id"]
    rtt, stored = (json.loads(line) for line in (raw / "stats.jsonl").read_text().splitlines())
    assert (rtt["rtt_ms"], rtt["_metadata"]["time"], rtt["_metadata"]["suffix"]) == (
        580.5,
        1_800_000_001_500,
        "=x",
    )
    assert stored["_metadata"]["is_file"]
    assert (
        json.loads((raw / f"files/satlab_ping-{number}/ping_json.json").read_text())["received"]
        == 3
    )
    assert events[-1].status == "Not Running"


def test_a_run_folder_and_its_report_come_of_it(served: Served, tmp_path: Path) -> None:
    """The hosts of a controller elsewhere are not reached: nothing is calibrated, and the run says
    so.
    """
    here, folder = topology.load(), VmFolder(tmp_path / "lab")
    folder.make()
    config = provision.link_config(here, LinkOptions())
    folder.plan.write_text(plan_link(config).to_json())
    folder.link.write_text(config.to_json())
    prepared = vm_run.prepare(PING, {"count": "3"}, VmLab(folder, here), served.controller)
    outcome = vm_run.execute(
        prepared, tmp_path / "runs", ProgressLog(quiet=True), threading.Event(), 30
    )
    assert outcome.status is ExitStatus.UNCALIBRATED, outcome.reason
    rtt = outcome.records.lazy().collect().filter(polars.col("metric") == "rtt_ms")
    assert (set(rtt["status"]), set(rtt["value"])) == ({"ok"}, {580.5})
    about = json.loads((outcome.folder / "manifest.json").read_text())
    assert (about["lab"], about["emulator"]) == ("vm", "unknown")
    assert (outcome.folder / "report" / "index.html").is_file()


def test_a_stop_reaches_the_controller(served: Served, tmp_path: Path) -> None:
    served.helper.exit_status = None
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    result = served.run(ping(), tmp_path / "raw", stop)
    assert (result.outcome, result.status) == ("interrupted", "Stopped")


def test_a_run_without_an_end_is_stopped_and_has_failed(served: Served, tmp_path: Path) -> None:
    served.helper.exit_status = None
    result = served.run(ping(), tmp_path / "raw", threading.Event(), deadline_s=0.3)
    assert (result.outcome, result.reason) == ("failed", "not over after 0.3 s")
    assert served.controller.instance(1)["status"] == "Stopped"


def test_a_job_that_fails_fails_the_run(served: Served, tmp_path: Path) -> None:
    served.helper.exit_status = 1
    result = served.run(ping(), tmp_path / "raw", threading.Event())
    assert (result.outcome, result.status) == ("failed", "Finished Ko")
    assert result.jobs[0].exit_code is None


def test_jobs_are_installed_where_they_are_missing(served: Served, tmp_path: Path) -> None:
    controller = served.controller
    controller.enter()
    gone = {"action": "uninstall", "names": ["satlab_ping"], "addresses": ["198.18.1.2"]}
    controller.request("POST", "/job/", gone)
    assert served.run(ping(), tmp_path / "raw", threading.Event()).ok
    there = controller.request("GET", "/job/?address=198.18.1.2")["installed_jobs"]
    assert "satlab_ping" in [job["name"] for job in there]


def test_a_job_that_the_controller_lacks_is_sent(served: Served, tmp_path: Path) -> None:
    files = tmp_path / "try_ping" / "files"
    files.mkdir(parents=True)
    text = (paths.JOBS / "satlab_ping/files/satlab_ping.yml").read_text()
    (files / "try_ping.yml").write_text(text.replace("name: satlab_ping", "name: try_ping"))
    served.controller.enter()
    served.controller.add_job("try_ping", files.parent)
    assert served.controller.request("GET", "/job/try_ping/")["general"]["name"] == "try_ping"


def test_entities_are_attached_to_their_agents(served: Served, tmp_path: Path) -> None:
    controller = served.controller
    controller.enter()
    controller.request(
        "PUT", "/project/satlab/entity/client/", {"agent": {"address": "198.18.4.2"}}
    )
    controller.request("DELETE", "/project/satlab/entity/server/")
    controller.put_entities("satlab", {"client": "198.18.1.2", "server": "198.18.4.2"})
    found = {
        e["name"]: e["agent"]["address"]
        for e in controller.request("GET", "/project/satlab/")["entity"]
    }
    assert (found["client"], found["server"]) == ("198.18.1.2", "198.18.4.2")
    controller.put_entities("other", {"client": "198.18.1.2"})
    assert controller.request("GET", "/project/other/")["owners"] == ["admin"]


def test_refusals_name_reason_and_remedy(served: Served) -> None:
    controller = served.controller
    with pytest.raises(HostError, match="Wrong Credentials") as wrong:
        Controller("127.0.0.1", controller.port, login="admin", password="no").enter()  # noqa: S106
    assert "SATLAB_OPENBACH" in wrong.value.hint
    controller.enter()
    with pytest.raises(HostError, match="no agent nobody"):
        controller.agents({"client", "nobody"})
    bad = {"name": "bad", "arguments": {"x": ""}, "openbach_functions": []}
    with pytest.raises(ConfigError) as refused:
        controller.save("satlab", bad)
    assert "arguments.x: An argument is unused" in str(refused.value.faults[0])
    with pytest.raises(RefusedError, match="ping") as launch:
        controller.launch("satlab", "ping", {})
    assert launch.value.http_status == 400
    assert isinstance(launch.value, RunError)


def test_urls() -> None:
    found = Controller.of("https://ann:p%40ss@host/openbach/")
    assert (found.host, found.port, found.prefix, found.login, found.password) == (
        "host",
        8000,
        "/openbach",
        "ann",
        "p@ss",
    )
    assert str(found) == "https://host:8000/openbach"
    assert "p@ss" not in repr(found)
    for text in ("host:8000", "ftp://host", "http://host:x", "http://host/?a"):
        with pytest.raises(ConfigError):
            Controller.of(text)


@contextlib.contextmanager
def breaking(answers: list[bytes]) -> Iterator[Controller]:
    """Yield a server that says one of these on each connection; nothing is a broken one.

    It may end before the last.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                with contextlib.suppress(OSError):  # closed
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield Controller("127.0.0.1", listener.getsockname()[1])


def test_what_only_reads_is_asked_again_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satlab.vm.controller_client.POLL_S", 0.01)
    good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    with breaking([b"", b"", good]) as controller:
        assert controller.request("GET", "/version/") == {}
    with breaking([b"", good]) as controller, pytest.raises(HostError, match="does not answer"):
        controller.request("POST", "/scenario_instance/1/")
    for text in (b"<html>", b"[" * 100_000):
        page = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text)
        with breaking([page]) as controller, pytest.raises(HostError, match="no JSON"):
            controller.request("GET", "/version/")
    monkeypatch.setattr("satlab.vm.controller_client.MOST_JSON_BYTES", 1)
    with breaking([good]) as controller, pytest.raises(HostError, match="the answer has more than"):
        controller.request("GET", "/version/")


def test_dates_without_a_zone_are_the_controller_s() -> None:
    assert controller_run.unix_s("2027-01-15T08:00:00.000Z", 0) == BEGAN
    assert controller_run.unix_s("2027-01-15 09:00:00", 0) == BEGAN
    assert controller_run.unix_s("Not programmed yet", 7.0) == 7.0
    assert controller_run.unix_s(None, 7.0) == 7.0


def stored(*names: str, called: str = "client.satlab_ping_(7).ping.m0krqcl2.tar.gz") -> bytes:
    link = tarfile.TarInfo("link.json")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return archive({called: archive(dict.fromkeys(names, b"{}"), link)})


def test_t04_places_of_stored_files_follow_from_numbers_alone(tmp_path: Path) -> None:
    names = (
        "ping.json",
        "9/1800000000000/x.json",
        "../../../evil.json",
        "/etc/satlab_ping-7/y.j/../son",
    )
    controller_run.store(stored(*names), "satlab_ping", "ping", tmp_path / "files")
    found = sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
    )
    folder = "files/satlab_ping-7"
    assert found == [
        f"{folder}/ping",
        f"{folder}/ping-2.json",
        f"{folder}/ping-3.json",
        f"{folder}/ping.json",
    ]
    wrong = (
        "client.satlab_ping_(../../1).ping.x.tar.gz",
        "satlab_ping.tar.gz",
        "client.satlab_curl_(1).ping.x.tar.gz",
    )
    for called in wrong:
        with pytest.raises(HostError, match="names no instance of satlab_ping"):
            controller_run.store(
                stored("x.json", called=called), "satlab_ping", "ping", tmp_path / "others"
            )
    assert not (tmp_path / "others").exists()
    with pytest.raises(HostError, match="cannot be read"):
        controller_run.store(b"no archive", "satlab_ping", "ping", tmp_path)


def row(**values: Any) -> str:
    columns = {
        "@agent_name": "client",
        "@job_instance_id": 3,
        "@job_name": "satlab_ping",
        "@suffix": "",
    }
    columns |= {
        "@owner_scenario_instance_id": 1,
        "@scenario_instance_id": 2,
        "@stored_file": "false",
        **values,
    }
    return f"{','.join(columns)}\n{','.join(map(str, columns.values()))}\n"


def test_rows_become_records() -> None:
    (record,) = controller_run.statistics(
        row(rtt_ms=580.0, loss="", url="'=x", time="2027-01-15T08:00:00.250Z")
    )
    about = {
        "time": 1_800_000_000_250,
        "is_file": False,
        "job_name": "satlab_ping",
        "agent_name": "client",
        "flag": 1,
    }
    about |= {"job_instance_id": 3, "scenario_instance_id": 2, "owner_scenario_instance_id": 1}
    assert record == {"rtt_ms": 580.0, "url": "=x", "_metadata": about}
    assert list(controller_run.statistics(row())) == []
