# SPDX-License-Identifier: GPL-3.0-or-later
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from satlab.common import paths
from tests import job_programs

PROGRAM = Path(__file__).parent / "files" / "satlab_ping.py"


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


FAKE = """#!/bin/sh
cat <<'END'
{lines}END
exit {status}
"""


@pytest.mark.parametrize(
    ("lines", "received", "status"),
    [(LINES + SUMMARY, 2, 0), ("1 packets transmitted, 0 received\n", 0, 1)],
)
def test_the_job_stores_what_it_measured(
    tmp_path: Path, lines: str, received: int, status: int
) -> None:
    fake = tmp_path / "ping"
    fake.write_text(FAKE.format(lines=lines, status=status))
    fake.chmod(0o755)
    environment = {
        **{
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": str(paths.SHIM),
            "SATLAB_RAW": str(tmp_path),
        },
        **{"SATLAB_AGENT": "client", "JOB_NAME": "satlab_ping", "JOB_INSTANCE_ID": "1"},
        **{"SCENARIO_INSTANCE_ID": "1", "OWNER_SCENARIO_INSTANCE_ID": "1"},
    }
    argv = [sys.executable, str(PROGRAM), "198.18.4.2", "-c", "4", "-i", "1.0"]
    assert subprocess.run(argv, env=environment, check=False, timeout=30).returncode == status
    document = json.loads((tmp_path / "files" / "satlab_ping-1" / "ping_json.json").read_text())
    jsonschema.validate(document, json.loads((paths.SCHEMAS / "ping.schema.json").read_text()))
    assert (document["received"], len(document["rtt_ms"])) == (received, received)
    records = [json.loads(line) for line in (tmp_path / "stats.jsonl").read_text().splitlines()]
    assert [record["rtt_ms"] for record in records if "rtt_ms" in record] == document["rtt_ms"]
