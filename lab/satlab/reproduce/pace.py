# SPDX-License-Identifier: GPL-3.0-or-later
"""How many labs at once: one more while calibration stays green, one fewer after a run that was out of tolerance."""

from dataclasses import dataclass, field

GREEN_RUNS_PER_STEP = 3
"""Green runs per lab in use before another lab is tried: one lucky run proves nothing."""
CORES_PER_BROWSER = 2


@dataclass
class Pace:
    """The number of labs at once; `fixed` by a person, or found out. `cores` are the host's."""

    cores: int
    fixed: int | None = None
    level: int = field(init=False)
    _green: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Start with what every host can do."""
        self.level = self.fixed or max(1, self.cores // 2)

    def has_room(self, running: int, browsers: int, *, browser: bool) -> bool:
        """Tell whether a run may start beside `running` runs, of which `browsers` have a browser."""
        return running < self.level and (not browser or browsers < max(1, self.cores // CORES_PER_BROWSER))

    def ended(self, *, calibrated: bool) -> None:
        """Take note of a run's calibration."""
        if self.fixed:
            return
        self._green = self._green + 1 if calibrated else 0
        if not calibrated:
            self.level = max(1, self.level - 1)
        elif self._green >= GREEN_RUNS_PER_STEP * self.level and self.level < self.cores:
            self.level, self._green = self.level + 1, 0
