# SPDX-License-Identifier: GPL-3.0-or-later
"""The cost of sandboxes."""

import os
from pathlib import Path
from statistics import median

import pytest

from benches import confinement
from satlab.common import paths
from satlab.common.console import ProgressLog


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_start_in_a_sandbox_is_short() -> None:
    """At most 50 ms on a quiet host (`satlab bench confinement`); here the host may be busy."""
    found = confinement.start_ms(12)
    cost = median(found["sandbox"]) - median(found["without"])
    print(f"a sandbox takes {cost:.1f} ms")
    assert 0 < cost < 10 * confinement.START_LIMIT_MS


@pytest.mark.net
@pytest.mark.skipif(
    os.geteuid() != 0 or not paths.SATLINK.exists(), reason="needs root and the programs"
)
def test_a_run_is_measured_with_and_without_sandboxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quic = {"QUIC": ("quic", {"pep": "none", "duration": "2"}, "goodput_bps")}
    monkeypatch.setattr(confinement, "RUNS", quic)
    found = confinement.measure(1, 2, tmp_path, ProgressLog(quiet=True))
    assert all(found["goodput_bps"][kind] for kind in ("sandbox", "without")), found


def test_medians_are_compared_with_their_spread() -> None:
    result = {
        "schema": "satlab/bench-confinement/1",
        "start_ms": {"sandbox": [42.0, 40.0, 41.0], "without": [2.0, 3.0, 1.0]},
        "page_load_time_ms": {"sandbox": [1010.0, 1000.0], "without": [1000.0, 1010.0]},
        "goodput_bps": {"sandbox": [9e6], "without": [10e6]},
    }
    assert confinement.lines(result) == [
        "start: median 41.00 ms in a sandbox, 2.00 without, 39.0 ms more; promised: at most 50 ms",
        (
            "page load time: median 1005.00 ms in a sandbox, 1005.00 without, +0.0%; n 2, spread"
            " without 1.0%"
        ),
        "goodput: median 9.00 Mbit/s in a sandbox, 10.00 without, -10.0%; n 1, spread without 0.0%",
    ]
