# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark of terminals: its arithmetic and its text, without measurements."""

from dataclasses import asdict
from typing import Any

from benches import terminal_bench
from benches.terminal_bench import Shared
from satlab.campaign import link_bench
from satlab.campaign.link_bench import ReleaseErrors


def shared(
    count: int, received_bps: float = 206e6, p99_us: float | None = 90.0, host_p99_us: float = 50.0
) -> dict[str, Any]:
    late = {"forward": ReleaseErrors(10.0, p99_us, 300.0)}
    part = received_bps / count
    return asdict(
        Shared(
            count,
            3.0,
            1.0,
            207e6,
            received_bps,
            part,
            part,
            1.0,
            5,
            0,
            0.4,
            60.0,
            late,
            host_p99_us,
        )
    )


def test_p195_a_result_has_one_terminal_and_many() -> None:
    result = {"rate_mbps": terminal_bench.RATE_MBPS, "one": shared(1), "shared": shared(16)}
    text = "\n".join(terminal_bench.lines(result))
    assert "1 terminal: 206.0 of 207.0 Mbit/s" in text
    assert "16 terminals: 206.0 of 207.0 Mbit/s" in text
    assert "p50 10, p99 90 us; a bare thread: p99 50 us" in text
    assert "up in 3.0 s, removed in 1.0 s" in text
    assert all(promise.met for promise in terminal_bench.promises(result))


def test_what_is_slower_or_lost_misses_its_promise_and_fewer_terminals_prove_nothing() -> None:
    slow = shared(16, received_bps=199e6, p99_us=None) | {
        "counted_loss_packets": 1,
        "up_s": 6.1,
        "down_s": 3.1,
    }
    assert not any(promise.met for promise in terminal_bench.promises({"shared": slow}))
    assert len(terminal_bench.promises({"shared": slow})) == 5
    assert terminal_bench.promises({"shared": shared(15)}) == []
    assert "no packet" in "\n".join(terminal_bench.lines({"one": slow, "shared": slow}))


def test_a_release_error_on_a_host_that_is_as_late_is_marked_not_missed() -> None:
    def released(p99_us: float | None, host_p99_us: float) -> tuple[bool, bool, str]:
        made = terminal_bench.promises(
            {"shared": shared(16, p99_us=p99_us, host_p99_us=host_p99_us)}
        )
        (one,) = (promise for promise in made if "p99" in promise.name)
        (line,) = link_bench.promise_lines({"promises": [asdict(one)]})
        return one.met, one.spoilt, line.split()[0]

    assert released(3000.0, 1600.0) == (False, True, "HOST")
    assert released(3000.0, 150.0) == (False, False, "MISSED")
    assert released(150.0, 1600.0) == (True, False, "kept")
    assert released(None, 1600.0) == (False, False, "MISSED"), "not measured"
