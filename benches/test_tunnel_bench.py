# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of the benchmark of tunnels, without measurements."""

from dataclasses import asdict, replace

from benches import tunnel_bench
from benches.tunnel_bench import CASES, Carried


def measured() -> list[Carried]:
    made = [
        Carried(case.name, case.code, case.rate_mbps, 10000, 0, 0.05, 0.06, 0.03) for case in CASES
    ]
    return [
        replace(made[0], sender_cores=None, receiver_cores=None),
        replace(made[1], rtt_ms=0.25),
        *made[2:],
    ]


def test_what_is_promised_is_compared() -> None:
    assert [promise.met for promise in tunnel_bench.promises(measured())] == [True, True, True]
    plain, without, two, fast = measured()
    off = [
        plain,
        replace(without, rtt_ms=0.36),
        replace(two, sender_cores=0.13),
        replace(fast, lost_packets=1),
    ]
    assert [promise.met for promise in tunnel_bench.promises(off)] == [False, False, False]


def test_each_case_is_a_line() -> None:
    cases = measured()
    promises = [asdict(promise) for promise in tunnel_bench.promises(cases)]
    lines = list(
        tunnel_bench.lines({"cases": [asdict(case) for case in cases], "promises": promises})
    )
    assert lines[0] == "no tunnel, 12 Mbit/s: 0 of 10000 packets lost, RTT 0.050 ms"
    assert lines[2].endswith("RTT 0.050 ms, CPU 6.0% and 3.0% of a core")
    assert lines[-1] == "kept       S(10,100) at 250 Mbit/s: lost: 0 (<= 0 packets)"
