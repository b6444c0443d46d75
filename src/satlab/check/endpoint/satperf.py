# SPDX-License-Identifier: GPL-3.0-or-later
"""satperf at both endpoints: its commands, and samples from its output
(schemas/satperf.schema.json).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satlab.check.endpoint.pair import (
    CLIENT,
    NAME,
    PORT,
    SERVER,
    EndpointPair,
    EndpointProgram,
    TransferRequest,
    read_only,
)
from satlab.check.samples import Options, Sample, Status, stalled
from satlab.check.sandboxed_program import ExitReport, read_json_lines
from satlab.check.suite import Case
from satlab.check.trace import careful_resume
from satlab.check.trace.captured_transfer import CapturedTransfer
from satlab.check.trace.careful_resume import Resumed
from satlab.common import paths

STATE = "paths.json"
"""File of Careful Resume's saved paths in an endpoint's folder. It is kept between the connections
of a sample.
"""


@dataclass(frozen=True)
class SatperfPair(EndpointPair):
    """satperf with one of its QUIC libraries; `options` of client and server as on its command
    line.
    """

    library: str
    options: tuple[Options, Options] = ({}, {})

    @property
    def name(self) -> str:
        return f"satperf {self.library}"

    def unsupported_reason(self, case: Case) -> str:
        if case.sends_early_data and self.library != "quiche":
            return f"satperf cannot keep a session for the next run with {self.library}"
        if self.library != "quinn" and any(
            _resumes(self._options(case, side)) for side in (CLIENT, SERVER)
        ):
            return f"satperf offers Careful Resume with quinn, not with {self.library}"
        return ""

    def server(self, request: TransferRequest) -> EndpointProgram:
        keys = request.pki
        argv = [str(paths.SATPERF), "server", "--listen", f"{request.host}:{PORT}"]
        argv += ["--cert", str(keys.server_cert), "--key", str(keys.server_key)]
        argv += ["--output", str(request.folder / SERVER / "server.jsonl")]
        argv += self._stack_options(request, SERVER)
        if (folder := self.qlog_folders(request).get(SERVER)) is not None:
            argv += ["--qlog", str(folder)]
        return EndpointProgram(
            tuple(argv), read_only(paths.SATPERF, keys.server_cert, keys.server_key)
        )

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        argv = [str(paths.SATPERF), "client", "--connect", f"{request.host}:{PORT}"]
        argv += ["--server-name", NAME, "--ca", str(request.pki.ca_cert)]
        argv += ["--bytes", str(request.size), "--direction", request.case.direction]
        argv += ["--timeout", f"{request.case.timeout_s:g}"]
        argv += ["--output", str(_client_file(request, number))]
        if request.case.source_mbps is not None:
            argv += ["--source-mbps", f"{request.case.source_mbps:g}"]
        if request.case.sends_early_data:
            argv += ["--zero-rtt", str(request.folder / CLIENT / "session")]
        argv += self._stack_options(request, CLIENT)
        return EndpointProgram(tuple(argv), read_only(paths.SATPERF, request.pki.ca_cert))

    def qlog_folders(self, request: TransferRequest) -> Mapping[str, Path]:
        """quiche reports the bytes in flight only in its qlog; quinn needs none."""
        is_needed = self.library == "quiche" and request.case.direction == "download"
        return {SERVER: request.folder / SERVER / "qlog"} if is_needed else {}

    def _options(self, case: Case, side: str) -> Options:
        """Return the options of a side. Options of the command line replace the case's."""
        of_case, own = (
            (case.client, self.options[0]) if side == CLIENT else (case.server, self.options[1])
        )
        return {**of_case, **own}

    def _stack_options(self, request: TransferRequest, side: str) -> list[str]:
        """Return the options as words. With Careful Resume they include its state file, which is
        new for each sample.
        """
        options = dict(self._options(request.case, side))
        if _resumes(options):
            options.setdefault("resume_state", str(request.folder / side / STATE))
        words = [
            word
            for name, value in options.items()
            for word in (f"--{name.replace('_', '-')}", str(value))
        ]
        return ["--stack", self.library, *words]

    def sample(
        self,
        request: TransferRequest,
        number: int,
        ended: ExitReport,
        wire: CapturedTransfer | None,
    ) -> Sample:
        """Return the sample of the client's file, which also has the server's lines."""
        lines = read_json_lines(_client_file(request, number))
        return sample_of(request, lines, ended.reason or "the client left no summary")


