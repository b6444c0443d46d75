# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the trace of a transfer from the raw files of its sample.

Three sources: satvirtual's outcome; satperf's output and link metrics; the states of a server's
qlog and link metrics.
"""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from satlab.check.case_link import IP_BYTES_PER_UDP_BYTE
from satlab.check.samples import Sample
from satlab.check.sandboxed_program import read_json_lines
from satlab.check.suite import Case
from satlab.check.trace import packet_ledger, qlog_figures
from satlab.check.trace.causes import SenderState, TransferTrace
from satlab.link.plan import LinkPlan

MIN_SAMPLES = 3
"""Number of samples of the link's metrics in the window over which its load is judged."""
Lines = Sequence[Mapping[str, Any]]


def read(raw: Path, case: Case, sample: Sample, plan: LinkPlan) -> TransferTrace | None:
    """Return the trace of a sample below `raw`; None if its files do not have the sender's states."""
    payload, _ = _directions(case.direction == "download")
    trace = _read(raw, case.id, sample.seed, plan)
    if trace is None or trace.has_virtual_clock:
        return trace
    declared = trace.states[-1].lost_packets if trace.states else 0
    return replace(trace, lost_by=packet_ledger.lost_by(sample.ledgers, payload, declared))


def _read(raw: Path, case: str, seed: int, plan: LinkPlan) -> TransferTrace | None:
    outcome = raw / f"{case}-{seed}.outcome.json"
    if outcome.is_file():
        return of_outcome(json.loads(outcome.read_text()), plan)
    folder = raw / f"{case}-{seed}"
    states = folder / qlog_figures.FILE
    if states.is_file():
        return of_qlog(json.loads(states.read_text()), read_json_lines(folder / "link.jsonl"), plan)
    last = max(folder.glob("client/client-*.jsonl"), default=None)
    if last is None:
        return None
    return of_satperf(read_json_lines(last), read_json_lines(folder / "link.jsonl"), plan)


def of_outcome(outcome: Mapping[str, Any], plan: LinkPlan) -> TransferTrace:
    """Return the trace of the last transfer in satvirtual's outcome."""
    last = outcome["transfers"][-1]
    start = last["started_s"]
    payload, acks = _directions(outcome["request"]["direction"] == "download")
    samples = outcome["samples"]
    released = [one[f"{payload}_out_bytes"] for one in samples]
    load = _Load([one["t_s"] for one in samples], released, _capacity_bps(plan, payload))
    states = [
        SenderState(
            t_s=one["t_s"] - start,
            cwnd_bytes=one["cwnd_bytes"],
            in_flight_bytes=one["in_flight_bytes"],
            is_handshaking=one["handshaking"],
            is_slow_start=one["slow_start"],
            is_app_limited=one["app_limited"],
            supply=one["supply"],
            rtt_ms=one["rtt_ms"],
            lost_packets=one["lost_packets"],
            payload_queue_ms=one[f"{payload}_queue_ms"],
            ack_queue_ms=one[f"{acks}_queue_ms"],
            link_share=load.share(one["t_s"], one["rtt_ms"] / 1e3),
            pacing_bps=one["pacing_bps"],
        )
        for one in samples
        if one["t_s"] >= start
    ]
    lost = sum(
        one["dropped_packets"] + one["lost_packets"]
        for one in outcome["link"]
        if one["name"] in packet_ledger.WAYS[payload]
    )
    declared = states[-1].lost_packets if states else 0
    return TransferTrace(
        _requested_s(last),
        last["duration_s"],
        states,
        packet_ledger.by_most(declared, lost),
        has_virtual_clock=True,
    )


def _requested_s(transfer: Mapping[str, Any]) -> float | None:
    """Return when the sender had its request; a connection without a handshake had none until its
    end. None: unknown.
    """
    if transfer["asked_ms"] is not None:
        return float(transfer["asked_ms"]) / 1e3
    return float(transfer["duration_s"]) if transfer["handshake_ms"] is None else None


