# SPDX-License-Identifier: GPL-3.0-or-later
"""What the backend on the real clock does around the programs, as far as it needs no lab."""

from pathlib import Path
from typing import Any

from satlab.check.backend import real_clock
from satlab.check.backend.real_clock import RealClock
from satlab.check.endpoint.command_line import CommandLinePair
from satlab.check.suite import Suite

SUITE = Suite.model_validate(
    {
        "schema": "satlab/suite/1", "name": "test", "source": "here", "link": {"rtt_ms": 650, "queue_bdp": 1},
        "marks_mb": [1],
        "cases": [{"id": "a", "forward_mbps": 10, "return_mbps": 2, "targets_s": [1], "direction": "upload"}],
    }
)  # fmt: skip


def test_what_a_pair_lacks_needs_no_lab(tmp_path: Path) -> None:
    nothing: Any = None
    found = RealClock(CommandLinePair("x", ("c",), ("s",))).sample(SUITE, SUITE.cases[0], nothing, 1, tmp_path)
    assert (found.status, found.times_s) == ("unsupported", (None,)) and "uploads" in found.reason
    assert not list(tmp_path.iterdir())


def test_a_sample_that_was_stopped_leaves_nothing_to_the_next_try(tmp_path: Path) -> None:
    folder = real_clock._emptied(tmp_path / "a-1")
    (folder / "link.jsonl").write_text("half")
    assert real_clock._emptied(folder) == folder and not list(folder.iterdir())


def test_the_return_link_is_counted_from_the_start_of_the_transfer() -> None:
    back = {"out_packets": 3, "out_bytes": 120}
    lines: list[dict[str, Any]] = [
        {"type": "header"},
        *({"type": "sample", "t_unix_s": t, "return": back} for t in (1.0, 2.0, 3.0)),
    ]
    lines.append({"type": "sample", "t_unix_s": 4.0, "return": None})
    assert real_clock._returned(lines, 1.5) == {"return_packets": 6, "return_bytes": 240}
