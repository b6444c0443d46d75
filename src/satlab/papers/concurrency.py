# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of labs at once: one more after good runs, one fewer after a run out of calibration or
short of CPU.

A browser that waits for a core draws late, which no calibration of the link can see: the host's
idle share shows it.
"""

from dataclasses import dataclass, field

GREEN_RUNS_PER_STEP = 3
"""Good runs per lab in use before one more lab is tried."""
CORES_PER_BROWSER = 2
LEAST_IDLE = 0.1
"""Share of the host's CPU that has to be idle, on average, over a run with a browser."""


@dataclass
class Concurrency:
    """The number of labs at once: `fixed` by the user, or adapted. `cores` are the host's."""

    cores: int
    fixed: int | None = None
    level: int = field(init=False)
    _green: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Start with one lab, which every host can run."""
        self.level = self.fixed or max(1, self.cores // 2)

    def has_room(self, running: int, browsers: int, *, browser: bool) -> bool:
        """Return whether one more run may start while `running` runs are active, of which
        `browsers` have a browser.
        """
        return running < self.level and (
            not browser or browsers < max(1, self.cores // CORES_PER_BROWSER)
        )

    def ended(self, *, calibrated: bool, idle: float | None = None) -> None:
        """Record a run's calibration and, of one with a browser, of the idle share of the CPU
        meanwhile.
        """
        if self.fixed:
            return
        is_well = calibrated and (idle is None or idle >= LEAST_IDLE)
        self._green = self._green + 1 if is_well else 0
        if not is_well:
            self.level = max(1, self.level - 1)
        elif self._green >= GREEN_RUNS_PER_STEP * self.level and self.level < self.cores:
            self.level, self._green = self.level + 1, 0


@dataclass(frozen=True)
class CpuTime:
    """CPU time of all cores since the host's start, total and idle, in any unit."""

    total: float
    idle: float

    def idle_since(self, start: "CpuTime") -> float | None:
        """Return the idle share since then; None when no time has passed."""
        passed = self.total - start.total
        return (self.idle - start.idle) / passed if passed > 0 else None
