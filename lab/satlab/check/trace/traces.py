# SPDX-License-Identifier: GPL-3.0-or-later
"""What samples leave behind as traces that `why` can judge.

satvirtual's outcome, or satperf's and the link's lines, or what a qlog file told and the link's lines.
"""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from satlab.check.endpoint.pair import read_lines
from satlab.check.trace import server_qlog
from satlab.check.trace.causes import SenderState, TransferTrace
from satlab.link.plan import LinkPlan

Lines = Sequence[Mapping[str, Any]]


def read(raw: Path, case: str, seed: int, plan: LinkPlan) -> TransferTrace | None:
    """Return the trace of a sample below `raw`; None where it left none that says enough."""
    outcome = raw / f"{case}-{seed}.outcome.json"
    if outcome.is_file():
        return of_outcome(json.loads(outcome.read_text()))
    folder = raw / f"{case}-{seed}"
    account = folder / server_qlog.FILE
    if account.is_file():
        return of_account(json.loads(account.read_text()), read_lines(folder / "link.jsonl"), plan)
    last = max(folder.glob("client/client-*.jsonl"), default=None)
    if last is None:
        return None
    return of_satperf(read_lines(last), read_lines(folder / "link.jsonl"), plan)


def of_outcome(outcome: Mapping[str, Any]) -> TransferTrace:
    """Read the trace of the last transfer of what `satvirtual` tells."""
    last = outcome["transfers"][-1]
    start = last["started_s"]
    payload, acks = _queues(outcome["request"]["direction"] == "download")
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
        )
        for one in outcome["samples"]
        if one["t_s"] >= start
    ]
    asked = last["asked_ms"]
    return TransferTrace(None if asked is None else asked / 1e3, last["duration_s"], states)


def of_satperf(lines: Lines, link: Lines, plan: LinkPlan) -> TransferTrace | None:
    """Read the lines of a client's file (schemas/satperf.schema.json) and the link's metrics.

    None where no end tells how it sent: the connection came to nothing, or quiche made it.
    """
    starts = {line["side"]: line for line in lines if line["type"] == "start"}
    ends = {line["side"]: line for line in lines if line["type"] == "summary"}
    sides = {start["role"]: side for side, start in starts.items()}
    sender, receiver = sides.get("sender"), sides.get("receiver")
    sent = [line for line in lines if line["type"] == "interval" and line["side"] == sender]
    if not sent or receiver not in ends or sent[0].get("in_flight_bytes") is None:
        return None
    zero = starts["client"]["t_unix_s"]
    later = {side: start["t_unix_s"] - zero for side, start in starts.items()}
    # A server's first line comes with the request; a client sends once its handshake is complete.
    asked = sent[0]["t_s"] + later["server"] if sender == "server" else (ends["client"]["handshake_ms"] or 0) / 1e3
    queues = _Queues(link, zero, plan, is_download=sender == "server")
    lost = accumulate(line["lost_packets"] for line in sent)
    states = [
        _state(line, line["t_s"] + later[str(sender)], total, queues) for line, total in zip(sent, lost, strict=True)
    ]
    return TransferTrace(asked, _end_s(ends[receiver], later[receiver]), states)


def of_account(document: Mapping[str, Any], link: Lines, plan: LinkPlan) -> TransferTrace:
    """Read what `told` has made of a server's qlog, and the link's metrics."""
    queues = _Queues(link, document["start_unix_s"], plan, is_download=True)
    states = []
    for one in document["points"]:
        payload_ms, ack_ms = queues.at(one["t_s"])
        is_limited = one["supply"] != "slow"
        more = {"payload_queue_ms": payload_ms, "ack_queue_ms": ack_ms, "is_app_limited": is_limited}
        states.append(SenderState(is_handshaking=False, **one, **more))
    return TransferTrace(document["asked_s"], document["end_s"], states)


def _state(line: Mapping[str, Any], t_s: float, lost: int, queues: "_Queues") -> SenderState:
    payload_ms, ack_ms = queues.at(t_s)
    return SenderState(
        t_s=t_s,
        cwnd_bytes=line["cwnd_bytes"],
        in_flight_bytes=line["in_flight_bytes"],
        is_handshaking=False,
        is_slow_start=line["slow_start"],
        is_app_limited=line["app_limited"],
        supply="done" if line["handed"] else "blocked",
        rtt_ms=line["rtt_ms"],
        lost_packets=lost,
        payload_queue_ms=payload_ms,
        ack_queue_ms=ack_ms,
    )


def _end_s(receiver: Mapping[str, Any], later_s: float) -> float:
    """Return the time of the last payload byte, or of the end where none came."""
    goodput_bps = receiver["goodput_bps"]
    return float(receiver["bytes"] * 8 / goodput_bps if goodput_bps else receiver["t_s"]) + later_s


class _Queues:
    """Queues of the link over time, s since `zero_unix_s`, as the time that their link needs for them, ms."""

    def __init__(self, lines: Lines, zero_unix_s: float, plan: LinkPlan, *, is_download: bool) -> None:
        samples = [line for line in lines if line["type"] == "sample"]
        rates_bps = {"forward": plan.forward.rate_bps, "return": plan.return_.rate_bps}
        self._times = [line["t_unix_s"] - zero_unix_s for line in samples]
        self._ms = [
            [line[name]["queue_bytes"] * 8e3 / rates_bps[name] for line in samples] for name in _queues(is_download)
        ]

    def at(self, t_s: float) -> tuple[float, float]:
        """Return payload's and acknowledgements' queue by the first sample that is no earlier; 0 without samples."""
        if not self._times:
            return 0.0, 0.0
        index = min(bisect_left(self._times, t_s), len(self._times) - 1)
        payload, acks = self._ms
        return payload[index], acks[index]


def _queues(is_download: bool) -> tuple[str, str]:
    """Name the link of the payload and that of its acknowledgements."""
    return ("forward", "return") if is_download else ("return", "forward")
