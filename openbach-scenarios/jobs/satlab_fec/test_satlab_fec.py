# SPDX-License-Identifier: GPL-3.0-or-later
"""One end of a tunnel with stand-ins for ip(8) and satfec."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

IP = """\
case "$1 $2" in
"rule ") [ -e RAW/rule ] && echo "0: not from all to 192.0.2.2 fwmark 0x5a8 lookup 1448"; exit 0;;
"rule add") touch RAW/rule;;
"rule del") rm RAW/rule;;
"route add") touch RAW/routes;;
"route flush") rm RAW/routes;;
"route show") [ -e RAW/routes ] && echo "unreachable 192.0.2.2 table 1448"; exit 0;;
esac
"""
ARGUMENTS = ("192.0.2.1", "192.0.2.2", "none")
READY = '{"type": "ready", "version": "1"}'
CONNECTED = '{"type": "connected"}'


def environment(trial: Any, satfec: str) -> dict[str, str]:
    """Return an environment with a stand-in for ip, which remembers its rules, and for satfec."""
    trial.stand_in("ip", IP.replace("RAW", str(trial.raw)))
    stand_in: dict[str, str] = trial.stand_in("satfec", satfec)
    return stand_in


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "said", [[], [READY], [READY, CONNECTED]], ids=["before ready", "before connected", "connected"]
)
def test_a_stop_restores_the_routes(
    said: list[str], trial: Callable[[str], Any], tmp_path: Path
) -> None:
    job = trial("satlab_fec")
    lines = "".join(f"echo '{line}'\n" for line in said)
    variables = environment(job, f"{lines}touch {tmp_path}/started\nexec sleep 60\n")
    process = job.start(*ARGUMENTS, **variables)
    wait_for((tmp_path / "started").exists)
    if CONNECTED in said:
        job.ready()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert not (tmp_path / "rule").exists() and not (tmp_path / "routes").exists()
    assert job.stored("fec_json")["fault"] == ""


@pytest.mark.parametrize(
    ("satfec", "fault"),
    [
        ("echo no device >&2; exit 1\n", "satfec ended with status 1: no device"),
        ("echo '{broken'\nexec sleep 60\n", "Expecting property name"),
        ("#", "Exec format error"),
    ],
    ids=["it ends", "no JSON", "it cannot be started"],
)
def test_without_a_tunnel_the_peer_stays_unreachable(
    satfec: str, fault: str, trial: Callable[[str], Any], tmp_path: Path
) -> None:
    """The fault is stored, also one that the job does not know."""
    job = trial("satlab_fec")
    variables = environment(job, satfec)
    if satfec == "#":
        (tmp_path / "stand-in" / "satfec").write_bytes(b"\0")
    status, output = job.run(*ARGUMENTS, **variables)
    assert status == 1, output
    assert (tmp_path / "rule").exists() and (tmp_path / "routes").exists()
    assert fault in job.stored("fec_json")["fault"]