def of_satperf(lines: Lines, link: Lines, plan: LinkPlan) -> TransferTrace | None:
    """Return the trace of a client's output (schemas/satperf.schema.json) and link metrics.

    None if it does not have the sender's states: the connection failed, or the library is quiche.
    """
    starts = {line["side"]: line for line in lines if line["type"] == "start"}
    summaries = {line["side"]: line for line in lines if line["type"] == "summary"}
    sides = {start["role"]: side for side, start in starts.items()}
    sender, receiver = sides.get("sender"), sides.get("receiver")
    intervals = [line for line in lines if line["type"] == "interval" and line["side"] == sender]
    if not intervals or receiver not in summaries or intervals[0].get("in_flight_bytes") is None:
        return None
    zero_unix_s = starts["client"]["t_unix_s"]
    later_s = {side: start["t_unix_s"] - zero_unix_s for side, start in starts.items()}
    # A server writes its first line at the request; a client sends its first line after its
    # handshake.
    requested_s: float | None = None
    if sender == "server":
        requested_s = intervals[0]["t_s"] + later_s["server"]
    elif (handshake_ms := summaries["client"]["handshake_ms"]) is not None:
        requested_s = handshake_ms / 1e3
    queues = _Queues(link, zero_unix_s, plan, is_download=sender == "server")
    lost_packets = accumulate(line["lost_packets"] for line in intervals)
    states = []
    for line, lost in zip(intervals, lost_packets, strict=True):
        t_s = line["t_s"] + later_s[str(sender)]
        payload_queue_ms, ack_queue_ms = queues.at(t_s)
        states.append(
            SenderState(
                t_s=t_s,
                cwnd_bytes=line["cwnd_bytes"],
                in_flight_bytes=line["in_flight_bytes"],
                is_handshaking=False,
                is_slow_start=line["slow_start"],
                is_app_limited=line["app_limited"],
                supply="done" if line["handed"] else "blocked",
                rtt_ms=line["rtt_ms"],
                lost_packets=lost,
                payload_queue_ms=payload_queue_ms,
                ack_queue_ms=ack_queue_ms,
                link_share=queues.load.share(t_s, line["rtt_ms"] / 1e3),
                pacing_bps=line.get("pacing_bps"),
            )
        )
    return TransferTrace(requested_s, _end_s(summaries[receiver], later_s[receiver]), states)


def of_qlog(document: Mapping[str, Any], link: Lines, plan: LinkPlan) -> TransferTrace:
    """Return the trace of the states of a server's qlog (qlog_figures.FILE) and link metrics."""
    queues = _Queues(link, document["start_unix_s"], plan, is_download=True)
    states = []
    for point in document["points"]:
        payload_queue_ms, ack_queue_ms = queues.at(point["t_s"])
        states.append(
            SenderState(
                **{"is_app_limited": point["supply"] != "slow"} | point,
                is_handshaking=False,
                payload_queue_ms=payload_queue_ms,
                ack_queue_ms=ack_queue_ms,
                link_share=queues.load.share(point["t_s"], point["rtt_ms"] / 1e3),
            )
        )
    return TransferTrace(document["asked_s"], document["end_s"], states)


def _end_s(receiver: Mapping[str, Any], later_s: float) -> float:
    """Return the time of the last payload byte; if no byte arrived, of the end of the
    connection.
    """
    goodput_bps = receiver["goodput_bps"]
    return float(receiver["bytes"] * 8 / goodput_bps if goodput_bps else receiver["t_s"]) + later_s


@dataclass(frozen=True)
class _Load:
    """Bytes that a link had released at each time."""

    times: Sequence[float]
    released: Sequence[float]
    capacity_bps: float

    def share(self, t_s: float, window_s: float) -> float:
        """Return the share of its capacity that the link released in the window before `t_s`; 0 if
        unknown. Each value counts the bytes released until its time.
        """
        first, last = (bisect_left(self.times, edge) for edge in (t_s - window_s, t_s))
        last = min(last, len(self.times) - 1)
        if window_s <= 0 or first < 1 or last - first < MIN_SAMPLES:
            return 0.0
        length_s = self.times[last] - self.times[first]
        return (self.released[last] - self.released[first]) * 8 / length_s / self.capacity_bps


def _capacity_bps(plan: LinkPlan, direction: str) -> float:
    """Return the rate of a direction for full-size IP packets."""
    plans = {"forward": plan.forward, "return": plan.return_}
    return plans[direction].udp_goodput_bps * IP_BYTES_PER_UDP_BYTE


class _Queues:
    """The link's queues over time (s since `zero_unix_s`), in ms that the link needs to send
    them.
    """

    def __init__(
        self, lines: Lines, zero_unix_s: float, plan: LinkPlan, *, is_download: bool
    ) -> None:
        samples = [line for line in lines if line["type"] == "sample"]
        rates_bps = {"forward": plan.forward.rate_bps, "return": plan.return_.rate_bps}
        payload, _ = _directions(is_download)
        released = accumulate(
            line[payload]["out_bytes"] if line[payload] else 0 for line in samples
        )
        self._times = [line["t_unix_s"] - zero_unix_s for line in samples]
        self.load = _Load(self._times, list(released), _capacity_bps(plan, payload))
        self._ms = [
            [line[name]["queue_bytes"] * 8e3 / rates_bps[name] for line in samples]
            for name in _directions(is_download)
        ]

    def at(self, t_s: float) -> tuple[float, float]:
        """Return the queues of payload and acknowledgements at the next sample; 0 without samples."""
        if not self._times:
            return 0.0, 0.0
        index = min(bisect_left(self._times, t_s), len(self._times) - 1)
        payload, acks = self._ms
        return payload[index], acks[index]


def _directions(is_download: bool) -> tuple[str, str]:
    """Return the directions of payload and acknowledgements."""
    return ("forward", "return") if is_download else ("return", "forward")
