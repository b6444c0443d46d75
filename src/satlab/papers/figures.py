# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of one run, by name, from the outcome of flows or the records of a scenario. Some figures
are taken for each phase.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from collect.page_loads import HOST_PART
from satlab.papers.scenario_figures import EARLY_S, Records

Outcome = Mapping[str, Any]
Spread = tuple[float, float | None]
"""Mean, and standard deviation over the time of the run if the figure has one."""

PERCENTILES = (5, 25, 50, 75, 95)
LAST_S = 30
"""Long-term fairness is taken over this many last seconds in which all flows are there."""
ALONE_S = 40
"""The end of a run in which the last flow is alone (thesis, section 6.3.1.4)."""
PAPER_ACKS_PER_S = 966
"""ACKs a second that 20 Mbit/s of packets of 1294 bytes need, one for two packets."""
PAPER_ACK_BYTES = 94
"""An ACK datagram of ngtcp2 on the wire: 92 to 96 bytes."""


@dataclass(frozen=True)
class FigureOf:
    """A figure: its name and unit for people, digits, whether it is taken for each phase, and how
    to read it. `bootstrap`: the estimate from its samples, with a bootstrap interval; None: their
    mean, with Student's interval.
    """

    title: str
    unit: str
    digits: int
    is_phased: bool
    read: Callable[[Any, int], Spread | None]
    bootstrap: Literal["median", "mean"] | None = None


def first_group(outcome: Outcome) -> list[Mapping[str, Any]]:
    """Return the flows of the first flow's group."""
    group = outcome["request"]["flows"][0]["group"]
    return [flow for flow, asked in _asked(outcome) if asked["group"] == group]


def other_groups(outcome: Outcome) -> list[Mapping[str, Any]]:
    """Return the flows of all other groups."""
    group = outcome["request"]["flows"][0]["group"]
    return [flow for flow, asked in _asked(outcome) if asked["group"] != group]


