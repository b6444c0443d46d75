# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of zeros that ngtcp2 and picoquic send, all of it in the page cache before the flows
begin.

The kernel reads a mapped file ahead: where `read_ahead_kb` is 8192, it clears 8 MiB at a page
fault, 20 ms in which a kernel without preemption (`CONFIG_PREEMPT_NONE`) runs nothing else on that
core, satlink neither.
"""

import os
from pathlib import Path

CHUNK_BYTES = 64 << 10
"""Read at once: cleared in 20 us."""
MOST_BYTES = 2 << 30
"""Read of a file: 300 s of 38 Mbit/s. What is beyond is read while it is sent."""


def make_payload(file: Path, size: int) -> None:
    """Make a sparse file of `size` bytes that all users may read, and have it in memory, which can
    be reclaimed.
    """
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
