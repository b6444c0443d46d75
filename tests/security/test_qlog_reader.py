# SPDX-License-Identifier: GPL-3.0-or-later
"""T81: a process without rights reads qlog files."""

import os
from pathlib import Path

import pytest

from satlab.check.trace import qlog_process, qlog_reader
from satlab.check.trace.qlog import QlogError
from satlab.check.trace.test_qlog import here, ngtcp2, sequence

PRYING = "tests.security.prying_qlog_process"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def refused(folder: Path, text: str) -> str:
    (folder / "x.sqlog").write_text(text)
    with pytest.raises(QlogError) as caught:
        qlog_reader.newest(folder, "server", 3000)
    return str(caught.value)


def test_another_process_reads_what_this_one_would(tmp_path: Path) -> None:
    (tmp_path / "x.sqlog").write_bytes(sequence(ngtcp2()))
    found = qlog_reader.newest(tmp_path, "server", 3000)
    assert found == here(tmp_path, "server", 3000) and found.points
    for side, folder in (("client", tmp_path), ("server", tmp_path / "none")):
        with pytest.raises(QlogError) as caught:
            qlog_reader.newest(folder, side, 3000)  # type: ignore[arg-type]
        assert caught.value.kind == ("does not fit" if side == "client" else "missing")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("hang", "not read within 3 s"),
        ("die", "the process that read it failed"),
        pytest.param("flood", "4 MiB or more", marks=needs_root),
        ("link", "the process that read it failed"),
        ("lie", "the process that read it failed"),
        pytest.param("eat", "the process that read it failed", marks=needs_root),
    ],
)
def test_t81_a_file_that_ends_its_reader_is_not_used(
    word: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qlog_reader, "MODULE", PRYING)
    monkeypatch.setattr(qlog_reader, "MAX_ANSWER_BYTES", 4 << 20)
    monkeypatch.setattr(qlog_reader, "FILE_S", 3.0 if word == "hang" else 120.0)
    assert reason in refused(tmp_path, f"{word}\n")


@needs_root
def test_t81_a_reader_has_no_right_to_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qlog_reader, "MODULE", PRYING)
    expected = [True, "Network is unreachable", "0" * 16, False]
    assert refused(tmp_path, f"look {tmp_path}\n") == str(expected)


def test_t81_an_answer_has_no_other_values_than_those_of_a_transfer(tmp_path: Path) -> None:
    (tmp_path / "x.sqlog").write_bytes(sequence(ngtcp2()))
    good = qlog_process.ANSWER.dump_python(qlog_process.Answer(here(tmp_path, "server", 3000)))
    assert qlog_process.ANSWER.validate_python(good)
    for change in ({"first_sent_s": float("nan")}, {"first_sent_s": float("inf")}, {"more": 1}):
        with pytest.raises(ValueError, match="validation error"):
            qlog_process.ANSWER.validate_python(good | {"found": good["found"] | change})
