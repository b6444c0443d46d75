# SPDX-License-Identifier: GPL-3.0-or-later
"""The times at which programs of flows are started and stopped. The caller passes the time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from collect.calibration import CalibrationCheck
from satlab.flows import connection_migration
from satlab.run.calibrate import check

Verb = Literal["start", "lead", "end", "kill"]
GRACE_S = 3.0
"""Time from a flow's end until a program that ends by itself is stopped, s. It has the other end's
report by then.
"""
LATE_START_S = 2.0
"""Longest time from a flow's start to its client's first packet, s. On two idle cores it takes 0.1
s, with 64 flows up to 0.4 s.
"""


@dataclass(frozen=True, order=True)
class Action:
    """An action on the programs of a flow at a time, s. `lead`: change to the route with the
    client's second address (`migration`). `end`: stop a program that does not end by itself.
    """

    at_s: float
    index: int
    verb: Verb = field(compare=False)


@dataclass
class Timetable:
    """The actions that are left, the next one first."""

    left: list[Action]

    @classmethod
    def of(cls, flows: Sequence[Mapping[str, Any]], duration_s: float) -> "Timetable":
        """Return the timetable of flows."""
        actions = []
        for index, flow in enumerate(flows):
            stop_s = flow.get("stop_s", duration_s)
            actions += [Action(flow["start_s"], index, "start"), Action(stop_s, index, "end")]
            actions.append(Action(stop_s + GRACE_S, index, "kill"))
            moments = flow.get("migrate_s", ()) if flow.get("stack") == "ngtcp2" else ()
            actions += [
                Action(connection_migration.lead_s(flow["start_s"], at_s), index, "lead")
                for at_s in moments
            ]
        return cls(
            sorted(actions, key=lambda action: (action.at_s, action.verb != "end", action.index))
        )

    def due(self, now_s: float) -> list[Action]:
        """Remove and return the actions that are due."""
        count = next(
            (n for n, action in enumerate(self.left) if action.at_s > now_s), len(self.left)
        )
        found, self.left = self.left[:count], self.left[count:]
        return found

    @property
    def next_s(self) -> float | None:
        """Return the time of the next action; None when all is done."""
        return self.left[0].at_s if self.left else None


def judged_starts(
    flows: Sequence[Mapping[str, Any]], began_s: Sequence[float | None]
) -> list[CalibrationCheck]:
    """Judge the flow that began latest after its time; empty if none began."""
    pairs = enumerate(zip(flows, began_s, strict=True))
    late_s = [(at - flow["start_s"], index) for index, (flow, at) in pairs if at is not None]
    if not late_s:
        return []
    worst_s, index = max(late_s)
    note = f"flow {index}, the latest of {len(late_s)}, from its start to its client's first packet"
    return [check("late_start_s", "s", 0, worst_s, -LATE_START_S, LATE_START_S, note)]
