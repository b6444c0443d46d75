# SPDX-License-Identifier: GPL-3.0-or-later
from typing import Any

from satlab.bench import host_load


def loads(plt_ms: float, wait_ratio: float, count: int = 4) -> list[dict[str, Any]]:
    times = dict.fromkeys(host_load.METRICS, plt_ms)
    one = {**times, "wait_ratio": wait_ratio, "yardstick_ms": 50.0, "is_marked": wait_ratio > 0.05}
    return [dict(one) for _ in range(count)]


def test_loads_that_are_off_and_not_marked_are_counted() -> None:
    found = {
        0: loads(2600, 0.02),
        2: [*loads(2700, 0.4), *loads(2800, 0.04, 1), *loads(2500, 0.04, 1)],
        8: loads(6500, 0.6),
    }
    result = host_load.judged(found)
    table = {one["processes"]: (one["marked"], one["off"], one["off_and_not_marked"]) for one in result["levels"]}
    assert table == {0: (0, 0, 0), 2: (4, 1, 1), 8: (4, 4, 0)}
    text = "\n".join(host_load.lines({"protocol": "h3", "limit": 0.05, **result}))
    assert "4 of 4 marked, 4 off, 0 of them not marked" in text


def test_burners_end_with_their_block() -> None:
    with host_load.burning(1):
        pass
