# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of `satlab link set`: changes of a link that is up."""

from typing import Annotated, Any, Literal

from pydantic import ValidationError, ValidationInfo, field_validator

from satlab.common.errors import ConfigError, Fault
from satlab.link.config import Aqm, LinkSet
from satlab.link.option_model import Help, Options, invalid
from satlab.link.options import ImpairmentOptions, LossOptions, QueueOptions
from satlab.link.schema_limits import limits

Direction = Literal["forward", "return", "both", "terrestrial_down", "terrestrial_up"]


class ChangeOptions(Options):
    """Changes other than those of loss model and queue. None: no change."""

    terminal: Annotated[
        int | None,
        limits("timeline.steps.set.terminal"),
        Help(
            "Terminal",
            "Change the link of this terminal only: 1 is the ST, 2 is st-2. Default: all.",
            "Link",
            metavar="N",
        ),
    ] = None
    delay_ms: Annotated[
        float | None,
        limits("timeline.steps.set.delay_ms"),
        Help("Delay", "One-way delay.", "Link", unit="ms"),
    ] = None
    attenuation_db: Annotated[
        float | None,
        limits("timeline.steps.set.attenuation_db"),
        Help(
            "Attenuation",
            "Attenuation that reduces the Es/N0, in addition to the profile's.",
            "Link",
            unit="dB",
        ),
    ] = None
    modcod: Annotated[
        str | None,
        Help(
            "MODCOD",
            "forward only: a fixed MODCOD of EN 302 307-1, 1 to 28; or acm, which adapts it.",
            "Link",
            metavar="ID",
        ),
    ] = None
    symbol_rate_baud: Annotated[
        float | None,
        limits("timeline.steps.set.symbol_rate_baud"),
        Help(
            "Symbol rate",
            "Symbols per second, for example 10e6. The MODCOD stays. Not for a return link with"
            " slots on demand.",
            "Link",
            unit="Baud",
        ),
    ] = None
    handover: Annotated[
        Literal["keep", "flush", "drop"] | None,
        Help(
            "Handover",
            "Replace the link by one with the given delay, symbol rate and queue. Waiting packets"
            " move to it (keep), leave over the old link (flush), or are dropped (drop). With"
            " --gateway: treatment of waiting packets; default: keep.",
            "Link",
        ),
    ] = None
    gateway: Annotated[
        int | None,
        limits("timeline.steps.set.gateway.id"),
        Help(
            "Gateway",
            "For direction both: move the terminal of --terminal, or all, to the gateway with this"
            " ID in the profile.",
            "Link",
            metavar="ID",
        ),
    ] = None
    outage: Annotated[
        str | None,
        Help(
            "Outage",
            "on: nothing gets through. off: the outage ends. A number: an outage of so many s.",
            "Link",
            metavar="STATE",
        ),
    ] = None
    loss: Annotated[
        float | None,
        limits("timeline.steps.set.loss.ratio"),
        Help(
            "Loss ratio",
            "Ratio of independent losses. They replace all losses of the link.",
            "Losses",
            metavar="RATIO",
        ),
    ] = None
    jitter_ms: Annotated[
        float | None,
        limits("timeline.steps.set.jitter.uniform_ms"),
        Help("Jitter", "Largest jitter. It is uniform from 0.", "Timing", unit="ms"),
    ] = None


class LinkChange(QueueOptions, ImpairmentOptions, LossOptions, ChangeOptions):
    """All options of a change."""

    @field_validator("aqm")
    @classmethod
    def _needs_queue(cls, aqm: Aqm | None, info: ValidationInfo) -> Aqm | None:
        if aqm and info.data.get("queue", "") is None:
            raise invalid("needs --queue", "set the limit as well")
        return aqm

    @field_validator("outage")
    @classmethod
    def _is_outage(cls, text: str | None) -> str | None:
        try:
            if text not in (None, "on", "off"):
                float(text)
        except ValueError:
            raise invalid("is not a time", "write on, off, or seconds") from None
        return text

    def link_set(self, direction: Direction) -> LinkSet:
        """Return the change of one direction. Raises ConfigError with every fault."""
        fields: dict[str, Any] = {
            "direction": direction,
            "terminal": self.terminal,
            "delay_ms": self.delay_ms,
            "attenuation_db": self.attenuation_db,
            "modcod": self.modcod,
            "symbol_rate_baud": self.symbol_rate_baud,
            **self.impairments(),
        }
        if self.loss is not None or self.loss_model is not None:
            fields["loss"] = self.losses(self.loss or 0.0)
        if self.jitter_ms is not None:
            fields["jitter"] = {"uniform_ms": self.jitter_ms}
        if self.outage is not None:
            fields["outage"] = (
                self.outage == "on" if self.outage in ("on", "off") else float(self.outage)
            )
        if self.queue is not None:
            fields["queue"] = self.queue_rule(self.queue)
        fields = {name: value for name, value in fields.items() if value is not None}
        if self.gateway is not None:
            fields["gateway"] = {"id": self.gateway, "waiting": self.handover or "keep"}
        elif self.handover is not None:
            new = {
                name: fields.pop(name)
                for name in ("delay_ms", "symbol_rate_baud", "queue")
                if name in fields
            }
            fields["handover"] = {"waiting": self.handover, **new}
        try:
            return LinkSet.model_validate(fields)
        except ValidationError as error:
            found = [
                (".".join(map(str, one["loc"])), one["msg"].removeprefix("Value error, "))
                for one in error.errors(include_url=False)
            ]
            if len(found) == 1 and not found[0][0]:
                raise ConfigError(found[0][1], hint="satlab link set --help") from error
            faults = [Fault(place or "change", reason) for place, reason in found]
            raise ConfigError(
                "the link cannot be changed like this", faults, "satlab link set --help"
            ) from error
