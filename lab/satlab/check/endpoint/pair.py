# SPDX-License-Identifier: GPL-3.0-or-later
"""Who talks over the link of a check on the real clock: a server's and a client's program, and what they tell of it."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from satlab.check.samples import Options, Sample, Status
from satlab.check.sandbox.sandbox import ExitReport, Mount
from satlab.check.suite import MB, Case, Suite
from satlab.check.trace.pcap import CapturedTransfer
from satlab.common import paths, topology
from satlab.common.topology import Topology
from satlab.netlab.lab import Lab
from satlab.netlab.pki import Pki

PORT = 4433
NAME = "server.satlab.test"
SERVER, CLIENT = "server", "client"


@dataclass(frozen=True)
class TransferRequest:
    """What both ends are asked to do. `host` is the server's address.

    Each end has a folder to read and write below `folder`, named after it, which stays from connection to connection.
    """

    suite: Suite
    case: Case
    seed: int
    host: str
    pki: Pki
    folder: Path

    @property
    def size(self) -> int:
        """Return the payload, bytes; of a test case that of all its files."""
        return self.marks[-1] if self.marks else sum(self.case.files_bytes)

    @property
    def marks(self) -> tuple[int, ...]:
        """Return the amounts that are timed, bytes."""
        return tuple(round(mark * MB) for mark in self.suite.marks_mb)

    @property
    def connections(self) -> int:
        """Return how many connections follow each other; the last one counts."""
        return 2 if self.case.second_after_s else 1

    def failed(self, reason: str, status: Status = "failed") -> Sample:
        """Return the sample of a transfer that came to nothing."""
        return Sample(self.case.id, self.seed, status, reason, (None,) * max(1, len(self.marks)))


@dataclass(frozen=True)
class EndpointProgram:
    """What runs in an end's cell, and what it finds there beside the programs of `base`."""

    argv: tuple[str, ...]
    binds: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    base: Path = Path("/")
    capabilities: tuple[str, ...] = ()
    hosts: str = ""
    """The hosts file, in place of the usual one."""


def shown(*places: Path) -> tuple[Mount, ...]:
    """Show files and folders where they are."""
    return tuple(map(Mount, places))


class EndpointPair(Protocol):
    """A pair of programs."""

    @property
    def name(self) -> str:
        """Name the pair."""

    @property
    def protocol(self) -> Literal["udp", "tcp"]:
        """Return what the server listens on."""

    @property
    def port(self) -> int:
        """Tell on which port."""

    @property
    def server_names(self) -> tuple[str, ...]:
        """Return the names that the server's certificate and the hosts file have."""

    def topology(self) -> Topology:
        """Return the lab that it expects to find."""

    def lacks(self, case: Case) -> str:
        """Return why it cannot do a case; nothing if it can."""

    def server(self, request: TransferRequest) -> EndpointProgram:
        """Return the server; what it needs in its folder is put there."""

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        """Return the client for the connection `number`, from 0."""

    def sample(self, request: TransferRequest, number: int, ended: ExitReport, wire: CapturedTransfer | None) -> Sample:
        """Read what came of a connection: what the client left, and what was seen on the wire."""

    def qlog(self, request: TransferRequest, side: str) -> Path | None:
        """Return the folder where an end is to leave qlog files; None where it tells of itself otherwise."""

    def beyond(self, request: TransferRequest, folder: Path) -> dict[str, Any]:
        """Return what the path between the ends tells of a transfer, as fields of a sample, after `path`'s block."""

    def path(self, up: Lab, request: TransferRequest, folder: Path) -> AbstractContextManager[list[str]]:
        """Prepare what is between the ends; what is wrong with it stands in the list, before or after the block."""


class LabPair:
    """What is the same for pairs that take the lab as it is."""

    @property
    def port(self) -> int:
        """Take the usual port."""
        return PORT

    @property
    def server_names(self) -> tuple[str, ...]:
        """Take the usual name."""
        return (NAME,)

    def topology(self) -> Topology:
        """Take the lab of lab.yml."""
        return topology.load(paths.LAB_FILE)

    def qlog(self, request: TransferRequest, side: str) -> Path | None:
        """Ask for no qlog."""
        return None

    def beyond(self, request: TransferRequest, folder: Path) -> dict[str, Any]:
        """Add nothing."""
        return {}

    def path(self, up: Lab, request: TransferRequest, folder: Path) -> AbstractContextManager[list[str]]:
        """Leave the path as it is."""
        return contextlib.nullcontext([])


