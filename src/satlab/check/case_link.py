# SPDX-License-Identifier: GPL-3.0-or-later
"""The link of a case: the `geo` profile with other rates and, for a shorter round trip than that of
GEO, with shorter hops.

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

GEO_HOP_MS = 125
"""Delay of a hop in the `geo` profile, ms. A round trip has HOPS of them."""
HOPS = 4
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
    hop_ms = _hop_ms(suite, case)
    first = _profile(folder / "first", GEO_FORWARD_KHZ, GEO_RETURN_KBPS, hop_ms)
    unscaled = _link(suite, case, first)
    forward_khz = GEO_FORWARD_KHZ * case.forward_mbps / unscaled.forward_mbps
    return_kbps = GEO_RETURN_KBPS * case.return_mbps / unscaled.return_mbps
    return _link(suite, case, _profile(folder / case.id, forward_khz, return_kbps, hop_ms))


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
    """Return what begins with the transfer, then the changes in their order, as a timeline."""
    steps = [TimelineStep(at_s=start_s, set=one) for one in _at_start(case)]
    has_shortened = False
    for change in sorted(case.changes, key=lambda one: one.at_s):
        sets = list(_sets(link, case, change))
        if change.rtt_ms is not None:
            usual_ms = link.plan.terrestrial_one_way_delay_ms
            is_short = change.rtt_ms / 2 < usual_ms
            if is_short or has_shortened:
                delay_ms = min(usual_ms, change.rtt_ms / 2)
                sets += [
                    LinkSet(direction="terrestrial_down", delay_ms=delay_ms),
                    LinkSet(direction="terrestrial_up", delay_ms=delay_ms),
                ]
            has_shortened = is_short
        steps += [TimelineStep(at_s=start_s + change.at_s, set=one) for one in sets]
    return tuple(steps)


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
    """Return the changes of the satellite segment. The terrestrial one keeps its delay, unless the
    new round trip is shorter than that.
    """
    if change.forward_mbps is not None:
        baud = link.plan.forward.symbol_rate_baud / case.forward_mbps
        yield LinkSet(direction="forward", symbol_rate_baud=round(baud * change.forward_mbps))
    if change.rtt_ms is not None:
        one_way_ms = change.rtt_ms / 2 - link.plan.terrestrial_one_way_delay_ms
        yield LinkSet(direction="both", delay_ms=max(0.0, one_way_ms))
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
        terrestrial_one_way_delay_ms=(_rtt_ms(suite, case) - HOPS * _hop_ms(suite, case)) / 2,
        run_id=f"{suite.name}-{case.id}",
    )


def _rtt_ms(suite: Suite, case: Case) -> float:
    return case.rtt_ms or suite.link.rtt_ms


def _hop_ms(suite: Suite, case: Case) -> int:
    """Return the delay of each hop, ms: that of GEO or, for a shorter round trip, a quarter of it,
    in whole milliseconds as profiles have them.
    """
    return min(GEO_HOP_MS, int(_rtt_ms(suite, case) / HOPS))


def _link(suite: Suite, case: Case, profile: Path) -> CaseLink:
    request = build_request(suite, case, profile)
    here = topology.load(paths.LAB_FILE)
    config = build_config(here, "check", request, metrics=profile / "link.jsonl")
    return CaseLink(request, config, plan_link(config))


def _profile(folder: Path, forward_khz: float, return_kbps: float, hop_ms: int) -> Path:
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(paths.PROFILES / "geo", folder)
    return_khz = GEO_RETURN_KHZ * max(1.0, return_kbps / GEO_RETURN_KBPS)
    edit(
        folder / "topology.xml",
        (f"<bandwidth>{GEO_FORWARD_KHZ}<", f"<bandwidth>{forward_khz:.0f}<"),
        (f"<bandwidth>{GEO_RETURN_KHZ}<", f"<bandwidth>{return_khz:.0f}<"),
    )
    delay = (f"<delay_value>{GEO_HOP_MS}<", f"<delay_value>{hop_ms}<")
    cra = (f"<cra>{GEO_RETURN_KBPS}<", f"<cra>{return_kbps:.0f}<")
    edit(folder / "profile_st.xml", cra, delay)
    edit(folder / "profile_gw.xml", delay)
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
