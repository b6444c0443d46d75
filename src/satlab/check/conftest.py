# SPDX-License-Identifier: GPL-3.0-or-later
"""Suites and samples for tests."""

from pathlib import Path
from typing import Any

from satlab.check.endpoint.pair import TransferRequest
from satlab.check.samples import Sample, Status
from satlab.check.suite import Suite
from satlab.lab.pki import Pki


def one(
    case: str, *times: float | None, status: Status = "ok", reason: str = "", calibration: str = ""
) -> Sample:
    return Sample(case, 1, status, reason, times, calibration=calibration)


def small(case: dict[str, Any] | None = None, **changes: Any) -> Suite:
    """Return a suite of one case. `case` replaces fields of the case, `changes` fields of the
    suite.
    """
    usual = {"id": "a", "forward_mbps": 10, "return_mbps": 2, "targets_s": [3.0]}
    document = {
        "schema": "satlab/suite/1",
        "name": "test",
        "source": "here",
        "link": {"rtt_ms": 650, "queue_bdp": 1},
        "marks_mb": [2],
        "cases": [usual | (case or {})],
    }
    return Suite.model_validate(document | changes)


def transfer_request(
    folder: Path, *marks_mb: float, host: str = "198.18.4.2", **case: Any
) -> TransferRequest:
    """Return a request with seed 7 for the one case of a suite with two marks."""
    read = small({"targets_s": [1, 2]} | case, marks_mb=marks_mb)
    return TransferRequest(read, read.cases[0], 7, host, Pki(Path("/pki"), ""), folder)
