# SPDX-License-Identifier: GPL-3.0-or-later
"""External programs: their command lines, and samples from exit status, files and packets."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from satlab.check.conftest import transfer_request
from satlab.check.endpoint import command_pair, lockstep
from satlab.check.endpoint.command_pair import CommandLinePair
from satlab.check.endpoint.pair import CLIENT, SERVER, TransferRequest
from satlab.check.sandboxed_program import ExitReport
from satlab.check.trace.captured_transfer import CapturedTransfer, Datagram
from satlab.check.trace.pcap import UDP
from satlab.common.errors import ConfigError

DONE = ExitReport(0, "", 0.1, 1 << 20, "")


def request(folder: Path, **case: Any) -> TransferRequest:
    for side in (SERVER, CLIENT):
        (folder / side).mkdir()
    return transfer_request(folder, 0.05, 0.1, **case)


def captured(size: int, lasted_s: float = 10.0) -> CapturedTransfer:
    sent = [Datagram(0.0, False, 1200, ("initial",)), Datagram(0.6, True, 1200, ("initial",))]
    step = (lasted_s - 1) / (size // 1000)
    return CapturedTransfer(
        UDP,
        (*sent, *(Datagram(1 + n * step, True, 1000, ("1-rtt",)) for n in range(size // 1000 + 1))),
    )


def test_t03_each_word_of_a_command_stays_one_word(tmp_path: Path) -> None:
    pair = command_pair.parse("echo 'two words; $(id) {url}' {host}", "cat {www}/{path}")
    argv = pair.client(request(tmp_path), 0).argv
    assert argv[1:] == ("two words; $(id) https://server.satlab.test:4433/payload", "198.18.4.2")
    assert Path(argv[0]).is_absolute()


def test_all_faults_of_commands_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        command_pair.parse("echo {hots} {prot}", "no-such-program-x", [tmp_path / "none"])
    text = " ".join(map(str, caught.value.faults))
    assert all(word in text for word in ("{hots}", "{prot}", "no-such-program-x", "none")), text
    with pytest.raises(ConfigError) as caught:
        command_pair.parse("echo 'open", None)
    assert [fault.place for fault in caught.value.faults] == ["--client-cmd", "--server-cmd"]


def test_the_folder_of_a_program_is_readable_unless_the_host_s(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert command_pair.parse(str(program), "cat").allow_read == (tmp_path.resolve(),)


def test_a_python_that_the_sandbox_would_not_show_is_named_before_it_starts(tmp_path: Path) -> None:
    """That of a virtual environment is a link: to the host's, or to one that somebody built."""
    built, environment = tmp_path / "built" / "bin", tmp_path / "venv" / "bin"
    built.mkdir(parents=True)
    environment.mkdir(parents=True)
    (built / "python3").write_text("#!/bin/sh\n")
    (built / "python3").chmod(0o755)
    link = environment / "python"
    link.symlink_to(built / "python3")
    for parse, client in (
        (command_pair.parse, "--client-cmd"),
        (lockstep.parse, "--virtual-client"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse(str(link), "cat", [tmp_path / "venv"])
        (fault,) = caught.value.faults
        assert fault.place == client and "which the sandbox would not show" in fault.reason
        assert fault.remedy == f"add --allow-read {tmp_path / 'built'}"
        assert tmp_path / "built" in parse(str(link), "cat", [tmp_path / "built"]).allow_read
    link.unlink()
    link.symlink_to("/usr/bin/cat")
    assert lockstep.parse(str(link), "cat").words["client"] == (str(link),)


def test_unsupported_cases_have_a_reason(tmp_path: Path) -> None:
    pair = CommandLinePair("x", ("c",), ("s",))
    assert "uploads" in pair.unsupported_reason(request(tmp_path, direction="upload").case)
    (tmp_path / "b").mkdir()
    assert "{state}" in pair.unsupported_reason(request(tmp_path / "b", second_after_s=10).case)


def test_each_side_keeps_a_folder_from_the_first_connection_to_the_second(tmp_path: Path) -> None:
    pair = CommandLinePair("x", ("c", "{state}"), ("s", "{state}"))
    transfer = request(tmp_path, second_after_s=10)
    server, *clients = (
        pair.server(transfer).argv,
        pair.client(transfer, 0).argv,
        pair.client(transfer, 1).argv,
    )
    assert server[1] == str(tmp_path / SERVER / "state") and Path(server[1]).is_dir()
    assert [words[1] for words in clients] == [str(tmp_path / CLIENT / "state")] * 2
    assert Path(clients[0][1]).is_dir()
    for only_one in (("c", "{state}"), ("s",)), (("c",), ("s", "{state}")):
        assert not CommandLinePair("x", *only_one).unsupported_reason(transfer.case)


def test_t17_a_second_start_writes_nowhere_that_the_first_could_prepare(tmp_path: Path) -> None:
    pair = CommandLinePair("x", ("c", "{out}"), ("s",))
    transfer = request(tmp_path, second_after_s=10)
    (tmp_path / "victim").mkdir()
    first = pair.client(transfer, 0).argv
    for name in ("out", "out-1", "state", "qlog"):
        if (tmp_path / CLIENT / name).is_dir():
            (tmp_path / CLIENT / name).rmdir()
        (tmp_path / CLIENT / name).symlink_to(tmp_path / "victim")
    if os.geteuid() == 0:
        os.chown(tmp_path / CLIENT, 1234, 1234)
    second = pair.client(transfer, 1).argv
    assert first[1] != second[1] and Path(second[1]).is_symlink()
    assert (tmp_path / "victim").stat().st_uid == os.geteuid()
    assert not list((tmp_path / "victim").iterdir())
    assert (
        "folder for downloads is missing"
        in pair.sample(transfer, 1, DONE, captured(103_000)).reason
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda out: None, ""),
        (lambda out: (out / "payload").unlink(), "payload is missing"),
        (
            lambda out: (out / "payload").write_bytes(b"x" * 99),
            "(99 bytes, the server's has 100000); its last output: no room",
        ),
        (lambda out: (out / "more").write_bytes(b""), "'more' was not requested"),
        (
            lambda out: ((out / "payload").unlink(), (out / "payload").symlink_to("/etc/passwd")),
            "payload is missing",
        ),
    ],
)
@pytest.mark.promise("P77")
def test_a_wrong_file_is_named(tmp_path: Path, change: Any, words: str) -> None:
    pair, transfer = CommandLinePair("x", ("c", "{out}"), ("s",)), request(tmp_path)
    pair.server(transfer)
    pair.client(transfer, 0)
    out = tmp_path / CLIENT / "out"
    (out / "payload").write_bytes((tmp_path / "www" / "payload").read_bytes())
    change(out)
    found = pair.sample(transfer, 0, replace(DONE, output_tail="no room"), captured(103_000))
    assert found.status == ("failed" if words else "ok") and words in found.reason
    if not words:
        assert found.times_s[1] == pytest.approx(10.0, abs=0.1)
        assert found.times_s[0] == pytest.approx(5.5, abs=0.1)


