# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of flows as text, for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from collect import calibration

NOTHING = "\N{EN DASH}"


def lines(outcome: Mapping[str, Any]) -> Iterator[str]:
    """Yield the flows, groups and queues of an outcome, and the checks that were out of
    calibration.
    """
    yield f"{'flow':16} {'library':28} {'goodput':>12} {'RTT':>12} {'lost':>7}  status"
    for flow in outcome["flows"]:
        rtt = [phase["rtt_ms"]["mean"] for phase in flow["phases"] if phase["rtt_ms"]]
        shown = " / ".join(f"{one:.1f}" for one in rtt) if rtt else NOTHING
        status = flow["status"] + (f": {flow['reason']}" if flow["reason"] else "")
        yield (
            f"{flow['id'][:16]:16} {flow['library'][:28]:28} {flow['goodput_mbps']:7.3f} Mb/s"
            f" {shown:>9} ms {flow['lost_packets']:7}  {status}"
        )
    for group in outcome["groups"]:
        jain, used = (
            NOTHING if group[name] is None else f"{group[name]:.4f}"
            for name in ("jain", "utilisation")
        )
        yield (
            f"group {group['group']}, {group['direction']}: {group['flows']} flows,"
            f" {group['failed']} failed, Jain's index {jain}, utilisation {used}"
        )
    for queue in outcome["queues"]:
        shown = ", ".join(
            f"{phase['p50_ms']:.1f} / {phase['p95_ms']:.1f}" for phase in queue["phases"]
        )
        yield f"queue {queue['direction']}: median / 95th percentile {shown} ms"
    if outcome.get("calibration"):
        yield calibration.sentence(outcome["calibration"])
