# SPDX-License-Identifier: GPL-3.0-or-later
"""Percentiles by nearest rank: a result is always one of the samples."""

from collections.abc import Sequence


def percentile(ordered: Sequence[float], share: int) -> float:
    """Return the percentile `share` (0 to 100) of the ordered samples (at least one).

    A sample that was cut off is infinite: it counts as larger than all others.
    """
    return ordered[max(0, -(-share * len(ordered) // 100) - 1)]
