# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts and ends of flows, stepped with the time."""

import pytest

from satlab.flows.timetable import GRACE_S, Timetable, judged_starts


def test_each_flow_starts_ends_and_is_killed_once() -> None:
    table = Timetable.of([{"start_s": 0.0}, {"start_s": 2.0, "stop_s": 5.0}], 10)
    seen = []
    while (at_s := table.next_s) is not None:
        seen += [(action.at_s, action.index, action.verb) for action in table.due(at_s)]
    assert seen == [
        (0, 0, "start"),
        (2, 1, "start"),
        (5, 1, "end"),
        (5 + GRACE_S, 1, "kill"),
        (10, 0, "end"),
        (10 + GRACE_S, 0, "kill"),
    ]


def test_what_is_late_comes_in_order() -> None:
    table = Timetable.of([{"start_s": 1.0, "stop_s": 2.0}, {"start_s": 2.0}], 4)
    assert [(one.index, one.verb) for one in table.due(3)] == [
        (0, "start"),
        (0, "end"),
        (1, "start"),
    ]
    assert not table.due(3)


def test_a_program_that_asks_for_its_route_is_led_before_it_moves() -> None:
    flows = [
        {"start_s": 0.0, "stack": "ngtcp2", "migrate_s": [6.0]},
        {"start_s": 4.0, "stack": "ngtcp2", "migrate_s": [5.0]},
        {"start_s": 0.0, "stack": "noq", "migrate_s": [6.0]},
    ]
    led = [(one.index, one.at_s) for one in Timetable.of(flows, 10).left if one.verb == "lead"]
    # A second before, but not before the half of what the flow has run by then.
    assert led == [(1, 4.5), (0, 5.0)]


def test_a_flow_that_began_late_is_out_of_calibration_and_named() -> None:
    flows = [{"start_s": start} for start in (0, 0, 60)]
    (found,) = judged_starts(flows, [0.05, None, 60.4])
    assert found.ok and found.measured == pytest.approx(0.4)
    (late,) = judged_starts(flows, [56.1, 0.2, 60.1])
    assert (late.name, late.ok, late.measured) == ("late_start_s", False, 56.1)
    assert "flow 0, the latest of 3" in late.note
    assert judged_starts(flows, [None, None, None]) == []
