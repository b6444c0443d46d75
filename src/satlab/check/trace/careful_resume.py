# SPDX-License-Identifier: GPL-3.0-or-later
"""The phases of Careful Resume (RFC 9959) in a transfer, in one form for all sources.

satvirtual and satperf report the phases themselves (`careful_resume` in their schemas). For any
other sender they are read from the event `recovery:careful_resume_phase_updated` of its qlog
(draft-ietf-tsvwg-careful-resume-qlog-02).
"""

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from satlab.check.trace.qlog import Event, number

EVENT = "careful_resume_phase_updated"
MAX_PHASES = 64
"""Largest number of phase changes of one connection; further changes are ignored. RFC 9959 has at
most five.
"""
TRIGGERS = (
    "cwnd_limited",
    "rtt_not_validated",
    "last_unvalidated_packet_sent",
    "first_unvalidated_packet_acknowledged",
    "rtt_exceeded",
    "rate_limited",
    "last_unvalidated_packet_acknowledged",
    "packet_loss",
    "ecn_ce",
    "exit_recovery",
    "path_changed",
)


@with_config(ConfigDict(extra="forbid"))
class Phase(TypedDict):
    """A phase from `t_s` on, s since the client's first packet.

    `trigger` as in the qlog event recovery:careful_resume_phase_updated.
    """

    t_s: float
    phase: Literal[
        "observe", "reconnaissance", "unvalidated", "validating", "normal", "safe_retreat"
    ]
    trigger: str | None
    cwnd_bytes: int | None
    pipe_size_bytes: int | None


@with_config(ConfigDict(extra="forbid"))
class Resumed(TypedDict):
    """The report of Careful Resume (RFC 9959) at the sender."""

    jump_bytes: Annotated[
        int | None,
        Field(description="window of the jump; null: there was none, or its size is unknown"),
    ]
    lost_bytes: Annotated[
        int | None, Field(description="bytes of the jump declared lost; null: unknown")
    ]
    retreated: Annotated[bool, Field(description="the jump was taken back")]
    phases: list[Phase]


PHASES = get_args(Phase.__annotations__["phase"])


def of_events(events: Sequence[Event], later_s: float) -> Resumed | None:
    """Return the report from the events of a qlog; None without such events. The qlog's clock is
    `later_s` behind the client's.

    Events with an unknown phase are ignored: the file is untrusted.
    """
    phases = [_phase(event, later_s) for event in events if event.data.get("new_phase") in PHASES]
    if not phases:
        return None
    jumps = [one["cwnd_bytes"] for one in phases if one["phase"] == "unvalidated"]
    return {
        "jump_bytes": jumps[0] if jumps else None,
        "lost_bytes": None,
        "retreated": any(one["phase"] == "safe_retreat" for one in phases),
        "phases": phases,
    }


def _phase(event: Event, later_s: float) -> Phase:
    state = event.data.get("state_data")
    window, pipe = number(state, "congestion_window"), number(state, "pipesize")
    trigger = event.data.get("trigger")
    is_known = isinstance(trigger, str) and trigger.lower() in TRIGGERS
    return {
        "t_s": event.t_s + later_s,
        "phase": event.data["new_phase"],
        "trigger": trigger if is_known else None,
        "cwnd_bytes": None if window is None else round(window),
        "pipe_size_bytes": None if pipe is None else round(pipe),
    }


def symptoms(resumed: Resumed | None) -> tuple[str, ...]:
    """Return its effects in words; empty if it was off, or knew nothing of the path."""
    if resumed is None or not resumed["phases"]:
        return ()
    phases = [one.get("phase") for one in resumed["phases"]]
    if resumed["jump_bytes"] is None and "unvalidated" not in phases:
        trigger = resumed["phases"][-1]["trigger"]
        return (f"careful resume: no jump ({trigger or 'nothing to gain'})",)
    size = resumed["jump_bytes"]
    text = "careful resume: a jump" + ("" if size is None else f" to {size / 1e6:.2f} MB")
    if resumed["retreated"]:
        text += ", taken back"
        lost = resumed["lost_bytes"]
        text += "" if lost is None else f", {lost / 1e6:.2f} MB of it lost"
    return (text,)


def line(resumed: Resumed | None) -> str:
    """Return the phases with their times and triggers in one line; empty without any."""
    if resumed is None or not resumed["phases"]:
        return ""
    texts = [
        f"{one['phase'].replace('_', ' ')} from {one['t_s']:.2f} s"
        + (f" ({one['trigger']})" if one["trigger"] else "")
        for one in resumed["phases"]
    ]
    return f"Careful Resume: {', '.join(texts)}."
