# SPDX-License-Identifier: GPL-3.0-or-later
"""What check.json says of the programs, the baseline and the command of a check."""

import hashlib
import os
from pathlib import Path

import pytest

from satlab.check import provenance


def test_files_of_a_command_have_their_hash(tmp_path: Path) -> None:
    script, linked = tmp_path / "client.py", tmp_path / "linked"
    script.write_text("print()")
    linked.symlink_to(script)
    os.mkfifo(tmp_path / "pipe")
    words = {
        "client": ["/nowhere/python", str(script), "relative", "--port=1", str(script)],
        "server": [str(linked), str(tmp_path / "pipe"), str(tmp_path)],
    }
    found = provenance.program_files(words)
    expected = hashlib.sha256(b"print()").hexdigest()
    assert [(one["side"], one["path"], one["sha256"]) for one in found] == [
        ("client", str(script), expected),
        ("server", str(linked), expected),
    ]
    assert provenance.digest(found) and provenance.digest(found) != provenance.digest(found[:1])
    assert provenance.digest([]) == ""


def test_a_file_above_the_limit_has_no_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "MOST_BYTES", 3)
    (tmp_path / "large").write_bytes(b"1234")
    (found,) = provenance.program_files({"server": [str(tmp_path / "large")]})
    assert found["sha256"] is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ([], []),
        (["check"], ["check"]),
        (
            ["check", "--suite", "ci", "--runs=5", "--baseline", "b.json", "--json", "--seed", "7"],
            ["check", "--suite", "ci"],
        ),
        (
            ["check", "--cases", "a", "--out=x", "--server-cmd", "s --runs 2", "--clock", "real"],
            ["check", "--server-cmd", "s --runs 2", "--clock", "real"],
        ),
    ],
)
def test_one_sample_can_be_taken_again(command: list[str], expected: list[str]) -> None:
    found = provenance.sample_command(command, "medium", 3)
    chosen = ["--cases", "medium", "--seed", "3", "--runs", "1"]
    assert found == ([*expected, *chosen] if expected else [])
