# SPDX-License-Identifier: GPL-3.0-or-later
"""The shortest time that a transfer can take over the link of a case: round trips, and its bytes at the link's rate."""

import math

from satlab.check.case_link import CaseLink
from satlab.check.suite import Case


def floor_s(link: CaseLink, case: Case, size_bytes: float) -> float:
    """Return the time from the client's first packet until `size_bytes` of payload can have arrived, s.

    A round trip for the handshake and one for the request, half of it for each way of an upload's end; 0-RTT saves the
    first. The payload then arrives at the rate of full-size UDP payloads, with the changes of the case.
    """
    rtt_s = link.plan.rtt_ms.min / 1e3
    rates_bps = {"download": link.plan.forward.udp_goodput_bps, "upload": link.plan.return_.udp_goodput_bps}
    rate_bps = rates_bps[case.direction]
    steps: list[tuple[float, float]] = []
    for change in case.changes:
        if change.rtt_ms is not None:
            rtt_s = change.rtt_ms / 1e3
        if change.forward_mbps is not None and case.direction == "download":
            steps.append((change.at_s, rate_bps * change.forward_mbps / case.forward_mbps))
    if case.second_after_s is not None and steps:
        # Its changes take place before the second transfer.
        rate_bps, steps = steps[-1][1], []
    trips = 1.5 if case.direction == "upload" else 2.0
    t_s = (trips - case.sends_early_data) * rtt_s
    rest = size_bytes * 8
    for at_s, next_bps in [*steps, (math.inf, 0.0)]:
        if rest <= rate_bps * (at_s - t_s):
            break
        rest -= rate_bps * max(0.0, at_s - t_s)
        t_s, rate_bps = max(t_s, at_s), next_bps
    return t_s + rest / rate_bps
