# SPDX-License-Identifier: GPL-3.0-or-later
"""The link of a case: the `geo` profile with other rates.

The terrestrial segment adds the rest of the RTT.
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from satlab.check.suite import Case, Change, Suite
from satlab.common import paths, topology
from satlab.link.config import (
    BdpQueue,
    Direction,
    LinkConfig,
    LinkRequest,
    LinkSet,
    Loss,
    PacketsQueue,
    Timeline,
    TimelineStep,
    UniformJitter,
    build_config,
)
from satlab.link.options import Way, with_drops
from satlab.link.plan import LinkPlan, plan_link

GEO_RTT_MS = 500.0
"""Four hops of 125 ms in the `geo` profile."""
GEO_FORWARD_KHZ = 50_000
GEO_RETURN_KBPS = 10_000
GEO_RETURN_KHZ = 20_000
"""Enough for 10 Mbit/s of CRA."""
IP_BYTES_PER_UDP_BYTE = 1500 / 1472
"""For full-size packets."""


@dataclass(frozen=True)
class CaseLink:
    """The request for a lab, the link configuration built from it, and satlink's plan of that
    configuration.
    """

    request: LinkRequest
    config: LinkConfig
    plan: LinkPlan

    @property
    def forward_mbps(self) -> float:
        """Forward rate for full-size IP packets, Mbit/s."""
        return self.plan.forward.udp_goodput_bps * IP_BYTES_PER_UDP_BYTE / 1e6

    @property
    def return_mbps(self) -> float:
        """Return rate for full-size IP packets, Mbit/s.

        It differs from the request: CRA is granted in whole slots.
        """
        return self.plan.return_.udp_goodput_bps * IP_BYTES_PER_UDP_BYTE / 1e6

    def rate_mbps(self, case: Case) -> float:
        """Return the rate in the direction of a case's payload, Mbit/s."""
        return self.forward_mbps if case.direction == "download" else self.return_mbps


def build(suite: Suite, case: Case, folder: Path) -> CaseLink:
    """Write the profile of a case into `folder` and return its link.

    The rate of a carrier is proportional to its bandwidth: the unchanged profile is planned first,
    then bandwidth and CRA are scaled to the rates of the case.
    """
    unscaled = _link(suite, case, _profile(folder / "first", GEO_FORWARD_KHZ, GEO_RETURN_KBPS))
    forward_khz = GEO_FORWARD_KHZ * case.forward_mbps / unscaled.forward_mbps
    return_kbps = GEO_RETURN_KBPS * case.return_mbps / unscaled.return_mbps
    return _link(suite, case, _profile(folder / case.id, forward_khz, return_kbps))


def for_virtual_clock(
    link: CaseLink, case: Case, seed: int, start_s: float, folder: Path
) -> LinkConfig:
    """Return the configuration of one sample, whose transfer starts at `start_s`.

    Paths are relative to `folder`, where satvirtual runs. So a sample's configuration and its
    digest do not depend on the folder of the check.
    """
    steps = _steps(link, case, start_s)
    timeline = Timeline(starts="at-once", steps=steps) if steps else None
    files = {
        name: os.path.relpath(getattr(link.config, name), folder.resolve())
        for name in ("profile", "metrics")
    }
    return link.config.model_copy(update={"seed": seed, "timeline": timeline, **files})


def for_lab(link: CaseLink, case: Case, seed: int, metrics: Path) -> LinkRequest:
    """Return the request for the lab of one sample; its timeline waits for the start of the
    transfer.
    """
    steps = _steps(link, case, 0.0)
    timeline = Timeline(starts="on-request", steps=steps) if steps else None
    return replace(link.request, seed=seed, metrics=metrics, timeline=timeline)


def _steps(link: CaseLink, case: Case, start_s: float) -> tuple[TimelineStep, ...]:
    first = [TimelineStep(at_s=start_s, set=one) for one in _at_start(case)]
    later = [
        TimelineStep(at_s=start_s + change.at_s, set=one)
        for change in case.changes
        for one in _sets(link, case, change)
    ]
    return (*first, *later)


def _at_start(case: Case) -> Iterator[LinkSet]:
    """Yield what begins with the first transfer, after the calibration of a lab."""
    impairments = {
        "reorder": case.reorder,
        "duplicate": case.duplicate or None,
        "corrupt": case.corrupt or None,
    }
    if chosen := {name: value for name, value in impairments.items() if value is not None}:
        yield LinkSet.model_validate({"direction": "both", **chosen})
    if case.drops is not None:
        lists: dict[Way, tuple[int, ...]] = {
            "forward": case.drops.forward,
            "return": case.drops.return_,
        }
        for direction, numbers in lists.items():
            if numbers:
                yield with_drops(direction, case.loss or Loss(), numbers)


def _sets(link: CaseLink, case: Case, change: Change) -> Iterator[LinkSet]:
    if change.forward_mbps is not None:
        baud = link.plan.forward.symbol_rate_baud / case.forward_mbps
        yield LinkSet(direction="forward", symbol_rate_baud=round(baud * change.forward_mbps))
    if change.rtt_ms is not None:
        one_way_ms = change.rtt_ms / 2 - link.plan.terrestrial_one_way_delay_ms
        yield LinkSet(direction="both", delay_ms=one_way_ms)
    if change.outage_s is not None:
        yield LinkSet(direction="both", outage=change.outage_s)


def build_request(suite: Suite, case: Case, profile: Path = paths.PROFILES / "geo") -> LinkRequest:
    """Return the request for the link of a case over a profile. `for_lab` and `for_virtual_clock`
    add seed and timeline.
    """
    queue = BdpQueue(bdp=case.queue_bdp or suite.link.queue_bdp)
    direction = Direction(
        queue=queue if case.queue_packets is None else PacketsQueue(packets=case.queue_packets),
        loss=case.loss or Loss(),
        jitter=None if case.jitter_ms is None else UniformJitter(uniform_ms=case.jitter_ms),
    )
    return LinkRequest(
        profile,
        forward=direction,
        return_=direction,
        terrestrial_one_way_delay_ms=((case.rtt_ms or suite.link.rtt_ms) - GEO_RTT_MS) / 2,
        run_id=f"{suite.name}-{case.id}",
    )


def _link(suite: Suite, case: Case, profile: Path) -> CaseLink:
    request = build_request(suite, case, profile)
    here = topology.load(paths.LAB_FILE)
    config = build_config(here, "check", request, metrics=profile / "link.jsonl")
    return CaseLink(request, config, plan_link(config))


def _profile(folder: Path, forward_khz: float, return_kbps: float) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(paths.PROFILES / "geo", folder)
    return_khz = GEO_RETURN_KHZ * max(1.0, return_kbps / GEO_RETURN_KBPS)
    edit(
        folder / "topology.xml",
        (f"<bandwidth>{GEO_FORWARD_KHZ}<", f"<bandwidth>{forward_khz:.0f}<"),
        (f"<bandwidth>{GEO_RETURN_KHZ}<", f"<bandwidth>{return_khz:.0f}<"),
    )
    edit(folder / "profile_st.xml", (f"<cra>{GEO_RETURN_KBPS}<", f"<cra>{return_kbps:.0f}<"))
    return folder


def edit(file: Path, *edits: tuple[str, str]) -> None:
    """Replace each (old, new).

    Raises ValueError if an old text is not in the file exactly once.
    """
    text = file.read_text()
    for old, new in edits:
        text, count = re.subn(re.escape(old), new, text)
        if count != 1:
            raise ValueError(f"{file}: {old} occurs {count} times, expected once")
    file.write_text(text)
