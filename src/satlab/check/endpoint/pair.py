# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of a pair of endpoints on the real clock: two programs, and how to read their
results.
"""

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from satlab.check.samples import Sample, Status
from satlab.check.sandboxed_program import ExitReport
from satlab.check.suite import MB, Case, Suite
from satlab.check.trace.captured_transfer import CapturedTransfer
from satlab.common import paths, topology
from satlab.common.topology import Topology
from satlab.lab import sandbox
from satlab.lab.lab import Lab
from satlab.lab.pki import Pki
from satlab.lab.sandbox import Mount

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
        return self.marks[-1] if self.marks else sum(self.case.files_bytes)

    @property
    def marks(self) -> tuple[int, ...]:
        """The amounts whose arrival is timed, bytes."""
        return tuple(round(mark * MB) for mark in self.suite.marks_mb)

    @property
    def connections(self) -> int:
        """Number of connections, one after the other; the last one is the sample."""
        return 2 if self.case.second_after_s else 1

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
    """Empty: the lab's default hosts file."""


def read_only(*files: Path) -> tuple[Mount, ...]:
    """Mount files and folders of satlab at their own paths. Not for paths that other users
    chose.
    """
    return tuple(map(Mount.ours, files))


class EndpointPair(Protocol):
    @property
    def name(self) -> str:
        """The stack's name in tables and check.json."""

    @property
    def protocol(self) -> Literal["udp", "tcp"]: ...

    @property
    def port(self) -> int:
        """The port that the server listens on."""

    @property
    def server_names(self) -> tuple[str, ...]:
        """Names in the server's certificate and in the hosts file."""

    def topology(self) -> Topology:
        """The lab that the programs run in."""

    def unsupported_reason(self, case: Case) -> str:
        """Return why the pair cannot run a case; empty if it can."""

    def server(self, request: TransferRequest) -> EndpointProgram:
        """Return the server, after writing the files that it needs."""

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        """Return the client for connection `number`, from 0."""

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

    def qlog_folders(self, request: TransferRequest) -> Mapping[str, Path]:
        """Return the folders where endpoints leave qlog files, by side; no entry for a side without
        qlog.
        """

    def path(
        self, up: Lab, request: TransferRequest, folder: Path
    ) -> AbstractContextManager[list[str]]:
        """Set up the path between the endpoints for a block. The yielded list has the faults found
        before and after the block.
        """

    def path_figures(self, request: TransferRequest, folder: Path) -> dict[str, Any]:
        """Return sample fields that were measured on the path, after the block of `path`."""


class LabPair:
    """Defaults for pairs that use the lab unchanged."""

    @property
    def port(self) -> int:
        return PORT

    @property
    def server_names(self) -> tuple[str, ...]:
        return (NAME,)

    def topology(self) -> Topology:
        return topology.load(paths.LAB_FILE)

    def qlog_folders(self, request: TransferRequest) -> Mapping[str, Path]:
        return {}

    def path(
        self, up: Lab, request: TransferRequest, folder: Path
    ) -> AbstractContextManager[list[str]]:
        return contextlib.nullcontext([])

    def path_figures(self, request: TransferRequest, folder: Path) -> dict[str, Any]:
        return {}
