# SPDX-License-Identifier: GPL-3.0-or-later
"""The flow's arithmetic, and a flow over loopback."""

import contextlib
import io
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from satlab.bench import udp_load


@pytest.mark.parametrize("bps", [1e5, 20e6, 1e9])
def test_bursts_make_up_the_rate_and_never_run_ahead(bps: float) -> None:
    sent = 0
    for at, datagrams in udp_load.bursts(1472, bps, 2):
        sent += datagrams
        assert sent * 1472 * 8 <= at * bps * (1 + 1e-9)
    assert sent == int(2 * bps / (8 * 1472))


def test_every_datagram_of_a_flow_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_load, "SILENCE_S", 0.3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ThreadPoolExecutor(max_workers=1) as thread, contextlib.redirect_stdout(io.StringIO()) as out:
        received = thread.submit(udp_load.receive, "127.0.0.1", port, 100)
        while '"ready"' not in out.getvalue():
            assert not received.done()
        sent = udp_load.send("127.0.0.1", port, 100, 2e6, 0.1)
        assert sent["packets"] == 250
        assert received.result()["packets"] == 250
