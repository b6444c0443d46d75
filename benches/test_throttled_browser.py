# SPDX-License-Identifier: GPL-3.0-or-later
from benches import throttled_browser


def loads(time_ms: float, host_ms: float, count: int = 3) -> list[dict[str, float]]:
    return [{"time_ms": time_ms + n, "host_ms": host_ms} for n in range(count)]


def test_slower_loads_that_were_not_marked_are_counted() -> None:
    found = {1.0: loads(1000, 200), 2.0: loads(1200, 200), 4.0: loads(2000, 900)}
    result = throttled_browser.judged(found, 0.3)
    assert [
        (one["marked"], one["slower"], one["slower_and_not_marked"]) for one in result["levels"]
    ] == [(0, 0, 0), (0, 3, 3), (3, 3, 0)]
    text = throttled_browser.lines({"kind": "h3", "profile": "leo", "limit": 0.3, **result})
    assert text[2].endswith(
        "the host    200 ms (17%); 0 of 3 marked, 3 slower, 3 of them not marked"
    )
