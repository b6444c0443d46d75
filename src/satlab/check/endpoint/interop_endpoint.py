# SPDX-License-Identifier: GPL-3.0-or-later
"""Unmodified endpoints of the QUIC interop runner: their environment, folders, addresses and exit
codes.

Client and server may be different endpoints (`interop_image`). Contract:
github.com/quic-interop/quic-interop-runner and quic-network-simulator, README.md and the images'
`setup.sh`. IPv4 and IPv6. The script runs as the sandbox's user, with the capabilities of a
container in the interop runner.
"""

import contextlib
import random
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from socket import create_server

from satlab.check import sandboxed_program
from satlab.check.endpoint import interop_image, interop_rules
from satlab.check.endpoint.command_pair import at_time_limit, compare
from satlab.check.endpoint.interop_image import Image
from satlab.check.endpoint.interop_rules import Evidence, NoKeyLogError
from satlab.check.endpoint.pair import (
    CLIENT,
    SERVER,
    EndpointPair,
    EndpointProgram,
    Environment,
    TransferRequest,
)
from satlab.check.samples import Sample, Status
from satlab.check.sandboxed_program import NOT_SUPPORTED, ExitReport, NotStartedError
from satlab.check.suite import Case
from satlab.check.trace import captured_transfer, interop_evidence
from satlab.check.trace.captured_transfer import CapturedTransfer
from satlab.check.trace.pcap import Packet
from satlab.common import ipv6, paths, scratch, topology
from satlab.common.topology import Role, Topology
from satlab.lab import netns, privileges, rebinding_nat
from satlab.lab.lab import Lab
from satlab.lab.pki import Pki
from satlab.lab.rebinding_nat import RebindingNat
from satlab.lab.sandbox import Limits, Mount, Sandbox

PORT = 443
READY_PORT = 57832
"""A client waits until the simulator accepts a connection on this port."""
COMPLIANCE_S = 30.0
CLIENT_ADDRESS, CLIENT_GATEWAY = IPv4Address("193.167.0.100"), IPv4Address("193.167.0.2")
SERVER_ADDRESS, SERVER_GATEWAY = IPv4Address("193.167.100.100"), IPv4Address("193.167.100.2")
"""Public addresses; a lab is not connected to the Internet."""
IPV6 = Path("/proc/sys/net/ipv6")
CAPABILITIES = ("net_admin", "net_bind_service", "net_raw")
NAMES = ("server", "server4", "server6", "server46")
LARGE_CERTIFICATE_NAMES = 40
"""More names, of 200 characters, in a certificate that is too large for the server's first flight.
The interop runner wants more than 7500 bytes in the server's handshake.
"""
WRITABLE = ("downloads", "logs", "state")
FOLDERS = (*WRITABLE, "certs")
WORK = "work"
"""The folder that is the script's working directory. Not in the interop runner's contract."""
SECOND = "second-download"
"""Test case for a second download. The interop runner does not have it; an endpoint that does not
know it exits with 127.
"""
STATE_VARIABLE = "STATEDIR"
"""The folder that each side keeps from the first connection to the second. Not in the interop
runner's contract.
"""


