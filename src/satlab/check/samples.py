# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface between a check and its backends: suite, case, link and seed in, one sample out."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import ConfigDict, Field, with_config

from satlab.check.case_link import CaseLink
from satlab.check.suite import Case, Suite
from satlab.check.trace import qlog
from satlab.check.trace.careful_resume import Resumed

Options = Mapping[str, int | str]
Status = Literal["ok", "failed", "censored", "unsupported"]
STALL_S = 5.0
"""A transfer that runs into its time limit is stalled if nothing arrived for this time, s;
otherwise it is slow.
"""
Spent = Mapping[str, Annotated[float, Field(ge=0)]]
"""Seconds of a transfer per cause (trace/causes.py); their sum is its duration."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Sample:
    """One transfer. A field is None if the backend does not measure it.

    - `times_s`: from the client's first packet to each mark of the suite; None for a mark that was
      not reached.
    - `floors_s`: the shortest possible time to each mark (time_floors.py).
    - `last_packet_s`: the server's last packet at the client's interface. Packets after the payload
      are not part of `times_s`; the difference is shown.
    - `calibration`: checks of link and host that were out of tolerance; empty if none was.
    - `goodput_interop_bps`: as the QUIC interop runner defines it.
    - `return_packets`, `return_bytes`: on the return link during the transfer.
    - `sent_datagrams`, `lost_packets`: as counted by the payload's sender; `acks`: ACK frames of
      the receiver.
    - `retransmitted_share`: retransmitted bytes / bytes sent, at the payload's sender. For QUIC:
      bytes of streams, from its qlog. For TCP: from sequence numbers at the proxy before the link.
    - `client_cpu_s`, `server_cpu_s`: user and system time of all its processes.
    - `client_peak_bytes`, `server_peak_bytes`: largest resident memory that was sampled.
    - `client_wait_s`, `server_wait_s`: time in which the program was runnable but had no core.
    - `ledgers`: the packet accounts of each direction, forward and return (trace/packet_ledger.py).
    - `symptoms`: causes of a slow transfer that packets and CPU times show.
    - `careful_resume`: what Careful Resume did at the sender (trace/careful_resume.py).
    - `spent_s`: seconds per cause (trace/causes.py); their sum is the duration of the transfer.
    - `stalled_after_s`: of a transfer that ran into its time limit: time after which nothing
      arrived any more; None if it still made progress.
    - `simulated_s`: virtual time until the end of the transfer.
    - `sources`: the source of each field that the measured programs did not report.
    - `attempts`: number of tries until link and host were in calibration; the last one counts.
    - `warnings`: files of the programs that were not used.
    """

    case: str
    seed: int
    status: Status
    reason: str
    times_s: tuple[float | None, ...]
    handshake_ms: float | None = None
    time_to_first_byte_ms: float | None = None
    sent_datagrams: int | None = None
    lost_packets: int | None = None
    retransmitted_share: Annotated[float, Field(ge=0, le=1)] | None = None
    acks: int | None = None
    floors_s: tuple[float, ...] = ()
    last_packet_s: float | None = None
    calibration: str = ""
    goodput_interop_bps: float | None = None
    return_packets: int | None = None
    return_bytes: int | None = None
    client_cpu_s: float | None = None
    server_cpu_s: float | None = None
    client_wait_s: float | None = None
    server_wait_s: float | None = None
    client_peak_bytes: int | None = None
    server_peak_bytes: int | None = None
    ledgers: Mapping[str, Mapping[str, int | None]] | None = None
    symptoms: tuple[str, ...] = ()
    careful_resume: Resumed | None = None
    spent_s: Spent | None = None
    stalled_after_s: Annotated[float, Field(ge=0)] | None = None
    simulated_s: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple["UnusedSource", ...] = ()
    attempts: Annotated[int, Field(ge=1)] = 1


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class UnusedSource:
    """A qlog file of one `side` that was not used; times and packets do not depend on it."""

    kind: qlog.Kind
    side: qlog.Side
    reason: str

    @property
    def text(self) -> str:
        if self.kind == "missing" and self.side == "server":
            return (
                "no qlog of the server, so the causes are unknown: a command writes it to {qlog}, an"
                " endpoint to $QLOGDIR"
            )
        return f"qlog of the {self.side} not used ({self.kind}): {self.reason}"


def within_limit(sample: Sample, case: Case, *, has_marks: bool) -> Sample:
    """Apply the time limit of the case: later marks count as not reached, and a slower test case as
    failed.
    """
    last_s = sample.times_s[-1]
    if sample.status != "ok" or last_s is None or last_s <= case.timeout_s:
        return sample
    times = tuple(
        None if time is None or time > case.timeout_s else time for time in sample.times_s
    )
    reason = f"it took {last_s:.1f} s, the limit is {case.timeout_s:g} s"
    return replace(
        sample, times_s=times, status="censored" if has_marks else "failed", reason=reason
    )


def stalled(sample: Sample, last_arrival_s: float, limit_s: float) -> Sample:
    """Return a sample; with the time of its stall if it ran into its time limit and nothing had
    arrived for STALL_S.
    """
    if sample.status != "censored" or limit_s - last_arrival_s < STALL_S:
        return sample
    reason = f"{sample.reason}: nothing arrived after {last_arrival_s:.1f} s"
    return replace(sample, reason=reason, stalled_after_s=last_arrival_s)


class Backend(Protocol):
    @property
    def clock(self) -> Literal["virtual", "real"]: ...

    @property
    def stack(self) -> str:
        """The stack's name in tables and check.json."""

    @property
    def at_once(self) -> int:
        """Largest number of samples at a time."""

    def sample(self, suite: Suite, case: Case, link: CaseLink, seed: int, raw: Path) -> Sample:
        """Take one sample. Its raw files are left in `raw`.

        Raises:
            ConfigError: an option is refused.
            HostError: the host lacks a program or a privilege, or the lab fails.
        """
