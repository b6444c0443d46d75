# SPDX-License-Identifier: GPL-3.0-or-later
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from satlab.check.trace import causes
from satlab.check.trace.causes import SenderState, Span, TransferTrace
from satlab.common import paths

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


TICKS = [replace(FULL, t_s=tick / 20, rtt_ms=500) for tick in range(1, 201)]
"""10 s of a full window, in slow start, that never grows; a state each 50 ms, a round trip of 500
ms.
"""


def until_10_s(states: list[SenderState], **changes: Any) -> dict[str, float]:
    return spent(TransferTrace(0.0, 10.0, states, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"is_slow_start": False},
        {"lost_packets": 3},  # a loss that did not reduce it
        {"pacing_bps": 2_000_000.0},
        {"in_flight_bytes": 91_000, "is_app_limited": False},  # reported before it sends again
        {"cwnd_bytes": 6_000, "in_flight_bytes": 3_600},  # five packets, two of them acknowledged
        {"is_handshaking": True},
    ],
)
def test_a_full_window_that_never_grows_is_constant(changes: dict[str, Any]) -> None:
    assert until_10_s([replace(state, **changes) for state in TICKS]) == {"constant window": 10.0}


def test_a_burst_in_each_round_trip_fills_a_constant_window() -> None:
    bursts = [
        replace(state, in_flight_bytes=100_000 if index % 10 < 2 else 30_000)
        for index, state in enumerate(TICKS)
    ]
    assert until_10_s(bursts) == {"constant window": 10.0}


def growing(**changes: Any) -> list[SenderState]:
    """Return 10 s of a full window that grows."""
    return [
        replace(state, cwnd_bytes=100_000 + 500 * n, in_flight_bytes=100_000 + 500 * n, **changes)
        for n, state in enumerate(TICKS)
    ]


@pytest.mark.promise("P76")
def test_late_acknowledgements_take_their_part_of_what_the_window_limits() -> None:
    late = growing(ack_ms=800.0, late_ms=200.0)
    found = until_10_s(late)
    assert found["late acks"] == pytest.approx(2.5, abs=0.2)
    assert found["slow start"] == pytest.approx(10 - found["late acks"]) and len(found) == 2
    # A part of each round trip, not of each interval.
    spans = [span for span in TransferTrace(0.0, 10.0, late).spans() if span.cause == "late acks"]
    assert 10 < len(spans) < 20 and min(span.end_s - span.start_s for span in spans) > 0.14
    assert until_10_s(growing(ack_ms=600.0)) == {"slow start": 10.0}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"payload_queue_ms": 50.0}, "link"),
        ({"is_app_limited": True, "in_flight_bytes": 50_000.0}, "flow control"),
        ({"in_flight_bytes": 10_000.0}, "host"),
    ],
)
def test_late_acknowledgements_cost_nothing_where_something_else_limits(
    changes: dict[str, Any], cause: str
) -> None:
    states = [replace(state, ack_ms=800.0, late_ms=200.0, **changes) for state in TICKS]
    assert "late acks" not in until_10_s(states) and cause in until_10_s(states)


