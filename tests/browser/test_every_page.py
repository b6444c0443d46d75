# SPDX-License-Identifier: GPL-3.0-or-later
"""Each page of the service, reports, documents: no script errors, contrast, keyboard, and 390
pixels of width.
"""

from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

import collect
from collect.fixtures import example_run
from satlab import report
from satlab.campaign import campaign_report, dataset, host_effect
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.plan_file import Plan
from satlab.campaign.test_campaign_report import measured
from satlab.check import check_run
from satlab.check.report import check_page, matrix_page
from satlab.check.report.test_matrix_page import stored
from satlab.check.test_check import TINY
from satlab.common.console import ProgressLog
from satlab.papers import paper_report as paper_page
from satlab.papers.test_seed_002 import filled
from tests import sphinx_site
from tests.browser import page_checks
from tests.browser.chromium import text, until
from tests.browser.replayed_site import Site, launch, log_in
from tests.browser.test_live_picture import keep_picture

__all__ = ["measured"]
pytestmark = pytest.mark.browser

WIDTHS = [pytest.param({"width": width}, id=str(width)) for width in (1280, 390)]
DOCUMENT = """# Read me

[Further](further.md), `code`, **strong**.

| option | effect |
|---|---|
| `--dry-run` | check everything, print the plan, change nothing |

## A command

```sh
./satlab run bulk_tcp --profile geo --set duration=15 --json           # a scenario, or a file of your own
```

```{note}
A note.
```

```{toctree}
:caption: Pages

further
```
"""
"""A page of a documentation site with what ours have."""
WITHOUT_PLOTS = ("matrix", "documentation")


