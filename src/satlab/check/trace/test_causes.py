# SPDX-License-Identifier: GPL-3.0-or-later
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from satlab.check.trace import causes
from satlab.check.trace.causes import SenderState, Span, TransferTrace

FULL = SenderState(0, 100_000, 100_000, False, True, False, "blocked", 650, 0, 0, 0)
"""A window in slow start that is full."""


def trace(*states: SenderState, requested_s: float | None = 0.0) -> TransferTrace:
    """Return states at 1 s, 2 s and so on, the last one at the end."""
    return TransferTrace(
        requested_s,
        float(len(states)),
        [replace(state, t_s=t) for t, state in enumerate(states, 1)],
    )


def causes_of(*states: SenderState) -> list[str]:
    return [span.cause for span in trace(*states).spans()]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "slow start"),
        ({"lost_packets": 1}, "loss recovery"),
        ({"is_slow_start": False}, "congestion avoidance"),
        ({"is_slow_start": False, "lost_packets": 1}, "loss recovery"),
        ({"payload_queue_ms": 50, "lost_packets": 1, "ack_queue_ms": 50}, "link"),
        ({"payload_queue_ms": 10.1}, "link"),
        ({"payload_queue_ms": 9.9}, "slow start"),
        ({"ack_queue_ms": 50}, "ack link"),
        ({"ack_queue_ms": 9.9}, "slow start"),
        ({"is_app_limited": True}, "slow start"),
        ({"is_app_limited": True, "in_flight_bytes": 50_000}, "flow control"),
        ({"is_app_limited": True, "in_flight_bytes": 100_000 - 2 * 1472}, "flow control"),
        ({"is_app_limited": True, "in_flight_bytes": 100_000 - 2 * 1472 + 1}, "slow start"),
        ({"is_app_limited": True, "in_flight_bytes": 50_000, "supply": "slow"}, "application"),
        ({"is_app_limited": True, "in_flight_bytes": 50_000, "supply": "done"}, "delivery"),
        ({"is_handshaking": True, "in_flight_bytes": 3_600}, "handshake"),
        ({"is_handshaking": True}, "slow start"),
        ({"in_flight_bytes": 49_000}, "host"),
        ({"in_flight_bytes": 51_000}, "slow start"),
    ],
)
@pytest.mark.promise("P76")
def test_each_rule_names_its_cause(changes: dict[str, Any], cause: str) -> None:
    state = replace(FULL, **changes)
    assert causes_of(state, state, state)[-1] == cause


@pytest.mark.parametrize("changes", [{"payload_queue_ms": 30.0}, {"ack_queue_ms": 30.0}])
def test_a_queue_at_one_end_of_an_interval_is_a_burst(changes: dict[str, Any]) -> None:
    assert causes_of(FULL, replace(FULL, **changes), FULL) == ["slow start"]


def test_a_pause_shorter_than_a_round_trip_is_not_the_host() -> None:
    low = replace(FULL, in_flight_bytes=10_000, rtt_ms=1_500)
    assert causes_of(FULL, low, FULL) == ["slow start"]
    assert causes_of(FULL, low, low, low) == ["slow start", "host"]
    assert causes_of(low, low) == ["slow start", "host"]  # a round trip begins with the request


ROOM = replace(
    FULL,
    cwnd_bytes=200_000,
    in_flight_bytes=120_000,
    rtt_ms=2_500,
    is_app_limited=False,
    lost_packets=3,
)
"""A sender whose window has room, after losses: in a round trip there are three states."""


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "pacing"),
        ({"is_slow_start": False}, "pacing"),
        ({"lost_packets": 0}, "pacing"),
        ({"link_share": 0.96}, "link"),  # BBR at 10 of 10 Mbit/s, with a lost packet and no queue
        ({"link_share": 0.94}, "pacing"),
        ({"in_flight_bytes": 199_000}, "loss recovery"),
        ({"in_flight_bytes": 90_000}, "host"),
        ({"in_flight_bytes": 90_000, "pacing_bps": 300_000.0}, "pacing"),
        # It sends less than its rate.
        ({"in_flight_bytes": 90_000, "pacing_bps": 3_000_000.0}, "host"),
        ({"is_app_limited": True}, "flow control"),
    ],
)
def test_a_sender_with_a_rate_of_its_own_is_not_loss_recovery(
    changes: dict[str, Any], cause: str
) -> None:
    state = replace(ROOM, **changes)
    assert causes_of(*[state] * 6)[-1] == cause


def test_a_growing_window_with_room_is_slow_start() -> None:
    states = [
        replace(ROOM, lost_packets=0, cwnd_bytes=100_000 * 1.2**n, in_flight_bytes=80_000 * 1.2**n)
        for n in range(6)
    ]
    assert causes_of(*states)[-1] == "slow start"


@pytest.mark.parametrize(
    ("windows", "lost", "cause"),
    [
        ((100, 150, 200), (0, 3, 6), "slow start"),  # a loss did not keep the window from growing
        ((200, 50, 50), (3, 3, 3), "pacing"),  # BBR measures the round trip
        ((200, 50, 50), (0, 3, 3), "loss recovery"),
    ],
)
def test_a_window_of_a_controller_that_sets_a_rate(
    windows: tuple[int, ...], lost: tuple[int, ...], cause: str
) -> None:
    full = [
        replace(
            FULL,
            cwnd_bytes=1e3 * window,
            in_flight_bytes=1e3 * window,
            lost_packets=count,
            pacing_bps=2e8,
        )
        for window, count in zip(windows, lost, strict=True)
    ]
    assert causes_of(*full)[-1] == cause


@pytest.mark.parametrize(
    ("supply", "cause"), [("blocked", "flow control"), ("slow", "application")]
)
def test_a_sender_that_waits_for_its_pacer_between_two_packets_still_lacks_data(
    supply: Any, cause: str
) -> None:
    """In the last states before its acknowledgement nothing was lacking at the moment."""
    low = replace(FULL, in_flight_bytes=20_000, rtt_ms=2_500, supply=supply)
    lacking = replace(low, is_app_limited=True)
    assert causes_of(low, low, low, lacking, low, low)[-1] == cause
    assert causes_of(lacking, *[low] * 5)[-1] == "host"  # longer ago than a round trip


def test_what_was_sent_last_is_delivered_over_a_link_that_was_busy() -> None:
    done = replace(ROOM, is_app_limited=True, supply="done", link_share=1.0)
    assert causes_of(*[done] * 6)[-1] == "delivery"
    assert causes_of(*[replace(done, supply="slow")] * 6)[-1] == "link"


def test_the_spans_are_a_partition() -> None:
    spans = TransferTrace(0.7, 3.5, trace(FULL, replace(FULL, lost_packets=1), FULL).states).spans()
    assert spans[0] == Span(0.0, 0.7, "handshake") and spans[-1].end_s == 3.5
    assert all(one.end_s == other.start_s for one, other in pairwise(spans))


@pytest.mark.parametrize("requested_s", [None, 2.0, 5.0])
def test_without_a_request_all_time_is_the_handshake(requested_s: float | None) -> None:
    assert trace(FULL, FULL, requested_s=requested_s).spent_s()["handshake"] == 2.0
    assert TransferTrace(0.0, 2.0, []).spent_s()["handshake"] == 2.0


def test_means_add_up_and_the_largest_is_named() -> None:
    none: dict[str, float] = dict.fromkeys(causes.CAUSES, 0.0)
    found = causes.mean([none | {"link": time, "host": 1.0} for time in (1.0, 4.0)])
    assert sum(found.values()) == 3.5 and causes.largest(found) == "link"
