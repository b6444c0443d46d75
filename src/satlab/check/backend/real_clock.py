# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples on the real clock: each in a fresh lab that is calibrated before and watched meanwhile.

Both programs run in sandboxes; packets are captured at the client's interface.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any, Literal

from collect.calibration import CalibrationCheck
from satlab.check import case_link, sandboxed_program, time_floors
from satlab.check.case_link import CaseLink
from satlab.check.endpoint.pair import (
    CLIENT,
    SERVER,
    EndpointPair,
    EndpointProgram,
    TransferRequest,
)
from satlab.check.endpoint.satperf import SatperfPair
from satlab.check.samples import Sample, within_limit
from satlab.check.sandboxed_program import ExitReport, NotStartedError, SandboxedProcess
from satlab.check.suite import MB, Case, Suite
from satlab.check.trace import packet_ledger, pcap, qlog, qlog_figures, trace_reader
from satlab.check.trace.captured_transfer import CapturedTransfer
from satlab.check.trace.packet_capture import Capture
from satlab.check.trace.packet_ledger import Ledger
from satlab.check.trace.pcap import Packet
from satlab.check.trace.symptoms import symptoms
from satlab.common import scratch
from satlab.common.errors import HostError
from satlab.common.processes import POLL_S, wait
from satlab.common.topology import Role
from satlab.lab import netns, pki, privileges
from satlab.lab.lab import Lab
from satlab.lab.sandbox import Limits, Mount, Sandbox
from satlab.run import calibrate, host_load
from satlab.run.lab_session import NetnsHost, metrics_of, new_lab_id, run_session

START_S = 10.0
"""Longest time until a server binds its port, s."""
GRACE_S = 15.0
"""Time after the case's time limit in which a client may still end by itself, s."""
END_S = 5.0
IN_FLIGHT_S = 0.3
"""Wait for packets in flight, in addition to a round trip, s: before the programs start and after
they end.
"""
SETTLE_S, SERVER_END_S = 2.0, 10.0
"""A qlog is complete after this time without a write, s; and the longest wait for that, s. The QUIC
interop runner also gives a server 10 s.
"""
WATCH_S = 0.25
MOST_WHOLE_BYTES = 64 << 20
"""Largest payload of a test case whose packets are captured whole."""


