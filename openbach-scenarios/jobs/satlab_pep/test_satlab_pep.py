# SPDX-License-Identifier: GPL-3.0-or-later
import argparse
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


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


def test_values_of_a_leg_are_words_and_numbers(module: Callable[[str], ModuleType]) -> None:
    leg_value = module("satlab_pep").leg_value
    assert [leg_value(text) for text in ("0", "default", "100")] == ["", "", "100"]
    assert leg_value("reno-quicly") == "reno-quicly"
    for text in ("--key", "reno-", "a b", "../x", 17 * "a"):
        with pytest.raises(argparse.ArgumentTypeError):
            leg_value(text)
