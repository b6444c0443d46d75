# SPDX-License-Identifier: GPL-3.0-or-later
import socket
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

SCOPE = "announced"
"""Jobs announce themselves by abstract sockets, which all workers share: one takes these tests."""
TABLE = """Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00000000 0002 01 11 @satlab_pep
0000000000000000: 00000002 00000000 00010000 0001 01 12 /run/satlab_web_server
0000000000000000: 00000003 00000000 00000000 0001 03 13
"""


def announce(job: str) -> socket.socket:
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    door.bind(f"\0{job}")
    return door


def test_only_abstract_sockets_count(module: Callable[[str], ModuleType]) -> None:
    assert module("satlab_await").announced(TABLE) == {"satlab_pep"}


def test_it_ends_when_the_last_job_is_ready(trial: Callable[[str], Any]) -> None:
    job = trial("satlab_await")
    doors: list[socket.socket] = []
    timer = threading.Timer(0.5, lambda: doors.append(announce("satlab_web_server")))
    with announce("satlab_pep"):
        timer.start()
        assert job.run("satlab_pep", "satlab_web_server", "-d", "20")[0] == 0
        timer.join()
    assert doors, "it did not end before"
    doors.pop().close()
    (record,) = job.records()
    assert 0 <= record["waited_ms"] < 20_000


def test_a_job_announces_itself_until_it_is_stopped(trial: Callable[[str], Any]) -> None:
    pep = trial("satlab_pep").start("none", "198.18.1.2", "198.18.4.2")
    try:
        assert trial("satlab_await").run("satlab_pep", "-d", "20")[0] == 0
    finally:
        pep.terminate()
        pep.communicate(timeout=120)
    assert pep.returncode == 0
    assert trial("satlab_await").run("satlab_pep", "-d", "0.1")[0] == 1


def test_a_job_that_is_not_ready_in_time_is_named(trial: Callable[[str], Any]) -> None:
    job = trial("satlab_await")
    announce("satlab_pep").close()
    status, said = job.run("satlab_pep", "-d", "0.2")
    assert status == 1
    assert "satlab_pep was not ready after 0.2 s" in said
    assert job.records() == []
