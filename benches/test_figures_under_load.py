# SPDX-License-Identifier: GPL-3.0-or-later
import json
from pathlib import Path
from typing import Any

import pytest

from benches import figures_under_load
from satlab.common.console import ProgressLog


def samples(time_ms: float, wait_ratio: float, count: int = 4) -> list[dict[str, Any]]:
    one = {"time_ms": time_ms, "wait_ratio": wait_ratio, "is_marked": wait_ratio > 0.05}
    return [dict(one) for _ in range(count)]


FOUND = {
    8: samples(6500, 0.6),
    0: samples(2600, 0.02),
    2: [*samples(2700, 0.4), *samples(2800, 0.04, 1), *samples(2500, 0.04, 1)],
}


def test_samples_that_are_off_and_not_marked_are_counted() -> None:
    result = figures_under_load.judged(FOUND, asked=6)
    table = {
        one["processes"]: (one["marked"], one["off"], one["off_and_not_marked"], one["failed"])
        for one in result["levels"]
    }
    assert list(table.items()) == [(0, (0, 0, 0, 2)), (2, (4, 1, 1, 0)), (8, (4, 4, 0, 2))]
    text = "\n".join(figures_under_load.lines({"kind": "h3", "limit": 0.05, **result}))
    assert "4 of 4 marked, 4 off, 0 of them not marked, 2 failed" in text


def test_levels_of_an_earlier_result_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "earlier.json"
    file.write_text(json.dumps({"kind": "quic", **figures_under_load.judged(FOUND, 4)}))
    earlier = figures_under_load.earlier_levels(file, "quic")
    monkeypatch.setattr(figures_under_load, "_transfers", lambda *_: samples(5200, 0.5))
    result = figures_under_load.measure([2], 4, "quic", tmp_path, ProgressLog(quiet=True), earlier)
    assert [(one["processes"], one["time_ms"]) for one in result["levels"]] == [
        (0, 2600),
        (2, 5200),
        (8, 6500),
    ]
    plot = tmp_path / "plot.html"
    figures_under_load.plot(result, plot)
    assert "8 processes" in plot.read_text()
