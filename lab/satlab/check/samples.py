# SPDX-License-Identifier: GPL-3.0-or-later
"""The border of a check: given suite, case, link and seed, a backend gives a sample, by a clock of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from satlab.check.case_link import CaseLink
from satlab.check.suite import Case, Suite

Options = Mapping[str, int | str]
Status = Literal["ok", "failed", "censored", "unsupported"]


@dataclass(frozen=True)
class Sample:
    """One transfer: `times_s` until the suite's marks, None where the time was over or the connection died before.

    Times are from the client's first packet. `calibration` says what of the link was out of tolerance meanwhile,
    nothing if nothing was. `goodput_interop_bps` is that of the QUIC interop runner; `return_*` is what crossed the
    return link; `symptoms` is what showed from outside of what slowed it down; `spent_s` are the seconds of each cause
    of `why`, which add up to the time of the transfer; `simulated_s` is the virtual time until its end.
    `time_to_first_byte_ms` and `retransmitted_share` (of the payload's bytes, those that were sent again) are what
    `sources` says, which names by field where a figure is from if that is not the program that was measured.
    `warnings` say what could not be read of what the programs left. What a backend cannot tell is None.
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
    retransmitted_share: float | None = None
    acks: int | None = None
    calibration: str = ""
    goodput_interop_bps: float | None = None
    return_packets: int | None = None
    return_bytes: int | None = None
    client_cpu_s: float | None = None
    server_cpu_s: float | None = None
    client_peak_bytes: int | None = None
    server_peak_bytes: int | None = None
    symptoms: tuple[str, ...] = ()
    spent_s: Mapping[str, float] | None = None
    simulated_s: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple["UnusedSource", ...] = ()


@dataclass(frozen=True)
class UnusedSource:
    """Why something that an end (`side`) left was not used: it is missing, broken, too large, or does not fit."""

    kind: str
    side: str
    reason: str

    @property
    def text(self) -> str:
        """Say it for people."""
        return f"qlog of the {self.side} {self.kind}: {self.reason}"


class Backend(Protocol):
    """What takes samples."""

    @property
    def clock(self) -> Literal["virtual", "real"]:
        """Return whose time the samples are in."""

    @property
    def stack(self) -> str:
        """Name what is measured."""

    @property
    def at_once(self) -> int:
        """Return how many samples it may take at a time."""

    def sample(self, suite: Suite, case: Case, link: CaseLink, seed: int, raw: Path) -> Sample:
        """Take one sample; raw files stay in `raw`.

        Raises:
            ConfigError: an option is refused.
            HostError: the host cannot do it.
        """