def _asked(outcome: Outcome) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each flow with its request."""
    return zip(outcome["flows"], outcome["request"]["flows"], strict=True)


def _of_phase(name: str) -> Callable[[Outcome, int], Spread | None]:
    def read(outcome: Outcome, phase: int) -> Spread | None:
        found = outcome["flows"][0]["phases"][phase][name]
        return None if found is None else (found["mean"], found["sd"])

    return read


def _plain(function: Callable[[Outcome], float | None]) -> Callable[[Outcome, int], Spread | None]:
    def read(outcome: Outcome, _: int) -> Spread | None:
        value = function(outcome)
        return None if value is None else (value, None)

    return read


def _group(name: str) -> Callable[[Outcome, int], Spread | None]:
    return _plain(lambda outcome: outcome["groups"][0][name])


def _life_s(outcome: Outcome, flow: Mapping[str, Any]) -> float:
    start = flow.get("began_s")
    if start is None:
        start = next(
            asked["start_s"] for asked in outcome["request"]["flows"] if asked["id"] == flow["id"]
        )
    end = flow["ended_s"]
    return float((outcome["request"]["duration_s"] if end is None else end) - start)


def _complete_s(outcome: Outcome) -> float | None:
    """Return the mean time to complete, s; None if a flow did not complete."""
    flows = first_group(outcome)
    whole = all(flow["status"] == "ok" for flow in flows)
    return fmean(_life_s(outcome, flow) for flow in flows) if whole else None


def least_s(outcome: Outcome) -> float:
    """Return the time that the first group's flows had to complete, s: from the start of its first
    flow to the end of the run.
    """
    flows = first_group(outcome)
    asked = {flow["id"]: flow["start_s"] for flow in outcome["request"]["flows"]}
    starts = [
        asked[flow["id"]] if flow.get("began_s") is None else flow["began_s"] for flow in flows
    ]
    return float(outcome["request"]["duration_s"] - min(starts))


def _complete_share(percent: int) -> Callable[[Outcome], float | None]:
    """Return a percentile of the first group's times to complete, s; None if the flow at that rank
    did not complete.

    Nearest rank: of 40 flows the 5th percentile is the second. A flow that did not complete counts
    as slower than all others.
    """

    def read(outcome: Outcome) -> float | None:
        flows = first_group(outcome)
        times = sorted(
            _life_s(outcome, flow) if flow["status"] == "ok" else math.inf for flow in flows
        )
        found = times[max(0, math.ceil(len(times) * percent / 100) - 1)]
        return found if math.isfinite(found) else None

    return read


def _late(outcome: Outcome) -> Sequence[Mapping[str, Any]]:
    return first_group(outcome)[1:]


def _time_to_share(outcome: Outcome) -> float | None:
    """Return the mean time to 80 % of the fair share, s; for a flow that never reaches it, its
    whole life counts.
    """
    times = [
        (
            flow["time_to_80_percent_s"]
            if flow["time_to_80_percent_s"] is not None
            else _life_s(outcome, flow)
        )
        for flow in _late(outcome)
    ]
    return fmean(times) if times else None


def _first_share(outcome: Outcome) -> float | None:
    shares = [flow["share_20s"] for flow in _late(outcome) if flow["share_20s"] is not None]
    return fmean(shares) if shares else None


def _jain_end(outcome: Outcome) -> float | None:
    """Return the mean of Jain's index over the last seconds in which all flows of the group are to
    run.
    """
    flows = outcome["request"]["flows"]
    stops = [flow.get("stop_s", outcome["request"]["duration_s"]) for flow in flows]
    end = int(min(stops))
    values = [
        value
        for value in outcome["groups"][0]["jain_over_time"][max(0, end - LAST_S) : end]
        if value is not None
    ]
    return fmean(values) if values else None


def _rate(outcome: Outcome, flow: Mapping[str, Any], last_s: float) -> float:
    bins = flow["bins"]["payload_bytes"][-int(last_s * 1000 / outcome["request"]["bin_ms"]) :]
    return sum(value or 0 for value in bins) * 8e-6 / last_s


def _alone(outcome: Outcome) -> float:
    return _rate(outcome, first_group(outcome)[-1], ALONE_S)


def _others(outcome: Outcome, phase: int) -> Spread | None:
    """Return the payload rate of all flows of the other groups together."""
    found = [flow["phases"][phase]["goodput_mbps"] for flow in other_groups(outcome)]
    rates = [rate["mean"] for rate in found if rate is not None]
    return (sum(rates), None) if rates else None


def _queue(outcome: Outcome, phase: int) -> Spread | None:
    return outcome["queues"][0]["phases"][phase]["p95_ms"], None


def ack_limited(up_mbps: float, ack_bytes: float, acks_per_s: float) -> float:
    """Return the share of the goodput that acknowledgements of this size permit over an uplink of
    this rate.
    """
    return min(1.0, up_mbps * 1e6 / (8 * ack_bytes * acks_per_s))


def _paper_limit(outcome: Outcome) -> float:
    up_mbps = outcome["request"]["wire"]["return"]["rate_mbps"]
    return 100 * ack_limited(up_mbps, PAPER_ACK_BYTES, PAPER_ACKS_PER_S)


def _own_limit(outcome: Outcome) -> float | None:
    """Return the same with the bytes of our ACK packets and the packets a second of our link."""
    wire, flow = outcome["request"]["wire"], outcome["request"]["flows"][0]
    back = next(link for link in outcome["link"] if link["name"] == "return")
    if not back["out_packets"] or len(outcome["flows"]) > 1:
        return None
    headers = {name: wire[name].get("header_bytes", 0) for name in ("forward", "return")}
    packets_per_s = (
        wire["forward"]["rate_mbps"]
        * 1e6
        / (8 * (flow["datagram_bytes"] + 28 + headers["forward"]))
    )
    ack_bytes = back["out_bytes"] / back["out_packets"] + headers["return"]
    every = 1 + flow.get("ack_threshold", 1)
    return 100 * ack_limited(wire["return"]["rate_mbps"], ack_bytes, packets_per_s / every)


def _cubic(outcome: Outcome) -> float:
    """Return CUBIC's response function (RFC 9438 section 5.1, C 0.4, beta 0.7), at most the link's
    rate.
    """
    wire, flow = outcome["request"]["wire"], outcome["request"]["flows"][0]
    loss, rate_mbps = (
        wire["forward"].get("loss", {}).get("ratio", 0),
        float(wire["forward"]["rate_mbps"]),
    )
    if not loss:
        return rate_mbps
    rtt_s = 2 * wire["forward"]["delay_ms"] / 1e3
    window = (0.4 * 3.7 / (4 * 0.3)) ** 0.25 * (rtt_s / loss) ** 0.75
    return min(rate_mbps, float(window * flow["datagram_bytes"] * 8e-6 / rtt_s))


def _jump(name: str) -> Callable[[Outcome, int], Spread | None]:
    return _plain(lambda outcome: float(outcome["flows"][0].get("careful_resume", {}).get(name, 0)))


def _of_records(
    title: str,
    unit: str,
    digits: int,
    read: Callable[[Records], float | None],
    bootstrap: Literal["median", "mean"] = "median",
) -> FigureOf:
    """Return a figure of a scenario; infinite where the sample is censored."""

    def spread(records: Records, _: int) -> Spread | None:
        value = read(records)
        return None if value is None else (value, None)

    return FigureOf(title, unit, digits, False, spread, bootstrap)


FIGURES: Mapping[str, FigureOf] = {
    "goodput_mbps": FigureOf("Goodput", "Mbit/s", 2, True, _of_phase("received_mbps")),
    "payload_mbps": FigureOf("Payload rate", "Mbit/s", 2, True, _of_phase("goodput_mbps")),
    "rtt_ms": FigureOf("RTT", "ms", 1, True, _of_phase("rtt_ms")),
    "queue_p95_ms": FigureOf("Queue delay, 95th percentile", "ms", 1, True, _queue),
    "utilisation": FigureOf("Utilisation", "", 3, False, _group("utilisation")),
    "jain": FigureOf("Jain's index", "", 3, False, _group("jain")),
    "jain_end": FigureOf(f"Jain's index, last {LAST_S} s of all", "", 3, False, _plain(_jain_end)),
    "time_to_80_s": FigureOf(
        "Time to 80 % of the fair share, later flows", "s", 1, False, _plain(_time_to_share)
    ),
    "share_20s": FigureOf(
        "Share in the first 20 s, later flows", "", 3, False, _plain(_first_share)
    ),
    "alone_mbps": FigureOf(f"Last flow, last {ALONE_S} s", "Mbit/s", 2, False, _plain(_alone)),
    "complete_s": FigureOf("Time to complete", "s", 2, False, _plain(_complete_s)),
    **{
        f"complete_p{percent:02}_s": FigureOf(
            f"Time to complete, {percent}th percentile",
            "s",
            2,
            False,
            _plain(_complete_share(percent)),
        )
        for percent in PERCENTILES
    },
    "others_mbps": FigureOf("Goodput of the others", "Mbit/s", 2, True, _others),
    "jump_lost_bytes": FigureOf("Lost of the jump", "bytes", 0, False, _jump("lost_bytes")),
    "jump_bytes": FigureOf("Jump", "bytes", 0, False, _jump("jump_bytes")),
    "formula_percent": FigureOf(
        "ACK-limited, 94 bytes (formula)", "%", 1, False, _plain(_paper_limit)
    ),
    "own_formula_percent": FigureOf(
        "ACK-limited, our ACKs (formula)", "%", 1, False, _plain(_own_limit)
    ),
    "cubic_mbps": FigureOf(
        "CUBIC's response function (formula)", "Mbit/s", 2, False, _plain(_cubic)
    ),
    "base_percent": FigureOf(
        "Goodput, of the base cell's", "%", 1, True, _of_phase("received_mbps")
    ),
    "others_percent": FigureOf("Goodput of the others, of the base cell's", "%", 1, True, _others),
    "complete_percent": FigureOf(
        "Time to complete, of the base cell's", "%", 1, False, _plain(_complete_s)
    ),
    "response_start_ms": _of_records(
        "Response Start", "ms", 0, lambda run: run.figure("response_start_ms")
    ),
    "first_contentful_paint_ms": _of_records(
        "First Contentful Paint", "ms", 0, lambda run: run.figure("first_contentful_paint_ms")
    ),
    "page_load_time_ms": _of_records(
        "Page Load Time", "ms", 0, lambda run: run.figure("page_load_time_ms")
    ),
    HOST_PART: _of_records(
        "Host part of Page Load Time", "ms", 0, lambda run: run.figure(HOST_PART)
    ),
    "connect_ms": _of_records("Connection established", "ms", 1, lambda r: r.figure("connect_ms")),
    "ttfb_ms": _of_records("Time to first byte", "ms", 0, lambda run: run.figure("ttfb_ms")),
    "reached_2mb_s": _of_records("2 MB received", "s", 2, lambda run: run.reached_s(2_000_000)),
    "reached_10mb_s": _of_records("10 MB received", "s", 2, lambda run: run.reached_s(10_000_000)),
    "late_mbps": _of_records(
        f"Goodput after {EARLY_S:g} s", "Mbit/s", 2, lambda run: run.late_mbps, "mean"
    ),
    "received_5s_bytes": _of_records(
        f"Received after {EARLY_S:g} s", "bytes", 0, lambda run: run.early_bytes, "mean"
    ),
}
"""All figures. Those that end in `_percent` of a base cell are divided by it (`RELATIVE`)."""
RELATIVE = {"base_percent", "others_percent", "complete_percent"}
TIMED = {name for name in FIGURES if name.startswith("complete_")}
"""Times to complete: a run without one did not complete within its time, which counts in its place.
"""
