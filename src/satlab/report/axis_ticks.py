# SPDX-License-Identifier: GPL-3.0-or-later
"""Round values of an axis."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: value or position, and label."""

    at: float
    text: str


def step_of(span: float, most: int) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that needs at most `most` steps."""
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))


def ticks_within(low: float, high: float, step: float) -> list[Tick]:
    """Return the multiples of `step` from `low` to `high`."""
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [Tick(number * step, f"{number * step:,g}") for number in numbers]
