# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run on the real clock is worth."""

import pytest

from satlab.common.errors import ExitStatus
from satlab.flows import real_clock


@pytest.mark.parametrize(
    ("statuses", "calibration", "expected"),
    [
        (["ok", "ok"], [], ExitStatus.OK),
        (["ok", "ok"], ["cpu_wait_ratio.client"], ExitStatus.UNCALIBRATED),
        (["ok", "failed"], ["cpu_wait_ratio.client"], ExitStatus.FAILED),
        (["censored"], [], ExitStatus.FAILED),
    ],
)
def test_an_outcome_out_of_calibration_is_marked(
    statuses: list[str], calibration: list[str], expected: ExitStatus
) -> None:
    outcome = {"flows": [{"status": status} for status in statuses], "calibration": calibration}
    assert real_clock.exit_status(outcome) == expected
