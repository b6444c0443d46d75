# SPDX-License-Identifier: GPL-3.0-or-later
"""The web pages in a real browser, with a helper that replays a run: mouse, keyboard, without scripts."""

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
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from collect.fixtures import example_run
from satlab import web
from satlab.rootd.verbs import RunStatus, ScenarioRequest
from satlab.serve import passwords
from satlab.serve.accounts import Role, User
from satlab.serve.app import create_app
from satlab.serve.settings import Settings
from satlab.serve.store import Store
from satlab.web.events import Listeners
from tests.browser.chromium import browser, text, until

pytestmark = pytest.mark.browser

PASSWORD = "correct horse battery"  # noqa: S105 - of a server that lives for this module
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(1)</script>'


@dataclass
class Replay:
    """Replays an example run: its link metrics grow at each status request, then it ends. `hold`: it does not end."""

    runs: Path
    recorded: Path
    hold: bool = False
    looks: dict[str, int] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)

    def start(self, run_id: str, request: ScenarioRequest) -> None:
        del request
        self.looks[run_id] = 0
        (self.runs / run_id / "raw").mkdir(parents=True)

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
        if looks < 8 or self.hold:
            return RunStatus(phase="running", progress=self.progress("Running"))
        shutil.rmtree(self.runs / run_id)
        shutil.copytree(self.recorded, self.runs / run_id)
        return RunStatus(phase="ended", exit_status=0, progress=self.progress("Not Running"))

    @staticmethod
    def progress(status: str) -> dict[str, Any]:
        job: dict[str, Any] = {"job": "satlab_page_load", "entity": "client", "status": status, "reason": ""}
        job |= {"start_unix_s": example_run.START + 12, "stop_unix_s": None}
        function = {"id": 1, "label": HOSTILE, "status": "Finished", "reason": "", "job": job, "scenario": None}
        return {"phase": "scenario", "instance": {"start_unix_s": example_run.START + 12, "functions": [function]}}


