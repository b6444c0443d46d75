# SPDX-License-Identifier: GPL-3.0-or-later
"""How long it takes until pages can be read: `python -m tests.browser.page_times --runs 200`.

A service with so many runs, a browser, both on this host. For each page the median over rounds of
three times since the navigation, in ms: the answer's first byte, First Contentful Paint, and the
end of the load. JSON on stdout. The first visit, for which the service reads the runs, is apart
(`first_ms`).
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from selenium import webdriver

import collect
from collect.fixtures import example_run
from satlab.report import html
from tests.browser.chromium import browser, text, until
from tests.browser.replayed_site import Site, launch, log_in, serve

TIMES = (
    "const [page] = performance.getEntriesByType('navigation');const [paint] ="
    " performance.getEntriesByName('first-contentful-paint');return {first_byte:"
    " page.responseStart, paint: paint ? paint.startTime : null, loaded: page.loadEventEnd}"
)
READABLE_MS = 1000.0
"""Until when a page is to be readable on two cores."""


def fill(site: Site, run: Path, count: int) -> None:
    """Let the service have so many runs of the command line, with records and reports, all alike."""
    site.others.mkdir(exist_ok=True)
    for number in range(count):
        shutil.copytree(
            run,
            site.others
            / f"20261122-{number // 60:02}{number % 60:02}00-page_load-geo-{number:04x}",
        )


def visit(driver: webdriver.Chrome, url: str) -> dict[str, float]:
    """Open a page and return its times, ms."""
    driver.get(url)
    until(
        lambda: driver.execute_script(TIMES)["paint"] and driver.execute_script(TIMES)["loaded"],
        "a painted page",
    )
    return {name: round(value, 1) for name, value in driver.execute_script(TIMES).items()}


def measure(driver: webdriver.Chrome, url: str, rounds: int) -> dict[str, Any]:
    """Return the times of the first visit, and the medians of the others."""
    first, *others = [visit(driver, url) for _ in range(rounds + 1)]
    medians = {name: statistics.median(each[name] for each in others) for name in first}
    return {"first_ms": first, "median_ms": medians, "is_readable": medians["paint"] <= READABLE_MS}


def main() -> int:
    """Measure and print; exit status 1 if a page is not readable in time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="runs in the list")
    parser.add_argument("--rounds", type=int, default=5, help="visits of each page after the first")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="satlab-pages-") as scratch,
        serve(Path(scratch)) as site,
    ):
        example = example_run.Example(
            run_id="20261121-120000-page_load", loads={"h1": 3, "h3": 3}, observed=1
        )
        run = example_run.write(Path(scratch) / "one", example)
        collected = collect.Collected(collect.gather(run), collect.stored(run))
        collected.records.lazy().collect().write_parquet(run / "records.parquet")
        html.build({run: collected}, run / "report" / "index.html", "page_load over geo")
        fill(site, run, options.runs)
        name = sorted(path.name for path in site.others.iterdir())[-1]
        driver = browser(width=1280, is_shell=False)
        try:
            log_in(driver, site)
            launch(driver, site, "page_load", protocol="h3")
            until(lambda: "Finished Ok" in text(driver), "the end")
            pages = {"runs": "/runs", "form": "/scenarios/satlab/page_load", "run": "/runs/1"}
            pages |= {"folder": f"/folders/{name}", "report": f"/folders/{name}/report"}
            found = {
                key: measure(driver, f"{site.url}/ui{path}", options.rounds)
                for key, path in pages.items()
            }
        finally:
            driver.quit()
    print(
        json.dumps(
            {
                "runs": options.runs,
                "cores": os.cpu_count(),
                "rounds": options.rounds,
                "pages": found,
            },
            indent=1,
        )
    )
    return 0 if all(page["is_readable"] for page in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
