# SPDX-License-Identifier: GPL-3.0-or-later
"""Testbed parameters by the names of Kosek et al., IFIP Networking 2022, table I, for `--set`.

A delay or attenuation of the satellite link acts from the start of the scenario on, after
calibration; over time they come from the profile's files or from a timeline.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from satlab.common.errors import ConfigError, Fault
from satlab.link.config import LinkRequest, LinkSet, Timeline, TimelineStep
from satlab.link.options import LinkOptions

LIMITS = {
    "internet_delay_ms": 10000.0,
    "satcom_delay_ms": 10000.0,
    "satcom_loss_percent": 100.0,
    "satcom_attenuation_db": 100.0,
}
"""Names, each from 0 to its limit."""


@dataclass(frozen=True)
class Testbed:
    """The settings of the scenario, the link, and the link's changes when the scenario starts."""

    __test__ = False  # no class of tests
    settings: Mapping[str, str]
    link: LinkOptions
    at_start: tuple[LinkSet, ...]


def choose(settings: Mapping[str, str], link: LinkOptions) -> Testbed:
    """Take the testbed's parameters out of `--set` pairs. Raises ConfigError with every fault."""
    given = {name: value for name, value in settings.items() if name in LIMITS}
    faults = [fault for name, value in given.items() if (fault := _fault(name, value))]
    if faults:
        raise ConfigError("invalid parameters of the testbed", faults)
    values = {name: float(value) for name, value in given.items()}
    if "internet_delay_ms" in values:
        link = link.model_copy(update={"terrestrial_delay_ms": values["internet_delay_ms"]})
    if "satcom_loss_percent" in values:
        link = link.model_copy(update={"loss": values["satcom_loss_percent"] / 100})
    changes = []
    if "satcom_delay_ms" in values:
        changes.append(LinkSet(direction="both", delay_ms=values["satcom_delay_ms"]))
    if "satcom_attenuation_db" in values:
        changes.append(LinkSet(direction="both", attenuation_db=values["satcom_attenuation_db"]))
    rest = {name: value for name, value in settings.items() if name not in LIMITS}
    return Testbed(rest, link, tuple(changes))


def _fault(name: str, value: str) -> Fault | None:
    try:
        if 0 <= float(value) <= LIMITS[name]:
            return None
    except ValueError:
        pass
    return Fault(f"{name}={value}", f"not a number from 0 to {LIMITS[name]:g}")


def starting_with(link: LinkRequest, changes: tuple[LinkSet, ...]) -> LinkRequest:
    """Return the link with `changes` at the start of its timeline."""
    if not changes:
        return link
    steps = tuple(TimelineStep.model_validate({"at_s": 0, "set": change}) for change in changes)
    later, file = (link.timeline.steps, link.timeline.file) if link.timeline else ((), None)
    return replace(link, timeline=Timeline(starts="on-request", steps=(*steps, *later), file=file))