@pytest.fixture(scope="module")
def pages(site: Site) -> list[tuple[str, str]]:
    """Return name and path of each page; the service has a run that has ended and one of the
    command line.
    """
    other = example_run.write(
        site.others,
        example_run.Example(
            run_id="20261121-130000-page_load-geo-0002", observed=1, loads={"h1": 3, "h3": 3}
        ),
    )
    collect.gather(other).lazy().collect().write_parquet(other / "records.parquet")
    return [
        ("scenarios", "/"),
        ("form", "/scenarios/satlab/page_load"),
        ("form-quic", "/scenarios/satlab/quic"),
        ("edit", "/scenarios/satlab/ping/edit"),
        ("upload", "/upload/satlab"),
        ("runs", "/runs"),
        ("run", "/runs/1"),
        ("folder", f"/folders/{other.name}"),
        ("remove", "/runs/1/remove"),
        ("compare", f"/compare?run=1&run={other.name}"),
        ("account", "/account"),
        ("missing", "/runs/999"),
        ("live", "/runs/2"),
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return pages that commands write without a lab: of a check, of several, of a paper, and of
    documentation.
    """
    place = tmp_path_factory.mktemp("pages")
    suite = place / "tiny.yml"
    suite.write_text(TINY)
    request = check_run.CheckRequest(
        str(suite), cases=["quick", "slow"], runs=2, out=place / "check"
    )
    check = check_page.write(check_run.run(request, ProgressLog(quiet=True)))
    checks = [
        stored(place, "a", 10.0, 4.0),
        stored(place, "a", 20.0, 6.0, "fail"),
        stored(place, "b", 30.0, 4.5),
    ]
    matrix_page.write(matrix_page.read(checks), place / "matrix.html")
    source, site = place / "source", place / "site"
    (source / "docs").mkdir(parents=True)
    (source / "docs" / "index.md").write_text(DOCUMENT)
    (source / "docs" / "further.md").write_text("# Further\n\nText.\n")
    documents = sphinx_site.build(source, site)
    assert documents.returncode == 0, documents.stderr
    return {
        "check": check,
        "matrix": place / "matrix.html",
        "reproduction": paper_page.write(place, filled(), place / "reproduction.html"),
        "documentation": site / "docs" / "index.html",
    }


def has_faults(driver: webdriver.Chrome, name: str, width: int) -> list[str]:
    """Return what is wrong with the page that is open."""
    keep_picture(driver, f"{name}-{width}")
    found = [*page_checks.errors(driver), *page_checks.too_wide(driver, width)]
    found += [weak for theme in ("dark", "light") for weak in page_checks.weak_texts(driver, theme)]
    found += [f"not reached by Tab: {each}" for each in page_checks.unreached(driver)]
    return [f"{name} at {width}: {each}" for each in found]


@pytest.mark.parametrize("chrome", WIDTHS, indirect=True)
@pytest.mark.promise("P60")
def test_p349_every_page_of_the_service(
    chrome: webdriver.Chrome,
    site: Site,
    pages: list[tuple[str, str]],
    request: pytest.FixtureRequest,
) -> None:
    width: int = request.node.callspec.params["chrome"]["width"]
    chrome.get(f"{site.url}/ui/")
    faults = has_faults(chrome, "login", width)
    log_in(chrome, site)
    if not site.replay.looks:  # both widths share one service
        launch(chrome, site, "page_load", protocol="h3")
        until(lambda: "Finished" in text(chrome), "the end")
    site.replay.hold = True
    live = launch(chrome, site, "page_load", protocol="h1").removeprefix(f"{site.url}/ui")
    until(lambda: chrome.find_elements(By.ID, "flows"), "what the nodes do")
    for name, path in pages:
        chrome.get(f"{site.url}/ui{live if name == 'live' else path}")
        for summary in chrome.find_elements(By.TAG_NAME, "summary") if name != "live" else ():
            summary.click()
        faults += has_faults(chrome, name, width)
        faults += [f"{name} at {width}: {each}" for each in page_checks.nameless(chrome)]
    assert not faults, "\n".join(faults)


HIDDEN = """
const hidden = [];
for (const cell of document.querySelectorAll('td.verdict')) {
  const pinned = cell.getBoundingClientRect();
  if (!pinned.width) continue;
  if (pinned.left < 0 || pinned.right > innerWidth) hidden.push(`${cell.textContent} is cut off`);
  const region = cell.closest('.scroll')?.getBoundingClientRect();
  if (region && region.width - pinned.width < region.width / 3) {
    hidden.push(`${cell.textContent} takes ${pinned.width} of ${region.width}`);
  }
}
return hidden;
"""
"""Verdicts that are cut off, or leave less than a third of their table's width to the numbers."""


@pytest.mark.parametrize("chrome", [pytest.param({"width": 390}, id="390")], indirect=True)
def test_p378_a_verdict_hides_no_number_on_a_phone(
    chrome: webdriver.Chrome, site: Site, written: dict[str, Path]
) -> None:
    assert site.url
    chrome.get(written["check"].as_uri())
    assert len(chrome.find_elements(By.CSS_SELECTOR, "td.verdict")) >= 2
    assert chrome.execute_script(HIDDEN) == []


@pytest.mark.parametrize("chrome", WIDTHS, indirect=True)
def test_p349_reports_and_documentation(
    chrome: webdriver.Chrome,
    site: Site,
    measured: tuple[CampaignFolder, Plan],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    written: dict[str, Path],
) -> None:
    width: int = request.node.callspec.params["chrome"]["width"]
    assert site.url
    run = example_run.write(
        tmp_path, example_run.Example(loads={"h1": 3, "h3": 3}, observed=1, duration_s=15.0)
    )
    collected: Any = collect.Collected(collect.gather(run), collect.stored(run))
    plan, where = measured[1], measured[0]
    of_all = dataset.collect(plan, where)
    made = {
        "report": report.build(
            {run: collected}, run / "report" / "index.html", "page_load over geo"
        ),
        "campaign": campaign_report.write(
            plan,
            where,
            of_all,
            host_effect.effects(of_all.frame),
            filled().judgements,
        ),
        **written,
    }
    faults = []
    for name, path in made.items():
        chrome.get(path.as_uri())
        if name not in WITHOUT_PLOTS:
            until(
                lambda: chrome.find_elements(By.CSS_SELECTOR, "[data-figure] .main-svg"), "a plot"
            )
        faults += has_faults(chrome, name, width)
    assert not faults, "\n".join(faults)
