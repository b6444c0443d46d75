# SPDX-License-Identifier: GPL-3.0-or-later
"""Unmodified endpoints of the QUIC interop runner: their environment, folders, addresses and exit codes.

An endpoint is a folder with `run_endpoint.sh`, which uses the host's programs, or an image with that script: a root
file system or an OCI archive. Contract: github.com/quic-interop/quic-interop-runner and quic-network-simulator,
README.md and the images' `setup.sh`. IPv4 alone. The script runs as the sandbox's user, with the capabilities that a
container has in the interop runner.
"""

import contextlib
import random
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from socket import create_server
from typing import Any, Literal

from satlab.check import sandboxed
from satlab.check.endpoint import oci
from satlab.check.endpoint.command_line import compare
from satlab.check.endpoint.pair import CLIENT, SERVER, EndpointProgram, TransferRequest
from satlab.check.samples import Sample, Status
from satlab.check.sandboxed import ExitReport, NotStartedError
from satlab.check.suite import Case
from satlab.check.trace import evidence
from satlab.check.trace.pcap import CapturedTransfer
from satlab.common import paths, scratch, topology
from satlab.common.errors import ConfigError
from satlab.common.topology import Role, Topology
from satlab.netlab import netns, privileges
from satlab.netlab.lab import Lab
from satlab.netlab.sandbox import Limits, Mount, Sandbox

SCRIPT = "run_endpoint.sh"
PORT = 443
READY_PORT = 57832
"""A client waits until the simulator accepts a connection on this port."""
UNSUPPORTED = 127
COMPLIANCE_S = 30.0
CLIENT_ADDRESS, CLIENT_GATEWAY = IPv4Address("193.167.0.100"), IPv4Address("193.167.0.2")
SERVER_ADDRESS, SERVER_GATEWAY = IPv4Address("193.167.100.100"), IPv4Address("193.167.100.2")
"""Public addresses; a lab is not connected to the Internet."""
CAPABILITIES = ("net_admin", "net_bind_service", "net_raw")
NAMES = ("server", "server4", "server46")
_SETUP = "#!/bin/sh\n# Offloads and routes are the lab's.\nmkdir -p /logs/qlog\n"
_WAIT = "#!/bin/sh\n# The path is up before an endpoint starts.\nexit 0\n"


