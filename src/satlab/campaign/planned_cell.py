# SPDX-License-Identifier: GPL-3.0-or-later
"""A cell before it has tasks: its factors, and its request for each seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from satlab.campaign.plan import Value
from satlab.campaign.request import Request

CORES_OF_BROWSER = 2


@dataclass(frozen=True)
class PlannedCell:
    """One combination of factors, and what it asks of a host with a seed."""

    factors: Mapping[str, Value]
    estimate_s: float
    request: Callable[[int], Request]
    cores: int = 1
