# SPDX-License-Identifier: GPL-3.0-or-later
"""Computes from the plan the values that a calibration should measure, with the tolerance of each
emulator.
"""

from dataclasses import dataclass

from satlab.link.config import Emulator
from satlab.link.plan import LinkPlan

RTT_MARGIN_MS = 1.0
"""Largest excess of the mean RTT over the frame model's maximum, ms: host noise of four TUN and
eight veth hops.
"""
RATE_MARGIN = 0.01
"""Relative error allowed for the steady forward rate (docs/results.md: how often links that deviate
are marked).
"""
OPENSAND_RTT_MARGIN_MS = 19.5
"""RTT of OpenSAND 8.2.0 beyond the maximum of its ticks, ms: the largest of 1000 echoes on a busy
host.
"""
OPENSAND_RATE = (0.90, 1.01)
"""Steady forward rate of OpenSAND 8.2.0 as a share of the planned rate of its ticks. The released
version loses packets at saturation: 0.90 to 0.96 with QPSK 1/4 at 40 Mbaud, 0.87 with geo-acm.
Without that defect the share is 0.995, and 0.92 with geo-acm: a margin of 1 dB makes OpenSAND use
MODCOD 26, while the plan has 28.
"""


@dataclass(frozen=True)
class Expectation:
    """Bounds of a calibration: RTT in ms, forward UDP goodput in bit/s, and which of satlink's
    directions count.

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
        # With slots on demand the plan is for single echoes. Of several echoes together some find
        # slots that are already granted.
        least = rtt.configured if plan.return_.demand else rtt.min
        rtts = rtt.mean, least, rtt.max + RTT_MARGIN_MS
        return Expectation(*rtts, rate, low, high, loss=True, watched=directions)
    low, high = (rate * ratio for ratio in OPENSAND_RATE)
    directions = ("terrestrial_down", "terrestrial_up")
    rtts = rtt.mean, rtt.min, rtt.max + OPENSAND_RTT_MARGIN_MS
    return Expectation(*rtts, rate, low, high, loss=False, watched=directions)
