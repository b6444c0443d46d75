# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab demo` as it is started, with the smallest parameters."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.net.conftest import AsPlanned, satlab

pytestmark = [pytest.mark.net, pytest.mark.browser]


def demo(runs: Path) -> list[dict[str, Any]]:
    words = f"demo --profile leo --duration 5 --loads 1 --json --runs {runs}"
    done = satlab(*words.split())
    assert "measured in" in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("satlink")
@pytest.mark.promise("P32")
def test_the_demo_shows_a_download_and_both_protocols(
    tmp_path: Path, as_planned: AsPlanned
) -> None:
    rows = as_planned(demo)
    folder = next(tmp_path.glob("attempt-*"))
    (page,) = folder.glob("*-demo.html")
    for words in ("TCP cubic download", "HTTP/1.1", "HTTP/3"):
        assert words in page.read_text(), words
    (goodput,) = [row for row in rows if row["metric"] == "goodput_bps"]
    assert (goodput["status"], 4e6 < goodput["value"] < 19.7e6) == ("ok", True)
    times = {
        row["labels"]["protocol"]: row["value"]
        for row in rows
        if row["metric"] == "page_load_time_ms"
    }
    assert times.keys() == {"h1", "h3"}
    assert all(time is not None and time > 2 * 112 for time in times.values()), times
