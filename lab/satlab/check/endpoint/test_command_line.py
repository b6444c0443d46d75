# SPDX-License-Identifier: GPL-3.0-or-later
"""External programs: their command lines, and samples from exit status, files and packets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from satlab.check.endpoint import command_line
from satlab.check.endpoint.command_line import CommandLinePair
from satlab.check.endpoint.pair import CLIENT, SERVER, TransferRequest
from satlab.check.sandbox.sandbox import ExitReport
from satlab.check.suite import Suite
from satlab.check.trace.pcap import UDP, CapturedTransfer, Datagram
from satlab.common.errors import ConfigError
from satlab.netlab.pki import Pki

DONE = ExitReport(0, "", 0.1, 1 << 20, "")


def request(folder: Path, **case: Any) -> TransferRequest:
    document = {
        "schema": "satlab/suite/1", "name": "test", "source": "here", "link": {"rtt_ms": 650, "queue_bdp": 1},
        "marks_mb": [0.05, 0.1],
        "cases": [{"id": "a", "forward_mbps": 10, "return_mbps": 2, "targets_s": [1, 2]} | case],
    }  # fmt: skip
    for side in (SERVER, CLIENT):
        (folder / side).mkdir()
    read = Suite.model_validate(document)
    return TransferRequest(read, read.cases[0], 7, "198.18.4.2", Pki(Path("/pki"), ""), folder)


def crossed(size: int, lasted_s: float = 10.0) -> CapturedTransfer:
    sent = [Datagram(0.0, False, 1200, ("initial",)), Datagram(0.6, True, 1200, ("initial",))]
    step = (lasted_s - 1) / (size // 1000)
    return CapturedTransfer(
        UDP, (*sent, *(Datagram(1 + n * step, True, 1000, ("1-rtt",)) for n in range(size // 1000 + 1)))
    )


def test_t03_each_word_of_a_command_stays_one_word(tmp_path: Path) -> None:
    pair = command_line.parse("echo 'two words; $(id) {url}' {host}", "cat {www}/{path}")
    argv = pair.client(request(tmp_path), 0).argv
    assert argv[1:] == ("two words; $(id) https://server.satlab.test:4433/payload", "198.18.4.2")
    assert Path(argv[0]).is_absolute()


def test_all_faults_of_commands_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        command_line.parse("echo {hots} {prot}", "no-such-program-x", [tmp_path / "none"])
    told = " ".join(map(str, caught.value.faults))
    assert all(word in told for word in ("{hots}", "{prot}", "no-such-program-x", "none")), told
    with pytest.raises(ConfigError) as caught:
        command_line.parse("echo 'open", None)
    assert [fault.place for fault in caught.value.faults] == ["--client-cmd", "--server-cmd"]


def test_what_lies_beside_a_program_is_shown_and_the_host_s_places_are_not_repeated(tmp_path: Path) -> None:
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert command_line.parse(str(program), "cat").allow_read == (tmp_path.resolve(),)


def test_cases_that_cannot_be_done_are_told(tmp_path: Path) -> None:
    pair = CommandLinePair("x", ("c",), ("s",))
    assert "uploads" in pair.unsupported_reason(request(tmp_path, direction="upload").case)
    (tmp_path / "b").mkdir()
    assert "{state}" in pair.unsupported_reason(request(tmp_path / "b", second_after_s=10).case)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda out: None, ""),
        (lambda out: (out / "payload").unlink(), "payload is missing"),
        (
            lambda out: (out / "payload").write_bytes(b"x" * 99),
            "(99 bytes, the server's has 100000); its last output: no room",
        ),
        (lambda out: (out / "more").write_bytes(b""), "'more' was not requested"),
        (lambda out: ((out / "payload").unlink(), (out / "payload").symlink_to("/etc/passwd")), "payload is missing"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, spoil: Any, words: str) -> None:
    pair, asked = CommandLinePair("x", ("c", "{out}"), ("s",)), request(tmp_path)
    pair.server(asked)
    pair.client(asked, 0)
    out = tmp_path / CLIENT / "out"
    (out / "payload").write_bytes((tmp_path / "www" / "payload").read_bytes())
    spoil(out)
    found = pair.sample(asked, 0, replace(DONE, output_tail="no room"), crossed(103_000))
    assert found.status == ("failed" if words else "ok") and words in found.reason
    if not words:
        assert found.times_s[1] == pytest.approx(10.0, abs=0.1) and found.times_s[0] == pytest.approx(5.5, abs=0.1)


@pytest.mark.parametrize(
    ("ended", "wire", "status", "words"),
    [
        (DONE, crossed(50_000), "failed", "ended with status 0, but 51000 of 100000"),
        (ExitReport(1, "", 0.1, 1, "no route"), crossed(103_000), "failed", "it ended with status 1: no route"),
        (ExitReport(-11, "", 0.1, 1, ""), crossed(50_000), "failed", "signal 11"),
        (ExitReport(-9, "it did not end within 315 s", 0.1, 1, ""), crossed(50_000, 299.0), "censored", "within 315 s"),
        (ExitReport(-9, "it did not end within 315 s", 0.1, 1, ""), crossed(50_000, 20.0), "failed", "it stalled"),
        (DONE, None, "failed", "the client sent nothing"),
    ],
)
def test_what_did_not_end_well_is_named(
    tmp_path: Path, ended: ExitReport, wire: CapturedTransfer | None, status: str, words: str
) -> None:
    found = CommandLinePair("x", ("c",), ("s",)).sample(request(tmp_path), 0, ended, wire)
    assert found.status == status and words in found.reason


def test_a_transfer_that_was_cut_off_reached_what_came(tmp_path: Path) -> None:
    found = CommandLinePair("x", ("c",), ("s",)).sample(
        request(tmp_path), 0, ExitReport(1, "", 0, 0, ""), crossed(60_000)
    )
    assert found.times_s[0] is not None and found.times_s[1] is None