@dataclass(frozen=True)
class InteropPair:
    """One image as server and as client. `base` is its root file system; `/` for a folder, whose files are `mounts`."""

    name: str
    base: Path
    mounts: tuple[Mount, ...] = ()
    protocol: Literal["udp"] = "udp"
    port: int = PORT
    server_names: tuple[str, ...] = NAMES
    faults: dict[str, str] = field(default_factory=dict)
    """Result of the compliance test by role, empty if passed; filled by the first sample."""

    def topology(self) -> Topology:
        """Return the lab with the addresses and interface names of the contract."""
        lab = topology.load(paths.LAB_FILE)
        endpoints = {
            lab.node_of(Role.CLIENT): ("eth0", CLIENT_ADDRESS, CLIENT_GATEWAY),
            lab.node_of(Role.SERVER): ("eth0", SERVER_ADDRESS, SERVER_GATEWAY),
        }
        nodes, networks = dict(lab.nodes), dict(lab.networks)
        for endpoint, (interface, address, gateway) in endpoints.items():
            [own] = lab.nodes[endpoint].interfaces.values()
            subnet = IPv4Network(f"{address}/24", strict=False)
            networks[own.network] = networks[own.network].model_copy(update={"subnet": subnet})
            nodes[endpoint] = nodes[endpoint].model_copy(
                update={"interfaces": {interface: own.model_copy(update={"address": address})}}
            )
            for name, node in lab.nodes.items():
                changed = {
                    each: one.model_copy(update={"address": gateway})
                    for each, one in node.interfaces.items()
                    if one.network == own.network and name != endpoint
                }
                if changed:
                    nodes[name] = nodes[name].model_copy(update={"interfaces": nodes[name].interfaces | changed})
        return lab.model_copy(update={"nodes": nodes, "networks": networks})

    def unsupported_reason(self, case: Case) -> str:
        if case.lacking:
            return case.lacking
        if case.direction == "upload" or case.second_after_s is not None:
            return "endpoints of the QUIC interop runner download, and open as many connections as they like"
        return ""

    def server(self, request: TransferRequest) -> EndpointProgram:
        """Return the server and write the files that it serves."""
        www = request.folder / "www"
        www.mkdir()
        source = random.Random(request.seed)  # noqa: S311 - names and files, not secrets
        for size in file_sizes(request):
            name = "".join(source.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=request.case.name_length))
            (www / name).write_bytes(source.randbytes(size))
        return self._program(SERVER, request, request.case.server_test or request.case.test or "transfer")

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        return self._program(CLIENT, request, request.case.test or "transfer", number)

    def _program(self, role: str, request: TransferRequest, test: str, number: int = 0) -> EndpointProgram:
        folder = request.folder / role
        names = ("downloads", "logs", "certs")
        if number == 0:  # once the program has run, nothing is written to its folders
            for name in names:
                (folder / name).mkdir()
            pki = request.pki
            keys = {"cert.pem": pki.server_cert, "priv.key": pki.server_key, "ca.pem": pki.ca_cert}
            for name, file in keys.items():
                shutil.copyfile(file, folder / "certs" / name)
        mounts = [Mount(request.folder / "www", "/www")] if role == SERVER else []
        mounts += [Mount(folder / name, f"/{name}", writable=name != "certs") for name in names]
        urls = " ".join(f"https://server4:{PORT}/{file.name}" for file in sorted((request.folder / "www").iterdir()))
        return self._script(role, test, urls, mounts)

    def _script(self, role: str, test: str, urls: str, mounts: list[Mount]) -> EndpointProgram:
        """Return run_endpoint.sh with the environment of the contract."""
        environment = {
            "ROLE": role, "TESTCASE": test, "REQUESTS": urls, "CLIENT_PARAMS": "", "SERVER_PARAMS": "",
            "SSLKEYLOGFILE": "/logs/keys.log", "QLOGDIR": "/logs/qlog/", "PROTOCOLS": "", "CRON": "",
        }  # fmt: skip
        return EndpointProgram((f"/{SCRIPT}",), (*self.mounts, *mounts), environment, self.base, CAPABILITIES, hosts())

    @contextlib.contextmanager
    def path(self, up: Lab, request: TransferRequest, folder: Path) -> Iterator[list[str]]:
        """Listen on the simulator's port; before the first sample, test both roles for compliance."""
        proxy = up.topology.node_of(Role.PROXY)
        with netns.inside(up.lab_id, proxy, create_server, (str(CLIENT_GATEWAY), READY_PORT)):
            for role in (SERVER, CLIENT):
                if role not in self.faults:
                    self.faults[role] = self._compliance_fault(up, folder, role)
            yield [fault for fault in self.faults.values() if fault]

    def _compliance_fault(self, up: Lab, folder: Path, role: str) -> str:
        """Request an unknown test case, which an endpoint must refuse with status 127."""
        with scratch.folder("compliance") as place:
            box = Sandbox(name=role, hosts=hosts(), limits=Limits(COMPLIANCE_S))
            mounts = [Mount(place / name, f"/{name}", writable=True) for name in ("downloads", "logs")]
            for mount in mounts:
                mount.source.mkdir()
                privileges.chown(mount.source, box.uid)
            program = self._script(role, f"unknown-{secrets.token_hex(4)}", "", mounts)
            node = up.place(up.topology.node_of(Role(role)))
            box = replace(box, place=node, mounts=program.mounts, base=program.base, capabilities=program.capabilities)
            try:
                log = folder / f"compliance-{role}.log"
                running = sandboxed.start(box, program.argv, program.environment, log)
            except NotStartedError as error:
                return f"the {role}: {error}"
            ended = running.poll(COMPLIANCE_S + 5) or running.stop()
        if ended.status == UNSUPPORTED:
            return ""
        outcome = ended.reason or "it ended with status 0"
        return f"not compliant: the {role} must refuse an unknown test case with status {UNSUPPORTED}; {outcome}"

    def sample(self, request: TransferRequest, number: int, ended: ExitReport, wire: CapturedTransfer | None) -> Sample:
        """Judge by exit code, files and unencrypted packets, as the interop runner does."""
        if wire is None:
            return request.failed(f"the client sent nothing{': ' if ended.reason else ''}{ended.reason}")
        status, reason = self._verdict(request, wire, ended.reason)
        size = sum(file_sizes(request)) if status == "ok" else wire.arrived_bytes
        times = wire.times_s(request.marks or (size,), max(size, 1))
        return Sample(request.case.id, request.seed, status, reason, times, handshake_ms=wire.handshake_ms)

    def qlog_folders(self, request: TransferRequest) -> Mapping[str, Path]:
        """Return the folders that are $QLOGDIR in the sandboxes."""
        return {side: request.folder / side / "logs" / "qlog" for side in (SERVER, CLIENT)}

    def path_figures(self, request: TransferRequest, folder: Path) -> dict[str, Any]:
        return {}

    def _verdict(self, request: TransferRequest, wire: CapturedTransfer, ended: str) -> tuple[Status, str]:
        """Judge a client, which failed by itself if `ended` says why; none passes without files and packets."""
        fault = ended or self._fault(request, wire) or evidence.fault(request.case, wire)
        if fault or not request.case.key_update:
            return ("failed", fault) if fault else ("ok", "")
        phases = evidence.key_phases(wire, [request.folder / side / "logs" / "keys.log" for side in (CLIENT, SERVER)])
        if phases is None:
            return "unsupported", "key phases cannot be read: no key log that fits the packets"
        idle = [side for side, seen in phases.items() if 1 not in seen]
        return ("failed", f"no key update: the {idle[0]} sent no packet of key phase 1") if idle else ("ok", "")

    def _fault(self, request: TransferRequest, wire: CapturedTransfer) -> str:
        fault = compare(request.folder / CLIENT / "downloads", (request.folder / "www").iterdir())
        if fault:
            return fault
        handshakes, expected = len(wire.server_ids), request.case.handshakes
        if expected is not None and handshakes != expected:
            return f"{handshakes} handshakes, {expected} expected"
        retries = wire.count("retry", from_server=True)
        if request.case.retry is not None and bool(retries) is not request.case.retry:
            return "no Retry was sent" if request.case.retry else "a Retry was sent"
        return ""


