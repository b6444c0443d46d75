# SPDX-License-Identifier: GPL-3.0-or-later
"""Rates that links of earlier labs of a campaign carried, so that an equal link is not saturated
before each run.

The forward rate of a lab takes longer to measure than all the rest of its calibration. A wire is
computed, not tuned: labs of equal wires differ by the host alone, which each run's own checks
judge. So the rate is measured for the first lab of a wire, again after half an hour, and for the
next lab after a run out of calibration.
"""

import time
from collections.abc import Callable

from satlab.run.link_probe import Probe

MAX_AGE_S = 1800.0


class KnownRates:
    """Probes within tolerance, by wire; `clock` has s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._probes: dict[str, tuple[float, Probe]] = {}

    def keep(self, wire: str, probe: Probe) -> None:
        """Remember a probe that was within tolerance."""
        self._probes[wire] = (self._clock(), probe)

    def find(self, wire: str) -> tuple[float, Probe] | None:
        """Return the probe of an equal wire and its age, s; None if there is no recent one."""
        began_s, probe = self._probes.get(wire, (0.0, None))
        age_s = self._clock() - began_s
        return None if probe is None or age_s > MAX_AGE_S else (age_s, probe)

    def forget(self) -> None:
        """Forget all probes, since a run was out of calibration."""
        self._probes.clear()
