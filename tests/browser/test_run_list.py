# SPDX-License-Identifier: GPL-3.0-or-later
"""The run list in a browser: filter, pin, compare, remove, and with 200 runs."""

import time

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By

from tests.browser.chromium import text, until
from tests.browser.replayed_site import Site, launch, log_in
from tests.browser.test_live_picture import keep_picture

pytestmark = pytest.mark.browser

READABLE_S = 5.0
"""Time until a list of 200 runs can be read; on a quiet host it is below 1 s."""


def finished(driver: webdriver.Chrome, site: Site, **values: str) -> str:
    launch(driver, site, "page_load", **values)
    until(lambda: "Finished" in text(driver), "the end")
    return driver.current_url.rpartition("/")[2]


def numbers(chrome: webdriver.Chrome) -> list[str]:
    """Return the runs of the list; none while the page changes."""
    try:
        return [each.text for each in chrome.find_elements(By.CSS_SELECTOR, ".runs .number")]
    except StaleElementReferenceException:
        return []


def test_runs_are_filtered_pinned_compared_and_removed(
    chrome: webdriver.Chrome, site: Site
) -> None:
    log_in(chrome, site)
    first, second = finished(chrome, site, protocol="h1"), finished(chrome, site, protocol="h3")
    note = chrome.find_element(By.ID, "note")
    words = f"after the rain of {second}"
    note.send_keys(words)
    note.submit()
    until(lambda: chrome.find_element(By.ID, "note").get_attribute("value") == words, "the note")

    chrome.get(f"{site.url}/ui/runs")
    page = text(chrome)
    for expected in ("protocol=h1", "protocol=h3", "profile=geo", "HTTP/3 page", "Mbit/s", words):
        assert expected in page
    chrome.find_element(By.CSS_SELECTOR, f"[aria-label='Pin run #{first}']").click()
    until(
        lambda: chrome.find_elements(By.CSS_SELECTOR, f"[aria-label='Unpin run #{first}']"),
        "the pin",
    )
    assert f"#{first}" in chrome.find_elements(By.CSS_SELECTOR, ".runs tbody tr")[0].text
    keep_picture(chrome, "runs")

    chrome.find_element(By.ID, "q").send_keys(words)
    chrome.find_element(By.CSS_SELECTOR, ".filter button").click()
    until(lambda: numbers(chrome) == [f"#{second}"], "the filter")

    chrome.get(f"{site.url}/ui/runs")
    for key in (first, second):
        chrome.find_element(By.CSS_SELECTOR, f"input[value='{key}']").click()
    chrome.find_element(By.CSS_SELECTOR, "[data-compare-button]").click()
    until(lambda: "Differences" in text(chrome), "the comparison")
    assert "protocol=h1" in text(chrome)
    assert len(chrome.find_elements(By.CSS_SELECTOR, "svg polyline")) == 8
    keep_picture(chrome, "compare")

    chrome.get(f"{site.url}/ui/runs/{second}")
    chrome.find_element(By.LINK_TEXT, "Remove this run").click()
    until(lambda: f"Remove run {second}?" in text(chrome), "the question")
    chrome.find_element(By.CSS_SELECTOR, "main button.danger").click()
    until(lambda: chrome.current_url.endswith("/ui/runs"), "the list")
    assert f"#{second}" not in text(chrome)


def test_a_list_of_200_runs_is_readable_at_once(chrome: webdriver.Chrome, site: Site) -> None:
    log_in(chrome, site)
    site.replay.hold = True
    site.fill(200)
    began = time.monotonic()
    chrome.get(f"{site.url}/ui/runs")
    assert "#" in chrome.find_element(By.CSS_SELECTOR, ".runs").text
    assert time.monotonic() - began < READABLE_S
    assert len(chrome.find_elements(By.CSS_SELECTOR, ".runs tbody tr")) == 50
