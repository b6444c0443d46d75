# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests keep the byte code of archives, and run what the archive holds."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.vm import guest_python

RUN = """
import sys
sys.path[:0] = sys.argv[1:2]
import byte_code_of_archives as kept
kept.CACHE = sys.argv[2]
sys.path.insert(0, sys.argv[3])
import sent
print(sent.value, sent.place.__code__.co_filename == sent.__file__, sent.__file__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_p282_an_archive_s_modules_are_compiled_once_and_again_when_they_change(tmp_path: Path) -> None:
    packages, cache = tmp_path / "packages", tmp_path / "cache"
    packages.mkdir()
    guest_python.keep_byte_code(packages)
    assert "import byte_code_of_archives" in (packages / "byte_code_of_archives.pth").read_text()

    def run(name: str, value: int) -> str:
        archive = tmp_path / name
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("sent.py", f"value = {value}\ndef place(): pass\n")
        argv = [sys.executable, "-c", RUN, *map(str, (packages, cache, archive))]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout

    assert run("first.zip", 1).startswith(f"1 True {tmp_path}/first.zip")
    (kept,) = cache.iterdir()
    made = kept.stat().st_mtime_ns
    assert run("second.zip", 1).startswith(f"1 False {tmp_path}/second.zip")
    assert [file.stat().st_mtime_ns for file in cache.iterdir()] == [made]
    assert run("third.zip", 2).startswith("2 ")
    assert len(list(cache.iterdir())) == 2
