# SPDX-License-Identifier: GPL-3.0-or-later
"""Suites and samples that tests begin with."""

from typing import Any

from satlab.check.samples import Sample, Status
from satlab.check.suite import Suite


def one(
    case: str, *times: float | None, status: Status = "ok", reason: str = "", calibration: str = ""
) -> Sample:
    return Sample(case, 1, status, reason, times, calibration=calibration)


def small(**changes: Any) -> Suite:
    case = {"id": "a", "forward_mbps": 10, "return_mbps": 2, "targets_s": [3.0]}
    document = {
        "schema": "satlab/suite/1",
        "name": "test",
        "source": "here",
        "link": {"rtt_ms": 650, "queue_bdp": 1},
        "marks_mb": [2],
        "cases": [case],
    }
    return Suite.model_validate(document | changes)
