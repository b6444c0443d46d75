# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs and flows on the page of a run while it runs."""

from typing import Any

import pytest

from satlab.service.pages import live_activity
from satlab.service.pages.live_activity import NOTHING, UNKNOWN

SAMPLE: dict[str, Any] = {
    "t_unix_s": 1.0,
    "nodes": [
        {"node": "client", "cpu_percent": 70.0},
        {"node": "client-2", "cpu_percent": 20.4},
        {"node": "proxy-st", "cpu_percent": 0.4},
    ],
    "programs": [{"node": "client", "program": "chromium", "processes": 9, "cpu_percent": 70.0}],
    "flows": [
        {
            "node": "server",
            "source": "kernel",
            "local": "198.18.4.2:443",
            "peer": "198.18.1.2:40000",
            "algorithm": "bbr",
            "cwnd_bytes": 1_234_500,
            "rtt_ms": 601.2,
            "in_flight_bytes": 1_080_400,
            "acked_bytes": 2_550_000,
        },
        {
            "node": "proxy-gw",
            "source": "satpep",
            "local": "",
            "peer": "client side of connection 1",
            "algorithm": "",
            "cwnd_bytes": 12_000,
            "rtt_ms": 580.4,
            "in_flight_bytes": None,
            "acked_bytes": None,
        },
    ],
}
PROGRESS: Any = {"activity": SAMPLE}


def test_p318_flows_and_programs_have_a_line_each() -> None:
    found = live_activity.of(PROGRESS, ended=False)
    assert found.flows.rows[0] == (
        "server",
        "kernel",
        "198.18.4.2:443",
        "198.18.1.2:40000",
        "bbr",
        "1,234",
        "601",
        "1,080",
        "2.5",
    )
    assert found.programs.rows == [("client", "chromium", "9", "70.0")]
    for table in (found.flows, found.programs):
        assert all(len(row) == len(table.head) for row in table.rows)


def test_p348_what_a_source_does_not_say_is_shown_as_unknown() -> None:
    found = live_activity.of(PROGRESS, ended=False)
    assert found.flows.rows[1] == (
        "proxy-gw",
        "satpep",
        UNKNOWN,
        "client side of connection 1",
        UNKNOWN,
        "12",
        "580",
        UNKNOWN,
        UNKNOWN,
    )
    assert found.windows == ("server: cwnd 1.23 MB", "proxy-gw: cwnd 12 kB")


@pytest.mark.parametrize(
    ("second", "words"),
    [(1_234_500, "cwnd of 2 flows 1.23 MB"), (14_000, "cwnd of 2 flows 14 kB to 1.23 MB")],
)
def test_the_windows_of_the_flows_of_a_node_are_one_line(second: int, words: str) -> None:
    first = SAMPLE["flows"][0]
    flows = [first, first | {"cwnd_bytes": second}]
    progress: Any = {"activity": SAMPLE | {"flows": flows}}
    assert live_activity.of(progress, ended=False).windows == (f"server: {words}",)


def test_a_node_of_the_picture_has_the_cpu_time_of_its_programs_and_of_all_terminals() -> None:
    found = live_activity.of(PROGRESS, ended=False)
    assert (found.cpu("client"), found.cpu("Proxy-ST"), found.cpu("ST")) == (
        "CPU 90 %",
        "CPU 0 %",
        "",
    )


def test_before_a_sample_and_after_the_end_there_is_nothing() -> None:
    assert live_activity.of(PROGRESS, ended=True) is NOTHING
    nothing: list[Any] = [None, {}, {"activity": None}]
    for progress in nothing:
        assert live_activity.of(progress, ended=False) is NOTHING
