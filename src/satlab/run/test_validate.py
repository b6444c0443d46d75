# SPDX-License-Identifier: GPL-3.0-or-later
"""What `satlab validate` shows of a good profile."""

from satlab.common import paths
from satlab.run import validate


def test_terminals_of_a_profile_are_shown() -> None:
    folder = paths.PROFILES / "geo-dama"
    first, second = validate.check(folder)
    assert first.startswith(
        f"{folder}: terminal 1: forward QPSK 1/4 19610 kbit/s [19541], return 16QAM 5/6 "
    )
    assert second.startswith(f"{folder}: terminal 4: forward QPSK 1/4 ")


def test_a_terminal_alone_is_not_shown() -> None:
    assert validate.check(paths.PROFILES / "geo") == []