def file_sizes(request: TransferRequest) -> tuple[int, ...]:
    """Return the sizes of the test case's files, or of one file up to the suite's last mark."""
    return request.case.files_bytes or (request.size,)


def hosts() -> str:
    """Return the hosts file of both endpoints."""
    names = [(CLIENT_ADDRESS, "client client4"), (CLIENT_GATEWAY, "sim"), (SERVER_ADDRESS, " ".join(NAMES))]
    return "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for address, name in names)


@contextlib.contextmanager
def opened(endpoint: Path) -> Iterator[InteropPair]:
    """Open an endpoint: a folder, a root file system or an OCI archive with its script.

    Raises:
        ConfigError: `endpoint` is none of these.
    """
    with scratch.folder("endpoint") as own:
        if endpoint.is_file():
            root = own / "root"
            root.mkdir()
            oci.unpack(endpoint, root)
        else:
            root = endpoint
        script = root / SCRIPT
        if script.is_symlink() or not script.is_file():
            hint = "--endpoint takes a folder, root file system or OCI archive with it"
            raise ConfigError(f"{endpoint} has no {SCRIPT}", hint=hint)
        if (root / "usr").is_dir():
            yield InteropPair(endpoint.name, root.resolve())
            return
        for script_name, text in (("setup.sh", _SETUP), ("wait-for-it.sh", _WAIT)):
            (own / script_name).write_text(text)
            (own / script_name).chmod(0o755)
        files = {file.name: file for folder in (own, root) for file in sorted(folder.iterdir())}
        mounts = tuple(Mount(file, f"/{file_name}") for file_name, file in files.items())
        yield InteropPair(endpoint.resolve().name, Path("/"), mounts)