def _resumes(options: Options) -> bool:
    return options.get("careful_resume", "off") != "off"


def _client_file(request: TransferRequest, number: int) -> Path:
    return request.folder / CLIENT / f"client-{number}.jsonl"


def sample_of(request: TransferRequest, lines: Sequence[dict[str, Any]], missing: str) -> Sample:
    """Return the sample of a client's lines; `missing` is the reason of the failure if they have no
    summary.
    """
    starts = {line["side"]: line for line in lines if line["type"] == "start"}
    summaries = {line["side"]: line for line in lines if line["type"] == "summary"}
    if "client" not in summaries:
        return request.failed(missing)
    client = summaries["client"]
    sides = {start["role"]: side for side, start in starts.items()}
    receiver, sender = (summaries.get(sides.get(role, ""), {}) for role in ("receiver", "sender"))
    status: Status = "ok" if client["status"] == "ok" else "failed"
    if client["reason"].startswith("timeout after"):
        status = "censored"
    times: tuple[float | None, ...] = (None,) * len(request.marks)
    last_arrival_s = 0.0
    # Each side's times count from its own start, the suite's times from the client's start.
    later_s = {
        side: start["t_unix_s"] - starts["client"]["t_unix_s"] for side, start in starts.items()
    }
    if receiver:
        side = receiver["side"]
        intervals = [line for line in lines if line["type"] == "interval" and line["side"] == side]
        times = tuple(reached_s(receiver, intervals, mark, later_s[side]) for mark in request.marks)
        arrivals = [line["t_s"] + later_s[side] for line in intervals if line["bytes"]]
        last_arrival_s = max(arrivals, default=0.0)
        if receiver["data_equal"] is False and status == "ok":
            status, client["reason"] = "failed", "the received data differs from the sent data"
    found = Sample(
        case=request.case.id,
        seed=request.seed,
        status=status,
        reason="" if status == "ok" else client["reason"],
        times_s=times,
        handshake_ms=client["handshake_ms"],
        time_to_first_byte_ms=receiver.get("time_to_first_byte_ms"),
        sent_datagrams=sender.get("sent_packets"),
        lost_packets=sender.get("lost_packets"),
        acks=receiver.get("acks_sent"),
        symptoms=careful_resume.symptoms(sender.get("careful_resume")),
        careful_resume=_from_client_s_start(sender, later_s),
    )
    return stalled(found, last_arrival_s, request.case.timeout_s)


def _from_client_s_start(sender: dict[str, Any], later_s: Mapping[str, float]) -> Resumed | None:
    """Return the report of Careful Resume at the sender, with times since the client's start."""
    found: Resumed | None = sender.get("careful_resume")
    if found is None:
        return None
    phases = [one | {"t_s": one["t_s"] + later_s[sender["side"]]} for one in found["phases"]]
    return {**found, "phases": phases}


_EXACT = {2_000_000: "reached_2mb_s", 10_000_000: "reached_10mb_s", 100_000_000: "reached_100mb_s"}
"""Amounts for which satperf reports times."""


def reached_s(
    summary: dict[str, Any], intervals: Sequence[dict[str, Any]], mark: int, later_s: float = 0.0
) -> float | None:
    """Return when `mark` bytes had arrived; by linear interpolation for amounts that satperf does
    not time itself.

    `later_s` is the time from the client's start to the receiver's, s.
    """
    if mark in _EXACT:
        time = summary[_EXACT[mark]]
        return None if time is None else float(time) + later_s
    received = 0
    for line in intervals:
        received += line["bytes"]
        if received >= mark:
            beyond_s: float = (received - mark) / line["bytes"] * line["interval_s"]
            return float(line["t_s"]) - beyond_s + later_s
    return None
