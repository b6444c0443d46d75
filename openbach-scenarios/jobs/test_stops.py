# SPDX-License-Identifier: GPL-3.0-or-later
"""Stops of jobs: of those that send and receive datagrams, and while a program starts."""

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from satlab.common import paths


def is_end_of_load(content: bytes) -> bool:
    return content[4] == 1  # the kind


def is_end_of_stream(content: bytes) -> bool:
    return content[1] & 0x7F == 127  # the payload type


EACH = pytest.mark.parametrize("name", ["satlab_load", "satlab_stream"])


@EACH
def test_a_stopped_receiver_without_a_packet_has_failed(
    udp_port: str, trial: Callable[[str], Any], name: str
) -> None:
    test = trial(name)
    receiver = test.start("-p", udp_port, "receive", "-b", "127.0.0.1")
    test.ready()
    receiver.terminate()
    output, _ = receiver.communicate(timeout=120)
    assert (receiver.returncode, "no packet" in output) == (1, True)


@pytest.mark.parametrize(
    ("name", "is_end"), [("satlab_load", is_end_of_load), ("satlab_stream", is_end_of_stream)]
)
def test_a_second_stop_does_not_take_the_record(
    udp_port: str,
    trial: Callable[[str], Any],
    tmp_path: Path,
    name: str,
    is_end: Callable[[bytes], bool],
) -> None:
    test, used = trial(name), udp_port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", int(used)))
        listener.settimeout(20)
        sender = test.start("-p", used, "send", "127.0.0.1", "-t", "60")
        for _ in range(3):
            listener.recv(2048)
        sender.terminate()
        while not is_end(listener.recv(2048)):
            pass
        sender.terminate()
        output, _ = sender.communicate(timeout=120)
    assert sender.returncode == 0, output
    made = json.loads((tmp_path / f"files/{name}-1/stream_json.json").read_text())
    assert made["sent"] >= 1


@EACH
def test_a_stop_before_the_first_wait_is_an_ordinary_end(
    udp_port: str,
    module: Callable[[str], ModuleType],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = module(name)

    def stopped(_job: str) -> None:
        raise job.Stopped  # the signal comes while the job reports that it is ready

    monkeypatch.setattr("udp_stream.ready", stopped)
    monkeypatch.setattr(job, "ignore_stops", lambda: None)  # this process keeps its signals
    options = job.parser().parse_args(["-p", udp_port, "receive", "-b", "127.0.0.1"])
    assert job.receive(options) == 1
    assert "no packet" in capsys.readouterr().err


STOPPED_AT_START = """
import os, signal, subprocess

class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        with open(os.environ["STARTED"], "a") as file:
            print(self.pid, file=file)
        os.kill(os.getpid(), signal.SIGTERM)

subprocess.Popen = Popen
"""


@pytest.mark.parametrize(
    ("name", "program", "words"),
    [
        ("satlab_capture", "dumpcap", ["lan0"]),
        ("satlab_curl", "curl", ["http://192.0.2.1/", "-n", "3"]),
        ("satlab_iperf3", "iperf3", ["server", "-1"]),
        ("satlab_opensand", "opensand", ["sat"]),
        ("satlab_ping", "ping", ["192.0.2.1"]),
        ("satlab_satperf", "satperf", ["server"]),
    ],
)
def test_a_stop_while_the_program_starts_leaves_none_behind(
    trial: Callable[[str], Any], tmp_path: Path, name: str, program: str, words: list[str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(STOPPED_AT_START)
    test, started = trial(name), tmp_path / "started"
    path = f"{paths.SHIM}:{tmp_path}"
    fake = test.stand_in(program, "exec sleep 600\n")
    job = test.start(*words, PYTHONPATH=path, STARTED=str(started), **fake)
    try:
        job.wait(120)
    finally:
        job.kill()
        left = [int(pid) for pid in started.read_text().split()] if started.exists() else []
        alive = [pid for pid in left if Path(f"/proc/{pid}").exists()]
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
    assert (len(left), alive) == (1, [])
