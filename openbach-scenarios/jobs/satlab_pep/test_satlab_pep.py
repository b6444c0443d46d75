# SPDX-License-Identifier: GPL-3.0-or-later
from collections.abc import Callable
from pathlib import Path
from types import ModuleType


def test_samples_do_not_grow_without_end(
    module: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    job, samples = module("satlab_pep"), tmp_path / "satpep.jsonl"
    job.bound(samples, 100)
    with samples.open("ab", buffering=0) as file:  # as satpep has it open
        file.write(bytes(100))
        job.bound(samples, 100)
        assert samples.stat().st_size == 100
        file.write(b"x")
        job.bound(samples, 100)
        file.write(b"on")
    assert samples.read_bytes() == b"on"