@pytest.mark.parametrize(
    ("ended", "wire", "status", "words"),
    [
        (DONE, captured(50_000), "failed", "ended with status 0, but 51000 of 100000"),
        (
            ExitReport(1, "", 0.1, 1, "no route"),
            captured(103_000),
            "failed",
            "it ended with status 1: no route",
        ),
        (ExitReport(-11, "", 0.1, 1, ""), captured(50_000), "failed", "signal 11"),
        (
            ExitReport(-9, "it did not end within 315 s", 0.1, 1, ""),
            captured(50_000, 299.0),
            "censored",
            "time limit of 300 s reached after 50031 of 100000 bytes",
        ),
        (
            ExitReport(-9, "it did not end within 2.0 s of SIGTERM", 0.1, 1, ""),
            captured(50_000, 299.0),
            "failed",
            "of SIGTERM",
        ),
        (
            ExitReport(-9, "it did not end within 315 s", 0.1, 1, ""),
            captured(50_000, 20.0),
            "failed",
            "it stalled",
        ),
        (DONE, None, "failed", "the client sent nothing"),
    ],
)
def test_a_failed_transfer_has_its_reason(
    tmp_path: Path, ended: ExitReport, wire: CapturedTransfer | None, status: str, words: str
) -> None:
    found = CommandLinePair("x", ("c",), ("s",)).sample(request(tmp_path), 0, ended, wire)
    assert found.status == status and words in found.reason


def test_an_incomplete_transfer_has_the_marks_that_it_reached(tmp_path: Path) -> None:
    found = CommandLinePair("x", ("c",), ("s",)).sample(
        request(tmp_path), 0, ExitReport(1, "", 0, 0, ""), captured(60_000)
    )
    assert found.times_s[0] is not None and found.times_s[1] is None
