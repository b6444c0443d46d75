# SPDX-License-Identifier: GPL-3.0-or-later
"""A server whose helper replays a recorded run, and a browser: fixtures of the tests of the web
pages.
"""

import contextlib
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

import collect
from collect.fixtures import example_run
from satlab.service.api import passwords
from satlab.service.api.account_store import Role, User
from satlab.service.api.database import Store
from satlab.service.api.dependencies import Context
from satlab.service.api.queue import LaunchRequest
from satlab.service.api.settings import Settings
from satlab.service.app import create_app
from satlab.service.pages.server_sent_events import Listeners
from satlab.service.root_helper.protocol import RunStatus, ScenarioRequest
from tests.browser.chromium import browser, text, until

PASSWORD = "correct horse battery"  # noqa: S105 - of a server that lives for this module
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(1)</script>'

ACTIVITY = {
    "t_unix_s": example_run.START + 20.0,
    "nodes": [{"node": "client", "cpu_percent": 83.4}, {"node": "sat", "cpu_percent": 6.0}],
    "programs": [
        {"node": "client", "program": "chromium", "processes": 9, "cpu_percent": 83.4},
        {"node": "sat", "program": "satlink", "processes": 1, "cpu_percent": 6.0},
    ],
    "flows": [
        {
            "node": "server",
            "source": "kernel",
            "local": "198.18.4.2:443",
            "peer": "198.18.1.2:40000",
            "algorithm": "cubic",
            "cwnd_bytes": 1_234_000,
            "rtt_ms": 601.2,
            "in_flight_bytes": 112_000,
            "acked_bytes": 2_500_000,
        },
        {
            "node": "proxy-gw",
            "source": "satperf, quinn 0.11.13",
            "local": "",
            "peer": "198.18.1.2:50000",
            "algorithm": "cubic",
            "cwnd_bytes": 9_876_000,
            "rtt_ms": 1101.2,
            "in_flight_bytes": 98_000,
            "acked_bytes": None,
        },
    ],
}
"""What the nodes of a replayed run do."""


