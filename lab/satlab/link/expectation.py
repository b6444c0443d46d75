# SPDX-License-Identifier: GPL-3.0-or-later
"""The expected results of a calibration for a plan, with the tolerance of each emulator."""

from dataclasses import dataclass

from satlab.link.config import Emulator
from satlab.link.plan import LinkPlan

RTT_MARGIN_MS = 1.0
"""How far the mean RTT may lie beyond the frame model's maximum, ms: host noise of four TUN and eight veth hops."""
RATE_MARGIN = 0.02
"""Relative error allowed for the steady forward rate."""
OPENSAND_RTT_MS = (4.0, 22.0, 60.0)
"""Least, mean and largest RTT of OpenSAND 8.2.0 above propagation, ms, at its usual frames of 10 and 26.5 ms: it
releases on their ticks. The least and the largest are those of 1000 echoes on a busy host."""
OPENSAND_RATE = (0.90, 1.01)
"""Steady forward rate of OpenSAND 8.2.0 as a ratio of the frame model's. As released it loses packets at saturation;
0.87 to 0.91 was measured on a loaded host."""


@dataclass(frozen=True)
class Expectation:
    """Bounds of a calibration: RTT in ms, forward UDP goodput in bit/s, and which of satlink's directions count.

    `loss`: whether losses can be distinguished from those of a full queue.
    """

    rtt_ms: float
    rtt_low_ms: float
    rtt_high_ms: float
    rate_bps: float
    rate_low_bps: float
    rate_high_bps: float
    loss: bool
    watched: tuple[str, ...]


def expectation(plan: LinkPlan, emulator: Emulator) -> Expectation:
    """Return the plan's figures with the tolerance of the emulator."""
    rtt, rate = plan.rtt_ms, plan.forward.udp_goodput_bps
    if emulator == "satlink":
        low, high = rate * (1 - RATE_MARGIN), rate * (1 + RATE_MARGIN)
        directions = ("forward", "return")
        # On demand the plan is about echoes that come one by one; of those that come together some find slots.
        least = rtt.configured if plan.return_.demand else rtt.min
        rtts = rtt.mean, least, rtt.max + RTT_MARGIN_MS
        return Expectation(*rtts, rate, low, high, loss=True, watched=directions)
    least, mean, most = (rtt.configured + above for above in OPENSAND_RTT_MS)
    low, high = (rate * ratio for ratio in OPENSAND_RATE)
    directions = ("terrestrial_down", "terrestrial_up")
    return Expectation(mean, least, most, rate, low, high, loss=False, watched=directions)
