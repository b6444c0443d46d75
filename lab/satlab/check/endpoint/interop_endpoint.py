# SPDX-License-Identifier: GPL-3.0-or-later
"""Endpoints of the QUIC interop runner, unmodified: their environment, folders, addresses and exit codes.

An endpoint is a folder with `run_endpoint.sh`, which then finds the host's programs, or an image with it: a root file
system or an OCI archive. Contract: github.com/quic-interop/quic-interop-runner and quic-network-simulator, README.md
and the images' `setup.sh`. IPv4 alone; no user but the cell's, with the capabilities that a container has there.
"""

import contextlib
import random
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from socket import create_server
from typing import Any, Literal

from satlab.check.endpoint import oci
from satlab.check.endpoint.command_line import compare
from satlab.check.endpoint.pair import CLIENT, SERVER, EndpointProgram, TransferRequest
from satlab.check.samples import Sample
from satlab.check.sandbox import sandbox
from satlab.check.sandbox.sandbox import ExitReport, Limits, Mount, Sandbox
from satlab.check.suite import Case
from satlab.check.trace.pcap import CapturedTransfer
from satlab.common import paths, scratch, topology
from satlab.common.errors import ConfigError
from satlab.common.topology import Role, Topology
from satlab.netlab import netns, privileges
from satlab.netlab.lab import Lab

SCRIPT = "run_endpoint.sh"
PORT = 443
READY_PORT = 57832
"""A client waits until the simulator accepts a connection here."""
UNSUPPORTED = 127
COMPLIANCE_S = 30.0
CLIENT_ADDRESS, CLIENT_GATEWAY = IPv4Address("193.167.0.100"), IPv4Address("193.167.0.2")
SERVER_ADDRESS, SERVER_GATEWAY = IPv4Address("193.167.100.100"), IPv4Address("193.167.100.2")
"""Public addresses: a lab has no way out."""
CAPABILITIES = ("net_admin", "net_bind_service", "net_raw")
NAMES = ("server", "server4", "server46")
_SETUP = "#!/bin/sh\n# Offloads and routes are the lab's.\nmkdir -p /logs/qlog\n"
_WAIT = "#!/bin/sh\n# The path is up before an endpoint starts.\nexit 0\n"


