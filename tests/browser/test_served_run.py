# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab serve` as it is started, a browser, and real runs over the emulated link: nothing stands
in for anything.
"""

import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from satlab.common import paths
from satlab.lab import lab
from satlab.run import scenario_run
from tests.browser.chromium import browser, text, until

pytestmark = [pytest.mark.net, pytest.mark.browser]

TOKEN = "a-token-of-one-test-0123456789abcdef"  # noqa: S105
RUN_S = 240.0
"""A run on a busy host."""


@pytest.fixture
def served() -> Iterator[tuple[str, str]]:
    """Start the service with an empty state; return its address and the token of the first login."""
    if os.geteuid() != 0 or shutil.which("chromedriver") is None or not paths.SATLINK.exists():
        pytest.skip("needs root, chromedriver and satlink")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    state = Path(tempfile.mkdtemp(prefix="serve-")) / "state"
    argv = f"{sys.executable} -m satlab serve --listen 127.0.0.1:{port} --state {state}".split()
    token_file = state.with_name("token")
    token_file.touch(0o600)
    token_file.write_text(TOKEN)
    argv += ["--metrics-token", str(token_file)]
    environment = os.environ | {"PYTHONPATH": f"{paths.ROOT / 'src'}:{paths.ROOT}"}
    log = state.with_name("said")
    with log.open("wb") as said:
        process = subprocess.Popen(argv, stdout=said, stderr=said, env=environment)
    try:
        until(lambda: process.poll() is not None or "or open" in log.read_text(), "start")
        link = re.search(rf"or open http://127.0.0.1:{port}/ui/login#token=(\S+)", log.read_text())
        assert link is not None, log.read_text()
        yield f"http://127.0.0.1:{port}", link[1]
    finally:
        process.terminate()
        process.wait(60)
        own = {scenario_run.lab_id(folder.name) for folder in (state / "runs").glob("*")}
        shutil.rmtree(state.parent)
    assert not own & {each.lab_id for each in lab.list_labs()}, "labs are left"


@pytest.fixture
def chrome() -> Iterator[webdriver.Chrome]:
    driver = browser()
    yield driver
    driver.quit()


def opened(driver: webdriver.Chrome, url: str) -> bool:
    """Open the login page in a new document; True when its form is filled."""
    driver.get("about:blank")
    driver.get(url)
    return bool(driver.find_elements(By.ID, "login")) and bool(
        driver.find_element(By.ID, "password").get_attribute("value")
    )


def scraped(url: str) -> str:
    """Return the metrics of the service, as Prometheus gets them."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    connection.request("GET", "/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    return connection.getresponse().read().decode()


def delivered(metrics: str) -> float:
    """Return the bytes that the forward link has delivered."""
    found = re.search(
        r'^satlab_link_out_bytes_total{lab="serve",direction="forward"} (\S+)$',
        metrics,
        re.MULTILINE,
    )
    assert found is not None, metrics
    return float(found[1])


@pytest.mark.timeout(600)
@pytest.mark.promise("P59")
def test_a_page_load_over_geo_from_login_to_report(
    served: tuple[str, str], chrome: webdriver.Chrome
) -> None:
    url, token = served
    until(lambda: opened(chrome, f"{url}/ui/login#token={token}"), "login page")
    assert token not in chrome.current_url, "it is not kept in the history"
    chrome.find_element(By.CSS_SELECTOR, "button.primary").click()
    until(lambda: "Choose a scenario" in text(chrome), "login")

    chrome.find_element(By.PARTIAL_LINK_TEXT, "page_load").click()
    until(lambda: chrome.find_elements(By.ID, "argument.protocol"), "form")
    Select(chrome.find_element(By.ID, "argument.protocol")).select_by_visible_text("h3")
    chrome.find_element(By.CSS_SELECTOR, "summary").click()
    runs = chrome.find_element(By.ID, "constant.runs")
    runs.clear()
    runs.send_keys("1")
    chrome.find_element(By.CSS_SELECTOR, "button.primary").click()
    until(lambda: "Running the scenario" in text(chrome), "progress", RUN_S)
    until(lambda: chrome.find_elements(By.CSS_SELECTOR, "#curves polyline"), "curves")
    earlier = scraped(url)
    until(lambda: delivered(scraped(url)) > delivered(earlier), "the counters of the link grow")
    until(lambda: "Open the report" in text(chrome), "the end", RUN_S)
    page = text(chrome)
    assert "Finished" in page or "Out of calibration" in page, page  # on a busy host
    assert "satlab_link" not in scraped(
        url
    ) and 'satlab_serve_runs_total{outcome="ok"} 1.0' in scraped(url)
    assert "have changed since the run" not in page, page
    logs = [
        each.text.partition(" ")[0]
        for each in chrome.find_elements(By.CSS_SELECTOR, ".logs summary")
    ]
    assert logs[0] == "runner" and any(name.startswith("satlab_") for name in logs), logs
    whole = chrome.find_element(By.CSS_SELECTOR, ".logs a").get_attribute("href")
    said = chrome.execute_async_script(
        "fetch(arguments[0]).then(a => a.text()).then(arguments[1])", whole
    )
    assert "calibrat" in said, said
    for metric, least_ms in {
        "Response Start": 580,
        "First Contentful Paint": 580,
        "Page Load Time": 1160,
    }.items():
        figure = re.search(rf"{metric} HTTP/3 ([\d,]+)", page)
        assert figure is not None, page
        assert int(figure[1].replace(",", "")) > least_ms, "faster than light"
    chrome.find_element(By.LINK_TEXT, "Open the report").click()
    until(lambda: "page_load over geo" in text(chrome), "report")
    until(
        lambda: chrome.find_elements(By.CSS_SELECTOR, ".js-plotly-plot"),
        "figures, in their sandbox",
    )

    chrome.get(f"{url}/ui/scenarios/satlab/ping")
    chrome.find_element(By.ID, "argument.count").send_keys("500")
    chrome.find_element(By.CSS_SELECTOR, "button.primary").click()
    until(lambda: "Running the scenario" in text(chrome), "progress", RUN_S)
    chrome.find_element(By.CSS_SELECTOR, "button.danger").click()
    until(
        lambda: "Open the report" in text(chrome) or "Launch again" in text(chrome),
        "the end",
        RUN_S,
    )
    assert "Stopped" in text(chrome)
