# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures of the documentation are drawn from the pages:

`make pictures` writes them, this test compares.
"""

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

import collect
from collect.fixtures import example_run
from satlab.common import paths
from satlab.report.run_report import build
from tests.browser import replayed_site
from tests.browser.chromium import browser, text, until
from tests.browser.replayed_site import Site, launch, log_in

pytestmark = pytest.mark.browser

PICTURES = paths.ROOT / "docs" / "pictures"
WIDTH, MOST_HEIGHT = 1280, 1500
TOLERANCE = 0.15
"""By which the height of a picture may differ from the page of now, as a share."""


@pytest.fixture(scope="module")
def own_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve runs whose texts a reader may see."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replayed_site, "HOSTILE", "page load")
        with replayed_site.serve(tmp_path_factory.mktemp("pictures")) as site:
            other = example_run.Example(
                run_id="20261121-130000-page_load-geo-0002", loads={"h1": 3, "h3": 3}
            )
            folder = example_run.write(site.others, other)
            collect.gather(folder).lazy().collect().write_parquet(folder / "records.parquet")
            yield site


def drawn(driver: webdriver.Chrome) -> tuple[bytes, int]:
    """Return a picture of the open page, and its height."""
    height = min(
        int(driver.execute_script("return document.documentElement.scrollHeight")), MOST_HEIGHT
    )
    area = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
    how = {"format": "webp", "quality": 80, "captureBeyondViewport": True, "clip": area}
    return base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", how)["data"]), height


def sizes(driver: webdriver.Chrome, files: list[Path]) -> dict[str, tuple[int, int]]:
    """Return width and height of pictures, as a browser shows them."""
    found = {}
    for file in files:
        driver.get(file.as_uri())
        script = "const i = document.images[0]; return [i.naturalWidth, i.naturalHeight]"
        width, height = driver.execute_script(script)
        found[file.stem] = (width, height)
    return found


def test_pictures_show_the_pages_of_now(own_site: Site, tmp_path: Path) -> None:
    driver = browser(width=WIDTH, is_shell=False)
    try:
        log_in(driver, own_site)
        launch(driver, own_site, "page_load", protocol="h3")
        until(lambda: "Finished" in text(driver), "the end")
        heights = {}
        own_site.replay.hold = True
        live = launch(driver, own_site, "page_load", protocol="h3")
        until(lambda: driver.find_elements(By.ID, "flows"), "what the nodes do")
        until(lambda: driver.find_elements(By.CSS_SELECTOR, "#curves polyline"), "curves")
        places = {"run-live": live}
        key = next(own_site.others.iterdir()).name
        others = {"run-ended": "/runs/1", "runs": "/runs", "compare": f"/compare?run=1&run={key}"}
        places |= {name: f"{own_site.url}/ui{path}" for name, path in others.items()}
        example = example_run.Example(loads={"h1": 3, "h3": 3}, duration_s=15.0)
        run = example_run.write(tmp_path, example)
        collected = collect.Collected(collect.gather(run), collect.stored(run))
        report = build({run: collected}, tmp_path / "report.html", "page_load over geo")
        places["report"] = report.as_uri()
        for name, url in places.items():
            if name != "run-live":
                driver.get(url)
            if name == "report":
                until(lambda: driver.find_elements(By.CSS_SELECTOR, ".main-svg"), "plots")
            picture, heights[name] = drawn(driver)
            assert len(picture) > 10_000, "the page is empty"
            if folder := os.environ.get("SATLAB_PICTURES"):
                (Path(folder) / f"{name}.webp").write_bytes(picture)
        files = sorted(PICTURES.glob("*.webp"))
        assert {file.stem for file in files} == heights.keys(), "make pictures"
        for name, (width, height) in sizes(driver, files).items():
            assert width == WIDTH and abs(height - heights[name]) <= TOLERANCE * heights[name], (
                f"{name}: make pictures"
            )
    finally:
        own_site.replay.release()
        driver.quit()


def test_each_picture_has_a_place_and_a_text_in_the_documentation() -> None:
    shown = re.findall(
        r"!\[([^\]]+)\]\(\.\./pictures/([\w-]+)\.webp\)",
        (paths.ROOT / "docs/how-to/web.md").read_text(),
    )
    shown += re.findall(
        r"!\[([^\]]+)\]\(docs/pictures/(report)\.webp\)", (paths.ROOT / "README.md").read_text()
    )
    assert sorted(name for _, name in shown) == sorted(
        file.stem for file in PICTURES.glob("*.webp")
    )
    assert all(len(alternative) > 30 for alternative, _ in shown)
    assert sum(file.stat().st_size for file in PICTURES.iterdir()) < 600_000