@dataclass(frozen=True)
class RealClock:
    """The backend on the real clock. `stop` ends the sample and the check."""

    ends: EndpointPair
    stop: threading.Event = field(default_factory=threading.Event)
    at_once: int = 1
    clock: Literal["real"] = "real"

    @property
    def stack(self) -> str:
        return self.ends.name

    def sample(self, suite: Suite, case: Case, link: CaseLink, seed: int, raw: Path) -> Sample:
        """Run the programs in a new lab."""
        if lacking := self.lacking(case):
            return Sample(
                case.id, seed, "unsupported", lacking, (None,) * max(1, len(suite.marks_mb))
            )
        folder = _emptied(raw / f"{case.id}-{seed}")
        request = case_link.for_lab(link, case, seed, folder / "link.jsonl")
        host, captures = (
            NetnsHost(new_lab_id("check"), self.ends.topology(case), request),
            _Captures(),
        )
        session = run_session(
            host,
            lambda up, halt: self._transfer(up, suite, case, seed, folder, halt, captures),
            stop=self.stop,
        )
        if session.outcome is None:
            raise KeyboardInterrupt
        if session.broken:
            raise HostError(f"the lab broke during {case.id}: {session.broken}")
        samples = [
            line
            for line in metrics_of(session.lab).each()
            if line["type"] == "sample" and line["t_unix_s"] > captures.began_unix_s
        ]
        returned = [line for line in samples if line["return"]]
        ledgers = self._ledgers(captures, samples, host, case, session.outcome.lost_packets)
        checks = [
            *session.checks,
            *_waits(session.outcome),
            *(_host_losses(direction, one) for direction, one in ledgers.items()),
        ]
        calibrate.write(folder / "calibration.json", session.lab.config.run_id, checks)
        # Of outside programs we read only the states that `qlog_figures` made from their qlog.
        is_traced = isinstance(self.ends, SatperfPair) or "spent_s" in session.outcome.sources
        outcome = replace(
            session.outcome, ledgers={name: one.document() for name, one in ledgers.items()} or None
        )
        trace = trace_reader.read(raw, case, outcome, link.plan) if is_traced else None
        marks = [round(mark * MB) for mark in suite.marks_mb] or [sum(case.file_sizes)]
        # Only TCP goes through proxies. External programs may always send early data.
        has_proxies = self.ends.protocol == "tcp"
        if not isinstance(self.ends, SatperfPair):
            case = case.model_copy(update={"zero_rtt": True})
        outcome = time_floors.possible(outcome, case, marks, link, has_proxies=has_proxies)
        return replace(
            outcome,
            calibration=", ".join(check.name for check in checks if not check.ok),
            spent_s=None if trace is None else trace.spent_s(),
            return_packets=sum(line["return"]["out_packets"] for line in returned),
            return_bytes=sum(line["return"]["out_bytes"] for line in returned),
        )

    def lacking(self, case: Case) -> str:
        """Return why the programs cannot run a case; empty if they can."""
        if case.neighbour:
            return (
                "the case has a second client behind the same address: it needs the virtual clock"
            )
        if case.is_for_satperf and not isinstance(self.ends, SatperfPair):
            return "the case sets options of satperf"
        return self.ends.unsupported_reason(case)

    def sample_in(
        self,
        up: Lab,
        suite: Suite,
        case: Case,
        seed: int,
        folder: Path,
        halt: threading.Event,
    ) -> Sample:
        """Run the programs in a lab that is up. The sample's calibration counts only these
        programs' waits for a core.
        """
        sample = self._transfer(up, suite, case, seed, _emptied(folder), halt, _Captures())
        return replace(
            sample, calibration=", ".join(one.name for one in _waits(sample) if not one.ok)
        )

    def _ledgers(
        self,
        captures: "_Captures",
        samples: Sequence[Mapping[str, Any]],
        host: NetnsHost,
        case: Case,
        lost: int | None,
    ) -> dict[str, Ledger]:
        """Return the ledgers of both directions; empty if a capture missed packets, proxies split
        the connection, or its addresses change.
        """
        if self.ends.protocol == "tcp" or not captures.is_complete or len(host.states) < 2:
            return {}
        if case.has_several_paths:  # packets are counted by one address of IPv4
            return {}
        payload = "forward" if case.direction == "download" else "return"
        made = {}
        for direction, (sender, receiver) in {
            "forward": (SERVER, CLIENT),
            "return": (CLIENT, SERVER),
        }.items():
            node = host.topology.node_of(Role(receiver))
            before, after = (host.states[index].nodes[node] for index in (0, -1))
            errors = after.buffer_errors - before.buffer_errors
            source = host.topology.address_of(Role(sender))
            sent, arrived = (
                packet_ledger.packets_from(captures.packets[side], IPv4Address(source))
                for side in (sender, receiver)
            )
            reported = lost if direction == payload else None
            made[direction] = packet_ledger.of(direction, sent, arrived, samples, errors, reported)
        return made

    def _transfer(
        self,
        up: Lab,
        suite: Suite,
        case: Case,
        seed: int,
        folder: Path,
        halt: threading.Event,
        captures: "_Captures",
    ) -> Sample:
        """Start the server, then the client once or twice; return the sample of the last
        connection.
        """
        host = up.topology.address_of(Role.SERVER)
        with scratch.folder("check") as private:
            keys = pki.create(
                private / "pki",
                self.ends.certificate_names(case),
                [ip_address(host)],
                datetime.now(UTC),
            )
            request = TransferRequest(suite, case, seed, host, keys, private / "endpoints")
            sandboxes = {
                side: _sandbox(request, side, self.ends.server_names) for side in (SERVER, CLIENT)
            }
            try:
                # Packets of the calibration arrive meanwhile.
                halt.wait(up.plan.rtt_ms.max / 1000 + IN_FLIGHT_S)
                with captures.running(up, whole=is_captured_whole(request)):
                    found = _Connections(
                        self.ends, self.stop, halt, up, request, sandboxes, folder
                    ).sample()
                    halt.wait(up.plan.rtt_ms.max / 1000 + IN_FLIGHT_S)
                return found
            finally:
                for side in (SERVER, CLIENT):
                    sandboxed_program.keep(request.folder / side, folder / side)


