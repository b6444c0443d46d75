# SPDX-License-Identifier: GPL-3.0-or-later
import socket
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

# `ss -tinOH state established`, iproute2 6.1.
SENDING = (
    "0 90 198.18.4.2:5201 198.18.1.2:41170 cubic wscale:7,7 rto:812 rtt:580.5/12.25 mss:1448"
    " pmtu:1500 cwnd:240 ssthresh:120 bytes_sent:90000 bytes_retrans:2896 bytes_acked:80001"
    " segs_out:66 retrans:0/2 minrtt:579.9 delivery_rate 18.5Mbps busy:100ms\n"
)
FRESH = "0 0 198.18.4.2:5201 198.18.1.2:41171 cubic wscale:7,7 rto:1000 mss:1448 cwnd:10\n"


def test_figures_have_the_units_of_their_names(module: Callable[[str], ModuleType]) -> None:
    (name, sending), (_, fresh) = module("satlab_socket_stats").connections(
        SENDING + FRESH + "half\n"
    )
    assert name == "198.18.4.2:5201-198.18.1.2:41170"
    assert sending == {
        "cwnd_segments": 240,
        "cwnd_bytes": 240 * 1448,
        "rtt_ms": 580.5,
        "rtt_var_ms": 12.25,
        "rtt_min_ms": 579.9,
        "retransmits": 2,
        "bytes_sent": 90000,
        "bytes_acked": 80001,
        "delivery_rate_bps": 18.5e6,
    }
    assert fresh == {"cwnd_segments": 10, "cwnd_bytes": 14480, "retransmits": 0}


def test_a_real_connection_is_sampled_until_the_stop(trial: Callable[[str], Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), listener.accept()[0]:
            job = trial("satlab_socket_stats")
            process = job.start("-i", "0.1", "-p", str(port), "-a", "127.0.0.1")
            deadline = time.monotonic() + 120
            while len([each for each in job.records() if each.get("connections") == 2]) < 3:
                assert time.monotonic() < deadline, job.records()
                time.sleep(0.02)
            process.terminate()
            output, _ = process.communicate(timeout=120)
    assert (process.returncode, "samples with a connection" in output) == (0, True)
    suffixes = {record["_metadata"]["suffix"] for record in job.records() if "cwnd_bytes" in record}
    assert len(suffixes) == 2  # both ends are here
    assert all(f"127.0.0.1:{port}" in suffix for suffix in suffixes)
