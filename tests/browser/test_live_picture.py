# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of the path on the page of a run: live figures, curves of a hop by mouse and
keyboard, on a phone.
"""

import os
import time
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.chromium import text, until
from tests.browser.replayed_site import Site, launch, log_in

pytestmark = pytest.mark.browser
PHONE = 500
"""Below this width, pixels, a browser emulates a phone (`chromium.browser`)."""
MARK = "document.getElementById('live').dataset.old = 'yes'"
IS_MARKED = "return 'old' in document.getElementById('live').dataset"
"""Scripts: mark the live part of a page; whether it is still the one with the mark."""


def keep_picture(driver: webdriver.Chrome, name: str) -> None:
    """Save a picture of the page where SATLAB_PICTURES says, for those who look at it."""
    if folder := os.environ.get("SATLAB_PICTURES"):
        height = driver.execute_script("return document.documentElement.scrollHeight")
        width = driver.execute_script("return innerWidth")
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": min(height, 6000), "deviceScaleFactor": 1, "mobile": False},
        )
        driver.save_screenshot(str(Path(folder) / f"{name}.png"))
        if width < PHONE:  # the override was there before
            phone = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        else:
            driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def start(driver: webdriver.Chrome, site: Site) -> None:
    site.replay.hold = True
    log_in(driver, site)
    launch(driver, site, "page_load", protocol="h3")
    until(lambda: driver.find_elements(By.ID, "wide-forward"), "the picture")


def clicked(driver: webdriver.Chrome, selector: str) -> bool:
    driver.find_element(By.CSS_SELECTOR, selector).click()
    return True


def pressed(driver: webdriver.Chrome, selector: str) -> bool:
    ActionChains(driver).click_and_hold(driver.find_element(By.CSS_SELECTOR, selector)).perform()
    return True


def texts(driver: webdriver.Chrome, selector: str) -> list[str]:
    """Return what elements say, of one moment: the page replaces them while it is read."""
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)"
    found: list[str] = driver.execute_script(script, selector)
    return found


def headings(driver: webdriver.Chrome) -> list[str]:
    return texts(driver, "#curves h3")


def test_each_hop_has_figures_and_shows_its_curves(chrome: webdriver.Chrome, site: Site) -> None:
    start(chrome, site)
    forward = chrome.execute_script("return document.getElementById('wide-forward').ariaLabel")
    for expected in (
        "Forward link",
        "of 19.6 Mbit/s",
        "queue",
        "250 ms delay",
        "lost",
        "QPSK 1/4",
        "Es/N0 20.0 dB",
    ):
        assert expected in forward
    until(lambda: "Calibration before the scenario" in text(chrome), "the scenario's own time")
    assert headings(chrome) == ["Link goodput (Mbit/s)", "Forward link queue (kB)"]
    keep_picture(chrome, "live")
    until(
        lambda: clicked(chrome, "#wide-forward"), "a click on a picture that is not being replaced"
    )
    until(lambda: "Dropped or lost (packets/s)" in headings(chrome), "curves of the hop")
    assert (
        chrome.execute_script("return document.getElementById('wide-forward').ariaCurrent")
        == "true"
    )
    assert any(
        name.startswith("capacity: 19.6 Mbit/s") for name in texts(chrome, "#curves .legend li")
    )


def test_a_time_range_is_chosen_by_dragging_over_a_curve(
    chrome: webdriver.Chrome, site: Site
) -> None:
    start(chrome, site)
    until(lambda: "Calibration before the scenario" in text(chrome), "the scenario's own time")
    find = "return document.querySelector('#curves svg')"

    def dragged() -> bool:
        curve = chrome.execute_script(find)
        drag = ActionChains(chrome).move_to_element_with_offset(curve, -50, 0).click_and_hold()
        drag.move_by_offset(120, 0).release().perform()
        return True

    until(dragged, "a drag over a picture that is not being replaced")
    until(lambda: "since=" in chrome.current_url and "until=" in chrome.current_url, "the range")
    until(lambda: chrome.execute_script(find), "the page")
    span = chrome.execute_script("return document.querySelector('#curves .charts').dataset.span")
    since, last = map(float, span.split())
    assert 0 < since < last
    assert f"since={since:.2f}" in chrome.current_url


def test_p355_new_figures_do_not_come_between_a_press_and_its_release(
    chrome: webdriver.Chrome, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.listeners, "period_s", 0.1)
    start(chrome, site)
    chrome.execute_script(MARK)
    until(lambda: not chrome.execute_script(IS_MARKED), "new figures")
    until(lambda: pressed(chrome, "#wide-forward"), "a press")
    chrome.execute_script(MARK)
    time.sleep(1)  # ten times new figures, where nothing keeps them back
    assert chrome.execute_script(IS_MARKED), "what is pressed stays"
    ActionChains(chrome).release().perform()
    until(lambda: "hop=forward" in chrome.current_url, "the click")


def test_p318_programs_and_flows_are_shown_while_the_run_lasts(
    chrome: webdriver.Chrome, site: Site
) -> None:
    start(chrome, site)
    until(lambda: "CPU 83 %" in text(chrome), "the CPU time of a node, in the picture")
    keep_picture(chrome, "live-programs")
    until(
        lambda: (
            "1,234" in chrome.find_element(By.CSS_SELECTOR, "[aria-labelledby=flows] tbody").text
        ),
        "a window",
    )
    until(
        lambda: (
            "chromium"
            in chrome.find_element(By.CSS_SELECTOR, "[aria-labelledby=programs] tbody").text
        ),
        "CPU",
    )
    script = (
        "return [...document.querySelectorAll('.path-wide rect.node')].flatMap(node => {const box ="
        " node.getBoundingClientRect();return [...document.querySelectorAll('.path-wide"
        " .cpu')].map(e => e.getBoundingClientRect()).filter(e => e.left >= box.left && e.right <="
        " box.right && e.bottom <= box.bottom && e.top >= box.top)})"
    )
    assert len(chrome.execute_script(script)) == 2, "each figure lies in its node"
    site.replay.release()
    until(lambda: "Steps (" in text(chrome), "the end")
    assert not chrome.find_elements(By.ID, "programs")


def test_a_hop_is_chosen_by_keyboard_and_keeps_the_focus(
    chrome: webdriver.Chrome, site: Site
) -> None:
    start(chrome, site)
    script = "return document.activeElement.id"
    for _ in range(30):
        ActionChains(chrome).send_keys(
            Keys.TAB
        ).perform()  # new figures may replace what has the focus
        if chrome.execute_script(script) == "wide-terrestrial":
            break
    assert chrome.execute_script(script) == "wide-terrestrial"
    chrome.execute_script(MARK)
    until(lambda: not chrome.execute_script(IS_MARKED), "new figures")
    assert chrome.execute_script(script) == "wide-terrestrial", (
        "new figures leave the focus where it was"
    )
    ActionChains(chrome).send_keys(Keys.ENTER).perform()
    until(lambda: "hop=terrestrial" in chrome.current_url, "the hop")
    until(lambda: "terrestrial down" in text(chrome), "curves of the hop")


def test_the_calibration_stays_unfolded(chrome: webdriver.Chrome, site: Site) -> None:
    start(chrome, site)
    until(lambda: chrome.find_elements(By.ID, "calibration"), "the scenario's own time")
    until(lambda: clicked(chrome, "#calibration summary"), "a click")
    until(lambda: chrome.find_element(By.ID, "calibration").get_attribute("open"), "unfolded")
    chrome.execute_script(MARK)
    until(lambda: not chrome.execute_script(IS_MARKED), "new figures")
    script = "return [document.getElementById('calibration').open, document.activeElement.id]"
    assert chrome.execute_script(script) == [
        True,
        "calibration-title",
    ], "unfolded, and the focus stays"


@pytest.mark.parametrize("chrome", [{"width": 390}], indirect=True)
def test_on_a_phone_the_path_runs_downwards(chrome: webdriver.Chrome, site: Site) -> None:
    start(chrome, site)
    shown = (
        "return ['wide', 'tall'].map(place =>"
        " document.getElementById(`${place}-forward`).checkVisibility())"
    )
    assert chrome.execute_script(shown) == [False, True]
    assert chrome.execute_script("return document.documentElement.scrollWidth") <= 390
    sizes = (
        "return [...document.querySelectorAll('.path-tall text')].map(e =>"
        " e.getBoundingClientRect().height)"
    )
    assert min(chrome.execute_script(sizes)) >= 11, "letters are large enough"
    keep_picture(chrome, "live-phone")


@pytest.mark.parametrize("chrome", [{"scripts": False}], indirect=True)
def test_hops_are_chosen_without_scripts(chrome: webdriver.Chrome, site: Site) -> None:
    start(chrome, site)
    until(lambda: clicked(chrome, "#wide-return"), "a click, between two refreshes")
    until(lambda: "Dropped or lost (packets/s)" in headings(chrome), "curves of the hop")


def test_no_figure_is_wider_than_its_box(chrome: webdriver.Chrome, site: Site) -> None:
    start(chrome, site)
    script = (
        "return [...document.querySelectorAll('.path-wide .hop')].flatMap(hop => {const box ="
        " hop.querySelector('.box').getBoundingClientRect();return"
        " [...hop.querySelectorAll('text')].filter(e => e.getBoundingClientRect().right > box.right"
        " - 4).map(e => e.textContent)})"
    )
    assert chrome.execute_script(script) == []
