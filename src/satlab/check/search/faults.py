# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings: transfers that die, stall, or are slow for their link.

A transfer is slow in comparison with a reference over the same link: another stack, or arithmetic.
If the other stack has the same fault, the link is its cause and there is no finding.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from satlab.check.samples import Status
from satlab.link.options import REORDER_MS

Kind = Literal["dies", "stalls", "slow"]
INITIAL_WINDOW_BYTES = 14_720
"""RFC 9002, section 7.2: min(10 x 1472, max(2 x 1472, 14,720))."""
BACKOFF = 2.0
"""A sender that probes with doubled intervals (RFC 9002, section 6.2) notices the end of an outage
at the latest after another time of the same length.
"""
LOAD_SLACK_S = 0.2
"""Allowance for the interval of samples (50 ms) and for acknowledgement delays, s."""


@dataclass(frozen=True)
class Limits:
    """`share`: a stack is slow below this share of the reference's speed.

    `stall_rtts`: a stall is longer than this.
    """

    share: float = 0.5
    stall_rtts: float = 10.0


@dataclass(frozen=True)
class Observed:
    """A transfer: `time_s` until its last byte (None: the byte did not arrive), and `wait_s`, the
    longest time without progress.
    """

    status: Status
    reason: str
    time_s: float | None
    wait_s: float | None = None


def fault(
    found: Observed, reference_s: float | None, allowed_wait_s: float, limits: Limits
) -> Kind | None:
    """Return the worst fault of a transfer; None if it has none. `reference_s` None: there is no
    time to compare with.
    """
    if found.status == "failed":
        return "dies"
    if found.wait_s is not None and found.wait_s > allowed_wait_s:
        return "stalls"
    if reference_s is not None and (
        found.time_s is None or found.time_s * limits.share > reference_s
    ):
        return "slow"
    return None


def longest_wait_s(
    samples: Sequence[Mapping[str, Any]], start_s: float, end_s: float
) -> float | None:
    """Return the longest time within a transfer in which no payload arrived, s; None without
    samples. `samples` come from satvirtual's outcome. The wait for the first byte counts.
    """
    own = [one for one in samples if one["t_s"] >= start_s]
    if not own:
        return None
    since, received, longest = start_s, 0, 0.0
    for one in own:
        if one["received_bytes"] != received:
            longest = max(longest, one["t_s"] - since)
            since, received = one["t_s"], one["received_bytes"]
    return max(longest, end_s - since)


def loaded_rtt_s(values: Mapping[str, float], rate_mbps: float) -> float:
    """Return the round-trip time of a condition with a full queue, s. The queue holds at most the
    whole payload.
    """
    rtt_s = values["rtt_ms"] / 1e3
    payload_s = values["payload_mb"] * 8 / rate_mbps
    return (
        rtt_s
        + min(values["queue_bdp"] * rtt_s, payload_s)
        + values["jitter_ms"] / 1e3
        + (REORDER_MS / 1e3 if values["reorder_percent"] else 0.0)
        + LOAD_SLACK_S
    )


def allowed_wait_s(values: Mapping[str, float], rate_mbps: float, limits: Limits) -> float:
    """Return the longest wait that does not count as a stall, s: some round trips under load, and
    an outage.
    """
    return limits.stall_rtts * loaded_rtt_s(values, rate_mbps) + BACKOFF * values["outage_s"]


def arithmetic_s(floor_s: float, values: Mapping[str, float], rate_mbps: float) -> float:
    """Return the time of a sender that doubles its initial window each round trip until it fills
    the link, s.

    `floor_s` has handshake, request and the payload at the link's rate (time_floors.py). Losses are
    ignored, because their cost depends on the congestion controller.
    """
    rtt_s = values["rtt_ms"] / 1e3
    filled = min(values["payload_mb"] * 1e6, rate_mbps * 1e6 / 8 * rtt_s)
    rounds = max(0, math.ceil(math.log2(filled / INITIAL_WINDOW_BYTES + 1)) - 1)
    return floor_s + rounds * rtt_s + BACKOFF * values["outage_s"]
