# SPDX-License-Identifier: GPL-3.0-or-later
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Started = Callable[[str], Any]

# dumpcap 4.0, on stderr.
SAID = """\
Capturing on 'lan0'
File: capture.pcapng
Packets captured: 6
Packets received/dropped on interface 'lan0': 6/{dropped} (pcap:0/dumpcap:{dropped}/flushed:0/ps_ifdrop:0) (100.0%)
"""
FAKE = """#!/bin/sh
for word; do echo "$word" >> "{note}"; last=$word; done
{work}
cat >&2 <<'END'
{said}END
exit {status}
"""


def fake(
    folder: Path, said: str, status: int = 0, work: str = 'echo packets > "$last"'
) -> dict[str, str]:
    """Put a dumpcap of our own first in the path."""
    program = folder / "bin" / "dumpcap"
    program.parent.mkdir()
    program.write_text(FAKE.format(note=folder / "argv", said=said, status=status, work=work))
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def test_a_capture_is_stored_privately_with_its_figures(trial: Started, tmp_path: Path) -> None:
    job = trial("satlab_capture")
    environment = fake(tmp_path, SAID.format(dropped=2))
    filtering = "udp port 443 and host '198.18.4.2'; $(x)"
    arguments = ["lan0", "-t", "5", "-m", "2", "-s", "96", "-f", filtering]
    status, said = job.run(*arguments, **environment)
    assert status == 0, said
    argv = (tmp_path / "argv").read_text().splitlines()
    limits = "-q -p -i lan0 -a duration:5 -a filesize:2000 -s 96".split()
    assert argv[:-1] == [*limits, "-f", filtering, "-w"]
    figures, stored = job.records()
    assert (figures["packets"], figures["dropped_packets"], figures["file_bytes"]) == (6, 2, 8)
    file = job.raw / stored["capture_pcapng"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert "2 packets are missing" in said


@pytest.mark.parametrize(
    ("said", "work"),
    [("dumpcap: There is no device\n", ""), ("", 'echo x > "$last"'), (SAID.format(dropped=0), "")],
)
def test_a_capture_that_did_not_happen_fails(
    trial: Started, tmp_path: Path, said: str, work: str
) -> None:
    job = trial("satlab_capture")
    assert job.run("lan0", **fake(tmp_path, said, 1, work))[0] == 1
    assert job.records() == []


def test_without_dumpcap_it_fails(trial: Started, tmp_path: Path) -> None:
    status, said = trial("satlab_capture").run("lan0", PATH=str(tmp_path))
    assert status == 1
    assert "dumpcap cannot be started" in said


# --- the real program -----------------------------------------------------------------------------


@pytest.fixture
def loopback() -> Iterator[list[str]]:
    """Yield what enters a scratch namespace in which only `lo` is up, and pings cross it."""
    if os.geteuid() != 0 or shutil.which("dumpcap") is None:
        pytest.skip("needs root and dumpcap")
    holder = subprocess.Popen(
        ["unshare", "-n", "sh", "-c", "ip link set lo up && exec ping -q -i 0.05 127.0.0.1"]
    )
    enter = ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]
    deadline = time.monotonic() + 120
    while (
        "ping" not in Path(f"/proc/{holder.pid}/comm").read_text() and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    yield enter
    holder.send_signal(signal.SIGINT)
    holder.wait(120)


@pytest.mark.net
def test_the_real_dumpcap_stops_on_sigterm_and_at_its_limit(
    trial: Started, loopback: list[str]
) -> None:
    job = trial("satlab_capture")
    bounded = job.run("lo", "-t", "1", within=loopback)
    assert bounded[0] == 0, bounded[1]
    process = job.start("lo", "-t", "600", "-f", "icmp", within=loopback)
    deadline = time.monotonic() + 120
    while not (_captures(process.pid) and _is_announced(loopback)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert _is_announced(loopback), "satlab_await sees that the capture has begun"
    time.sleep(1)  # for packets to come: their number is not visible outside
    process.terminate()
    assert process.wait(120) == 0, process.stdout.read()
    assert not _is_announced(loopback)
    counts = [record["packets"] for record in job.records() if "packets" in record]
    assert len(counts) == 2
    assert min(counts) > 0


def _is_announced(within: list[str]) -> bool:
    argv = [*within, "cat", "/proc/net/unix"]
    return (
        "@satlab_capture" in subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    )


def _captures(pid: int) -> bool:
    """Return whether the job's dumpcap has its file open."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children:
        with contextlib.suppress(FileNotFoundError):  # it closed a file, or ended, meanwhile
            if any(
                str(file.readlink()).endswith("capture.pcapng")
                for file in Path(f"/proc/{child}/fd").iterdir()
            ):
                return True
    return False
