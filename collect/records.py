# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of a run before they become rows of its table (`collect.records_table`)."""

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["ok", "failed", "censored"]
MOST = 1e18
"""No run measures as much, in any unit; larger values would overflow statistics and pictures."""


@dataclass(frozen=True)
class Record:
    """One sample.

    `metric` carries its unit; `t_s` is seconds since the start of the run, None in a summary.
    """

    metric: str
    value: float | None
    labels: Mapping[str, str] = field(default_factory=dict)
    t_s: float | None = None
    status: Status = "ok"
    reason: str = ""


@dataclass(frozen=True)
class Series:
    """Samples of several metrics at the same times, as columns: these take a hundredth of the
    memory of `Record`s.

    Each column of `columns` is as long as `t_s`; NaN where there was no sample.
    """

    labels: Mapping[str, str]
    t_s: "array[float]"
    columns: Mapping[str, "array[float]"]


def failed(metric: str, labels: Mapping[str, str], reason: str) -> Record:
    """Return the record of a measurement that is missing."""
    return Record(metric, None, labels, status="failed", reason=reason)


def of_status(
    metric: str,
    value: float | None,
    labels: Mapping[str, str],
    status: Status,
    reason: str,
    absent: str,
) -> Record:
    """Return the record of a figure of something that ended with `status`. A value that was reached
    before a deadline counts; `absent` is the reason if something ended well without the value.
    """
    if status == "ok" or (status == "censored" and value is not None):
        return sample(metric, value, labels, absent)
    return Record(metric, None, labels, status=status, reason=reason)


def sample(metric: str, value: float | None, labels: Mapping[str, str], reason: str) -> Record:
    """Return the record of a value; a failed record with `reason` if the value is absent or not
    finite.
    """
    if value is None or not math.isfinite(value):
        return failed(metric, labels, reason)
    return Record(metric, value, labels)
