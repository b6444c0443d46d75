# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the rates that links of earlier labs on this host carried, so that an equal link is not
measured before each run (`--rate-once`).

The train takes longer than the rest of a calibration. The rate of a link is computed, so labs with
equal plans differ only by the host, which the checks of each run judge. Therefore rate and losses
are measured for the first lab of a link, again after half an hour, on a host with another stamp,
and for the next lab after a measurement out of calibration.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from satlab.common import paths
from satlab.common.files import write_atomically
from satlab.link.plan import LinkPlan
from satlab.run import host_stamp
from satlab.run.link_probe import Echoes, Probe

VARIABLE = "SATLAB_RATE_ONCE"
"""Environment variable that `--rate-once` sets, for the command and all that it starts."""
MAX_AGE_S = 1800.0
MAY_DIFFER = {"seed", "profile", "advice"}
"""Fields of a plan that may differ between equal links."""


class KnownRates:
    """Probes within tolerance, by link, in a file; `clock` has s since the epoch, `stamp` is that of
    this host.
    """

    def __init__(self, file: Path, stamp: str, clock: Callable[[], float] = time.time) -> None:
        """Keep the probes in `file`, which need not exist."""
        self._file, self._stamp, self._clock = file, stamp, clock

    def keep(self, plan: LinkPlan, probe: Probe) -> None:
        """Remember a probe that was within tolerance, and drop those that are too old."""
        kept = {link: one for link, one in self._read().items() if self._age_s(one) <= MAX_AGE_S}
        kept[self._link(plan)] = {"unix_s": self._clock(), "probe": asdict(probe)}
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._file, json.dumps(kept) + "\n")

    def find(self, plan: LinkPlan) -> Probe | None:
        """Return the recent probe of an equal link, with its age in the notes; None if there is none."""
        try:
            found = self._read()[self._link(plan)]
            probe = Probe(**found["probe"] | {"rtt": Echoes(**found["probe"]["rtt"])})
        except (KeyError, TypeError):  # of no earlier lab, or of another version
            return None
        age_s = self._age_s(found)
        if age_s > MAX_AGE_S:
            return None
        note = f"of an equal link {age_s:.0f} s before, on this host (stamp {self._stamp})"
        return Probe(**vars(probe) | {"notes": {"rate": note}})

    def forget(self) -> None:
        """Forget all probes, because a measurement was out of calibration."""
        self._file.unlink(missing_ok=True)

    def _link(self, plan: LinkPlan) -> str:
        """Return the digest of a link on this host."""
        document = plan.model_dump_json(exclude=MAY_DIFFER)
        return hashlib.sha256(f"{self._stamp} {document}".encode()).hexdigest()

    def _age_s(self, kept: Any) -> float:
        """Return the age of a kept probe; infinite where it has none, or lies in the future."""
        try:
            age_s = self._clock() - kept["unix_s"]
        except (KeyError, TypeError):
            return inf
        return age_s if age_s >= 0 else inf

    def _read(self) -> dict[str, Any]:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}


def use(is_wanted: bool) -> None:
    """Let the labs of this process and of its children use known rates."""
    if is_wanted:
        os.environ[VARIABLE] = "1"


def of_host() -> KnownRates | None:
    """Return this host's known rates; None if each lab measures its own."""
    if not os.environ.get(VARIABLE):
        return None
    stamp, _ = host_stamp.stamp()
    return KnownRates(paths.state_folder() / f"rates-{os.uname().nodename}.json", stamp)