@dataclass
class Replay:
    """Replays an example run: its link metrics grow at each status request, then it ends.

    `hold`: a run that starts does not end before `release`. The next test's run waits for that end.
    """

    runs: Path
    recorded: Path
    hold: bool = False
    looks: dict[str, int] = field(default_factory=dict)
    asked: dict[str, dict[str, str]] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)

    def start(self, run_id: str, request: ScenarioRequest) -> None:
        self.asked[run_id] = dict(request.arguments)
        self.looks[run_id] = 0
        if self.hold:
            self.held.add(run_id)
        (self.runs / run_id / "raw").mkdir(parents=True)
        shutil.copy(self.recorded / "plan.json", self.runs / run_id)
        logs = self.runs.parent / "logs"
        logs.mkdir(exist_ok=True)
        (logs / f"{run_id}.log").write_text(
            "".join(f"step {number} of the run\n" for number in range(300))
        )

    def release(self) -> None:
        """Let all runs end."""
        self.hold = False
        self.held.clear()

    def stop(self, run_id: str) -> None:
        self.stopped.add(run_id)

    def status(self, run_id: str) -> RunStatus:
        looks = self.looks.get(run_id)
        if looks is None or run_id in self.stopped:
            return RunStatus(phase="ended", exit_status=130)
        self.looks[run_id] += 1
        lines = (self.recorded / "raw" / "link.jsonl").read_text().splitlines(keepends=True)
        shown = lines[: min(len(lines), (looks + 1) * len(lines) // 8)]
        (self.runs / run_id / "raw" / "link.jsonl").write_text("".join(shown))
        if looks < 8 or run_id in self.held:
            return RunStatus(phase="running", progress=self.progress("Running"))
        shutil.rmtree(self.runs / run_id)
        shutil.copytree(self.recorded, self.runs / run_id)
        manifest = self.runs / run_id / "manifest.json"
        about = json.loads(manifest.read_text())
        about["arguments"] |= self.asked[run_id]
        manifest.write_text(json.dumps(about))
        return RunStatus(phase="ended", exit_status=0, progress=self.progress("Not Running"))

    @staticmethod
    def progress(status: str) -> dict[str, Any]:
        job: dict[str, Any] = {
            "id": 1,
            "job": "satlab_page_load",
            "entity": "client",
            "status": status,
            "reason": "",
        }
        job |= {"start_unix_s": example_run.START + 12, "stop_unix_s": None}
        function = {
            "id": 1,
            "label": HOSTILE,
            "status": "Finished",
            "reason": "",
            "job": job,
            "scenario": None,
        }
        times = {"start_unix_s": example_run.START + 12, "stop_unix_s": example_run.START + 40}
        activity = ACTIVITY if status == "Running" else None
        return {
            "phase": "scenario",
            "instance": {**times, "functions": [function]},
            "activity": activity,
        }


@dataclass
class Site:
    """The server and its helper."""

    url: str
    replay: Replay
    listeners: Listeners
    context: Context

    @property
    def others(self) -> Path:
        """The folder of the command line's runs."""
        return self.replay.runs.parents[1] / "others"

    def fill(self, count: int) -> None:
        """Add instances that were stopped before they ran."""
        request = ScenarioRequest(
            scenario="ping",
            documents={"ping": {"name": "ping", "openbach_functions": []}},
            entities={},
            arguments={"count": "3"},
            first_scenario_id=1,
            first_job_id=1,
        )
        for _ in range(count):
            added = self.context.queue.launch(LaunchRequest("satlab", "runner", request, 0, 1))
            self.context.queue.stop(added.id)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve the pages on a free port of loopback."""
    with serve(tmp_path_factory.mktemp("serve")) as served:
        yield served


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Site]:
    """Serve the pages on a free port of loopback until the block ends; `folder` is empty."""
    example = example_run.Example(loads={"h1": 3, "h3": 3})
    recorded = example_run.write(folder, example)
    (recorded / "raw" / "logs").mkdir()
    (recorded / "raw" / "logs" / "satlink.log").write_text("satlink: serves 4 directions\n")
    (recorded / "raw" / "logs" / "satlab_page_load-1.log").write_text(f"{HOSTILE}\n{'a' * 3000}\n")
    example_run.seal(recorded, example)
    collect.gather(recorded).lazy().collect().write_parquet(recorded / "records.parquet")
    (recorded / "report").mkdir()
    (recorded / "report" / "index.html").write_text(
        "<!doctype html><title>report</title><h1>A report</h1>"
    )
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    settings = Settings(
        folder / "state", frozenset({f"localhost:{port}"}), other_runs=folder / "others"
    )
    replay = Replay(settings.runs, recorded)
    store = Store(settings.database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(passwords.SCRYPT, "n", 16)
        app = create_app(store, replay, settings)
        for role in Role:
            app.state.context.accounts.put(User(role.name.lower(), role), PASSWORD)
        app.state.context.catalog.add_version(
            "satlab",
            "hostile",
            {
                "name": "hostile",
                "description": HOSTILE,
                "arguments": {"count": HOSTILE},
                "openbach_functions": [
                    {
                        "id": 1,
                        "start_job_instance": {
                            "entity_name": "client",
                            "satlab_ping": {"destination_ip": "198.18.4.2", "count": "$count"},
                        },
                    }
                ],
            },
        )
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield Site(f"http://localhost:{port}", replay, app.state.listeners, app.state.context)
        server.should_exit = True
        thread.join(30)
    store.close()


@pytest.fixture
def chrome(site: Site, request: pytest.FixtureRequest) -> Iterator[webdriver.Chrome]:
    """Yield a browser. Its console must not report a violation of the policy or an error."""
    if shutil.which("chromedriver") is None:
        pytest.skip("needs chromedriver")
    driver = browser(**getattr(request, "param", {}))
    try:
        yield driver
        said = [entry["message"] for entry in driver.get_log("browser")]  # type: ignore[no-untyped-call]
        faults = [text for text in said if "Content Security Policy" in text or "Uncaught" in text]
        if faults:
            pytest.fail(f"the console of the browser: {faults}")
    finally:
        driver.quit()
        site.replay.release()


def log_in(driver: webdriver.Chrome, site: Site, login: str = "runner") -> None:
    driver.get(f"{site.url}/ui/")
    driver.find_element(By.ID, "login").send_keys(login)
    driver.find_element(By.ID, "password").send_keys(PASSWORD)
    driver.find_element(By.CSS_SELECTOR, "button.primary").click()
    until(lambda: "Log out" in text(driver), "login")


def launch(driver: webdriver.Chrome, site: Site, name: str, **values: str) -> str:
    driver.get(f"{site.url}/ui/scenarios/satlab/{name}")
    for key, value in values.items():
        element = driver.find_element(By.ID, f"argument.{key}")
        if element.tag_name == "select":
            Select(element).select_by_visible_text(value)
        else:
            element.send_keys(value)
    driver.find_element(By.CSS_SELECTOR, "button.primary").click()
    until(lambda: "/ui/runs/" in driver.current_url, "launch")
    return driver.current_url