class _Captures:
    """Captures at the interfaces of both endpoints, from the programs' first packet to the arrival
    of the last one.
    """

    def __init__(self) -> None:
        self.packets: dict[str, list[Packet]] = {}
        self.began_unix_s = 0.0
        self.is_complete = False

    @contextlib.contextmanager
    def running(self, up: Lab, *, whole: bool) -> Iterator[None]:
        """Capture during the block. `whole` packets can be decrypted."""
        captures = {
            side: Capture(up, *_interface(up, Role(side)), whole=whole) for side in (SERVER, CLIENT)
        }
        self.began_unix_s = time.time()
        with contextlib.ExitStack() as running:
            for tap in captures.values():
                running.enter_context(tap.running())
            yield
        self.packets = {side: list(tap.packets()) for side, tap in captures.items()}
        self.is_complete = not any(tap.missed for tap in captures.values())


@dataclass(frozen=True)
class _Connections:
    """One server and its clients. `halt` is set when `stop` is, or when the lab breaks."""

    ends: EndpointPair
    stop: threading.Event
    halt: threading.Event
    up: Lab
    request: TransferRequest
    sandboxes: dict[str, Sandbox]
    folder: Path

    def sample(self) -> Sample:
        """Run server and clients; return the sample of the last connection."""
        with self.ends.path(self.up, self.request, self.folder) as faults:
            try:
                result = self.request.failed("; ".join(faults)) if faults else self._measured()
            except NotStartedError as error:
                result = self.request.failed(str(error))
        if faults and result.status == "ok":
            return replace(result, status="failed", reason="; ".join(faults))
        return replace(result, **self.ends.path_figures(self.request, self.folder))

    def _measured(self) -> Sample:
        with _running(self._start(SERVER, self.ends.server(self.request), "server.log")) as server:
            node = self.up.topology.node_of(Role.SERVER)

            def has_begun() -> bool:
                """Whether the server listens or has ended."""
                bound = netns.bound_ports(self.up.lab_id, node, self.ends.protocol)
                return self.ends.port in bound or server.poll() is not None

            if not wait(has_begun, START_S):
                return self.request.failed(
                    f"the server does not listen on port {self.ends.port} after {START_S:g} s"
                )
            if (gone := server.poll()) is not None:
                return self._without_server(gone)
            result = self.request.failed("no connection was made")
            for number in range(self.request.connections):
                if number:
                    self.halt.wait(self.request.case.second_after_s)
                result, ended, seen = self._connection(server, number)
                if result.status != "ok" and number + 1 < self.request.connections:
                    return replace(
                        self.request.failed(f"first transfer: {result.reason}"),
                        status=result.status,
                    )
            self._settle(server)
            return self._complete(result, server.stop(), ended, seen)

    def _settle(self, server: SandboxedProcess) -> None:
        """Wait until the server has written its qlog: no file of it has grown for SETTLE_S; at most
        SERVER_END_S.

        The server learns of the connection's end half a round trip after the client, and may write
        the file only then.
        """
        folder = self.ends.qlog_folders(self.request).get(SERVER)
        if folder is not None:
            wait_until_settled(lambda: qlog.total_bytes(folder), lambda: server.poll() is not None)

    def _connection(
        self, server: SandboxedProcess, number: int
    ) -> tuple[Sample, ExitReport, CapturedTransfer | None]:
        case = self.request.case
        files = {
            Role(side): self.folder / f"{side}-{number}.pcap"
            for side in (CLIENT, *([SERVER] if case.test else []))
        }
        with contextlib.ExitStack() as captures:
            for role, file in files.items():
                capture = Capture(
                    self.up, *_interface(self.up, role), whole=is_captured_whole(self.request)
                )
                captures.enter_context(capture.running(file))
            if number == 0:  # changes count from the first transfer
                self.up.start_timeline()
            client = self._start(
                CLIENT, self.ends.client(self.request, number), f"client-{number}.log"
            )
            with _running(client):
                ended, why = self._await(server, client)
        found = {
            role: self.ends.transfer_of(self.request, pcap.read(file))
            for role, file in files.items()
        }
        seen = found[Role.CLIENT]
        if seen is not None:
            seen = replace(seen, at_server=found.get(Role.SERVER))
        if why:
            return self._not_measured(why), ended, seen
        return self.ends.sample(self.request, number, ended, seen), ended, seen

    def _without_server(self, gone: ExitReport) -> Sample:
        gone = gone.of_program(SERVER)
        why = UNSUPPORTED if gone.is_refusal else f"the server: {gone.reason or 'it ended early'}"
        return self._not_measured(why)

    def _not_measured(self, why: str) -> Sample:
        return self.request.failed(why, "unsupported" if why == UNSUPPORTED else "failed")

    def _complete(
        self, base: Sample, server: ExitReport, client: ExitReport, seen: CapturedTransfer | None
    ) -> Sample:
        """Add processor time and the figures of captured packets."""
        used = {
            "client": (client.cpu_s, client.waited_s),
            "server": (server.cpu_s, server.waited_s),
        }
        more: dict[str, Any] = {} if seen is None else {"last_packet_s": seen.last_packet_s}
        if seen is not None and self.request.case.direction == "download":
            more["goodput_interop_bps"] = seen.goodput_bps(self.request.size)
            plan = self.up.plan
            found = symptoms(seen, plan.rtt_ms.mean / 1000, plan.forward.udp_goodput_bps, used)
            base = replace(base, symptoms=(*found, *base.symptoms))
            folders, one_way_s = self.ends.qlog_folders(self.request), plan.rtt_ms.mean / 2000
            base = qlog_figures.add(base, folders, self.request.size, self.folder, seen, one_way_s)
        whole = replace(
            base,
            client_cpu_s=client.cpu_s,
            server_cpu_s=server.cpu_s,
            client_wait_s=client.waited_s,
            server_wait_s=server.waited_s,
            client_peak_bytes=client.peak_bytes,
            server_peak_bytes=server.peak_bytes,
            **more,
        )
        return within_limit(whole, self.request.case, has_marks=bool(self.request.marks))

    def _await(self, server: SandboxedProcess, client: SandboxedProcess) -> tuple[ExitReport, str]:
        """Wait for the client's end. Return its report, and why it does not count if the server
        ended or the lab broke first.
        """
        while (ended := client.poll(WATCH_S)) is None:
            if self.stop.is_set():
                raise KeyboardInterrupt
            gone = server.poll()
            if gone is not None and client.poll(END_S) is None:
                return client.stop().of_program(CLIENT), self._without_server(gone).reason
            if self.halt.is_set() and not self.stop.is_set():
                return client.stop(), "the lab broke"
        return ended.of_program(CLIENT), UNSUPPORTED if ended.is_refusal else ""

    def _start(self, side: str, program: EndpointProgram, log: str) -> SandboxedProcess:
        place = self.up.place(self.up.topology.node_of(Role(side)))
        box, own = self.sandboxes[side], self.request.folder / side
        if own.stat().st_uid != box.uid:  # afterwards the files are the program's
            privileges.chown_tree(own, box.uid)
        for mount in program.mounts:
            if mount.source.is_relative_to(own) and mount.source.resolve() != mount.source:
                raise NotStartedError(
                    f"the {side} has replaced its folder {mount.source.name} by a link"
                )
            if mount.source.is_relative_to(self.request.pki.folder):
                privileges.chown(mount.source, box.uid)
        try:
            return sandboxed_program.start(
                program.in_sandbox(box, place), program.argv, self.folder / log
            )
        except NotStartedError as error:
            raise sandboxed_program.unbuilt(side, str(error)) from error


