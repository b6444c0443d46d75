# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader saves a plot of a report as a picture."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from satlab.report import html
from satlab.report.page import Page, Section
from satlab.report.test_plot_svg import PLOT
from tests.browser.chromium import browser, until

pytestmark = pytest.mark.browser


def test_a_plot_is_saved_as_svg(tmp_path: Path) -> None:
    page = Page("satlab report", "one plot", [], [Section("Plots", [PLOT])])
    file = html.write(page, tmp_path / "index.html")
    driver = browser()
    try:
        downloads = {"behavior": "allow", "downloadPath": str(tmp_path)}
        driver.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
        driver.get(file.as_uri())
        until(lambda: driver.find_elements(By.CSS_SELECTOR, ".modebar-btn"), "the plot")
        ActionChains(driver).move_to_element(driver.find_element(By.CLASS_NAME, "live")).perform()
        [button] = driver.find_elements(By.CSS_SELECTOR, ".modebar-btn")
        button.click()
        picture = tmp_path / f"{PLOT.key}.svg"
        until(picture.is_file, "the picture")
    finally:
        driver.quit()
    text = picture.read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")  # noqa: S314 - our own text
    assert PLOT.x.title in text