@dataclass
class Site:
    """The server and its helper."""

    url: str
    replay: Replay
    listeners: Listeners


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve the pages on a free port of loopback."""
    folder = tmp_path_factory.mktemp("serve")
    recorded = example_run.write(folder, example_run.Example(loads={"h1": 3, "h3": 3}))
    (recorded / "report").mkdir()
    (recorded / "report" / "index.html").write_text("<!doctype html><title>report</title><h1>A report</h1>")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    settings = Settings(folder / "state", frozenset({f"localhost:{port}"}))
    replay = Replay(settings.runs, recorded)
    store = Store(settings.database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(passwords.SCRYPT, "n", 16)
        app = create_app(store, replay, settings, pages=web.mount)
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
        yield Site(f"http://localhost:{port}", replay, app.state.listeners)
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
        expected = [entry["message"] for entry in driver.get_log("browser")]  # type: ignore[no-untyped-call]
        assert not [text for text in expected if "Content Security Policy" in text or "Uncaught" in text], expected
    finally:
        driver.quit()
        site.replay.hold = False


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


def test_a_run_is_launched_watched_and_read(chrome: webdriver.Chrome, site: Site) -> None:
    site.replay.hold = True
    log_in(chrome, site)
    chrome.find_element(By.PARTIAL_LINK_TEXT, "page_load").click()
    url = launch(chrome, site, "page_load", protocol="h3")
    until(lambda: "Running the scenario" in text(chrome), "progress")
    until(lambda: len(chrome.find_elements(By.CSS_SELECTOR, "svg polyline")) == 3, "curves")
    assert site.listeners.count == 1 and "live" not in requested(chrome), "the server pushes, the page does not poll"
    points = chrome.find_elements(By.CSS_SELECTOR, "svg polyline")[0].get_attribute("points") or ""
    assert len(points.split()) > 5
    site.replay.hold = False
    until(lambda: "Finished Ok" in text(chrome), "the end, without a touch")
    page = text(chrome)
    for expected in ("Response Start", "First Contentful Paint", "Page Load Time", "HTTP/3", "Mbit/s"):
        assert expected in page
    assert chrome.current_url == url
    chrome.find_element(By.LINK_TEXT, "Open the report").click()
    until(lambda: "A report" in text(chrome), "report")


def requested(driver: webdriver.Chrome) -> set[str]:
    """Return the last path segments of all addresses that scripts of the page have requested."""
    script = "return performance.getEntriesByType('resource').map(e => e.name.split('/').pop())"
    return set(driver.execute_script(script))


def test_without_room_for_a_listener_the_page_polls(chrome: webdriver.Chrome, site: Site) -> None:
    site.listeners.most, most = 0, site.listeners.most
    try:
        log_in(chrome, site)
        launch(chrome, site, "ping", count="3")
        until(lambda: "Finished Ok" in text(chrome), "the end, without a touch")
    finally:
        site.listeners.most = most


def test_a_run_is_stopped(chrome: webdriver.Chrome, site: Site) -> None:
    site.replay.hold = True
    log_in(chrome, site)
    launch(chrome, site, "ping", count="3")
    until(lambda: "Running the scenario" in text(chrome), "progress")
    chrome.find_element(By.CSS_SELECTOR, "button.danger").click()
    until(lambda: "Stopped" in text(chrome), "stop")


def test_t14_hostile_names_appear_as_text(chrome: webdriver.Chrome, site: Site) -> None:
    log_in(chrome, site)
    assert HOSTILE in text(chrome)
    launch(chrome, site, "hostile", count="3")
    until(lambda: "Finished Ok" in text(chrome), "end")
    chrome.find_element(By.CSS_SELECTOR, ".steps-of summary").click()
    assert HOSTILE in text(chrome)
    chrome.get(f"{site.url}/ui/scenarios/satlab/hostile")
    assert text(chrome).count(HOSTILE) >= 2
    assert not chrome.find_elements(By.TAG_NAME, "img")
    assert len(chrome.find_elements(By.TAG_NAME, "script")) == 1


def focused(driver: webdriver.Chrome) -> str:
    script = "const e = document.activeElement; return e.id || e.textContent.trim() || e.tagName"
    return str(driver.execute_script(script))


def tab_to(driver: webdriver.Chrome, name: str) -> None:
    """Press Tab until an element has the focus; each one on the way must have a visible focus outline."""
    for _ in range(40):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        outline = "return getComputedStyle(document.activeElement).outlineStyle"
        assert driver.execute_script(outline) != "none", focused(driver)
        if name in focused(driver):
            return
    raise AssertionError(f"Tab does not lead to {name}")


def press(driver: webdriver.Chrome, keys: str) -> None:
    driver.switch_to.active_element.send_keys(keys)


def test_everything_can_be_done_by_keyboard(chrome: webdriver.Chrome, site: Site) -> None:
    chrome.get(f"{site.url}/ui/")
    tab_to(chrome, "Skip to the content")
    tab_to(chrome, "login")
    press(chrome, "runner")
    tab_to(chrome, "password")
    press(chrome, PASSWORD + Keys.ENTER)
    until(lambda: "Choose a scenario" in text(chrome), "login")
    tab_to(chrome, "ping")
    press(chrome, Keys.ENTER)
    until(lambda: chrome.find_elements(By.ID, "argument.count"), "form")
    tab_to(chrome, "Skip to the content")
    press(chrome, Keys.ENTER)
    tab_to(chrome, "argument.count")
    press(chrome, "3")
    tab_to(chrome, "Launch")
    press(chrome, Keys.ENTER)
    until(lambda: "Finished Ok" in text(chrome), "end")
    tab_to(chrome, "Open the report")
    press(chrome, Keys.ENTER)
    until(lambda: "A report" in text(chrome), "report")


@pytest.mark.parametrize("chrome", [{"scripts": False}], indirect=True)
def test_it_works_without_scripts(chrome: webdriver.Chrome, site: Site) -> None:
    site.replay.hold = True
    log_in(chrome, site)
    launch(chrome, site, "page_load", protocol="h1")
    until(lambda: "Running the scenario" in text(chrome), "progress, by the page's own refresh")
    site.replay.hold = False
    until(lambda: "Page Load Time" in text(chrome), "end")


@pytest.mark.parametrize("chrome", [{"width": 390}], indirect=True)
def test_pages_fit_a_phone_and_have_names_for_everything(chrome: webdriver.Chrome, site: Site) -> None:
    log_in(chrome, site)
    url = launch(chrome, site, "page_load", protocol="h1").removeprefix(f"{site.url}/ui")
    other = launch(chrome, site, "ping", count="3").rpartition("/")[2]
    until(lambda: "Finished Ok" in text(chrome), "end")
    compared = f"/compare?run={url.rpartition('/')[2]}&run={other}"
    for path in ("/", "/runs", "/scenarios/satlab/page_load", url, compared, "/account", "/runs/999"):
        chrome.get(f"{site.url}/ui{path}")
        for summary in chrome.find_elements(By.TAG_NAME, "summary"):
            summary.click()
        width = chrome.execute_script("return document.documentElement.scrollWidth")
        assert width <= 390, f"{path} is {width} wide"
        unnamed = [node for node in nodes(chrome) if not node["name"]["value"]]
        assert not unnamed, (path, unnamed)
        assert len(chrome.find_elements(By.TAG_NAME, "h1")) == 1
        assert len(chrome.find_elements(By.TAG_NAME, "main")) == 1
        small = chrome.execute_script(
            "const some = 'button, .button, input:not([type=checkbox]):not([type=hidden]), select';"
            "return [...document.querySelectorAll(some)]"
            ".filter(e => e.getBoundingClientRect().height < 32).map(e => e.outerHTML)"
        )
        assert not small, (path, small)


def nodes(driver: webdriver.Chrome) -> list[dict[str, Any]]:
    """Return the accessibility nodes of controls and images."""
    roles = ("button", "link", "textbox", "combobox", "checkbox", "image", "navigation", "region")
    tree = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    return [node for node in tree if not node["ignored"] and node.get("role", {}).get("value") in roles]


@pytest.mark.parametrize("chrome", [{"motion": False}], indirect=True)
def test_nothing_moves_for_those_who_do_not_want_it(chrome: webdriver.Chrome, site: Site) -> None:
    site.replay.hold = True
    log_in(chrome, site)
    launch(chrome, site, "ping", count="3")
    until(lambda: chrome.find_elements(By.CSS_SELECTOR, ".badge.running"), "badge")
    script = "return getComputedStyle(document.querySelector('.badge.running'), '::before').animationName"
    assert chrome.execute_script(script) == "none"