UNSUPPORTED = "the program does not support it (exit status 127)"


def _sandbox(request: TransferRequest, side: str, names: tuple[str, ...]) -> Sandbox:
    folder = request.folder / side
    folder.mkdir(parents=True)
    known = "".join(f"{request.host} {name}\n" for name in names)
    seconds = sandbox_limit_s(request, side)
    hosts = f"127.0.0.1 localhost\n{known}"
    limits = Limits(seconds)
    scratch.sized(folder, limits.disk_bytes, limits.files)
    return Sandbox(mounts=(Mount(folder, writable=True),), name=side, hosts=hosts, limits=limits)


def is_captured_whole(request: TransferRequest) -> bool:
    """Whether whole packets are captured: the evidence of a test case may need decryption. Captures
    are in memory.
    """
    return request.case.test is not None and request.size <= MOST_WHOLE_BYTES


def sandbox_limit_s(request: TransferRequest, side: str) -> float:
    """Return the time limit of a side's sandbox, s. The server outlives its clients: a time limit
    that is reached is the case's, and no fault of the server.
    """
    client_s = request.case.timeout_s + GRACE_S
    if side == CLIENT:
        return client_s
    between_s = request.case.second_after_s or 0
    return START_S + request.connections * (client_s + END_S) + between_s + SERVER_END_S


