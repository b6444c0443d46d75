# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person may choose of a link on the command line."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from satlab.common.errors import ConfigError, Fault
from satlab.common.paths import PROFILES
from satlab.link import control
from satlab.link.config import (
    Aqm,
    BdpQueue,
    Bursts,
    BytesQueue,
    Direction,
    Emulator,
    GilbertElliott,
    LinkRequest,
    Loss,
    LossProcess,
    LossUnit,
    PacketsQueue,
    Queue,
    Timeline,
    Timing,
    Trace,
    UniformJitter,
)

LOSS_MODELS = "gilbert-elliott:P,R[,STEP_MS], bursts:PERIOD_MS,DURATION_MS or trace:FILE"
"""How a loss model is written."""
QUEUES = "1.2bdp, 60000bytes or 200packets"
"""How a queue limit is written."""
OPENSAND_OPTIONS = {"profile", "emulator", "terrestrial_delay_ms", "timeline", "lan_loss", "lenient"}
"""What can be chosen where OpenSAND carries the link, of which its profile says all the rest; a time line may change
the terrestrial segment, and satlink refuses more."""


@dataclass(frozen=True)
class LinkOptions:
    """Options of a link.

    `profile`: name of one of ours, or a folder. `loss`: ratio 0..1 for each direction. `queue_bdp`: multiples of each
    direction's bandwidth-delay product. `terrestrial_delay_ms`: one way; None = what lab.yml says. `emulator`: who
    carries the satellite segment. `queue`: a limit with its unit, in place of `queue_bdp`. `aqm`, `aqm_interval_ms`,
    `ecn`: active management and its marks. `loss_model`: a loss process beside `loss`.
    `jitter_ms`: uniform from 0. `timeline`: file of changes at known times. `probes`: ADDRESS:PORT of a
    collector of OpenSAND's probes. `lan_loss`: ratio 0..1 lost on the client's LAN, each way.
    `lenient`: take of the profile what OpenSAND's loader takes although it is wrong.
    """

    profile: str = "geo"
    seed: int = 1
    loss: float = 0.0
    loss_unit: LossUnit = "packet"
    queue_bdp: float = 1.2
    terrestrial_delay_ms: float | None = None
    emulator: Emulator = "satlink"
    queue: str | None = None
    aqm: Aqm | None = None
    aqm_interval_ms: float | None = None
    ecn: bool = False
    loss_model: str | None = None
    jitter_ms: float = 0.0
    timing: Timing = "standard"
    timeline: Path | None = None
    probes: str | None = None
    lan_loss: float = 0.0
    lenient: bool = False

    def arguments(self) -> list[str]:
        """Return the command line that chooses this: the profile, and what is not as by default."""
        argv = ["--profile", self.profile]
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name != "profile" and value != each.default:
                option = f"--{each.name.replace('_', '-')}"
                argv += [option] if value is True else [option, str(value)]
        return argv

    def profile_folder(self) -> Path:
        """Return the folder of the profile."""
        own = PROFILES / self.profile
        folder = own if "/" not in self.profile and own.is_dir() else Path(self.profile)
        if not folder.is_dir():
            known = ", ".join(sorted(p.name for p in PROFILES.iterdir() if p.is_dir()))
            raise ConfigError(f"profile {self.profile}: no such folder", hint=f"ours: {known}; or the path of a folder")
        return folder

    def request(
        self,
        run_id: str = "lab",
        metrics: Path | None = None,
        logs: Path | None = None,
        timeline_starts: Literal["at-once", "on-request"] = "at-once",
    ) -> LinkRequest:
        """Return the link's request; both directions get the same queue rule and loss process."""
        if self.emulator == "opensand":
            self._refuse_what_opensand_cannot()
        direction = Direction(
            queue=self.queue_rule(),
            loss=self.losses(),
            jitter=UniformJitter(uniform_ms=self.jitter_ms) if self.jitter_ms else None,
        )
        return LinkRequest(
            profile=self.profile_folder(),
            emulator=self.emulator,
            seed=self.seed,
            timing=self.timing,
            forward=direction,
            return_=direction,
            terrestrial_one_way_delay_ms=self.terrestrial_delay_ms,
            run_id=run_id,
            metrics=metrics,
            logs=logs,
            timeline=self._timeline(timeline_starts),
            probes=self.probes,
            lan_loss=self.lan_loss,
            lenient=self.lenient,
        )

    def _timeline(self, starts: Literal["at-once", "on-request"]) -> Timeline | None:
        """Return the time line; an empty one where the profile's files have to wait for a request, too."""
        if self.timeline is None and starts == "at-once":
            return None
        steps = control.load_steps(self.timeline) if self.timeline else ()
        return Timeline(starts=starts, steps=steps)

    def losses(self) -> LossProcess | tuple[LossProcess, ...]:
        """Return the loss process that was chosen, or both of them."""
        losses: list[LossProcess] = [Loss(ratio=self.loss, unit=self.loss_unit)]
        if self.loss_model is not None:
            model = self._loss_model(self.loss_model)
            losses = [model] if self.loss == 0 else [*losses, model]
        return losses[0] if len(losses) == 1 else tuple(losses)

    def queue_rule(self) -> Queue:
        """Return the queue that was chosen."""
        if self.aqm is None and (self.ecn or self.aqm_interval_ms is not None):
            raise ConfigError("--ecn and --aqm-interval-ms need --aqm", hint="add --aqm codel, fq-codel or pie")
        if self.aqm == "pie" and self.aqm_interval_ms is not None:
            raise ConfigError("--aqm-interval-ms: PIE has no interval", hint="leave it out, or use codel or fq-codel")
        ecn = True if self.ecn else None
        aqm: dict[str, Any] = {"aqm": self.aqm, "ecn": ecn, "interval_ms": self.aqm_interval_ms}
        text = f"{self.queue_bdp}bdp" if self.queue is None else self.queue
        kinds: dict[str, type[Queue]] = {
            "bdp": BdpQueue,
            "bytes": BytesQueue,
            "packets": PacketsQueue,
        }
        match = re.fullmatch(r"([0-9.e+-]+) ?(bdp|bytes|packets)", text)
        try:
            if match is None:
                raise ValueError
            return kinds[match[2]].model_validate({match[2]: match[1], **aqm})
        except ValueError:
            raise ConfigError(f"--queue {text}: is no limit", hint=f"write {QUEUES}") from None

    def _loss_model(self, text: str) -> LossProcess:
        name, _, rest = text.partition(":")
        values = rest.split(",")
        unit: dict[str, Any] = {"unit": self.loss_unit}
        try:
            match name, len(values):
                case "gilbert-elliott", 2 | 3:
                    chain = dict(zip(("p", "r", "step_ms"), values, strict=False))
                    return GilbertElliott.model_validate(unit | chain)
                case "bursts", 2:
                    return Bursts.model_validate(unit | {"period_ms": values[0], "duration_ms": values[1]})
                case "trace", _ if rest:
                    return Trace.model_validate(unit | {"file": str(Path(rest).resolve())})
        except ValidationError:
            pass
        raise ConfigError(f"--loss-model {text}: is no loss model", hint=f"write {LOSS_MODELS}")

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
