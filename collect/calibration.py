# SPDX-License-Identifier: GPL-3.0-or-later
"""raw/calibration.json: the measured link against its plan (schemas/calibration.schema.json)."""

from typing import Literal

from pydantic import Field

from collect.raw import Model
from collect.records import Record, failed


class CalibrationCheck(Model):
    """One quantity of the link in `unit`: the value that the plan expects, the measured value, and
    the bounds.
    """

    name: str
    unit: str
    expected: float
    measured: float | None = Field(description="null if the measurement failed")
    low: float
    high: float
    ok: bool
    note: str = ""


class Calibration(Model):
    """raw/calibration.json: the measured link against its plan, before and during a run."""

    schema_: Literal["satlab/calibration/1"] = Field(alias="schema")
    run_id: str
    ok: bool
    checks: list[CalibrationCheck]


def records(calibration: Calibration) -> list[Record]:
    """Return `calibration_ok` (1 or 0), `calibration_check_ok` per check with its figures as
    labels, and `rtt_ms`.
    """
    held = sum(check.ok for check in calibration.checks)
    summary = Record(
        "calibration_ok",
        float(calibration.ok),
        {"checks": str(len(calibration.checks)), "held": str(held)},
        reason=""
        if calibration.ok
        else f"{len(calibration.checks) - held} checks outside tolerance",
    )
    idle_rtts = [
        Record("rtt_ms", check.measured, {"stat": "mean", "source": "calibration"})
        for check in calibration.checks
        if check.name == "rtt_ms" and check.measured is not None
    ]
    return [summary, *map(_check, calibration.checks), *idle_rtts]


def _check(check: CalibrationCheck) -> Record:
    labels = {"check": check.name, "unit": check.unit, "note": check.note}
    labels |= {key: f"{getattr(check, key):.12g}" for key in ("expected", "low", "high")}
    if check.measured is None:
        return failed("calibration_check_ok", labels, check.note or "not measured")
    labels["measured"] = f"{check.measured:.12g}"
    return Record(
        "calibration_check_ok",
        float(check.ok),
        labels,
        reason="" if check.ok else "outside tolerance",
    )
