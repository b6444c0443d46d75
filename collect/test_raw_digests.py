# SPDX-License-Identifier: GPL-3.0-or-later
"""Digests of a run's raw files, whatever its jobs have left there."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import collect
from collect.fixtures import example_run
from collect.fixtures.example_run import Example
from collect.raw import LINES_BYTES
from collect.raw_digests import MOST_DEEP


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    run = example_run.write(tmp_path, Example(duration_s=6.0))
    yield run
    subprocess.run(
        ["rm", "-rf", str(run)], check=True
    )  # pytest removes recursively, which a deep tree stops


def seal(run: Path) -> dict[str, str]:
    """Write the digests into the manifest as a run does at its end; return what has none, with the
    reasons.
    """
    files, faults = collect.digests(run)
    about = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(about | {"files": files}))
    return faults


def make_deep(folder: Path, depth: int) -> None:
    """Make folders inside each other, and a file in the last; its path is longer than Linux takes."""
    at = os.open(folder, os.O_PATH)
    for _ in range(depth):
        os.mkdir("d" * 100, dir_fd=at)
        below = os.open("d" * 100, os.O_PATH, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)


def test_digests_are_those_of_the_manifest(run: Path) -> None:
    files, faults = collect.digests(run)
    assert files == collect.manifest(run).files
    assert (
        files["raw/link.jsonl"]
        == hashlib.sha256((run / "raw" / "link.jsonl").read_bytes()).hexdigest()
    )
    assert faults == {}


def test_t16_a_deep_tree_is_reported(run: Path) -> None:
    make_deep(run / "raw" / "files", 3000)
    faults = seal(run)
    place = "/".join(["raw/files", *["d" * 100] * MOST_DEEP])
    assert faults == {place: f"lies more than {MOST_DEEP} folders deep"}
    assert collect.verify(run) == [f"{place}: lies more than {MOST_DEEP} folders deep"]


def test_the_deepest_folder_that_is_read_has_a_digest(run: Path) -> None:
    folder = run / "raw" / Path(*["d"] * MOST_DEEP)
    folder.mkdir(parents=True)
    (folder / "file").write_text("kept")
    assert seal(run) == {}
    (folder / "file").write_text("lost")
    assert [line.rpartition(": ")[2] for line in collect.verify(run)] == [
        "changed, its SHA-256 is not the one in manifest.json"
    ]


def test_t16_a_file_beyond_the_largest_is_reported_and_not_hashed(run: Path) -> None:
    path = run / "raw" / "files" / "large"
    with path.open("wb") as file:
        file.truncate(LINES_BYTES + 1)
    assert seal(run) == {"raw/files/large": f"has more than {LINES_BYTES} bytes"}
    assert collect.verify(run) == [f"raw/files/large: has more than {LINES_BYTES} bytes"]


def test_t16_what_is_not_a_plain_file_is_not_opened(run: Path) -> None:
    os.mkfifo(run / "raw" / "files" / "fifo")
    (run / "raw" / "files" / "link").symlink_to(run / "raw" / "link.jsonl")
    (run / "raw" / "files" / "folder").symlink_to(run / "raw")
    names = ["raw/files/fifo", "raw/files/folder", "raw/files/link"]
    assert seal(run) == dict.fromkeys(names, "is not a plain file")
    assert collect.verify(run) == [f"{name}: is not a plain file" for name in names]


def test_t16_a_name_that_is_not_text_leaves_the_manifest_readable(run: Path) -> None:
    (Path(os.fsdecode(os.fsencode(run / "raw" / "files") + b"/\xff"))).write_text("x")
    assert seal(run) == {"raw/files/\ufffd": "its name is not UTF-8"}
    assert collect.verify(run) == ["raw/files/\ufffd: its name is not UTF-8"]


def test_a_run_without_raw_files_misses_them(run: Path) -> None:
    (run / "raw").rename(run / "moved")
    assert collect.digests(run) == ({}, {})
    assert collect.verify(run) == [
        f"{name}: missing" for name in sorted(collect.manifest(run).files)
    ]
