# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the trace of a transfer from the raw files of its sample: the sender's states, what it sent
over time, and what the link lost.

Three sources: satvirtual's outcome; satperf's output and link metrics; the states of a server's
qlog and link metrics.
"""

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from satlab.check.case_link import IP_BYTES_PER_UDP_BYTE
from satlab.check.samples import Sample
from satlab.check.sandboxed_program import read_json_lines
from satlab.check.suite import Case
from satlab.check.trace import packet_ledger, qlog_figures, time_sequence
from satlab.check.trace.causes import LATE_MS, LATE_RTT_MS, LinkLoss, SenderState, TransferTrace
from satlab.check.trace.time_sequence import Flow
from satlab.link.plan import LinkPlan

MIN_SAMPLES = 3
"""Number of samples of the link's metrics in the window over which its load is judged."""
DRAIN_ROUND_TRIPS = 3
"""For so long a queue explains late acknowledgements: smoothed round-trip times follow slowly."""
FIRST_ROUND_TRIPS = 1.5
"""Acknowledgements of the handshake and of the first packets come so long after the request."""
KNOWN_ROUND_TRIPS = 2
"""For so long the time until acknowledgements is taken as known, without a new one."""
Lines = Sequence[Mapping[str, Any]]


def read(raw: Path, case: Case, sample: Sample, plan: LinkPlan) -> TransferTrace | None:
    """Return the trace of a sample below `raw`; None if its files do not have the sender's states."""
    payload, _ = _directions(case.direction == "download")
    outcome = raw / f"{case.id}-{sample.seed}.outcome.json"
    if outcome.is_file():
        return of_outcome(json.loads(outcome.read_text()), plan, case)
    trace = _read(raw / f"{case.id}-{sample.seed}", plan)
    if trace is None:
        return None
    declared = trace.states[-1].lost_packets if trace.states else 0
    lost_by = packet_ledger.lost_by(sample.ledgers, payload, declared)
    is_first = case.second_after_s is None
    trace = replace(trace, lost_by=lost_by, began_s=0.0 if is_first else None)
    return _with_late_acks(trace, case, plan)


def _read(folder: Path, plan: LinkPlan) -> TransferTrace | None:
    states = folder / qlog_figures.FILE
    if states.is_file():
        return of_qlog(json.loads(states.read_text()), read_json_lines(folder / "link.jsonl"), plan)
    last = max(folder.glob("client/client-*.jsonl"), default=None)
    if last is None:
        return None
    return of_satperf(read_json_lines(last), read_json_lines(folder / "link.jsonl"), plan)


def of_outcome(outcome: Mapping[str, Any], plan: LinkPlan, case: Case) -> TransferTrace:
    """Return the trace of the last transfer in satvirtual's outcome."""
    last = outcome["transfers"][-1]
    start = last["started_s"]
    payload, acks = _directions(outcome["request"]["direction"] == "download")
    samples = outcome["samples"]
    own = [one for one in samples if one["t_s"] >= start]
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
            ack_ms=one.get("ack_ms"),
        )
        for one in own
    ]
    lost = sum(
        one["dropped_packets"] + one["lost_packets"]
        for one in outcome["link"]
        if one["name"] in packet_ledger.WAYS[payload]
    )
    declared = states[-1].lost_packets if states else 0
    packets = _Packets()
    for one in own:
        t_s = one["t_s"] - start
        packets.count(t_s, one.get("sent_bytes", 0), one.get("acked_bytes"), one["lost_packets"])
        packets.arrive(t_s, one["received_bytes"])
    found = TransferTrace(
        _requested_s(last),
        last["duration_s"],
        states,
        packet_ledger.by_most(declared, lost),
        has_virtual_clock=True,
        began_s=outcome["transfers"][0]["started_s"] - start,
        flows=packets.flows(),
        link_losses=_differences(own, start, payload),
    )
    return _with_late_acks(found, case, plan)


def _differences(
    samples: Sequence[Mapping[str, Any]], start_s: float, direction: str
) -> list[LinkLoss]:
    """Return what the link's counters, which only grow, gained between samples."""
    names = (f"{direction}_dropped_packets", f"{direction}_lost_packets")
    found = []
    for before, now in pairwise(samples):
        dropped, lost = (now.get(name, 0) - before.get(name, 0) for name in names)
        if dropped or lost:
            found.append(LinkLoss(now["t_s"] - start_s, dropped, lost))
    return found


