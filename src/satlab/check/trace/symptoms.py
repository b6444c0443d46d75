# SPDX-License-Identifier: GPL-3.0-or-later
"""Symptoms of a slow download, from packets and CPU times, without qlog and keys."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate, pairwise
from statistics import median

from satlab.check.trace.captured_transfer import FULL_DATAGRAM_BYTES, CapturedTransfer

SMALL_WINDOW_PACKETS = 4
"""A smaller initial window is a symptom: RFC 9002, section 7.2 recommends ten packets, RFC 2581
allowed two.
"""
CONSTANT_SPREAD = 0.3
"""Largest relative spread of the bytes per round trip for which a window counts as constant."""
LONGER_PERCENT = 25
BELOW_RATE = 0.7
"""Share of the link's rate below which the link is not the limit."""
MIN_ROUNDS = 6
BUSY = 0.85
"""Share of a core from which the CPU limits a program."""
WAITING = 0.25
"""Share of the time from which waiting for a core is a symptom.

A program that gets the CPU it needs hardly waits.
"""


def symptoms(
    wire: CapturedTransfer, rtt_s: float, rate_bps: float, cpu_s: Mapping[str, tuple[float, float]]
) -> tuple[str, ...]:
    """Return the symptoms of a download.

    `rtt_s` is the idle link's round-trip time, `rate_bps` the link's capacity. `cpu_s` has two
    times for each program, by name: the time it ran, and the time it was runnable but had no core.
    """
    found = [_lost_handshake_packet(wire, rtt_s), _small_initial_window(wire, rtt_s)]
    found.append(_constant_window(wire, rtt_s, rate_bps))
    duration_s = wire.datagrams[-1].t_s
    for name, (used_s, waited_s) in cpu_s.items():
        if duration_s > 1 and used_s > BUSY * duration_s:
            found.append(f"CPU limit: the {name} took {used_s / duration_s:.0%} of a core")
        elif duration_s > 1 and waited_s > WAITING * duration_s:
            took = f"took {used_s / duration_s:.1%} of a core"
            found.append(
                f"CPU limit: the {name} waited for a core {waited_s / duration_s:.0%} of the time,"
                f" and {took}"
            )
    return tuple(filter(None, found))


def _lost_handshake_packet(wire: CapturedTransfer, rtt_s: float) -> str:
    answer_s, end_s = wire.first_answer_s, wire.handshake_s
    if answer_s is not None and answer_s > 1.5 * rtt_s:
        return (
            f"lost handshake packet: the first answer arrived after {answer_s:.2f} s, the RTT is"
            f" {rtt_s:.2f} s"
        )
    if answer_s is not None and end_s is not None:
        # Each Retry costs a round trip.
        retries = wire.count("retry", from_server=True)
        if end_s - answer_s > (retries + 0.7) * rtt_s:
            return (
                f"lost handshake packet: the handshake took {end_s:.2f} s, the RTT is {rtt_s:.2f} s"
            )
    return ""


def _small_initial_window(wire: CapturedTransfer, rtt_s: float) -> str:
    """Look at the first flight of payload, which arrives a round trip after the end of the
    handshake.
    """
    handshake_s = wire.handshake_s
    if handshake_s is None:
        return ""
    payload = [one for one in wire.arrivals if one.t_s > handshake_s + 0.9 * rtt_s]
    flight = [one.size for one in payload if one.t_s < payload[0].t_s + 0.6 * rtt_s]
    later_bytes = sum(one.size for one in payload) - sum(flight)
    if sum(flight) < SMALL_WINDOW_PACKETS * FULL_DATAGRAM_BYTES < later_bytes:
        return (
            f"small initial window: the first flight had {sum(flight)} bytes in {len(flight)}"
            " packets"
        )
    return ""


def _constant_window(wire: CapturedTransfer, rtt_s: float, rate_bps: float) -> str:
    """Look for round trips in the second half that bring equal amounts, below the link's capacity.

    The round trip of a constant window is a little longer than the idle link's: several lengths are
    tried.
    """
    arrivals = wire.arrivals
    if not arrivals:
        return ""
    times, total = [one.t_s for one in arrivals], [0, *accumulate(one.size for one in arrivals)]
    middle_s = (times[0] + times[-1]) / 2
    later_bytes = total[-1] - total[bisect_left(times, middle_s)]
    if 8 * later_bytes > BELOW_RATE * rate_bps * (times[-1] - middle_s):
        return ""
    candidates = []
    for percent in range(100, 100 + LONGER_PERCENT):
        round_s = rtt_s * percent / 100
        edges = [
            middle_s + n * round_s for n in range(math.floor((times[-1] - middle_s) / round_s) + 1)
        ]
        rounds = [
            after - before
            for before, after in pairwise(total[bisect_left(times, edge)] for edge in edges)
        ]
        if len(rounds) >= MIN_ROUNDS:
            spread = (max(rounds) - min(rounds)) / max(median(rounds), 1)
            candidates.append((spread, median(rounds), rate_bps * round_s / 8))
    spread, window_bytes, capacity_bytes = min(candidates, default=(math.inf, 0.0, 0.0))
    if spread > CONSTANT_SPREAD:
        return ""
    return (
        f"constant window: {window_bytes / 1e6:.2f} MB per round trip; the link carries"
        f" {capacity_bytes / 1e6:.2f} MB"
    )
