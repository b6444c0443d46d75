# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples that are faster than their link allows: the measurement is wrong, and the sample failed."""

from collections.abc import Sequence
from dataclasses import replace

from collect.floors import Floors, of_link
from satlab.check.case_link import CaseLink
from satlab.check.samples import Sample
from satlab.check.suite import Case


def possible(sample: Sample, case: Case, marks: Sequence[int], link: CaseLink, *, has_proxies: bool = False) -> Sample:
    """Return the sample; failed if a time is below its floor. `marks` in bytes; proxies answer handshakes."""
    if sample.status not in ("ok", "censored"):
        return sample
    floors = of_link(link.plan.model_dump(by_alias=True))
    shorter = [change.rtt_ms / link.plan.rtt_ms.configured for change in case.changes if change.rtt_ms is not None]
    fault = _fault(sample, case, marks, floors, rtt_share=min([1.0, *shorter]), has_proxies=has_proxies)
    if not fault:
        return sample
    return replace(sample, status="failed", reason=fault, times_s=(None,) * len(sample.times_s))


def _fault(
    sample: Sample, case: Case, marks: Sequence[int], floors: Floors, *, rtt_share: float, has_proxies: bool
) -> str:
    """Return the first impossible time; empty if there is none. `rtt_share`: of the plan's round trip, at its shortest.

    A request follows the handshake, but for a second connection, which may send it at once (RFC 9001, section 4.6).
    """
    handshake = 0 if has_proxies else rtt_share
    before = 0 if case.second_after_s is not None else handshake
    crossing = rtt_share if case.direction == "download" else rtt_share / 2
    rates = [change.forward_mbps for change in case.changes if change.forward_mbps is not None]
    fastest = max([case.forward_mbps, *rates]) / case.forward_mbps
    faults = [floors.time_fault("handshake", sample.handshake_ms, handshake)]
    if case.direction == "download":
        faults.append(floors.time_fault("first byte", sample.time_to_first_byte_ms, before + rtt_share))
    for mark, time_s in zip(marks, sample.times_s, strict=False):
        time_ms = None if time_s is None else time_s * 1e3
        name = f"time to {mark / 1e6:g} MB"
        # The first bytes cross the link while the rest waits: the last one needs the time of all.
        faults.append(floors.time_fault(name, time_ms, before + crossing, mark / fastest, case.direction))
    return next(filter(None, faults), "")