@dataclass(frozen=True)
class InteropPair(EndpointPair):
    """The images by role, and variables besides those of the contract; both may replace
    CLIENT_PARAMS, for example.
    """

    images: Mapping[str, Image]
    environment: Environment = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    """Result of the compliance test by role, empty if passed; filled by the first sample."""
    port = PORT
    server_names = NAMES

    @property
    def name(self) -> str:
        """Name both images, or the only one."""
        client, server = (self.images[role].name for role in (CLIENT, SERVER))
        return client if client == server else f"{client} to {server}"

    def topology(self, case: Case) -> Topology:
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
                    nodes[name] = nodes[name].model_copy(
                        update={"interfaces": nodes[name].interfaces | changed}
                    )
        has_ipv6 = case.host != "server4"
        return lab.model_copy(update={"nodes": nodes, "networks": networks, "ipv6": has_ipv6})

    def certificate_names(self, case: Case) -> tuple[str, ...]:
        if not case.large_certificate:
            return NAMES
        return (
            *NAMES,
            *(f"n{number}.{'.'.join(['a' * 49] * 4)}" for number in range(LARGE_CERTIFICATE_NAMES)),
        )

    def unsupported_reason(self, case: Case) -> str:
        if case.lacking:
            return case.lacking
        if case.direction == "upload":
            return "endpoints of the QUIC interop runner download"
        if case.second_after_s is not None and case.test:
            return "a test case of the QUIC interop runner opens as many connections as it likes"
        if case.host != "server4" and not IPV6.exists():
            return "this kernel has no IPv6"
        return ""

    def server(self, request: TransferRequest) -> EndpointProgram:
        """Return the server and write the files that it serves."""
        www = request.folder / "www"
        www.mkdir()
        source = random.Random(request.seed)  # noqa: S311 - names and files, not secrets
        for size in file_sizes(request):
            name = "".join(
                source.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=request.case.name_length)
            )
            (www / name).write_bytes(source.randbytes(size))
        return self._program(SERVER, request, request.case.server_test or _test(request))

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        return self._program(CLIENT, request, _test(request), number)

    def _program(
        self, role: str, request: TransferRequest, test: str, number: int = 0
    ) -> EndpointProgram:
        folder = request.folder / role
        if number == 0:  # after the program's first start we write nothing to its folders
            _make_folders(folder, request.pki, request.connections)
        mounts = [Mount(request.folder / "www", "/www")] if role == SERVER else []
        mounts += [*_mounts(folder, FOLDERS, number), *_work(folder, self.images[role])]
        urls = " ".join(
            f"https://{request.case.host}:{PORT}/{file.name}"
            for file in sorted((request.folder / "www").iterdir())
        )
        return self._script(role, test, urls, mounts)

    def _script(self, role: str, test: str, urls: str, mounts: list[Mount]) -> EndpointProgram:
        """Return the image's command with the environment of the contract."""
        image = self.images[role]
        contract = {
            "ROLE": role,
            "TESTCASE": test,
            "REQUESTS": urls,
            "CLIENT_PARAMS": "",
            "SERVER_PARAMS": "",
            "SSLKEYLOGFILE": f"/{interop_evidence.KEY_LOG}",
            "QLOGDIR": "/logs/qlog/",
            "PROTOCOLS": "",
            "CRON": "",
            STATE_VARIABLE: "/state/",
        }
        return EndpointProgram(
            image.config.argv,
            (*image.mounts, *mounts),
            {**image.config.environment, **contract, **self.environment.get(role, {})},
            image.base,
            CAPABILITIES,
            image.config.directory,
            hosts(),
        )

    @contextlib.contextmanager
    def path(self, up: Lab, request: TransferRequest, folder: Path) -> Iterator[list[str]]:
        """Listen on the simulator's port; before the first sample, test both roles for compliance.
        With rebindings, a NAT is on the path.
        """
        proxy = up.topology.node_of(Role.PROXY)
        with netns.inside(up.lab_id, proxy, create_server, (str(CLIENT_GATEWAY), READY_PORT)):
            for role in (SERVER, CLIENT):
                if role not in self.faults:
                    self.faults[role] = self._compliance_fault(up, folder, role, request.pki)
            with _nat(up, request):
                yield [fault for fault in self.faults.values() if fault]

    def _compliance_fault(self, up: Lab, folder: Path, role: str, keys: Pki) -> str:
        """Request an unknown test case, which an endpoint must refuse with status 127.

        As in the interop runner, the endpoint finds folders and certificates as in a test, and
        nothing to serve or to request.
        """
        with scratch.folder("compliance") as place:
            box = Sandbox(name=role, hosts=hosts(), limits=Limits(COMPLIANCE_S))
            own = place / role
            own.mkdir()
            scratch.sized(own, box.limits.disk_bytes, box.limits.files)
            _make_folders(own, keys)
            (own / "www").mkdir()
            privileges.chown_tree(own, box.uid)
            mounts = [*_mounts(own, ("www", *FOLDERS)), *_work(own, self.images[role])]
            program = self._script(role, f"unknown-{secrets.token_hex(4)}", "", mounts)
            box = program.in_sandbox(box, up.place(up.topology.node_of(Role(role))))
            try:
                log = folder / f"compliance-{role}.log"
                running = sandboxed_program.start(box, program.argv, log)
            except NotStartedError as error:
                return f"the {role}: {error}"
            ended = running.poll(COMPLIANCE_S + 5) or running.stop()
        if ended.is_refusal:
            return ""
        outcome = ended.reason or "it ended with status 0"
        return (
            f"not compliant: the {role} must refuse an unknown test case with status"
            f" {NOT_SUPPORTED}; {outcome}"
        )

    def sample(
        self,
        request: TransferRequest,
        number: int,
        ended: ExitReport,
        wire: CapturedTransfer | None,
    ) -> Sample:
        """Judge by exit code, files and unencrypted packets, as the interop runner does."""
        if wire is None:
            return request.sent_nothing(ended)
        status, reason = self._verdict(request, number, wire, ended)
        size = sum(file_sizes(request)) if status == "ok" else wire.arrived_bytes
        times = wire.times_s(request.marks or (size,), max(size, 1))
        last_s = times[-1]
        if status == "ok" and not request.marks and last_s and last_s > request.case.timeout_s:
            status, reason = at_time_limit(request, wire)
        return Sample(
            request.case.id, request.seed, status, reason, times, handshake_ms=wire.handshake_ms
        )

    def qlog_folders(self, request: TransferRequest) -> Mapping[str, Path]:
        """Return the folders that are $QLOGDIR in the sandboxes."""
        return {side: request.folder / side / "logs" / "qlog" for side in (SERVER, CLIENT)}

    def transfer_of(
        self, request: TransferRequest, packets: Sequence[Packet]
    ) -> CapturedTransfer | None:
        """Return the transfer over IPv4 and IPv6; a server may go on from another port."""
        port = None if request.case.migrated else PORT
        addresses = (SERVER_ADDRESS, ipv6.address(SERVER_ADDRESS))
        return captured_transfer.transfer_of(packets, addresses, port)

    def _verdict(
        self, request: TransferRequest, number: int, wire: CapturedTransfer, ended: ExitReport
    ) -> tuple[Status, str]:
        """Judge a client by its exit, its files and its packets."""
        if ended.is_out_of_time:
            return at_time_limit(request, wire)
        served = (request.folder / "www").iterdir()
        fault = ended.reason or compare(request.folder / CLIENT / _downloads(number), served)
        unreadable = interop_evidence.version_fault(wire)
        if request.case.test and unreadable and not fault:
            return "unsupported", unreadable
        folders = [request.folder / side for side in (CLIENT, SERVER)]
        try:
            fault = fault or interop_rules.fault(Evidence(request.case, wire, folders))
        except NoKeyLogError as error:
            return "unsupported", str(error)
        return ("failed", fault) if fault else ("ok", "")