class _Packets:
    """All packets of a sender over time, from its counters."""

    def __init__(self) -> None:
        self._flow = Flow("all packets")
        self._lost_packets = 0

    def count(
        self, t_s: float, sent_bytes: int, acked_bytes: int | None, lost_packets: int
    ) -> None:
        """Note the sender's counters; a loss is marked where acknowledgements are then."""
        time_sequence.rise(self._flow.sent, t_s, sent_bytes)
        if acked_bytes is not None:
            time_sequence.rise(self._flow.acknowledged, t_s, acked_bytes)
        if lost_packets > self._lost_packets:
            time_sequence.mark(self._flow.lost, t_s, acked_bytes or sent_bytes)
        self._lost_packets = lost_packets

    def arrive(self, t_s: float, payload_bytes: int) -> None:
        """Note how much payload the receiver has."""
        time_sequence.rise(self._flow.arrived, t_s, payload_bytes)

    def flows(self) -> list[Flow]:
        """Return the flow, if it sent something."""
        return [self._flow] if self._flow.size else []


def _with_late_acks(trace: TransferTrace, case: Case, plan: LinkPlan) -> TransferTrace:
    """Return a trace whose states say by how much acknowledgements are later than the idle path and
    the queues of the last DRAIN_ROUND_TRIPS explain.
    """
    idle_ms = max([plan.rtt_ms.max, *(one.rtt_ms or 0.0 for one in case.changes)])
    idle_ms += 2 * ((case.jitter_ms or 0.0) + (case.reorder.ms if case.reorder else 0.0))
    times = [state.t_s for state in trace.states]
    queues_ms = [state.payload_queue_ms + state.ack_queue_ms for state in trace.states]
    is_reported = any(state.ack_ms is not None for state in trace.states)
    least_ms = LATE_MS if is_reported else LATE_RTT_MS
    # Packets of the handshake may wait for keys before they are acknowledged.
    first_s = (trace.requested_s or 0.0) + FIRST_ROUND_TRIPS * idle_ms / 1e3
    known_s, known_ms = -math.inf, 0.0
    states = []
    for index, state in enumerate(trace.states):
        if state.ack_ms is not None:
            known_s, known_ms = state.t_s, state.ack_ms
        elif not is_reported:
            known_s, known_ms = state.t_s, state.rtt_ms
        if max(first_s, state.t_s - KNOWN_ROUND_TRIPS * known_ms / 1e3) > known_s:
            states.append(state)
            continue
        first = bisect_left(times, state.t_s - DRAIN_ROUND_TRIPS * known_ms / 1e3)
        late_ms = known_ms - idle_ms - max(queues_ms[first : index + 1])
        late_ms = late_ms if late_ms > least_ms else 0.0
        states.append(replace(state, ack_ms=known_ms, late_ms=late_ms))
    return replace(trace, states=states)


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
    states, packets = [], _Packets()
    for line, lost in zip(intervals, lost_packets, strict=True):
        t_s = line["t_s"] + later_s[str(sender)]
        packets.count(t_s, line.get("sent_bytes", 0), line.get("acked_bytes"), lost)
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
                ack_ms=line.get("ack_ms"),
            )
        )
    arrived = 0
    for line in lines:
        if line["type"] == "interval" and line["side"] == receiver:
            arrived += line["bytes"]
            packets.arrive(line["t_s"] + later_s[receiver], arrived)
    return TransferTrace(
        requested_s,
        _end_s(summaries[receiver], later_s[receiver]),
        states,
        flows=packets.flows(),
        link_losses=queues.losses(),
    )


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
    return TransferTrace(
        document["asked_s"],
        document["end_s"],
        states,
        flows=[Flow(**flow) for flow in document.get("flows", ())],
        link_losses=queues.losses(),
    )


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
        self._counts = [line[payload] or {} for line in samples]
        self.load = _Load(self._times, list(released), _capacity_bps(plan, payload))
        self._ms = [
            [line[name]["queue_bytes"] * 8e3 / rates_bps[name] for line in samples]
            for name in _directions(is_download)
        ]

    def losses(self) -> list[LinkLoss]:
        """Return what the payload's link dropped and lost, by sample."""
        found = (
            LinkLoss(t_s, counts.get("dropped_packets", 0), counts.get("lost_packets", 0))
            for t_s, counts in zip(self._times, self._counts, strict=True)
            if t_s >= 0
        )
        return [one for one in found if one.dropped or one.lost]

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
