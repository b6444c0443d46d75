# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the rates that links of earlier labs of a campaign carried, so that an equal link is not
measured before each run.

The forward rate of a lab takes longer to measure than the rest of its calibration. The rate of a
wire is computed, so labs with equal wires differ only by the host, which the checks of each run
judge. Therefore the rate is measured for the first lab of a wire, again after half an hour, and for
the next lab after a run out of calibration.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from satlab.common.files import write_atomically
from satlab.run.link_probe import Echoes, Probe

VARIABLE = "SATLAB_KNOWN_RATES"
"""Environment variable with the file in which labs of a campaign keep known rates."""
MAX_AGE_S = 1800.0


class KnownRates:
    """Probes within tolerance, by wire, in a file; `clock` has s since the epoch."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        """Keep the probes in `file`, which need not exist."""
        self._file, self._clock = file, clock

    def keep(self, wire: str, probe: Probe) -> None:
        """Remember a probe that was within tolerance."""
        kept = self._read() | {wire: {"unix_s": self._clock(), "probe": asdict(probe)}}
        write_atomically(self._file, json.dumps(kept) + "\n")

    def find(self, wire: str) -> tuple[float, Probe] | None:
        """Return the age of an equal wire's probe, s, and the probe; None without a recent one."""
        found = self._read().get(wire)
        age_s = self._clock() - found["unix_s"] if found else 0.0
        if found is None or not 0 <= age_s <= MAX_AGE_S:
            return None
        rtt = found["probe"].pop("rtt")
        return age_s, Probe(rtt=Echoes(**rtt) if rtt else None, **found["probe"])

    def forget(self) -> None:
        """Forget all probes, because a run was out of calibration."""
        self._file.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        try:
            kept: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return kept