def file_sizes(request: TransferRequest) -> tuple[int, ...]:
    """Return the sizes of the test case's files, or of one file up to the suite's last mark."""
    return request.case.file_sizes or (request.size,)


def _test(request: TransferRequest) -> str:
    """Return the name of the test case for the client."""
    return request.case.test or (SECOND if request.connections > 1 else "transfer")


def _downloads(number: int) -> str:
    """Return the name of the folder that is /downloads for a connection. Each connection begins
    with an empty one.
    """
    return f"downloads-{number}" if number else "downloads"


def _make_folders(own: Path, keys: Pki, connections: int = 1) -> None:
    """Make an endpoint's folders, with the certificates under the names of the contract."""
    for name in (*FOLDERS, WORK, *map(_downloads, range(1, connections))):
        (own / name).mkdir()
    for name, file in {
        "cert.pem": keys.server_cert,
        "priv.key": keys.server_key,
        "ca.pem": keys.ca_cert,
    }.items():
        shutil.copyfile(file, own / "certs" / name)


def _mounts(own: Path, names: Sequence[str], number: int = 0) -> list[Mount]:
    """Mount folders at their names, those for downloads of a connection at /downloads."""
    folders = {name: _downloads(number) if name == "downloads" else name for name in names}
    return [
        Mount(own / folder, f"/{name}", writable=name in WRITABLE)
        for name, folder in folders.items()
    ]


def _work(own: Path, image: Image) -> list[Mount]:
    """Mount the working directory, and what the image has in it, read-only."""
    if image.held is None:
        return []
    directory = image.config.directory
    return [
        Mount(own / WORK, directory, writable=True),
        *(Mount(entry, f"{directory}/{name}") for name, entry in image.held.items()),
    ]


def _nat(up: Lab, request: TransferRequest) -> contextlib.AbstractContextManager[None]:
    """Return the NAT of a case for a block."""
    wanted = request.case.rebinding
    if wanted is None:
        return contextlib.nullcontext()
    return rebinding_nat.running(
        up,
        RebindingNat(
            CLIENT_ADDRESS,
            CLIENT_GATEWAY,
            wanted.first_s,
            wanted.every_s,
            wanted.address,
            request.seed,
        ),
    )


def hosts() -> str:
    """Return the hosts file of both endpoints."""
    names = [
        (CLIENT_ADDRESS, "client client4 client46"),
        (ipv6.address(CLIENT_ADDRESS), "client6 client46"),
        (CLIENT_GATEWAY, "sim"),
        (SERVER_ADDRESS, "server server4 server46"),
        (ipv6.address(SERVER_ADDRESS), "server6 server46"),
    ]
    return "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for address, name in names)


@contextlib.contextmanager
def opened(
    client: Path, server: Path | None = None, environment: Environment | None = None
) -> Iterator[InteropPair]:
    """Open the endpoints of a pair; without `server` one endpoint is both.

    `environment`: more variables, by role.

    Raises:
        ConfigError: a path is not an endpoint.
    """
    with contextlib.ExitStack() as stack:
        clients = stack.enter_context(interop_image.opened(client))
        servers = clients if server is None else stack.enter_context(interop_image.opened(server))
        yield InteropPair({CLIENT: clients, SERVER: servers}, environment or {})
