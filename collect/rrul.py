# SPDX-License-Identifier: GPL-3.0-or-later
"""Responsiveness under load (schemas/rrul.schema.json): latency of the idle and of the loaded path.

Round trips per minute are those of draft-ietf-ippm-responsiveness, section 4.3, for one kind of
probe: 60 s over the trimmed mean of its round-trip times under load.
"""

import statistics
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from collect.percentile import percentile
from collect.raw import Model
from collect.records import Record, failed

STAT = "rrul_json"
MAIN_METRICS = ("responsiveness_rpm",)
TRIM = 95
"""Percentile of round-trip times above which they are left out of the trimmed mean."""


class Rrul(Model):
    """Small UDP packets beside TCP transfers in both directions (job satlab_rrul); times in s since
    the start.
    """

    schema_: Literal["satlab/rrul/1"] = Field(alias="schema")
    start_unix_s: float
    server: str
    interval_s: float = Field(gt=0)
    idle_s: float = Field(gt=0, description="the load begins after this time")
    settle_s: float = Field(ge=0, description="beginning of the load that does not count")
    duration_s: float = Field(gt=0, description="length of the load")
    flows: int = Field(ge=1, description="TCP connections in each direction")
    load_start_s: float
    fault: str = Field(max_length=400, description="why it failed; empty if it did not")
    probes: list[tuple[float, float | None]] = Field(
        description="of each packet the time of sending, and its round-trip time in ms; null: no reply"
    )

    def within(self, start_s: float, end_s: float) -> list[float | None]:
        """Return the round-trip times of the packets that were sent within a time, ms."""
        return [rtt for sent, rtt in self.probes if start_s <= sent < end_s]


def records(rrul: Rrul, labels: Mapping[str, str], run_start_unix_s: float) -> list[Record]:
    """Return `probe_rtt_ms` and `probe_loss_ratio` of the idle and of the loaded path, each
    packet's `probe_rtt_ms` with its time, and `responsiveness_rpm`. A measurement that failed has one
    failed sample.
    """
    about = {**labels, "flows": str(rrul.flows)}
    load_s = rrul.load_start_s
    loaded = rrul.within(load_s + rrul.settle_s, load_s + rrul.duration_s)
    groups = {"idle": rrul.within(0.0, min(rrul.idle_s, load_s)), "loaded": loaded}
    replies = {name: [rtt for rtt in group if rtt is not None] for name, group in groups.items()}
    if rrul.fault or not all(replies.values()):
        missing = ", ".join(name for name, found in replies.items() if not found)
        return [failed("responsiveness_rpm", about, rrul.fault or f"no reply while {missing}")]
    found = []
    for name, group in groups.items():
        ordered = sorted(replies[name])
        figures = {"median": statistics.median(ordered)}
        figures |= {f"p{share}": percentile(ordered, share) for share in (95, 99)}
        own = {**about, "phase": name, "n": str(len(ordered))}
        found += [Record("probe_rtt_ms", v, {**own, "stat": stat}) for stat, v in figures.items()]
        found.append(Record("probe_loss_ratio", 1 - len(ordered) / len(group), own))
    most = percentile(sorted(replies["loaded"]), TRIM)
    usual = [rtt for rtt in replies["loaded"] if rtt <= most]
    found.append(Record("responsiveness_rpm", 60_000 / statistics.fmean(usual), about))
    since_s = rrul.start_unix_s - run_start_unix_s
    found += [
        Record("probe_rtt_ms", rtt, labels, t_s=since_s + sent)
        for sent, rtt in rrul.probes
        if rtt is not None
    ]
    return found
