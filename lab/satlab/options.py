# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person may choose of a link on the command line."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from satlab import linkplan
from satlab.errors import ConfigError, Fault
from satlab.linkplan import Emulator, LinkRequest
from satlab.paths import PROFILES

LossUnit = Literal["packet", "frame"]
OPENSAND_OPTIONS = {"profile", "emulator", "terrestrial_delay_ms"}
"""What can be chosen of a link that OpenSAND carries: its profile says all the rest."""


@dataclass(frozen=True)
class LinkOptions:
    """Options of a link.

    `profile`: name of one of ours, or a folder. `loss`: ratio 0..1 for each direction. `queue_bdp`: multiples of each
    direction's bandwidth-delay product. `terrestrial_delay_ms`: one way; None = what lab.yml says. `emulator`: who
    carries the satellite segment.
    """

    profile: str = "geo"
    seed: int = 1
    loss: float = 0.0
    loss_unit: LossUnit = "packet"
    queue_bdp: float = 1.2
    terrestrial_delay_ms: float | None = None
    emulator: Emulator = "satlink"

    def profile_folder(self) -> Path:
        """Give the folder of the profile."""
        own = PROFILES / self.profile
        folder = own if "/" not in self.profile and own.is_dir() else Path(self.profile)
        if not folder.is_dir():
            known = ", ".join(sorted(p.name for p in PROFILES.iterdir() if p.is_dir()))
            raise ConfigError(f"profile {self.profile}: no such folder", hint=f"ours: {known}; or the path of a folder")
        return folder

    def request(self, run_id: str = "lab", metrics: Path | None = None, logs: Path | None = None) -> LinkRequest:
        """Give the link's request; both directions get the same queue rule and loss process."""
        if self.emulator == "opensand":
            self._refuse_what_opensand_cannot()
        direction = linkplan.Direction(
            queue=linkplan.BdpQueue(bdp=self.queue_bdp),
            loss=linkplan.Loss(ratio=self.loss, unit=self.loss_unit),
        )
        return LinkRequest(
            profile=self.profile_folder(),
            emulator=self.emulator,
            seed=self.seed,
            forward=direction,
            return_=direction,
            terrestrial_one_way_delay_ms=self.terrestrial_delay_ms,
            run_id=run_id,
            metrics=metrics,
            logs=logs,
        )

    def _refuse_what_opensand_cannot(self) -> None:
        chosen = [f for f in fields(self) if f.name not in OPENSAND_OPTIONS and getattr(self, f.name) != f.default]
        if chosen:
            faults = [
                Fault(
                    f"--{f.name.replace('_', '-')} {getattr(self, f.name)}", "OpenSAND cannot do this", "leave it out"
                )
                for f in chosen
            ]
            raise ConfigError(
                "--emulator opensand: the link is what the profile says", faults, "or use satlink, which can"
            )
