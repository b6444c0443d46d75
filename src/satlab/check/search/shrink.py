# SPDX-License-Identifier: GPL-3.0-or-later
"""Shrink a condition with a fault to the simplest condition near it that has the same fault."""

from collections.abc import Callable

from satlab.check.search.conditions import Changes, Space, rounded

Holds = Callable[[Changes], bool]
"""Whether a condition has the fault."""
KeepStep = Callable[[Changes], None]


def shrink(space: Space, changes: Changes, holds: Holds, keep: KeepStep) -> dict[str, float]:
    """Return the simplest condition: each value is reset to the case's, or else rounded, while the
    fault persists.

    `keep` is called with each simpler condition, so that shrinking can continue after an
    interruption. In the result no single value can be reset without losing the fault.
    """
    found = space.effective(changes)
    is_simpler = True
    while is_simpler:
        is_simpler = False
        for name in list(found):
            without = space.effective(
                {other: value for other, value in found.items() if other != name}
            )
            if name in found and holds(without):
                found, is_simpler = without, True
                keep(found)
    for name, value in list(found.items()):
        if name not in found or rounded(value, 1) == value:
            continue
        plain = space.effective(found | {name: _in_range(space, name, rounded(value, 1))})
        if holds(plain):
            found = plain
            keep(found)
    return found


def _in_range(space: Space, name: str, value: float) -> float:
    [quantity] = [one for one in space.quantities if one.name == name]
    return min(max(value, quantity.low), quantity.high)
