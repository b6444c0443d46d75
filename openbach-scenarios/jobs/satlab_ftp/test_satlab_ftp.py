# SPDX-License-Identifier: GPL-3.0-or-later
import ftplib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from collect.ftp import Transfer

SIZE = 3_000_000


@pytest.fixture
def job(module: Callable[[str], ModuleType]) -> ModuleType:
    return module("satlab_ftp")


def port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def stored(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "files/satlab_ftp-2/ftp_json.json").read_text())
    Transfer.model_validate(document)
    return document


@pytest.mark.parametrize("direction", ["download", "upload"])
@pytest.mark.promise("P51")
def test_a_file_goes_over_in_both_directions(
    trial: Callable[[str], Any], tmp_path: Path, direction: str
) -> None:
    test, used = trial("satlab_ftp"), port()
    server = test.start("-p", used, "server", "-b", "127.0.0.1", "--exit")
    test.ready()
    words = ("-p", used, "client", "127.0.0.1", direction, "-s", str(SIZE))
    status, output = test.run(*words, JOB_INSTANCE_ID="2")
    assert status == 0, output
    assert server.wait(120) == 0, "it ends with its first session"
    made = stored(tmp_path)
    assert (made["direction"], made["received_bytes"], made["error"]) == (direction, SIZE, "")
    (sent,) = [record for record in test.records() if "goodput_bps" in record]
    expected = 8 * (SIZE - made["first_bytes"]) / made["transfer_time_s"]
    assert sent["goodput_bps"] == pytest.approx(expected)


def test_what_is_read_is_what_was_asked_for(job: ModuleType) -> None:
    assert b"".join(job.content(200_000)) == (job.BLOCK * 4)[:200_000]
    assert [
        job.size_of(name)
        for name in ("12.bin", "/7.bin", "0.bin", "../12.bin", "12.txt", "9" * 12 + ".bin")
    ] == [
        12,
        7,
        None,
        None,
        None,
        None,
    ]


def test_the_rate_leaves_out_what_was_there_at_first(job: ModuleType) -> None:
    meter = job.Meter()
    for size, at_s in ((1000, 10.0), (500, 10.5), (500, 11.0)):
        meter.take(size, at_s)
    assert meter.count() == job.Count(2000, 1000, 1.0)
    assert meter.count().goodput_bps == 8000
    assert job.incomplete(meter.count(), 2000) == ""
    assert "2000 of 3000" in job.incomplete(meter.count(), 3000)
    assert "at once" in job.incomplete(job.Count(10, 10, 0.0), 10)


def test_the_server_opens_no_file_and_takes_no_other_host(trial: Callable[[str], Any]) -> None:
    test, used = trial("satlab_ftp"), port()
    server = test.start("-p", used, "server", "-b", "127.0.0.1")
    test.ready()
    with ftplib.FTP(timeout=120) as session:  # noqa: S321
        session.connect("127.0.0.1", int(used))
        session.login("anybody", "x")
        assert session.size("12.bin") == 12
        for command in ("RETR /etc/passwd", "SIZE ../../etc/passwd", "SITE CHMOD 777 x", "LIST"):
            with pytest.raises(ftplib.error_perm):
                session.voidcmd(command)
        with pytest.raises(ftplib.error_temp, match="passive mode first"):
            session.voidcmd("RETR 12.bin")
    with ftplib.FTP(timeout=120) as session:  # noqa: S321
        session.connect("127.0.0.1", int(used))
        session.login()
        _, there = ftplib.parse227(session.sendcmd("PASV"))  # noqa: S321
        session.putcmd("RETR 12.bin")
        assert session.getresp().startswith("150")
        stranger = socket.create_connection(
            ("127.0.0.1", there), timeout=120, source_address=("127.0.0.9", 0)
        )
        with stranger:
            assert stranger.recv(10) == b""
        with pytest.raises(ftplib.error_temp, match="another host"):
            session.voidresp()
    server.terminate()
    assert server.wait(120) == 0


@pytest.mark.parametrize("case", ["nobody", "cut off", "slow"])
def test_a_transfer_that_fails_is_a_failed_job_with_a_file(
    trial: Callable[[str], Any], tmp_path: Path, case: str
) -> None:
    test, used = trial("satlab_ftp"), port()
    words = ["-p", used, "client", "127.0.0.1", "download", "-s", "1000"]
    if case == "nobody":
        status, output = test.run(*words, JOB_INSTANCE_ID="2")
    else:
        with socket.create_server(("127.0.0.1", int(used))) as listener:
            client = test.start(*words, "-t", "1" if case == "slow" else "30", JOB_INSTANCE_ID="2")
            connection, _ = listener.accept()
            with connection:
                if case == "slow":
                    output, _ = client.communicate(timeout=120)
            if case == "cut off":
                output, _ = client.communicate(timeout=120)
            status = client.returncode
    assert status == 1, output
    reason = stored(tmp_path)["error"]
    assert reason
    assert ("the deadline came after 0 of 1000 bytes" in reason) == (case == "slow"), reason
    assert reason in output
