# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of a pair of endpoints on the real clock: two programs, and how to read their
results.
"""

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Literal, Protocol

from satlab.check.samples import Sample, Status
from satlab.check.sandboxed_program import ExitReport
from satlab.check.suite import MB, Case, Suite
from satlab.check.trace import captured_transfer
from satlab.check.trace.captured_transfer import CapturedTransfer
from satlab.check.trace.pcap import Packet
from satlab.common import paths, topology
from satlab.common.topology import Topology
from satlab.lab import sandbox
from satlab.lab.lab import Lab
from satlab.lab.pki import Pki
from satlab.lab.sandbox import Mount, Place, Sandbox

PORT = 4433
NAME = "server.satlab.test"
SERVER, CLIENT = "server", "client"
Environment = Mapping[str, Mapping[str, str]]
"""Variables of the programs, by side."""


@dataclass(frozen=True)
class TransferRequest:
    """One sample's transfer. `host` is the server's address.

    Each endpoint reads and writes `folder`/server or `folder`/client, which are kept from one
    connection to the next.
    """

    suite: Suite
    case: Case
    seed: int
    host: str
    pki: Pki
    folder: Path

    @property
    def size(self) -> int:
        """Payload in bytes; for a test case, of all its files."""
        return self.marks[-1] if self.marks else sum(self.case.file_sizes)

    @property
    def marks(self) -> tuple[int, ...]:
        """The amounts whose arrival is timed, bytes."""
        return tuple(round(mark * MB) for mark in self.suite.marks_mb)

    @property
    def connections(self) -> int:
        """Number of connections, one after the other; the last one is the sample."""
        return 2 if self.case.second_after_s else 1

    def sent_nothing(self, ended: ExitReport) -> Sample:
        """Return the sample of a client of which no packet was captured."""
        return self.failed(f"the client sent nothing{': ' if ended.reason else ''}{ended.reason}")

    def failed(self, reason: str, status: Status = "failed") -> Sample:
        """Return a sample without times."""
        return Sample(self.case.id, self.seed, status, reason, (None,) * max(1, len(self.marks)))


@dataclass(frozen=True)
class EndpointProgram:
    """A command in a sandbox: its `mounts`, on top of the programs of `base`, and the contents of
    its hosts file.

    `directory` is its working directory.
    """

    argv: tuple[str, ...]
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    base: Path = Path("/")
    capabilities: tuple[str, ...] = ()
    directory: str = sandbox.HOME
    hosts: str = ""
    """Empty: the hosts file of the sandbox."""

    def in_sandbox(self, box: Sandbox, place: Place) -> Sandbox:
        """Return the sandbox `box` at a place, with what the program needs."""
        return replace(
            box,
            place=place,
            mounts=(*self.mounts, *box.mounts),
            base=self.base,
            capabilities=self.capabilities,
            hosts=self.hosts or box.hosts,
            directory=self.directory,
            variables=self.environment,
        )


def read_only(*files: Path) -> tuple[Mount, ...]:
    """Mount files and folders of satlab at their own paths. Not for paths that other users
    chose.
    """
    return tuple(map(Mount.ours, files))


class EndpointPair(Protocol):
    """Two programs; the defaults are those of programs that use the lab unchanged."""

    protocol: Literal["udp", "tcp"] = "udp"
    port: int = PORT
    """The port that the server listens on."""
    server_names: tuple[str, ...] = (NAME,)
    """Names in the hosts file."""

    @property
    def name(self) -> str:
        """The stack's name in tables and check.json."""

    def topology(self, case: Case) -> Topology:
        """Return the lab that the programs run in."""
        return topology.load(paths.LAB_FILE)

    def certificate_names(self, case: Case) -> tuple[str, ...]:
        """Return the names in the server's certificate."""
        return self.server_names

    def unsupported_reason(self, case: Case) -> str:
        """Return why the pair cannot run a case; empty if it can."""

    def server(self, request: TransferRequest) -> EndpointProgram:
        """Return the server, after writing the files that it needs."""

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        """Return the client for connection `number`, from 0."""

    def transfer_of(
        self, request: TransferRequest, packets: Sequence[Packet]
    ) -> CapturedTransfer | None:
        """Return the transfer between both programs in captured packets; None without any."""
        return captured_transfer.transfer_of(packets, IPv4Address(request.host), self.port)

    def sample(
        self,
        request: TransferRequest,
        number: int,
        ended: ExitReport,
        wire: CapturedTransfer | None,
    ) -> Sample:
        """Return the sample of a connection, from the client's exit and files and the packets
        (None: not captured).
        """

    def commands(self) -> Mapping[str, Sequence[str]]:
        """Return the words of the commands under test, by side; none for built-in stacks."""
        return {}

    def qlog_folders(self, request: TransferRequest) -> Mapping[str, Path]:
        """Return the folders where endpoints leave qlog files, by side; no entry for a side without
        qlog.
        """
        return {}

    def path(
        self, up: Lab, request: TransferRequest, folder: Path
    ) -> AbstractContextManager[list[str]]:
        """Set up the path between the endpoints for a block. The yielded list has the faults found
        before and after the block.
        """
        return contextlib.nullcontext([])

    def path_figures(self, request: TransferRequest, folder: Path) -> dict[str, Any]:
        """Return sample fields that were measured on the path, after the block of `path`."""
        return {}