def _emptied(folder: Path) -> Path:
    """Make a sample's folder; the files of an earlier, stopped attempt are removed."""
    if folder.exists():
        scratch.remove(folder)
    folder.mkdir()
    return folder


def wait_until_settled(
    total_bytes: Callable[[], int],
    has_ended: Callable[[], bool],
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Wait until a program has ended or its files have not grown for SETTLE_S; at most
    SERVER_END_S.
    """
    size, since_s = -1, now_s()
    end_s = since_s + SERVER_END_S
    while not has_ended() and now_s() <= end_s:
        if (now := total_bytes()) != size:
            size, since_s = now, now_s()
        if now_s() - since_s > SETTLE_S:
            return
        sleep(POLL_S)


@contextlib.contextmanager
def _running(program: SandboxedProcess) -> Iterator[SandboxedProcess]:
    """Stop a program when the block ends."""
    try:
        yield program
    finally:
        program.stop()


def _waits(sample: Sample) -> list[CalibrationCheck]:
    """Judge how long the programs waited for a core, as a share of the transfer."""
    waits = {CLIENT: sample.client_wait_s, SERVER: sample.server_wait_s}
    known = {name: seconds for name, seconds in waits.items() if seconds is not None}
    return host_load.of_programs(known, sample.last_packet_s or 0.0)


def _host_losses(direction: str, found: Ledger) -> CalibrationCheck:
    """Judge the number of packets that the host lost. More lost than sent packets are a fault of
    the count.
    """
    ratio = found.by_host / max(found.sent, 1)
    limit = host_load.LOST_PACKETS_LIMIT
    return calibrate.check(f"host_loss_ratio.{direction}", "", 0, ratio, -limit, limit, found.text)


def _interface(up: Lab, role: Role) -> tuple[str, str]:
    """Return the node of an endpoint and its only interface."""
    node = up.topology.node_of(role)
    return node, next(iter(up.topology.nodes[node].interfaces))
