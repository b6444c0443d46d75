# SPDX-License-Identifier: GPL-3.0-or-later
"""Times in queues and figures of FIFOs, from the emulator's lines to records."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from collect import link_samples
from collect.queues import MOST_FIFOS, Fifos, OfFifo, Times
from collect.records import Record, Series
from collect.test_terminals import counters, of

NAMES = {direction: direction for direction in link_samples.DIRECTIONS}
TIMES = dict.fromkeys(("queue_p50_ms", "queue_p95_ms", "queue_p99_ms"))


def fifo(name: str, waits: list[tuple[int, int]], **changed: Any) -> dict[str, Any]:
    sent = sum(packets for _, packets in waits)
    counted = {"queue_bytes": 0, "queue_packets": 0, "sent_packets": sent, "dropped_packets": 0}
    return {"fifo": name, **counted, **TIMES, "waits_us": waits, **changed}


def made(*samples: tuple[dict[str, Any], dict[str, Any]]) -> list[Record | Series]:
    """Return what becomes of samples of (forward, return)."""
    wire = counters()
    lines = []
    for number, (forward, back) in enumerate(samples, start=1):
        line = {
            "type": "sample",
            "t_unix_s": 100.0 + number / 10,
            "forward": forward,
            "return": back,
        }
        terrestrial = {"terrestrial_down": wire, "terrestrial_up": wire}
        lines.append(link_samples.ADAPTER.validate_python({**line, **terrestrial}))
    return list(link_samples.Metrics(lines, 100.0, None, NAMES).each())


def records(*samples: tuple[dict[str, Any], dict[str, Any]]) -> dict[tuple[str, ...], float | None]:
    """Return the records by metric, direction, and further labels."""
    return {
        (one.metric, *one.labels.values()): one.value
        for one in made(*samples)
        if isinstance(one, Record)
    }


@pytest.mark.promise("P20")
def test_p300_percentiles_are_of_all_packets_of_the_run_and_not_of_its_intervals() -> None:
    many = counters(**{**TIMES, "queue_p99_ms": 1.0}, waits_us=[(1000, 990)])
    few = counters(**{**TIMES, "queue_p99_ms": 500.0}, waits_us=[(400_000, 8), (500_000, 2)])
    found = records((many, counters()), (few, counters()))
    assert found["link_queue_p50_ms", "forward"] == 1.0
    assert found["link_queue_p99_ms", "forward"] == 1.0
    assert not [
        key for key in found if key[0].startswith("link_queue_p") and key[1] != "forward"
    ], "no queue, no times"
    series = next(one for one in made((many, few), (few, few)) if isinstance(one, Series))
    assert list(series.columns["link_queue_p99_ms"]) == [1.0, 500.0]


def test_p300_fifos_and_terminals_have_records_with_their_labels() -> None:
    two = [
        fifo("EF", [(1000, 99), (5000, 1)]),
        fifo("BE", [(90_000, 1)], dropped_packets=3, queue_bytes=1500),
    ]
    down = counters(
        of(1, **TIMES, waits_us=[]), of(2, **TIMES, fifos=two, queue_bytes=1500), **TIMES
    )
    up = counters(
        fifos=[fifo("EF", [(2000, 4)])],
        superframes=4,
        slots_requested=40,
        slots_assigned=60,
        **TIMES,
    )
    found = records((down, up), (down, up))
    own = ("forward", "2", "BE")
    assert [found[f"fifo_{name}", *own] for name in ("sent_packets", "dropped_packets")] == [2, 6]
    assert found["fifo_queue_max_bytes", *own] == 1500
    assert [found["fifo_queue_ms", *own, stat] for stat in ("p50", "p99")] == pytest.approx(
        [90.0, 90.0], rel=2**-11
    )
    # 202 packets of 2 FIFOs, twice: 198 of 1 ms, 2 of 5 ms, 2 of 90 ms.
    assert [
        found["terminal_queue_ms", "forward", "2", stat] for stat in ("p50", "p99")
    ] == pytest.approx([1.0, 5.0], rel=2**-11)
    assert ("terminal_queue_ms", "forward", "1", "p50") not in found, "it had no packet"
    assert found["link_queue_p99_ms", "forward"] == pytest.approx(5.0, rel=2**-11)
    assert found["fifo_queue_ms", "return", "EF", "p95"] == 2.0
    assert found["link_slots_requested_mean", "return"] == 10.0


def test_p330_fifos_of_terminals_are_added_up_by_name() -> None:
    first = [fifo("EF", [(1000, 10)], queue_bytes=100), fifo("BE", [(2000, 1)], dropped_packets=1)]
    second = [fifo("EF", [(9000, 30)], queue_bytes=300, queue_packets=2)]
    down = counters(of(1, **TIMES, fifos=first), of(2, **TIMES, fifos=second), **TIMES)
    # The second terminal's queue is the longer one in the second interval, when the first's is
    # empty.
    later = counters(
        of(1, **TIMES, fifos=[]), of(2, **TIMES, fifos=[fifo("EF", [], queue_bytes=350)]), **TIMES
    )
    found = records((down, counters()), (later, counters()))
    assert found["fifo_sent_packets", "forward", "EF"] == 40
    assert found["fifo_sent_packets", "forward", "1", "EF"] == 10
    assert [
        found[f"fifo_{name}", "forward", "BE"] for name in ("sent_packets", "dropped_packets")
    ] == [1, 1]
    assert found["fifo_queue_max_bytes", "forward", "EF"] == 400
    assert [
        found["fifo_queue_ms", "forward", "EF", stat] for stat in ("p50", "p99")
    ] == pytest.approx([9.0, 9.0], rel=2**-11)
    assert ("fifo_sent_packets", "return", "EF") not in found


def test_p300_a_queue_that_nothing_leaves_is_a_failed_sample() -> None:
    stuck = counters(of(1, **TIMES, queue_bytes=3000), queue_bytes=3000, **TIMES)
    lines = [
        one
        for one in made((stuck, counters()))
        if isinstance(one, Record) and one.status == "failed"
    ]
    failed = {
        (one.metric, one.labels.get("stat", "")) for one in lines if "none left it" in one.reason
    }
    stats = ("p50", "p95", "p99")
    assert failed == {(f"link_queue_{stat}_ms", "") for stat in stats} | {
        ("terminal_queue_ms", stat) for stat in stats
    }


@given(
    st.lists(st.tuples(st.integers(0, 70_000_000), st.integers(1, 1000)), min_size=1, max_size=50)
)
def test_p300_a_percentile_is_that_of_all_packets(waits: list[tuple[int, int]]) -> None:
    times = Times()
    times.add(waits, 0)
    every = sorted(time_us for time_us, packets in waits for _ in range(packets))
    for percentile in (50, 95, 99):
        exact_ms = every[-(-len(every) * percentile // 100) - 1] / 1e3
        assert times.percentile_ms(percentile) == pytest.approx(exact_ms, rel=2**-11)
    assert len(times.packets) <= len(waits)


def test_t47_names_and_times_of_a_broken_file_take_bounded_memory() -> None:
    fifos, times = Fifos(), Times()
    for number in range(1000):
        fifos.add([OfFifo.model_validate(fifo(str(number), [(number, 1)]))])
    assert len(fifos.by_name) == MOST_FIFOS
    for start in range(0, 70_000_000, 2_000_000):
        times.add([(start + step * 977, 1) for step in range(2000)], 0)
    assert len(times.packets) < 40_000
    for bad in ("", "x" * 41, 'a"b', "a\n", "Ä"):
        with pytest.raises(ValidationError):
            OfFifo.model_validate(fifo(bad, []))
    for waits in ([(-1, 1)], [(70_000_001, 1)], [(1, -1)], [(1, 1)] * 4097):
        with pytest.raises(ValidationError):
            OfFifo.model_validate(fifo("EF", waits))
