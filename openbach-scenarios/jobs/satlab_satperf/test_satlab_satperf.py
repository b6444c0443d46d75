# SPDX-License-Identifier: GPL-3.0-or-later
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.polling import until

Trial = Callable[[str], Any]
CLIENT = ("client", "198.18.4.2", "kepler.satlab.test")

# A satperf that notes its arguments, writes lines to --output, and ends with a given status.
FAKE = """
echo "$@" > {folder}/argv
while [ "$1" != --output ]; do shift; done
cat > "$2" <<'END'
{lines}END
{end}
"""
START = {"type": "start", "side": "client", "role": "receiver", "t_unix_s": 1795262219.0}
INTERVAL = {
    "type": "interval",
    "side": "client",
    "t_s": 0.1,
    "goodput_bps": 8e6,
    "cwnd_bytes": 1,
    "rtt_ms": 2.0,
}
SUMMARY = {"type": "summary", "side": "client", "t_s": 0.1, "handshake_ms": 609.5, "bytes": 100}
LINES = "".join(json.dumps(line) + "\n" for line in (START, INTERVAL, SUMMARY))


def begin(
    job: Any, *arguments: str, lines: str = LINES, end: str = "exit 0"
) -> "subprocess.Popen[str]":
    fake = job.stand_in("satperf", FAKE.format(folder=job.raw, lines=lines, end=end))
    process: subprocess.Popen[str] = job.start(*arguments, SATLAB_PKI="/pki", **fake)
    return process


def test_what_is_asked_for_reaches_satperf_and_its_lines_are_kept(
    trial: Trial, tmp_path: Path
) -> None:
    job = trial("satlab_satperf")
    words = ("-C", "cubic", "-w", "10", "-a", "0", *CLIENT, "-t", "17", "-u")
    assert begin(job, *words).wait(120) == 0
    argv = (tmp_path / "argv").read_text()
    for part in (
        "client --connect 198.18.4.2:4433 --server-name kepler.satlab.test --ca /pki/ca.crt",
        "--duration 17",
        "--direction upload",
        "--congestion-control cubic",
        "--initial-window 10",
        "--stack quinn",
    ):
        assert part in argv
    assert "--ack-threshold" not in argv, "0 leaves it to satperf"
    assert job.stored("satperf_json")["lines"] == [START, INTERVAL, SUMMARY]
    first, second, *_ = job.records()
    assert {"goodput_bps": 8e6, "cwnd_bytes": 1, "rtt_ms": 2.0}.items() <= first.items()
    assert first["_metadata"]["time"] == 1795262219100
    assert second["handshake_ms"] == 609.5


def test_p294_addresses_of_ipv6_have_brackets(trial: Trial, tmp_path: Path) -> None:
    words = ("client", "2001:2:0:1204::2", "kepler.satlab.test", "-t", "5")
    assert begin(trial("satlab_satperf"), *words).wait(120) == 0
    assert "--connect [2001:2:0:1204::2]:4433 " in (tmp_path / "argv").read_text()


@pytest.mark.parametrize(
    ("lines", "end", "status"),
    [(LINES, "exit 1", 1), ("", "exit 0", 1), ('{"type":"sta', "exit 0", 1)],
)
def test_the_client_fails_closed(trial: Trial, lines: str, end: str, status: int) -> None:
    job = begin(trial("satlab_satperf"), *CLIENT, lines=lines and f"{lines}\n", end=end)
    assert job.wait(120) == status


def test_a_stopped_server_keeps_its_lines(trial: Trial, tmp_path: Path) -> None:
    job = trial("satlab_satperf")
    end = f"trap 'exit 130' TERM\n: > {tmp_path}/serving\nwhile :; do sleep 0.05; done"
    process = begin(job, "server", "-B", "198.18.4.2", "-1", end=end)
    until((tmp_path / "serving").exists)
    process.terminate()
    process.communicate(timeout=120)
    assert (
        "server --listen 198.18.4.2:4433 --cert /pki/server.crt --key /pki/server.key --once"
        in (tmp_path / "argv").read_text()
    )
    assert job.stored("satperf_json")["lines"]


def test_without_satperf_the_job_says_what_to_build(trial: Trial, tmp_path: Path) -> None:
    status, said = trial("satlab_satperf").run(*CLIENT, PATH=str(tmp_path))
    assert (status, "satperf is not installed" in said) == (3, True)
