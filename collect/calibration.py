# SPDX-License-Identifier: GPL-3.0-or-later
"""raw/calibration.json: the measured link against its plan (schemas/calibration.schema.json)."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field

from collect.raw import Model
from collect.records import Record, failed

CHECKS = {
    "rtt_ms": "round-trip time",
    "forward_udp_goodput_bps": "forward UDP goodput",
    "forward_loss_ratio": "packets lost on the forward link",
    "late_packet_ratio": "packets released late",
    "late_packet_ratio.forward": "forward packets released late",
    "late_packet_ratio.return": "return packets released late",
    "browser_wait_ratio": "time in which the browser had no core",
    "browser_host_ratio": "page load, part of the host",
    "cpu_wait_ratio.jobs": "time in which a job had no core",
    "cpu_wait_ratio.client": "time in which the client had no core",
    "cpu_wait_ratio.server": "time in which the server had no core",
    "cpu_others_ratio": "CPU time of other programs",
    "cpu_steal_ratio": "CPU time of other virtual machines",
    "memory_wait_ratio": "time spent waiting for memory",
    "host_loss_ratio": "packets lost by the host",
    "opensand_losses.gse_encapsulation": "packets lost by OpenSAND's gateway",
    "opensand_losses.gse_reassembly": "packets lost by OpenSAND's reassembly",
    "opensand_losses.rle_reassembly": "packets lost by OpenSAND's return link",
    "opensand_losses.socket": "losses in OpenSAND's sockets",
}
"""Names of the checks in words."""
REMEDY = "repeat the measurement on a quiet host, for example with --wait-quiet 600"
MOST_NAMED = 3
"""Checks that a sentence names."""


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


class Quantity(NamedTuple):
    """A value and its unit as text. What is not a number has no unit."""

    amount: str
    unit: str


def quantity(check: str, value: float | str | None, unit: str) -> Quantity:
    """Return a value of a check as text: bit/s as Mbit/s, us as µs, ratios in percent."""
    try:
        number = float("none" if value is None else value)
    except ValueError:
        return Quantity(str(value), "")
    if unit == "bit/s":
        return Quantity(f"{number / 1e6:,.3f}", "Mbit/s")
    if not unit and "_ratio" in check:
        return Quantity(f"{number * 100:.3g}", "%")
    return Quantity(f"{number:,.5g}", unit.replace("us", "µs"))


def deviation(check: CalibrationCheck) -> str:
    """Return a check that did not hold in words: what was measured, and what is allowed."""
    name = CHECKS.get(check.name, check.name)
    if check.measured is None:
        return f"{name} not measured" + (f": {check.note}" if check.note else "")
    (amount, unit), low, high = (
        quantity(check.name, value, check.unit) for value in (check.measured, check.low, check.high)
    )
    bounds = f"{low.amount} to {high.amount}" if check.low else f"at most {high.amount}"
    return f"{name} {amount} {unit}".rstrip() + f" ({bounds} {unit}".rstrip() + ")"


def sentence(deviations: Sequence[str], remedy: str = REMEDY) -> str:
    """Return one sentence about what was out of calibration, with the remedy; empty without any."""
    if not deviations:
        return ""
    more = f" and {len(deviations) - MOST_NAMED} more" if len(deviations) > MOST_NAMED else ""
    named = ", ".join(deviations[:MOST_NAMED]) + more
    return f"out of calibration: {named}" + (f"; {remedy}" if remedy else "")


def verdict(checks: Sequence[CalibrationCheck]) -> str:
    """Return that sentence for all checks of a measurement. A wait for a quiet host is no remedy
    for what was not measured, and for losses in OpenSAND, whose note has another one.
    """
    bad = [check for check in checks if not check.ok]
    is_host = any(
        one.measured is not None and not one.name.startswith("opensand_losses") for one in bad
    )
    notes = (one.note.partition("Remedy: ")[2] for one in bad)
    other = next(filter(None, notes), "")
    return sentence([deviation(check) for check in bad], REMEDY if is_host else other)


def records(calibration: Calibration) -> list[Record]:
    """Return `calibration_ok` (1 or 0), `calibration_check_ok` per check with its figures as
    labels, and `rtt_ms`.
    """
    held = sum(check.ok for check in calibration.checks)
    summary = Record(
        "calibration_ok",
        float(calibration.ok),
        {"checks": str(len(calibration.checks)), "held": str(held)},
        reason=verdict(calibration.checks),
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
        reason="" if check.ok else deviation(check),
    )
