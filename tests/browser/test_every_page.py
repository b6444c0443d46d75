# SPDX-License-Identifier: GPL-3.0-or-later
"""Each page of the service, and the reports: no script errors, contrast, keyboard, and 390 pixels of width."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

import collect
from collect.fixtures import example_run
from satlab.campaign import conclusions, dataset, host_effect, page
from satlab.campaign.folder import CampaignFolder
from satlab.campaign.plan import Plan
from satlab.campaign.test_report import measured
from satlab.report import html
from tests.browser import page_checks
from tests.browser.chromium import text, until
from tests.browser.replayed_site import Site, launch, log_in
from tests.browser.test_live_picture import keep_picture

__all__ = ["measured"]
pytestmark = pytest.mark.browser

WIDTHS = [pytest.param({"width": width}, id=str(width)) for width in (1280, 390)]


@pytest.fixture(scope="module")
def pages(site: Site) -> list[tuple[str, str]]:
    """Return name and path of each page; the service has a run that has ended and one of the command line."""
    other = example_run.write(site.others, example_run.Example(run_id="20261121-130000-page_load-geo-0002", observed=1,
                              loads={"h1": 3, "h3": 3}))  # fmt: skip
    collect.gather(other).lazy().collect().write_parquet(other / "records.parquet")
    return [
        ("scenarios", "/"),
        ("form", "/scenarios/satlab/page_load"),
        ("form-quic", "/scenarios/satlab/quic"),
        ("edit", "/scenarios/satlab/ping/edit"),
        ("runs", "/runs"),
        ("run", "/runs/1"),
        ("folder", f"/folders/{other.name}"),
        ("remove", "/runs/1/remove"),
        ("compare", f"/compare?run=1&run={other.name}"),
        ("account", "/account"),
        ("missing", "/runs/999"),
        ("live", "/runs/2"),
    ]


def has_faults(driver: webdriver.Chrome, name: str, width: int) -> list[str]:
    """Return what is wrong with the page that is open."""
    keep_picture(driver, f"{name}-{width}")
    found = [*page_checks.errors(driver), *page_checks.too_wide(driver, width)]
    found += [weak for theme in ("dark", "light") for weak in page_checks.weak_texts(driver, theme)]
    found += [f"not reached by Tab: {each}" for each in page_checks.unreached(driver)]
    return [f"{name} at {width}: {each}" for each in found]


@pytest.mark.parametrize("chrome", WIDTHS, indirect=True)
def test_p348_every_page_of_the_service(
    chrome: webdriver.Chrome, site: Site, pages: list[tuple[str, str]], request: pytest.FixtureRequest
) -> None:
    width: int = request.node.callspec.params["chrome"]["width"]
    chrome.get(f"{site.url}/ui/")
    faults = has_faults(chrome, "login", width)
    log_in(chrome, site)
    if not site.replay.looks:  # both widths share one service
        launch(chrome, site, "page_load", protocol="h3")
        until(lambda: "Finished Ok" in text(chrome), "the end")
    site.replay.hold = True
    live = launch(chrome, site, "page_load", protocol="h1").removeprefix(f"{site.url}/ui")
    until(lambda: chrome.find_elements(By.ID, "flows"), "what the nodes do")
    for name, path in pages:
        chrome.get(f"{site.url}/ui{live if name == 'live' else path}")
        for summary in chrome.find_elements(By.TAG_NAME, "summary") if name != "live" else ():
            summary.click()
        faults += has_faults(chrome, name, width)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("chrome", WIDTHS, indirect=True)
def test_p348_reports_of_runs_and_campaigns(
    chrome: webdriver.Chrome,
    site: Site,
    measured: tuple[CampaignFolder, Plan],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    width: int = request.node.callspec.params["chrome"]["width"]
    assert site.url
    run = example_run.write(tmp_path, example_run.Example(loads={"h1": 3, "h3": 3}, observed=1, duration_s=15.0))
    collected: Any = collect.Collected(collect.gather(run), collect.stored(run))
    plan, where = measured[1], measured[0]
    of_all = dataset.collect(plan, where)
    made: dict[str, Callable[[], Path]] = {
        "report": lambda: html.build({run: collected}, run / "report" / "index.html", "page_load over geo"),
        "campaign": lambda: page.write(
            plan, where, of_all, host_effect.effects(of_all.frame), conclusions.of_paper(plan, where, of_all).judged
        ),
    }
    faults = []
    for name, make in made.items():
        chrome.get(make().as_uri())
        until(lambda: chrome.find_elements(By.CSS_SELECTOR, "[data-figure] svg"), "the first plot")
        faults += has_faults(chrome, name, width)
    assert not faults, "\n".join(faults)
