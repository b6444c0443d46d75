# SPDX-License-Identifier: GPL-3.0-or-later
"""The link's plan in plan.json, as far as figures are judged by it."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from collect.raw import Unreadable, read_json


class _Part(BaseModel):
    """The fields that we use; schemas/link-plan.schema.json has more."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class Demand(_Part):
    """Slots on demand."""

    carrier_slots: int


class Direction(_Part):
    """One direction; rates in bit/s."""

    rate_bps: float
    udp_goodput_bps: float
    tcp_goodput_bps: float
    slots_per_superframe: int = 0
    demand: Demand | None = None


class Rtt(_Part):
    """Round-trip time of an idle link, ms."""

    min: float


class LinkPlan(_Part):
    """The plan; `terminals` are those with a profile of their own."""

    rtt_ms: Rtt
    forward: Direction
    return_: Direction = Field(alias="return")
    terminals: tuple[_Part, ...] = ()


class _Plan(_Part):
    link: LinkPlan


def of_run(run_dir: Path) -> LinkPlan | None:
    """Return the plan of a run's link; None if it cannot be read."""
    plan = read_json(run_dir, "plan.json", _Plan.model_validate_json)
    return None if isinstance(plan, Unreadable) else plan.link