AVOIDS = {"is_slow_start": False}


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        # A packet more each 2.2 s: CUBIC around its plateau, also with a short round trip.
        (lambda t: AVOIDS | {"cwnd_bytes": 100_000 + t // 2.2 * 1200}, "congestion avoidance"),
        (
            lambda t: AVOIDS | {"cwnd_bytes": 100_000 + t // 2.2 * 1200, "rtt_ms": 50},
            "congestion avoidance",
        ),
        (lambda t: {"cwnd_bytes": 100_000 + t // 2.2 * 1200, "pacing_bps": 2e6}, "slow start"),
        (lambda t: {"cwnd_bytes": 100_000 + t // 1.4 * 1200}, "slow start"),
        # Reduced by losses from a wider window.
        (lambda t: {"cwnd_bytes": 200_000 if t < 1 else 100_000}, "loss recovery"),
        (lambda t: {"payload_queue_ms": 50.0}, "link"),
        (lambda t: {"is_app_limited": True, "in_flight_bytes": 95_000}, "flow control"),
        (lambda t: {"in_flight_bytes": 85_000}, "pacing"),
    ],
)
def test_what_grows_or_does_not_limit_is_no_constant_window(change: Any, cause: str) -> None:
    lost = 3 if cause == "loss recovery" else 0
    states = []
    for state in TICKS:
        changed = replace(state, lost_packets=lost, **change(state.t_s))
        is_full = changed.in_flight_bytes == FULL.in_flight_bytes
        in_flight = changed.cwnd_bytes if is_full else changed.in_flight_bytes
        states.append(replace(changed, in_flight_bytes=in_flight))
    found = until_10_s(states)
    assert "constant window" not in found and max(found, key=found.__getitem__) == cause, found


def test_a_short_transfer_with_a_constant_window_shows_it_too() -> None:
    """Three round trips at the end of slow start."""
    windows = [10_000 * 2 ** min(int(one.t_s / 0.5), 4) for one in TICKS]
    states = [
        replace(one, cwnd_bytes=window, in_flight_bytes=window)
        for one, window in zip(TICKS, windows, strict=True)
        if one.t_s <= 3.6
    ]
    found = spent(TransferTrace(0.0, 3.6, states))
    assert found == {"slow start": pytest.approx(1.95), "constant window": pytest.approx(1.65)}


def test_a_first_flight_is_no_constant_window_though_its_round_trip_is_not_known_yet() -> None:
    """quinn assumes 333 ms; the round trip is 1.5 s."""
    flight = [replace(one, rtt_ms=333) for one in TICKS if one.t_s <= 1.5]
    grown: dict[str, Any] = {"rtt_ms": 1500, "cwnd_bytes": 200_000, "in_flight_bytes": 200_000}
    later = [replace(one, **grown) for one in TICKS if 1.5 < one.t_s <= 2.5]
    found = spent(TransferTrace(0.0, 2.5, [*flight, *later]))
    assert found == {"slow start": pytest.approx(2.5)}


def test_a_pause_of_a_sender_with_a_constant_window_is_not_the_window() -> None:
    states = [replace(one, in_flight_bytes=0) if 4 < one.t_s <= 6 else one for one in TICKS]
    found = until_10_s(states, has_virtual_clock=True)
    assert found["constant window"] == pytest.approx(8.5, abs=0.3)
    assert found["idle"] == pytest.approx(1.5, abs=0.3)


@pytest.mark.parametrize("has_virtual_clock", [True, False])
def test_under_a_virtual_clock_no_host_is_late(*, has_virtual_clock: bool) -> None:
    low = [replace(state, in_flight_bytes=10_000) for state in TICKS]
    rest = "idle" if has_virtual_clock else "host"
    found = until_10_s(low, has_virtual_clock=has_virtual_clock)
    assert max(found, key=found.__getitem__) == rest
    paced = [replace(state, pacing_bps=160_000.0) for state in low]
    assert until_10_s(paced, has_virtual_clock=has_virtual_clock)["pacing"] > 9


@pytest.mark.parametrize(
    ("lost_by", "cause"),
    [("path", "loss recovery"), ("host", "host"), ("nobody", "spurious loss")],
)
@pytest.mark.parametrize("pacing_bps", [None, 2e8])
def test_who_lost_the_packets_decides_the_cause_of_a_reduced_window(
    lost_by: Any, cause: str, pacing_bps: float | None
) -> None:
    wide = replace(FULL, cwnd_bytes=200_000, in_flight_bytes=200_000, pacing_bps=pacing_bps)
    narrow = replace(FULL, lost_packets=9, pacing_bps=pacing_bps)
    found = TransferTrace(0.0, 3.0, trace(wide, narrow, narrow).states, lost_by)
    assert spent(found) == {"slow start": 1.0, cause: 2.0}


def test_a_sender_is_not_idle_before_it_knows_a_round_trip() -> None:
    low = replace(FULL, in_flight_bytes=10_000, rtt_ms=0)
    assert causes_of(low, low) == ["slow start"]


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


@pytest.mark.parametrize("requested_s", [2.0, 5.0])
def test_a_request_that_came_too_late_leaves_the_handshake(requested_s: float) -> None:
    assert trace(FULL, FULL, requested_s=requested_s).spent_s()["handshake"] == 2.0


def spent(trace: TransferTrace) -> dict[str, float]:
    return {cause: time for cause, time in trace.spent_s().items() if time}


def test_what_nothing_tells_about_is_unknown() -> None:
    assert spent(trace(FULL, FULL, requested_s=None)) == {"unknown": 2.0}
    assert spent(TransferTrace(None, 2.0, [])) == {"unknown": 2.0}
    assert spent(TransferTrace(0.0, 2.0, [])) == {"unknown": 2.0}
    assert spent(TransferTrace(0.5, 2.0, [])) == {"handshake": 0.5, "unknown": 1.5}


def test_the_last_state_covers_a_round_trip_unless_all_was_sent() -> None:
    states = trace(FULL, replace(FULL, rtt_ms=1_500)).states
    assert spent(TransferTrace(0.0, 9.0, states)) == {"slow start": 3.5, "unknown": 5.5}
    done = replace(FULL, is_app_limited=True, in_flight_bytes=0, supply="done")
    assert spent(TransferTrace(0.0, 9.0, trace(FULL, done).states)) == {
        "slow start": 1.0,
        "delivery": 8.0,
    }


def test_the_document_has_each_cause() -> None:
    text = (paths.ROOT / "docs/regression.md").read_text().partition("| cause | holds when |")[2]
    rows = [line.strip("| ").split(" | ") for line in text.partition("\n\n")[0].splitlines()[2:]]
    assert {row[0] for row in rows} == set(causes.CAUSES) and all(len(row) == 2 for row in rows)


def test_means_add_up_and_the_largest_is_named() -> None:
    none: dict[str, float] = dict.fromkeys(causes.CAUSES, 0.0)
    found = causes.mean([none | {"link": time, "host": 1.0} for time in (1.0, 4.0)])
    assert sum(found.values()) == 3.5 and causes.largest(found) == "link"
