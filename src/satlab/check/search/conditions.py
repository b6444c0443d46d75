# SPDX-License-Identifier: GPL-3.0-or-later
"""The conditions of a search: a case, and the quantities of its link and payload that vary around
it.

A condition has the values that differ from the case, by the name of their quantity. It can be
written as a suite of this one case, which `satlab check --suite FILE` runs.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from satlab.check.suite import Case, Suite
from satlab.link.options import REORDER_MS, REORDER_PACKETS

Changes = Mapping[str, float]
"""Values that differ from those of the case, by name."""
MOST_CHANGES = 5
"""Largest number of values in a drawn condition."""
EXTREME_SHARE = 0.4
"""Share of values that are drawn at an end of the range, to find faults that need extremes of two
quantities.
"""
DIGITS = 2
"""Significant digits of a drawn value."""


@dataclass(frozen=True)
class Quantity:
    """A quantity and its range.

    `is_log`: the logarithm is drawn uniformly. `needs`: another quantity, without which this one
    has no effect.
    """

    name: str
    low: float
    high: float
    is_log: bool = True
    needs: str = ""

    def draw(self, source: random.Random) -> float:
        """Return a value of the range, rounded."""
        if source.random() < EXTREME_SHARE:
            return source.choice((self.low, self.high))
        if self.is_log:
            value = math.exp(source.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = source.uniform(self.low, self.high)
        return min(max(rounded(value, DIGITS), self.low), self.high)


QUANTITIES = (
    Quantity("payload_mb", 0.1, 50),
    Quantity("forward_mbps", 1, 250),
    Quantity("return_mbps", 0.1, 50),
    Quantity("rtt_ms", 510, 1900, is_log=False),
    Quantity("queue_bdp", 0.05, 10),
    Quantity("loss_percent", 0.01, 10),
    Quantity("burst_packets", 2, 50, needs="loss_percent"),
    Quantity("jitter_ms", 1, 200),
    Quantity("reorder_percent", 0.1, 10),
    Quantity("reorder_packets", 1, 50, needs="reorder_percent"),
    Quantity("duplicate_percent", 0.1, 50),
    Quantity("corrupt_percent", 0.01, 10),
    Quantity("outage_s", 0.5, 20),
    Quantity("outage_at_s", 0.5, 20, needs="outage_s"),
)
"""The quantities that vary. The queue is in BDP of each direction. Loss, the mean length of its
bursts, jitter (uniform, without reordering), impairments and the outage apply to both directions. A
reordered packet goes on behind `reorder_packets` later ones, after REORDER_MS at the latest. The
outage starts `outage_at_s` after the start of the transfer.
"""


def rounded(value: float, digits: int) -> float:
    """Return a value rounded to DIGITS significant digits."""
    return float(f"{value:.{digits}g}")


@dataclass(frozen=True)
class Space:
    """The conditions around a case of a suite. `largest_mb`: the largest payload, 10^6 bytes."""

    suite: Suite
    case: Case
    largest_mb: float = 50.0

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """All quantities: the payload up to the largest one, the round trip from the case's if that
        is shorter.
        """
        payload, *others = QUANTITIES
        rtt_ms = self.base["rtt_ms"]
        return (
            Quantity(payload.name, min(payload.low, self.largest_mb), self.largest_mb),
            *(
                replace(one, low=min(one.low, rtt_ms)) if one.name == "rtt_ms" else one
                for one in others
            ),
        )

    @property
    def base(self) -> dict[str, float]:
        """The values of the case.

        The payload is the largest mark up to `largest_mb`. Loss and impairments are left out: the
        case's own ones apply.
        """
        marks = [mark for mark in self.suite.marks_mb if mark <= self.largest_mb]
        return {
            "payload_mb": max(marks, default=self.largest_mb),
            "forward_mbps": self.case.forward_mbps,
            "return_mbps": self.case.return_mbps,
            "rtt_ms": self.case.rtt_ms or self.suite.link.rtt_ms,
            "queue_bdp": self.case.queue_bdp or self.suite.link.queue_bdp,
            "loss_percent": 0.0,
            "burst_packets": 1.0,
            "jitter_ms": self.case.jitter_ms or 0.0,
            "reorder_percent": 0.0,
            "reorder_packets": float(REORDER_PACKETS),
            "duplicate_percent": 0.0,
            "corrupt_percent": 0.0,
            "outage_s": 0.0,
            "outage_at_s": 2.0,
        }

    def draw(self, seed: int, number: int) -> dict[str, float]:
        """Return the condition of a trial; it depends only on seed and number. Trial 0 is the case
        itself.
        """
        if number == 0:
            return {}
        source = random.Random(f"{seed} {number}")  # noqa: S311 - a search, not a secret
        while True:
            count = source.randint(1, MOST_CHANGES)
            chosen = {one.name for one in source.sample(self.quantities, count)}
            drawn = {one.name: one.draw(source) for one in self.quantities if one.name in chosen}
            if changes := self.effective(drawn):
                return changes

    def effective(self, values: Changes) -> dict[str, float]:
        """Return the values that differ from the case's and have an effect, in the order of the
        quantities.
        """
        base = self.base
        changed = {
            one.name
            for one in self.quantities
            if values.get(one.name, base[one.name]) != base[one.name]
        }
        return {
            one.name: values[one.name]
            for one in self.quantities
            if one.name in changed and (not one.needs or one.needs in changed)
        }

    def suite_of(
        self,
        changes: Changes,
        *,
        seed: int,
        timeout_s: float,
        target_s: float | None = None,
        name: str = "search",
    ) -> Suite:
        """Return a condition as a suite of one case with one sample of this seed."""
        values = self.base | dict(changes)
        case = self.case.model_dump(exclude_defaults=True) | self._fields(values, changes)
        case |= {"id": self.case.id, "timeout_s": timeout_s, "targets_s": [target_s]}
        case.pop("reference_s", None)
        case.pop("runs", None)
        document: dict[str, Any] = {
            "schema": "satlab/suite/1",
            "name": name,
            "source": f"found by satlab check --search around {self.case.id} of {self.suite.name}",
            "link": self.suite.link.model_dump(),
            "seed": seed,
            "runs": 1,
            "marks_mb": [values["payload_mb"]],
            "cases": [case],
        }
        return Suite.model_validate(document)

    def _fields(self, values: Changes, changes: Changes) -> dict[str, Any]:
        """Return the fields of the case that a condition sets."""
        names = ("forward_mbps", "return_mbps", "rtt_ms", "queue_bdp", "jitter_ms")
        fields: dict[str, Any] = {name: values[name] for name in names if name in changes}
        if "queue_bdp" in changes:
            fields["queue_packets"] = None
        if "loss_percent" in changes:
            fields["loss"] = loss(values["loss_percent"] / 100, values["burst_packets"])
        if "reorder_percent" in changes:
            fields["reorder"] = {
                "ratio": values["reorder_percent"] / 100,
                "packets": round(values["reorder_packets"]),
                "ms": REORDER_MS,
            }
        for name in ("duplicate", "corrupt"):
            if f"{name}_percent" in changes:
                fields[name] = values[f"{name}_percent"] / 100
        if "outage_s" in changes:
            outage = {"at_s": values["outage_at_s"], "outage_s": values["outage_s"]}
            steps = [change.model_dump(exclude_defaults=True) for change in self.case.changes]
            fields["changes"] = sorted([*steps, outage], key=lambda step: float(step["at_s"]))
        return fields


def loss(ratio: float, burst_packets: float) -> dict[str, Any]:
    """Return the loss process for a ratio and a mean length of bursts. Bursts longer than 1 use two
    states (Gilbert 1960): the bad state loses every packet, has a geometric length, and covers a
    share of the packets equal to the ratio.
    """
    if burst_packets <= 1:
        return {"unit": "packet", "ratio": ratio}
    r = 1 / burst_packets
    p = min(1.0, r * ratio / (1 - ratio))
    return {
        "unit": "packet",
        "model": "gilbert-elliott",
        "p": p,
        "r": r,
        "good_ratio": 0.0,
        "bad_ratio": 1.0,
    }
