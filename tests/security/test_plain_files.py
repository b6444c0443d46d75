# SPDX-License-Identifier: GPL-3.0-or-later
"""What root reads of the files of programs and jobs, which they may replace at any moment."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from satlab.check import sandboxed_program
from satlab.check.endpoint import command_pair
from satlab.check.trace import decrypted_packets, interop_evidence, qlog
from satlab.check.trace.qlog import QlogError
from satlab.common import plain_files
from satlab.common.plain_files import RefusedError
from satlab.lab import pep_job, privileges, sandbox

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
OF_ROOT = '{"connections": 7, "text": "of root"}\n'


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Return a folder of a program in a folder of root."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    uid = privileges.new_uid()
    os.chown(folder, uid, uid)
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return a file of root, which has it in folders with the names of those that programs write."""
    for place in (
        "logs/keys.log",
        "qlog/x.qlog",
        "files/pep/pep_json.json",
        "out/file",
        "lines.jsonl",
    ):
        (tmp_path / "closed" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "closed" / place).write_text(OF_ROOT)
    (tmp_path / "closed").chmod(0o700)
    return tmp_path / "closed"


def read_keys(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    seen: list[str] = []
    monkeypatch.setattr(decrypted_packets, "decrypted", lambda _, text: seen.append(text))
    wire: Any = SimpleNamespace(heads=[])
    interop_evidence.key_phases(wire, [theirs])
    return "".join(seen)


def read_qlog(theirs: Path, _: pytest.MonkeyPatch) -> str:
    found = qlog.newest(theirs / "qlog")
    try:
        return "" if found is None else str(qlog.opened(found))
    except QlogError as error:
        return "" if "plain file" in str(error) or "another user" in str(error) else "read"


def read_pep(theirs: Path, _: pytest.MonkeyPatch) -> str:
    return str(pep_job.connections(theirs) or "")


def read_lines(theirs: Path, _: pytest.MonkeyPatch) -> str:
    return json.dumps(sandboxed_program.read_json_lines(theirs / "lines.jsonl")).strip("[]")


def read_kept(theirs: Path, _: pytest.MonkeyPatch) -> str:
    kept = theirs.parent / "kept"
    sandboxed_program.keep(theirs, kept)
    return "".join(file.read_text() for file in kept.rglob("*") if file.is_file())


def read_download(theirs: Path, _: pytest.MonkeyPatch) -> str:
    served = theirs.parent / "file"
    served.write_text(OF_ROOT)
    return "" if command_pair.compare(theirs / "out", [served]) else "read"


def read_report(theirs: Path, _: pytest.MonkeyPatch) -> str:
    return str(sandbox.read_report(theirs / "lines.jsonl") or "")


READERS: dict[str, tuple[str, Callable[[Path, pytest.MonkeyPatch], str]]] = {
    "key log": ("logs/keys.log", read_keys),
    "qlog": ("qlog/x.qlog", read_qlog),
    "record of a proxy": ("files/pep/pep_json.json", read_pep),
    "JSON lines": ("lines.jsonl", read_lines),
    "kept files": ("out/file", read_kept),
    "download": ("out/file", read_download),
    "report": ("lines.jsonl", read_report),
}


def give(folder: Path) -> None:
    """Let the folder's owner own all in it, as if it had made it."""
    for each in folder.rglob("*"):
        os.chown(each, folder.stat().st_uid, -1, follow_symlinks=False)


@pytest.mark.parametrize("reader", [name for name in READERS if name != "report"])
def test_t61_what_a_program_wrote_is_read(
    reader: str, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, read = READERS[reader]
    (theirs / name).parent.mkdir(parents=True, exist_ok=True)
    (theirs / name).write_text(OF_ROOT)
    give(theirs)
    assert read(theirs, monkeypatch)


@pytest.mark.parametrize("trap", ["link", "link above", "hard link", "pipe"])
@pytest.mark.parametrize("reader", READERS)
def test_t61_no_reader_is_led_to_a_file_of_root_or_waits(
    reader: str, trap: str, theirs: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, read = READERS[reader]
    file, first = theirs / name, name.split("/", maxsplit=1)[0]
    if trap != "link above":
        file.parent.mkdir(parents=True, exist_ok=True)
        give(theirs)
    if trap == "link":
        file.symlink_to(secret / name)
    elif trap == "link above":
        (theirs / first).symlink_to(secret / first)
    elif trap == "hard link":
        os.link(secret / name, file)
    else:
        os.mkfifo(file)
    assert read(theirs, monkeypatch) == ""


@pytest.mark.parametrize("swapped", ["pipe", "link"])
def test_t61_a_file_that_is_replaced_after_the_look_is_refused(
    swapped: str, theirs: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, usual = theirs / "file", plain_files._check
    file.write_text("theirs")
    os.chown(file, theirs.stat().st_uid, -1)
    assert (
        plain_files.start_of(theirs, "file", 3) == "the"
        and plain_files.end_of(theirs, "file", 3) == "irs"
    )

    def swap(status: os.stat_result, most: int) -> None:
        usual(status, most)
        file.unlink(missing_ok=True)
        if swapped == "pipe":
            os.mkfifo(file)
        else:
            file.symlink_to(secret / "lines.jsonl")

    monkeypatch.setattr(plain_files, "_check", swap)
    with pytest.raises((OSError, RefusedError)):
        plain_files.below(theirs, "file")
    assert (
        plain_files.start_of(theirs, "file", 100) is None
        and plain_files.end_of(theirs, "file", 100) == ""
    )


def test_t61_what_is_read_and_walked_is_bounded(theirs: Path) -> None:
    (theirs / "file").write_text("x" * 1000)
    os.chown(theirs / "file", theirs.stat().st_uid, -1)
    with pytest.raises(RefusedError, match="more than 999 bytes"):
        plain_files.below(theirs, "file", 999)
    assert plain_files.start_of(theirs, "file", 10) == "x" * 10
    for folder in ("a/b/c", "d"):
        (theirs / folder).mkdir(parents=True)
        (theirs / folder / "file").touch()
    found = [one.name for one in plain_files.walk(theirs, 4, 10, 10)]
    assert found == ["file", "a/b/c/file", "d/file"]
    assert [one.name for one in plain_files.walk(theirs, 2, 10, 10)] == ["file", "d/file"]
    assert [one.name for one in plain_files.walk(theirs, 4, 4, 10)] == ["file", "a/b/c/file"]
    assert [one.name for one in plain_files.walk(theirs, 4, 10, 0)] == []
    for name in ("../file", "/file", "a/../../x", ""):
        with pytest.raises(RefusedError):
            plain_files.below(theirs, name)