@dataclass(frozen=True)
class SatperfPair(LabPair):
    """Our own client and server, with one of their QUIC libraries; options of each end as on their command lines."""

    library: str
    options: tuple[Options, Options] = field(default_factory=lambda: ({}, {}))

    protocol: Literal["udp"] = "udp"

    @property
    def name(self) -> str:
        """Name the pair."""
        return f"satperf {self.library}"

    def lacks(self, case: Case) -> str:
        """Return why it cannot do a case: 0-RTT over runs is quiche's alone."""
        needs_session = case.second_after_s is not None and self.library != "quiche"
        return f"satperf keeps no session over runs with {self.library}" if needs_session else ""

    def server(self, request: TransferRequest) -> EndpointProgram:
        """Return the server."""
        keys = request.pki
        argv = [str(paths.SATPERF), "server", "--listen", f"{request.host}:{PORT}"]
        argv += ["--cert", str(keys.server_cert), "--key", str(keys.server_key)]
        argv += ["--output", str(request.folder / SERVER / "server.jsonl"), *self._leg(1)]
        if (place := self.qlog(request, SERVER)) is not None:
            argv += ["--qlog", str(place)]
        return EndpointProgram(tuple(argv), shown(paths.SATPERF, keys.server_cert, keys.server_key))

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        """Return the client."""
        argv = [str(paths.SATPERF), "client", "--connect", f"{request.host}:{PORT}", "--server-name", NAME]
        argv += ["--ca", str(request.pki.ca_cert), "--bytes", str(request.size), "--direction", request.case.direction]
        argv += ["--timeout", f"{request.case.timeout_s:g}", "--output", str(_client_file(request, number))]
        if request.connections > 1:
            argv += ["--zero-rtt", str(request.folder / CLIENT / "session")]
        return EndpointProgram((*argv, *self._leg(0)), shown(paths.SATPERF, request.pki.ca_cert))

    def qlog(self, request: TransferRequest, side: str) -> Path | None:
        """Ask the server for what its lines do not tell: quiche says what is in flight in its qlog alone."""
        is_asked = self.library == "quiche" and side == SERVER and request.case.direction == "download"
        return request.folder / SERVER / "qlog" if is_asked else None

    def _leg(self, side: int) -> list[str]:
        pairs = self.options[side].items()
        given = [word for name, value in pairs for word in (f"--{name.replace('_', '-')}", str(value))]
        return ["--stack", self.library, *given]

    def sample(self, request: TransferRequest, number: int, ended: ExitReport, wire: CapturedTransfer | None) -> Sample:
        """Read the client's lines, among which are the server's."""
        file = _client_file(request, number)
        return from_lines(request, read_lines(file), ended.reason or "the client left no summary")


def _client_file(request: TransferRequest, number: int) -> Path:
    return request.folder / CLIENT / f"client-{number}.jsonl"


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Read the whole lines of a file that a program wrote which may have been killed at any byte."""
    if file.is_symlink() or not file.is_file():
        return []
    found = []
    for line in file.read_text(errors="replace").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def from_lines(request: TransferRequest, lines: Sequence[dict[str, Any]], otherwise: str) -> Sample:
    """Read satperf's lines (schemas/satperf.schema.json); `otherwise` is why, where they end before their summary."""
    starts = {line["side"]: line for line in lines if line["type"] == "start"}
    ends = {line["side"]: line for line in lines if line["type"] == "summary"}
    if "client" not in ends:
        return request.failed(otherwise)
    client = ends["client"]
    roles = {start["role"]: side for side, start in starts.items()}
    receiver, sender = (ends.get(roles.get(role, ""), {}) for role in ("receiver", "sender"))
    status: Status = "ok" if client["status"] == "ok" else "failed"
    if client["reason"].startswith("timeout after"):
        status = "censored"
    times: tuple[float | None, ...] = (None,) * len(request.marks)
    if receiver:
        side = receiver["side"]
        # Each side counts from its own start, the suite from the client's.
        later = starts[side]["t_unix_s"] - starts["client"]["t_unix_s"]
        own = [line for line in lines if line["type"] == "interval" and line["side"] == side]
        times = tuple(reached(receiver, own, mark, later) for mark in request.marks)
        if receiver["data_equal"] is False and status == "ok":
            status, client["reason"] = "failed", "the data that arrived is not what was sent"
    return Sample(
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
    )


_EXACT = {2_000_000: "reached_2mb_s", 10_000_000: "reached_10mb_s", 100_000_000: "reached_100mb_s"}
"""Amounts that satperf times itself."""


def reached(
    summary: dict[str, Any], intervals: Sequence[dict[str, Any]], mark: int, later_s: float = 0.0
) -> float | None:
    """Tell when `mark` bytes had arrived, s; between satperf's own marks by linear interpolation in its intervals."""
    if mark in _EXACT:
        time = summary[_EXACT[mark]]
        return None if time is None else float(time) + later_s
    after = 0
    for line in intervals:
        after += line["bytes"]
        if after >= mark:
            still_s: float = (after - mark) / line["bytes"] * line["interval_s"]
            return float(line["t_s"]) - still_s + later_s
    return None
