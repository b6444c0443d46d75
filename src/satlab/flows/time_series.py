# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements of a flow over time, and their totals at the ends of bins."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "censored", "failed"]


@dataclass
class Total:
    """A rising total at times in s. Between two entries it rises evenly."""

    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, t_s: float, value: float) -> None:
        """Note the total at a time, in the order of time. A smaller total counts as the last one."""
        last = self.values[-1] if self.values else 0.0
        self.times.append(max(t_s, self.times[-1]) if self.times else t_s)
        self.values.append(max(value, last))

    def at(self, t_s: float) -> float:
        """Return the total at a time: 0 before the first one, the last one after that."""
        index = bisect_right(self.times, t_s)
        if index == 0:
            return 0.0
        if index == len(self.times):
            return self.values[-1]
        (begin, low), (end, high) = ((self.times[i], self.values[i]) for i in (index - 1, index))
        return low + (high - low) * (t_s - begin) / (end - begin) if end > begin else low

    @property
    def end(self) -> float:
        """Return the last total."""
        return self.values[-1] if self.values else 0.0

    def reached(self, value: float) -> float | None:
        """Return the time of the first entry with this total or more."""
        return next(
            (t_s for t_s, total in zip(self.times, self.values, strict=True) if total >= value),
            None,
        )


@dataclass
class Level:
    """A value that stays until the next one, at times in s."""

    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, t_s: float, value: float) -> None:
        """Note the value from a time on."""
        self.times.append(t_s)
        self.values.append(value)

    def at(self, t_s: float) -> float:
        """Return the value at a time; 0 before the first one."""
        index = bisect_right(self.times, t_s)
        return self.values[index - 1] if index else 0.0


@dataclass
class Seen:
    """Measurements of a flow. Times are s since the run's time 0, amounts bytes, RTT ms. `payload`:
    data of the application that arrived; `received`: UDP or TCP payload at the receiver. `moved_s`:
    when packets from each further address of the client arrived. `unread`: why `payload` could not
    be read.
    """

    library: str = ""
    payload: Total = field(default_factory=Total)
    received: Total = field(default_factory=Total)
    received_packets: int = 0
    sent_packets: int = 0
    lost: Total = field(default_factory=Total)
    cwnd: Level = field(default_factory=Level)
    rtt: Level = field(default_factory=Level)
    acks: int = 0
    sent_bytes: int = 0
    lost_bytes: int = 0
    status: Status = "ok"
    reason: str = ""
    unread: str = ""
    began_s: float | None = None
    moved_s: list[float] = field(default_factory=list)
    ended_s: float | None = None
    sources: dict[str, str] = field(default_factory=dict)

    def failed(self, reason: str, at_s: float | None = None) -> None:
        """Note why and when the flow failed, unless it is known."""
        if self.status != "failed":
            self.status, self.reason = "failed", reason
            self.ended_s = at_s if at_s is not None else self.ended_s

    def counts(self, t_s: float) -> dict[str, Any]:
        """Return totals, window and RTT at a time."""
        return {
            "payload_bytes": round(self.payload.at(t_s)),
            "received_bytes": round(self.received.at(t_s)),
            "lost_packets": round(self.lost.at(t_s)),
            "cwnd_bytes": round(self.cwnd.at(t_s)),
            "rtt_ms": round(self.rtt.at(t_s), 6),
        }

    def document(self, flow: Mapping[str, Any], duration_s: float, bin_s: float) -> dict[str, Any]:
        """Return the flow as `satvirtual flows --measured` takes it: a bin is there while the flow
        is to run.
        """
        ended_s = duration_s if self.ended_s is None else self.ended_s
        count = int(duration_s / bin_s + 1e-9)
        ends = [(index + 1) * bin_s for index in range(count)]
        bins = [
            (
                self.counts(end)
                if flow["start_s"] < end and not ended_s + bin_s <= end + 1e-9
                else None
            )
            for end in ends
        ]
        totals = self.counts(duration_s) | {
            "received_packets": self.received_packets,
            "sent_packets": self.sent_packets,
            "sent_bytes": self.sent_bytes,
            "lost_bytes": self.lost_bytes,
            "acks": self.acks,
        }
        return {
            "library": self.library,
            "status": self.status,
            "reason": self.reason,
            "began_s": self.began_s,
            "moved_s": self.moved_s,
            "ended_s": self.ended_s,
            "totals": totals,
            "bins": bins,
            "sources": self.sources,
        }
