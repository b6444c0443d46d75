# SPDX-License-Identifier: GPL-3.0-or-later
"""The shortest times that the link of a case allows.

A faster sample is a wrong measurement, and failed.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from collect.physical_floors import Floors, Rates, of_link
from satlab.check.case_link import CaseLink
from satlab.check.samples import Sample
from satlab.check.suite import Case


def possible(
    sample: Sample, case: Case, marks: Sequence[int], link: CaseLink, *, has_proxies: bool = False
) -> Sample:
    """Return the sample with its floors; failed if a time is below one.

    `marks` in bytes; proxies answer handshakes.
    """
    floors = floors_of(link, case)
    handshake = 0 if has_proxies else 1
    least_ms = [least_time_ms(floors, case, mark, handshake) for mark in marks]
    sample = replace(sample, floors_s=tuple(time_ms / 1e3 for time_ms in least_ms))
    if sample.status not in ("ok", "censored"):
        return sample
    faults = [floors.time_fault("handshake", sample.handshake_ms, floors.least_ms(handshake))]
    if case.direction == "download":
        least_first_ms = least_time_ms(floors, case, 0, handshake)
        faults.append(floors.time_fault("first byte", sample.time_to_first_byte_ms, least_first_ms))
    for mark, time_s, least in zip(marks, sample.times_s, least_ms, strict=False):
        time_ms = None if time_s is None else time_s * 1e3
        faults.append(floors.time_fault(f"time to {mark / 1e6:g} MB", time_ms, least))
    fault = next(filter(None, faults), "")
    if not fault:
        return sample
    return replace(sample, status="failed", reason=fault, times_s=(None,) * len(sample.times_s))


def least_time_ms(floors: Floors, case: Case, payload_bytes: float, handshake: int = 1) -> float:
    """Return the shortest time until so much payload has arrived, ms; `handshake` in round trips.

    The request follows the handshake, except as early data (RFC 9001, section 4.6). A download then
    needs one round trip for request and answer, an upload half a round trip for its last byte. The
    payload's time at the link's rate is added.
    """
    before = 0 if case.sends_early_data else handshake
    crossing = 1.0 if case.direction == "download" else 0.5
    return floors.least_ms(before + crossing, payload_bytes, case.direction)


def floors_of(link: CaseLink, case: Case) -> Floors:
    """Return the floors of a case with its changes.

    A change for the worse reaches the client after half a round trip. A change for the better
    counts from the start, because a lab's timeline begins before the client's first packet. A
    second transfer starts with the link as changed before it.
    """
    floors = of_link(link.plan.model_dump(by_alias=True))
    past = [change for change in case.changes if change.at_s <= (case.second_after_s or -1)]
    later = [change for change in case.changes if change not in past]
    past_ms = [one.rtt_ms for one in past if one.rtt_ms is not None]
    rtt_ms = min(
        [
            past_ms[-1] if past_ms else floors.rtt_ms,
            *(one.rtt_ms for one in later if one.rtt_ms is not None),
        ]
    )
    (_, full_bps), *_ = floors.rates["download"]
    shares = [one.forward_mbps / case.forward_mbps for one in past if one.forward_mbps is not None]
    rates = [(0.0, full_bps * (shares[-1] if shares else 1.0))]
    rates += [
        (change.at_s * 1e3 + rtt_ms / 2, full_bps * change.forward_mbps / case.forward_mbps)
        for change in later
        if change.forward_mbps is not None
    ]
    return replace(floors, rtt_ms=rtt_ms, rates={**floors.rates, "download": _best(rates)})


def _best(rates: Rates) -> Rates:
    """Return, for each time, the highest rate from that time on."""
    highest = list(accumulate((bps for _, bps in reversed(rates)), max))
    return tuple((from_ms, bps) for (from_ms, _), bps in zip(rates, reversed(highest), strict=True))
