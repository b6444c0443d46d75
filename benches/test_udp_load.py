# SPDX-License-Identifier: GPL-3.0-or-later
"""The flow's arithmetic, and a flow over loopback."""

import contextlib
import io
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from benches import udp_load


@pytest.mark.parametrize("bps", [1e5, 20e6, 1e9])
def test_bursts_make_up_the_rate_and_never_run_ahead(bps: float) -> None:
    sent = 0
    for at, _, datagrams in udp_load.bursts(1472, bps, 2):
        sent += datagrams
        assert sent * 1472 * 8 <= at * bps * (1 + 1e-9)
    assert sent == int(2 * bps / (8 * 1472))


def test_flows_share_a_tick_and_not_its_start() -> None:
    times: dict[int, list[float]] = {}
    for at, flow, datagrams in udp_load.bursts(1250, 10e6, 0.003, flows=8):
        assert datagrams == 1
        times.setdefault(flow, []).append(round(at * 1000, 3))
    assert times[0] == times[1] == [1, 2, 3]
    assert times[2] == times[3] == [1.25, 2.25, 3.25]
    assert times[7] == [1.75, 2.75, 3.75]


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(count)
        ]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def test_every_datagram_of_each_flow_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_load, "SILENCE_S", 0.3)
    ends = [("127.0.0.1", port) for port in free_ports(3)]
    with ThreadPoolExecutor(len(ends)) as threads, contextlib.redirect_stdout(io.StringIO()) as out:
        received = [threads.submit(udp_load.receive, *end, 100) for end in ends]
        while out.getvalue().count('"ready"') < len(ends):
            assert not any(one.done() for one in received)
        sent = udp_load.send(ends, 100, 2e6, 0.1)
        assert [one["packets"] for one in sent] == [250, 250, 250]
        assert [one.result()["packets"] for one in received] == [250, 250, 250]


def test_without_a_rate_it_sends_for_as_long_as_asked() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        [sent] = udp_load.send([sink.getsockname()], 1000, 0, 0.05)
    assert sent["packets"] >= udp_load.MOST_DATAGRAMS
    assert sent["seconds"] >= 0.05
