# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of zeros that ngtcp2 and picoquic send, read into the page cache before the flows begin.
The kernel reads ahead of a mapped file. With `read_ahead_kb` of 8192 it clears 8 MiB at a page
fault, which takes 20 ms. A kernel without preemption (`CONFIG_PREEMPT_NONE`) runs nothing else on
that core meanwhile, not even satlink.
"""

import os
from pathlib import Path

CHUNK_BYTES = 64 << 10
"""Bytes read at once; the kernel clears them in 20 us."""
MOST_BYTES = 2 << 30
"""Bytes read in advance: 300 s of 38 Mbit/s. The rest is read while it is sent."""


def make_payload(file: Path, size: int) -> None:
    """Make a sparse file of `size` bytes that all users may read, and read it into the page cache."""
    with file.open("xb") as made:
        made.truncate(size)
    file.chmod(0o644)
    with file.open("rb", buffering=0) as opened:
        os.posix_fadvise(
            opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM
        )  # no reading ahead here either
        chunk = bytearray(CHUNK_BYTES)
        for _ in range(0, min(size, MOST_BYTES), CHUNK_BYTES):
            opened.readinto(chunk)
