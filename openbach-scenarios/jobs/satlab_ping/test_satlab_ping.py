# SPDX-License-Identifier: GPL-3.0-or-later
from collections.abc import Callable
from typing import Any

import pytest

from collect.ping import Ping
from tests import job_programs

# iputils 20221126, `ping -n -D -O`, over a link with loss and a duplicate.
LINES = """\
PING 198.18.4.2 (198.18.4.2) 56(84) bytes of data.
[1795262219.250001] 64 bytes from 198.18.4.2: icmp_seq=1 ttl=61 time=600 ms
[1795262220.250002] 64 bytes from 198.18.4.2: icmp_seq=2 ttl=61 time=601.5 ms
[1795262220.250009] 64 bytes from 198.18.4.2: icmp_seq=2 ttl=61 time=601.6 ms (DUP!)
[1795262222.000000] no answer yet for icmp_seq=3
"""
SUMMARY = "4 packets transmitted, 2 received, 50% packet loss, time 3004ms\n"


def test_replies_losses_and_duplicates_are_distinguished() -> None:
    echo = job_programs.load("satlab_ping").Echo()
    replies = [reply for line in LINES.splitlines() if (reply := echo.take(line))]
    assert replies == [(1795262219250, 600.0), (1795262220250, 601.5)]
    assert (echo.sent, echo.rtt_ms) == (3, [600.0, 601.5])
    echo.take(SUMMARY)
    assert echo.sent == 4


@pytest.mark.parametrize(
    ("lines", "received", "status"),
    [(LINES + SUMMARY, 2, 0), ("1 packets transmitted, 0 received\n", 0, 1)],
)
def test_the_job_stores_what_it_measured(
    trial: Callable[[str], Any], lines: str, received: int, status: int
) -> None:
    job = trial("satlab_ping")
    fake = job.stand_in("ping", f"cat <<'END'\n{lines}END\nexit {status}\n")
    assert job.run("198.18.4.2", "-c", "4", "-i", "1.0", **fake)[0] == status
    document = job.stored("ping_json")
    Ping.model_validate(document)
    assert (document["received"], len(document["rtt_ms"])) == (received, received)
    assert job.statistics("rtt_ms") == document["rtt_ms"]