@dataclass(frozen=True)
class InteropPair:
    """An endpoint at both ends. `base` is its root file system; `/` for a bare folder, whose files are `own`."""

    name: str
    base: Path
    own: tuple[Mount, ...] = ()
    protocol: Literal["udp"] = "udp"
    port: int = PORT
    server_names: tuple[str, ...] = NAMES
    faults: dict[str, str] = field(default_factory=dict)
    """What the compliance check found, by role; filled by the first sample."""

    def topology(self) -> Topology:
        """Return the lab with the addresses and interface names of the contract."""
        found = topology.load(paths.LAB_FILE)
        ends = {
            found.node_of(Role.CLIENT): ("eth0", CLIENT_ADDRESS, CLIENT_GATEWAY),
            found.node_of(Role.SERVER): ("eth0", SERVER_ADDRESS, SERVER_GATEWAY),
        }
        nodes, networks = dict(found.nodes), dict(found.networks)
        for end, (interface, address, gateway) in ends.items():
            [own] = found.nodes[end].interfaces.values()
            subnet = IPv4Network(f"{address}/24", strict=False)
            networks[own.network] = networks[own.network].model_copy(update={"subnet": subnet})
            nodes[end] = nodes[end].model_copy(
                update={"interfaces": {interface: own.model_copy(update={"address": address})}}
            )
            for name, node in found.nodes.items():
                changed = {
                    each: one.model_copy(update={"address": gateway})
                    for each, one in node.interfaces.items()
                    if one.network == own.network and name != end
                }
                if changed:
                    nodes[name] = nodes[name].model_copy(update={"interfaces": nodes[name].interfaces | changed})
        return found.model_copy(update={"nodes": nodes, "networks": networks})

    def lacks(self, case: Case) -> str:
        """Return why it cannot do a case."""
        if case.lacking:
            return case.lacking
        if case.direction == "upload" or case.second_after_s is not None:
            return "endpoints of the QUIC interop runner download, over connections of their own choice"
        return ""

    def server(self, request: TransferRequest) -> EndpointProgram:
        """Return the server, and make what it serves."""
        www = request.folder / "www"
        www.mkdir()
        source = random.Random(request.seed)  # noqa: S311 - names and files, no secret
        for size in files_of(request):
            name = "".join(source.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=request.case.name_length))
            (www / name).write_bytes(source.randbytes(size))
        return self._program(SERVER, request, request.case.server_test or request.case.test or "transfer")

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        """Return the client."""
        return self._program(CLIENT, request, request.case.test or "transfer", number)

    def _program(self, role: str, request: TransferRequest, test: str, number: int = 0) -> EndpointProgram:
        theirs = request.folder / role
        if number == 0:  # after its first start nothing of ours is written where the program can write
            for name in ("downloads", "logs", "certs"):
                (theirs / name).mkdir()
            keys = {
                "cert.pem": request.pki.server_cert,
                "priv.key": request.pki.server_key,
                "ca.pem": request.pki.ca_cert,
            }
            for name, file in keys.items():
                shutil.copyfile(file, theirs / "certs" / name)
        binds = [Mount(request.folder / "www", "/www")] if role == SERVER else []
        folders = ("downloads", "logs", "certs")
        binds += [Mount(theirs / name, f"/{name}", writable=name != "certs") for name in folders]
        wanted = " ".join(f"https://server4:{PORT}/{file.name}" for file in sorted((request.folder / "www").iterdir()))
        return self._in_its_root(role, test, wanted, binds)

    def _in_its_root(self, role: str, test: str, requests: str, binds: list[Mount]) -> EndpointProgram:
        environment = {
            "ROLE": role, "TESTCASE": test, "REQUESTS": requests, "CLIENT_PARAMS": "", "SERVER_PARAMS": "",
            "SSLKEYLOGFILE": "/logs/keys.log", "QLOGDIR": "/logs/qlog/", "PROTOCOLS": "", "CRON": "",
        }  # fmt: skip
        return EndpointProgram((f"/{SCRIPT}",), (*self.own, *binds), environment, self.base, CAPABILITIES, hosts())

    @contextlib.contextmanager
    def path(self, up: Lab, request: TransferRequest, folder: Path) -> Iterator[list[str]]:
        """Let the simulator's port accept, and ask once in each role for a test case that nobody has."""
        near = up.topology.node_of(Role.PROXY)
        with netns.inside(up.lab_id, near, create_server, (str(CLIENT_GATEWAY), READY_PORT)):
            for role in (SERVER, CLIENT):
                if role not in self.faults:
                    self.faults[role] = self._compliance(up, request, folder, role)
            yield [fault for fault in self.faults.values() if fault]

    def _compliance(self, up: Lab, request: TransferRequest, folder: Path, role: str) -> str:
        with scratch.folder("satlab-compliance-") as place:
            cell = Sandbox(name=role, hosts=hosts(), bounds=Limits(COMPLIANCE_S))
            binds = [Mount(place / name, f"/{name}", writable=True) for name in ("downloads", "logs")]
            for bind in binds:
                bind.source.mkdir()
                privileges.give(bind.source, cell.uid)
            program = self._in_its_root(role, f"invented-{secrets.token_hex(4)}", "", binds)
            cell = replace(
                cell, binds=program.binds, base=program.base, environment=program.environment,
                capabilities=program.capabilities,
            )  # fmt: skip
            node = up.topology.node_of(Role(role))
            running = sandbox.start(up.enter_argv(node), cell, program.argv, folder / f"compliance-{role}.log")
            ended = running.poll(COMPLIANCE_S + 5) or running.stop()
        if ended.status == UNSUPPORTED:
            return ""
        how = ended.reason or "status 0"
        return f"not compliant: the {role} answers {UNSUPPORTED} to no invented test case, but {how}"

    def sample(self, request: TransferRequest, number: int, ended: ExitReport, wire: CapturedTransfer | None) -> Sample:
        """Judge as the interop runner: exit code, files, and what shows on the wire without keys."""
        if wire is None:
            return request.failed(f"the client sent nothing{': ' if ended.reason else ''}{ended.reason}")
        why = ended.reason or self._wrong(request, wire)
        whole = sum(files_of(request)) if not why else sum(one.size for one in wire.arrivals)
        handshake = wire.handshake_s
        marks = request.marks or (whole,)
        return Sample(
            request.case.id, request.seed, "failed" if why else "ok", why, wire.times_s(marks, max(whole, 1)),
            handshake_ms=None if handshake is None else handshake * 1000,
        )  # fmt: skip

    def qlog(self, request: TransferRequest, side: str) -> Path | None:
        """Return what the end finds as $QLOGDIR."""
        return request.folder / side / "logs" / "qlog"

    def beyond(self, request: TransferRequest, folder: Path) -> dict[str, Any]:
        """Add nothing."""
        return {}

    def _wrong(self, request: TransferRequest, wire: CapturedTransfer) -> str:
        wrong = compare(request.folder / CLIENT / "downloads", (request.folder / "www").iterdir())
        if wrong:
            return wrong
        made, asked = len(wire.server_ids), request.case.handshakes
        if asked is not None and made != asked:
            return f"{made} handshakes, {asked} expected"
        retries = wire.count("retry", from_server=True)
        if request.case.retry is not None and bool(retries) is not request.case.retry:
            return "no Retry was sent" if request.case.retry else "a Retry was sent"
        return ""


def files_of(request: TransferRequest) -> tuple[int, ...]:
    """Return the sizes of the files that are asked for: those of the test, or one of the suite's last mark."""
    return request.case.files_bytes or (request.size,)


def hosts() -> str:
    """Return the hosts file of both ends."""
    names = [(CLIENT_ADDRESS, "client client4"), (CLIENT_GATEWAY, "sim"), (SERVER_ADDRESS, " ".join(NAMES))]
    return "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for address, name in names)


@contextlib.contextmanager
def opened(place: Path) -> Iterator[InteropPair]:
    """Open an endpoint: a folder with its script, a root file system with it, or an OCI archive of one.

    Raises:
        ConfigError: it is none of these.
    """
    with scratch.folder("satlab-endpoint-") as own:
        if place.is_file():
            root = own / "root"
            root.mkdir()
            oci.unpack(place, root)
        else:
            root = place
        script = root / SCRIPT
        if script.is_symlink() or not script.is_file():
            raise ConfigError(f"{place} has no {SCRIPT}", hint="a folder, root file system or OCI archive with it")
        if (root / "usr").is_dir():
            yield InteropPair(place.name, root.resolve())
            return
        for name, text in (("setup.sh", _SETUP), ("wait-for-it.sh", _WAIT)):
            (own / name).write_text(text)
            (own / name).chmod(0o755)
        files = {file.name: file for folder in (own, root) for file in sorted(folder.iterdir())}
        binds = tuple(Mount(file, f"/{name}") for name, file in files.items())
        yield InteropPair(place.resolve().name, Path("/"), binds)
