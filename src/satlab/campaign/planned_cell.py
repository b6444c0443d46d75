# SPDX-License-Identifier: GPL-3.0-or-later
"""A cell before it has tasks: its factors, and its command for each seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from satlab.campaign.plan import Rule, Value

CORES_OF_BROWSER = 2


@dataclass(frozen=True)
class PlannedCell:
    """One combination of factors; `command` and `files` of a seed as in `plan.Task`."""

    factors: Mapping[str, Value]
    rule: Rule
    lab: Literal["netns", "virtual"]
    estimate_s: float
    command: Callable[[int], Sequence[str]]
    files: Callable[[int], Mapping[str, Any]] = lambda _: {}
    cores: int = 1
