# SPDX-License-Identifier: GPL-3.0-or-later
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from satlab.common import paths

PROGRAM = Path(__file__).parent / "files" / "satlab_satperf.py"

# A satperf that notes its arguments, writes lines to --output, and ends with a given status.
FAKE = """#!/bin/sh
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
    folder: Path, *arguments: str, lines: str = LINES, end: str = "exit 0"
) -> "subprocess.Popen[str]":
    fake = folder / "satperf"
    fake.write_text(FAKE.format(folder=folder, lines=lines, end=end))
    fake.chmod(0o755)
    environment = {
        **{
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(paths.SHIM),
            "SATLAB_RAW": str(folder),
        },
        **{
            "SATLAB_AGENT": "client",
            "JOB_NAME": "satlab_satperf",
            "JOB_INSTANCE_ID": "1",
            "SATLAB_PKI": "/pki",
        },
        **{"SCENARIO_INSTANCE_ID": "1", "OWNER_SCENARIO_INSTANCE_ID": "1"},
    }
    argv = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True)


def stored(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        (folder / "files" / "satlab_satperf-1" / "satperf_json.json").read_text()
    )
    return document


CLIENT = ("client", "198.18.4.2", "kepler.satlab.test")


def test_what_is_asked_for_reaches_satperf_and_its_lines_are_kept(tmp_path: Path) -> None:
    job = begin(tmp_path, "-C", "cubic", "-w", "10", "-a", "0", *CLIENT, "-t", "17", "-u")
    assert job.wait(30) == 0
    argv = (tmp_path / "argv").read_text()
    for part in (
        "client --connect 198.18.4.2:4433 --server-name kepler.satlab.test --ca /pki/ca.crt",
        *(
            "--duration 17",
            "--direction upload",
            "--congestion-control cubic",
            "--initial-window 10",
            "--stack quinn",
        ),
    ):
        assert part in argv
    assert "--ack-threshold" not in argv, "0 leaves it to satperf"
    assert stored(tmp_path)["lines"] == [START, INTERVAL, SUMMARY]
    statistics = [json.loads(line) for line in (tmp_path / "stats.jsonl").read_text().splitlines()]
    assert {"goodput_bps": 8e6, "cwnd_bytes": 1, "rtt_ms": 2.0}.items() <= statistics[0].items()
    assert statistics[0]["_metadata"]["time"] == 1795262219100
    assert statistics[1]["handshake_ms"] == 609.5


def test_p294_addresses_of_ipv6_have_brackets(tmp_path: Path) -> None:
    job = begin(tmp_path, "client", "2001:2:0:1204::2", "kepler.satlab.test", "-t", "5")
    assert job.wait(30) == 0
    assert "--connect [2001:2:0:1204::2]:4433 " in (tmp_path / "argv").read_text()


@pytest.mark.parametrize(
    ("lines", "end", "status"),
    [(LINES, "exit 1", 1), ("", "exit 0", 1), ('{"type":"sta', "exit 0", 1)],
)
def test_the_client_fails_closed(tmp_path: Path, lines: str, end: str, status: int) -> None:
    job = begin(tmp_path, *CLIENT, lines=lines and f"{lines}\n", end=end)
    assert job.wait(30) == status


def test_a_stopped_server_keeps_its_lines(tmp_path: Path) -> None:
    end = f"trap 'exit 130' TERM\n: > {tmp_path}/serving\nwhile :; do sleep 0.05; done"
    job = begin(tmp_path, "server", "-B", "198.18.4.2", "-1", end=end)
    deadline = time.monotonic() + 20
    while not (tmp_path / "serving").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=20)
    assert (
        "server --listen 198.18.4.2:4433 --cert /pki/server.crt --key /pki/server.key --once"
        in (tmp_path / "argv").read_text()
    )
    assert stored(tmp_path)["lines"]


def test_without_satperf_the_job_says_what_to_build(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {
        **{
            "PATH": str(empty),
            "PYTHONPATH": str(paths.SHIM),
            "SATLAB_RAW": str(tmp_path),
            "SATLAB_AGENT": "client",
        },
        **{"JOB_NAME": "satlab_satperf", "JOB_INSTANCE_ID": "1", "SCENARIO_INSTANCE_ID": "1"},
        **{"OWNER_SCENARIO_INSTANCE_ID": "1"},
    }
    argv = [sys.executable, str(PROGRAM), *CLIENT]
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 3
    assert "satperf is not installed" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["client", "a.host", "b"],
        ["client", "1.2.3.4", "-x"],
        ["-w", "-1", "server"],
        [],
        ["-C", "a b", *CLIENT],
    ],
)
def test_bad_arguments_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    job = begin(tmp_path, *arguments)
    job.communicate(timeout=20)
    assert job.returncode == 2
