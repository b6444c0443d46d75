# SPDX-License-Identifier: GPL-3.0-or-later
"""Totals and levels over time, and the bins that are made of them."""

from satlab.flows.time_series import Level, Seen, Total


def test_a_total_rises_evenly_between_two_entries() -> None:
    total = Total()
    total.add(1, 0)
    total.add(2, 100)
    assert [total.at(t) for t in (0, 1.25, 2, 9)] == [0, 25, 100, 100]
    assert (total.reached(50), total.reached(101)) == (2, None)


def test_a_total_never_falls() -> None:
    total = Total()
    for t_s, value in ((1, 10), (0.5, 8), (3, 12)):
        total.add(t_s, value)
    assert total.times == [1, 1, 3]
    assert total.values == [10, 10, 12]


def test_a_level_stays_until_the_next_one() -> None:
    level = Level([1, 2], [5, 7])
    assert [level.at(t) for t in (0.9, 1, 1.9, 2, 50)] == [0, 5, 5, 7, 7]


def test_a_bin_is_there_while_the_flow_is_to_run() -> None:
    seen = Seen(ended_s=0.3)
    seen.payload.add(0.1, 0)
    seen.payload.add(0.3, 200)
    found = seen.document({"start_s": 0.1}, 0.5, 0.1)
    assert [None if one is None else one["payload_bytes"] for one in found["bins"]] == [
        None,
        100,
        200,
        None,
        None,
    ]
    assert found["totals"]["payload_bytes"] == 200


def test_the_first_failure_counts() -> None:
    seen = Seen()
    seen.failed("the server died", 3)
    seen.failed("nothing arrived", 10)
    assert (seen.status, seen.reason, seen.ended_s) == ("failed", "the server died", 3)
