# SPDX-License-Identifier: GPL-3.0-or-later
"""The web pages in a real browser, with a helper that replays a run: mouse, keyboard, without
scripts.
"""

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.chromium import text, until
from tests.browser.replayed_site import HOSTILE, PASSWORD, Site, launch, log_in

pytestmark = pytest.mark.browser


def test_a_run_is_launched_watched_and_read(chrome: webdriver.Chrome, site: Site) -> None:
    site.replay.hold = True
    log_in(chrome, site)
    chrome.find_element(By.PARTIAL_LINK_TEXT, "page_load").click()
    url = launch(chrome, site, "page_load", protocol="h3")
    until(lambda: "Running the scenario" in text(chrome), "progress")
    until(lambda: len(chrome.find_elements(By.CSS_SELECTOR, "#curves polyline")) == 4, "curves")
    assert site.listeners.count == 1 and "live" not in requested(chrome), (
        "the server pushes, the page does not poll"
    )
    # By one script: the page may replace the curve between two commands.
    points: str = chrome.execute_script(
        "return document.querySelector('#curves polyline').getAttribute('points')"
    )
    assert len(points.split()) > 5
    site.replay.release()
    until(lambda: "Finished" in text(chrome), "the end, without a touch")
    page = text(chrome)
    for expected in (
        "Response Start",
        "First Contentful Paint",
        "Page Load Time",
        "HTTP/3",
        "Mbit/s",
    ):
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
        until(lambda: "Finished" in text(chrome), "the end, without a touch")
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
    until(lambda: "Finished" in text(chrome), "end")
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
    """Press Tab until an element has the focus; each one on the way must have a visible focus
    outline.
    """
    for _ in range(40):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        outline = "return getComputedStyle(document.activeElement).outlineStyle"
        assert driver.execute_script(outline) != "none", focused(driver)
        if name in focused(driver):
            return
    raise AssertionError(f"Tab does not lead to {name}")


def press(driver: webdriver.Chrome, keys: str) -> None:
    driver.switch_to.active_element.send_keys(keys)


@pytest.mark.promise("P60")
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
    until(lambda: "Finished" in text(chrome), "end")
    tab_to(chrome, "Open the report")
    press(chrome, Keys.ENTER)
    until(lambda: "A report" in text(chrome), "report")


@pytest.mark.parametrize("chrome", [{"scripts": False}], indirect=True)
def test_it_works_without_scripts(chrome: webdriver.Chrome, site: Site) -> None:
    site.replay.hold = True
    log_in(chrome, site)
    launch(chrome, site, "page_load", protocol="h1")
    until(lambda: "Running the scenario" in text(chrome), "progress, by the page's own refresh")
    site.replay.release()
    until(lambda: "Page Load Time" in text(chrome), "end")


@pytest.mark.parametrize("chrome", [{"motion": False}], indirect=True)
def test_nothing_moves_for_those_who_do_not_want_it(chrome: webdriver.Chrome, site: Site) -> None:
    site.replay.hold = True
    log_in(chrome, site)
    launch(chrome, site, "ping", count="3")
    until(lambda: chrome.find_elements(By.CSS_SELECTOR, ".badge.running"), "badge")
    script = (
        "return getComputedStyle(document.querySelector('.badge.running'),"
        " '::before').animationName"
    )
    assert chrome.execute_script(script) == "none"


def test_a_login_link_pasted_into_an_open_login_page_is_read(
    chrome: webdriver.Chrome, site: Site
) -> None:
    chrome.get(f"{site.url}/ui/login")
    until(lambda: chrome.find_elements(By.ID, "password"), "the form")
    chrome.execute_script("location.hash = 'token=abcdefgh12345678'")
    field = chrome.find_element(By.ID, "password")
    until(lambda: field.get_attribute("value") == "abcdefgh12345678", "the token")
    assert chrome.find_element(By.ID, "login").get_attribute("value") == "admin"
    assert "token" not in chrome.current_url
