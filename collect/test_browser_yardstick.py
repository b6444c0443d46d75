# SPDX-License-Identifier: GPL-3.0-or-later
import json
import random
from pathlib import Path
from typing import Any

import pytest

import collect
from collect import browser_yardstick
from collect.browser_yardstick import BrowserYardstick, BrowserYardsticks
from collect.fixtures import example_run
from collect.page_loads import PageLoad

KEPLER = BrowserYardstick(
    stamp="0123456789ab",
    browser="156.0",
    page="kepler",
    protocol="h3",
    measured_unix_s=1.0,
    loads=5,
    response_start_ms=30,
    first_contentful_paint_ms=200,
    page_load_time_ms=400,
    task_ms=20,
)
KNOWN = BrowserYardsticks(yardsticks=[KEPLER])


def load(**change: Any) -> PageLoad:
    made = example_run.page_load("h3", 0, random.Random(0))  # noqa: S311
    return PageLoad.model_validate(made | {"yardstick_ms": 30.0} | change)


def part_ms(made: PageLoad) -> float:
    found = browser_yardstick.host_ms(made, KNOWN)
    assert found is not None
    return found


def test_the_host_s_part_grows_with_the_time_of_the_known_task() -> None:
    assert part_ms(load()) == pytest.approx(400 * 30 / 20)
    assert part_ms(load(yardstick_ms=20.0)) == pytest.approx(400)


def test_a_requested_slow_down_is_not_the_host_s() -> None:
    assert part_ms(load(yardstick_ms=80.0, cpu_slowdown=4.0)) == pytest.approx(400)


def test_the_part_is_unknown_without_a_yardstick_of_this_page_or_without_the_task() -> None:
    assert browser_yardstick.host_ms(load(yardstick_ms=None), KNOWN) is None
    assert browser_yardstick.host_ms(load(page="shop"), KNOWN) is None
    assert browser_yardstick.host_ms(load(), BrowserYardsticks()) is None
    assert browser_yardstick.host_ms(load(browser="Mozilla Firefox 153.8"), KNOWN) is None


def test_yardsticks_of_unequal_hosts_differ() -> None:
    assert browser_yardstick.unequal([]) == []
    assert browser_yardstick.unequal([("h3", 400), ("h3", 430), ("h1", 900)]) == []
    slower = [("h3", 400.0), ("h1", 900.0), ("h3", 410.0), ("h3", 450.0)]
    assert browser_yardstick.unequal(slower) == ["h3: 400 to 450 ms"]


def test_a_run_has_the_yardstick_of_its_host_and_the_part_of_each_load(tmp_path: Path) -> None:
    folder = example_run.write(tmp_path, example_run.Example(duration_s=0, loads={"h3": 3}))
    assert not set(collect.gather(folder)["metric"]) & {"browser_yardstick_ms", "browser_host_ms"}
    (folder / "raw" / browser_yardstick.FILE).write_text(KNOWN.model_dump_json(by_alias=True))
    for file in folder.glob("raw/files/satlab_page_load-*/*.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"yardstick_ms": 30.0}))
    rows = collect.gather(folder).to_dicts()
    (own,) = [row for row in rows if row["metric"] == "browser_yardstick_ms"]
    assert own["value"] == 400
    parts = [row for row in rows if row["metric"] == "browser_host_ms" and row["status"] == "ok"]
    assert parts and any("median" in row["labels"] for row in parts)
    (folder / "raw" / browser_yardstick.FILE).write_text("[]")
    (bad,) = [r for r in collect.gather(folder).to_dicts() if r["metric"] == "browser_yardstick_ms"]
    assert bad["status"] == "failed"
