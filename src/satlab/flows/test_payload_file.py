# SPDX-License-Identifier: GPL-3.0-or-later
import ctypes
import mmap
import os
from pathlib import Path

from satlab.flows.payload_file import make_payload

SIZE = (5 << 20) + 1


def resident(file: Path) -> int:
    """Count the pages of a file that are in memory (mincore(2))."""
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    pages = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    assert (
        ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), pages)
        == 0
    )
    return sum(page & 1 for page in pages)


def test_all_of_it_is_in_memory_and_none_on_the_disk(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    make_payload(file, SIZE)
    assert file.stat().st_size == SIZE and file.stat().st_mode & 0o777 == 0o644
    assert resident(file) == -(-SIZE // mmap.PAGESIZE)
    assert file.stat().st_blocks * 512 < SIZE // 10


def test_a_file_that_nobody_read_is_not(tmp_path: Path) -> None:
    file = tmp_path / "sparse"
    with file.open("wb") as made:
        os.truncate(made.fileno(), SIZE)
    assert resident(file) == 0
