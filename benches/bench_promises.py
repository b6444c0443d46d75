# SPDX-License-Identifier: GPL-3.0-or-later
"""What the specification promises of a benchmark's figures, and whether they keep it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Promise:
    """A figure that the specification promises, and its measured value, None without one.

    `spoilt`: the promise is not met, but in the same run a bare real-time thread was also later
    than the target.
    """

    name: str
    target: str
    measured: float | None
    met: bool
    spoilt: bool = False


def at_most(name: str, limit: float, unit: str, measured: float | None) -> Promise:
    """Return a promise that is met by at most its limit."""
    return Promise(
        name, f"<= {limit:g} {unit}", measured, measured is not None and measured <= limit
    )


def at_least(name: str, limit: float, unit: str, measured: float | None) -> Promise:
    """Return a promise that is met by at least its limit."""
    return Promise(
        name, f">= {limit:g} {unit}", measured, measured is not None and measured >= limit
    )


def released(
    name: str, limit_us: float, measured_us: float | None, host_us: float | None
) -> Promise:
    """Return the promise of a release error.

    `host_us`: how late a bare real-time thread was in the same run, us.
    """
    made = at_most(f"{name}: release error p99", limit_us, "us", measured_us)
    return replace(
        made, spoilt=measured_us is not None and not made.met and (host_us or 0.0) > limit_us
    )


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the promises of a result as text: kept or not."""
    for promise in result["promises"]:
        measured = "not measured" if promise["measured"] is None else f"{promise['measured']:.4g}"
        kept = "kept" if promise["met"] else "HOST" if promise["spoilt"] else "MISSED"
        yield f"{kept:10} {promise['name']}: {measured} ({promise['target']})"
