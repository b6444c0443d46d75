# SPDX-License-Identifier: GPL-3.0-or-later
"""QUIC windows from the files of satperf and satpep: what is shown, what is not, and within which
bounds.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satlab.run import quic_flows
from satlab.run.quic_flows import (
    Flow,
    Followed,
    ReportedFlows,
    Reporter,
    SatpepLines,
    SatperfLines,
)

NOW = 1_000_000.0
START = {
    "type": "start",
    "side": "server",
    "role": "sender",
    "stack": "quinn 0.11.13",
    "peer": "198.18.1.2:50000",
    "t_unix_s": NOW - 10,
    "options": {"congestion_control": "cubic"},
}
INTERVAL = {
    "type": "interval",
    "side": "server",
    "t_s": 9.9,
    "cwnd_bytes": 120_000,
    "rtt_ms": 601.23,
    "in_flight_bytes": 99,
}
SUMMARY = {"type": "summary", "side": "server", "t_s": 10.0}
SHOWN = Flow(
    "satperf, quinn 0.11.13", "", "198.18.1.2:50000", "cubic", 120_000, 601.2, 99, None, "server"
)


def shown(reporter: Reporter, *lines: dict[str, Any], now: float = NOW) -> list[Flow]:
    for line in lines:
        reporter.add(line)
    return list(reporter.flows(now))


@pytest.mark.promise("P61")
def test_p348_a_sender_s_last_interval_is_shown_until_its_end() -> None:
    reporter = SatperfLines("server")
    assert shown(reporter, START) == []
    assert shown(reporter, INTERVAL | {"cwnd_bytes": 1}, INTERVAL) == [SHOWN]
    assert shown(reporter, now=NOW + 60) == [], "what is old does not count as now"
    assert shown(reporter, SUMMARY) == []
    assert shown(reporter, START, INTERVAL) == [SHOWN], "the next connection of the server"


def test_p348_what_a_receiver_or_a_stack_does_not_know_is_not_shown() -> None:
    assert shown(SatperfLines("server"), START | {"role": "receiver"}, INTERVAL) == []
    assert shown(SatperfLines("server"), START, INTERVAL | {"cwnd_bytes": None}) == []
    (flow,) = shown(SatperfLines("server"), START, INTERVAL | {"in_flight_bytes": None})
    assert flow.in_flight_bytes is None


def test_lines_of_several_connections_at_once_are_of_none() -> None:
    reporter = SatperfLines("server")
    assert shown(reporter, START, START, INTERVAL) == []
    assert shown(reporter, SUMMARY, INTERVAL) == [], "whose it is cannot be said"
    assert shown(reporter, SUMMARY, START, INTERVAL) == [SHOWN]


def test_p348_a_proxy_has_both_legs_of_each_connection() -> None:
    leg = {"cwnd_bytes": 15_000, "rtt_ms": 40.0}
    line = {
        "unix_s": NOW - 1,
        "connection": 3,
        "client_side": leg,
        "server_side": leg | {"rtt_ms": 600.0},
    }
    flows = shown(SatpepLines("server"), line | {"connection": 2, "unix_s": NOW - 60}, line)
    assert [(flow.peer, flow.rtt_ms, flow.acked_bytes) for flow in flows] == [
        ("client side of connection 3", 40.0, None),
        ("server side of connection 3", 600.0, None),
    ]
    many = SatpepLines("server")
    assert (
        len(shown(many, *(line | {"connection": n} for n in range(1, 500))))
        == 2 * quic_flows.MOST_CONNECTIONS
    )


def test_t52_what_is_read_of_a_file_is_bounded() -> None:
    followed = Followed(SatperfLines("server"))
    assert followed.span(10 * quic_flows.MOST_READ) == (
        9 * quic_flows.MOST_READ,
        quic_flows.MOST_READ,
    )
    text = b"".join(json.dumps(line).encode() + b"\n" for line in (START, INTERVAL))
    followed.add(text)
    assert list(followed.reporter.flows(NOW)) == [], (
        "lines are missing: other connections may be open"
    )
    followed.add(b"x" * (2 * quic_flows.LONGEST_LINE))
    assert len(followed._rest) == 0


def test_a_line_may_come_in_parts_and_a_file_may_be_emptied() -> None:
    text = b"".join(json.dumps(line).encode() + b"\n" for line in (START, INTERVAL))
    followed = Followed(SatperfLines("server"))
    for at in range(0, len(text), 7):
        assert followed.span(at + 7)[0] == at
        followed.add(text[at : at + 7])
    assert list(followed.reporter.flows(NOW)) == [SHOWN]
    assert followed.span(5) == (0, 5)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "side",
                    "role",
                    "stack",
                    "peer",
                    "options",
                    "t_s",
                    "t_unix_s",
                    "cwnd_bytes",
                    "rtt_ms",
                    "in_flight_bytes",
                    "connection",
                    "unix_s",
                    "client_side",
                    "server_side",
                ]
            ),
            st.sampled_from(
                [
                    "start",
                    "interval",
                    "summary",
                    "server",
                    "sender",
                    NOW,
                    0,
                    -1,
                    1e300,
                    None,
                    True,
                    {},
                ]
            )
            | st.recursive(st.none(), st.lists, max_leaves=2),
        )
    )
)
def test_t52_any_lines_are_survived(lines: list[dict[str, Any]]) -> None:
    for reporter in (SatperfLines("server"), SatpepLines("server")):
        for flow in shown(reporter, *lines):
            assert 0 <= flow.cwnd_bytes <= 1 << 53


def test_t52_nonsense_in_a_file_is_left_out() -> None:
    followed = Followed(SatperfLines("server"))
    followed.add(b"[" * 50_000 + b'\n{"side": NaN}\n\xff\n{"type": 1' + b"9" * 5_000 + b"}\n")
    assert list(followed.reporter.flows(NOW)) == []


def test_t52_only_a_plain_file_that_the_process_has_open_is_read(tmp_path: Path) -> None:
    name, _ = quic_flows.REPORTERS["satperf"]
    key, programs = (os.getpid(), 1), {(os.getpid(), 1): ("server", "satperf")}
    reports = ReportedFlows()
    pipe = tmp_path / "pipes" / name
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDWR)
    try:
        assert reports.read(programs, NOW) == [], "a pipe would keep its reader waiting"
    finally:
        os.close(descriptor)
    with (tmp_path / name).open("wb", buffering=0) as file:
        file.write(b"".join(json.dumps(line).encode() + b"\n" for line in (START, INTERVAL)))
        assert reports.read(programs, NOW) == [SHOWN]
        file.write(json.dumps(INTERVAL | {"cwnd_bytes": 7}).encode() + b"\n")
        assert reports.read(programs, NOW)[0].cwnd_bytes == 7
        assert reports.read({key: ("server", "another")}, NOW) == []
