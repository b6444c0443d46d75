# SPDX-License-Identifier: GPL-3.0-or-later
"""Flows on the real clock: one lab, two programs for each flow, and the same outcome as under the
virtual clock.

Each program runs in a sandbox on the node of its flow's end (`nodes`). Each flow has its own port.
Packets of all flows are captured at the interfaces of these nodes.
"""

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from collect.calibration import CalibrationCheck
from satlab.check import sandboxed_program
from satlab.check.endpoint.pair import NAME
from satlab.check.sandboxed_program import ExitReport, NotStartedError, SandboxedProcess
from satlab.check.trace.packet_capture import Capture
from satlab.common import paths, scratch, topology
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus, HostError
from satlab.common.files import write_atomically
from satlab.common.processes import wait
from satlab.flows import (
    connection_migration,
    endpoint_commands,
    flow_nodes,
    hystart,
    measurements,
    packet_counts,
    qlog_files,
    satvirtual,
    tcp_states,
)
from satlab.flows.endpoint_commands import Place
from satlab.flows.flow_nodes import SIDES
from satlab.flows.measurements import FlowRun, Measured
from satlab.flows.packet_counts import AtInterface
from satlab.flows.payload_file import make_payload
from satlab.flows.tcp_states import TcpState, TcpStates
from satlab.flows.timetable import Action, Timetable, judged_starts
from satlab.flows.tunnel import DEVICE, Tunnel
from satlab.flows.wire import (
    FlowHost,
    Name,
    Wire,
    link_request,
    most_in_flight,
    plain_profile,
    queue_samples,
    totals,
)
from satlab.lab import netns, pki, privileges
from satlab.lab.lab import Lab
from satlab.lab.pki import Pki
from satlab.lab.sandbox import Limits, Mount, Sandbox
from satlab.run import calibrate, host_load
from satlab.run.lab_session import SessionResult, metrics_of, new_lab_id, run_session

START_S = 20.0
"""Longest time until all servers have bound their ports; then, until all clients are ready."""
WATCH_S = 0.1
"""Time between two looks at the programs, s."""
EARLY_S = 0.2
"""A program has ended early if it ended more than this before its flow's end."""
IN_FLIGHT_S = 0.3
"""Time in which packets on their way arrive, beyond a round trip."""
SPARE = 1.5
"""Size of the file that ngtcp2 and picoquic send, over what the link can carry meanwhile."""
MEMORY_BYTES = 2 << 30
"""Memory of a program, beyond the file that it maps."""
STACKS_BY_THEMSELVES = ("quinn", "quiche", "noq")
"""Stacks whose programs end by themselves at a flow's end and then exchange their measurements."""


def prepare(file: Path, folder: Path) -> dict[str, Any]:
    """Check the flows of a file, and whether this host can run them. Changes nothing.

    Raises ConfigError, HostError.
    """
    request = satvirtual.checked(file)
    endpoint_commands.check(request)
    link_request(request, file.parent, folder / "link.jsonl")
    return request


def run(file: Path, folder: Path, log: ProgressLog, stop: threading.Event) -> dict[str, Any]:
    """Run the flows of a file in a new lab, and write its files to `folder`. Return the outcome
    (schemas/virtual-flows-outcome.schema.json).

    Raises:
        ConfigError: the file is invalid.
        HostError: the host cannot run a lab, or the lab broke.
        KeyboardInterrupt: `stop` was set before the end.
    """
    request = prepare(file, folder)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    (folder / "link.jsonl").unlink(missing_ok=True)
    wire = Wire(request["wire"]) if "wire" in request else None
    profile = plain_profile(folder / "profile")
    link = link_request(request, file.parent, folder / "link.jsonl", profile)
    host = FlowHost(
        new_lab_id("flows"),
        topology.load(paths.LAB_FILE, size=flow_nodes.size(request)),
        link,
        wire=wire,
    )
    with scratch.folder("flows") as private:
        runner = FlowRunner(request, folder, private, stop)
        with hystart.setting(request.get("tcp_hystart")):
            session = run_session(host, runner.run, log, stop)
        if session.outcome is None or stop.is_set():
            raise KeyboardInterrupt
        if session.broken:
            raise HostError(f"the lab broke: {session.broken}")
        with log.step("figures"):
            measured = _document(request, wire, session, runner)
    starts = judged_starts(request["flows"], [flow["began_s"] for flow in measured["flows"]])
    checks = [*session.checks, *runner.waits(), *starts]
    calibrate.write(folder / "calibration.json", "flows", checks)
    measured["calibration"] = calibrate.deviations(checks)
    write_atomically(folder / "measured.json", json.dumps(measured))
    text = satvirtual.figures(file, folder / "measured.json")
    write_atomically(folder / "outcome.json", text)
    outcome: dict[str, Any] = json.loads(text)
    return outcome


def exit_status(outcome: Mapping[str, Any]) -> ExitStatus:
    """Return the exit status of an outcome. A failed flow takes precedence over the calibration."""
    if any(flow["status"] != "ok" for flow in outcome["flows"]):
        return ExitStatus.FAILED
    return ExitStatus.UNCALIBRATED if outcome.get("calibration") else ExitStatus.OK


def _document(
    request: Mapping[str, Any],
    wire: Wire | None,
    session: SessionResult[Lab, float],
    runner: "FlowRunner",
) -> dict[str, Any]:
    """Return what was measured, as `satvirtual flows --measured` takes it, without the calibration."""
    zero_unix_s = session.outcome or 0.0
    duration_s, bin_s = request["duration_s"], request["bin_ms"] / 1000
    lines = [line for line in metrics_of(session.lab).each() if line["type"] == "sample"]
    samples = [line | {"t_s": line["t_unix_s"] - zero_unix_s} for line in lines]
    samples = [line for line in samples if 0 < line["t_s"] <= duration_s + 1]
    plan = session.lab.plan
    rates: dict[Name, list[tuple[float, float]]] = (
        {"forward": wire.rates("forward"), "return": wire.rates("return")}
        if wire
        else {"forward": [(0.0, plan.forward.rate_bps)], "return": [(0.0, plan.return_.rate_bps)]}
    )
    with qlog_files.reading([run.place for run in runner.flow_runs]) as qlog:
        measured = replace(runner.measured(zero_unix_s), qlog=qlog)
        seen = [measurements.read(run, measured) for run in runner.flow_runs]
    return {
        "flows": [
            one.document(flow, duration_s, bin_s)
            for one, flow in zip(seen, request["flows"], strict=True)
        ],
        "queues": queue_samples(samples, rates, duration_s, wire.header_bytes if wire else None),
        "link": totals(samples),
    }


@dataclass
class _RunningFlow:
    """A flow's programs and their users by side; a side that has not begun is missing."""

    run: FlowRun
    processes: dict[str, SandboxedProcess] = field(default_factory=dict)
    uids: dict[str, int] = field(default_factory=dict)
    is_over: bool = False


class FlowRunner:
    """All flows of a request in one lab: their programs and their measurements."""

    def __init__(
        self, request: Mapping[str, Any], folder: Path, private: Path, stop: threading.Event
    ) -> None:
        self._request, self._folder, self._private, self._stop = request, folder, private, stop
        self._flows: list[_RunningFlow] = []
        self._uids: set[int] = set()
        self._memory_bytes = MEMORY_BYTES
        self._taps: dict[str, Capture] = {}
        self._tunnel: Tunnel | None = None
        self._states: dict[str, list[TcpState]] = {side: [] for side in SIDES}

    @property
    def flow_runs(self) -> list[FlowRun]:
        """Return how the programs ran, in the order of the flows."""
        return [flow.run for flow in self._flows]

    def run(self, lab: Lab, halt: threading.Event) -> float:
        """Run the flows; return the Unix time of their time 0, s."""
        self._flows = [_RunningFlow(run) for run in self._prepared(lab)]
        used = flow_nodes.used(flow.run.place.nodes for flow in self._flows)
        # Every program is stopped before this returns, whatever happens.
        with ThreadPoolExecutor(len(self._flows) * 2) as pool, contextlib.ExitStack() as stack:
            if "fec" in self._request:
                place = self._flows[0].run.place
                self._tunnel = Tunnel(
                    lab, self._request["fec"], place.addresses, place.nodes, self._folder / "logs"
                )
                stack.enter_context(self._tunnel.up())
            self._prepare_migrations(lab)
            stack.callback(self._stop_all, pool)
            for flow in self._flows:
                self._start(lab, flow, endpoint_commands.first_side(flow.run.place))
            self._await_ports(lab, used)
            self._make_ready(lab)
            halt.wait(
                lab.plan.rtt_ms.max / 1000 + IN_FLIGHT_S
            )  # what the calibration has sent arrives
            interval_s = self._request["bin_ms"] / 1000
            states = TcpStates(lab, used, interval_s, self._states)
            own = {node: next(iter(lab.topology.nodes[node].interfaces)) for _, node in used}
            interfaces = dict.fromkeys(own, DEVICE) if self._tunnel else own
            self._taps = {
                node: Capture(lab, node, interface) for node, interface in interfaces.items()
            }
            with contextlib.ExitStack() as running:
                for tap in self._taps.values():
                    running.enter_context(tap.running())
                if any(flow.run.place.flow["stack"] == "tcp" for flow in self._flows):
                    running.enter_context(states)
                lab.start_timeline()
                zero_unix_s = time.time()
                self._follow(lab, pool, halt)
                halt.wait(lab.plan.rtt_ms.max / 1000 + IN_FLIGHT_S)
        return zero_unix_s

    def measured(self, zero_unix_s: float) -> Measured:
        """Return the measurements, after `run`."""
        places = [flow.run.place for flow in self._flows]
        interfaces: dict[str, dict[int, AtInterface]] = {side: {} for side in SIDES}
        for side, node in flow_nodes.used(place.nodes for place in places):
            there = [place for place in places if place.nodes[side] == node]
            servers = {place.addresses["server"] for place in there}
            captured = (
                packet for packet in self._taps[node].packets() if packet.t_ns * 1e-9 >= zero_unix_s
            )
            interfaces[side] |= packet_counts.count(
                captured, servers, [place.port for place in there]
            )
        return Measured(
            zero_unix_s,
            interfaces,
            {
                place.port: tcp_states.of_flow(self._states, place.port, place.receiver)
                for place in places
                if place.protocol == "tcp"
            },
            sum(tap.missed for tap in self._taps.values()),
        )

    def waits(self) -> list[CalibrationCheck]:
        """Judge how long programs waited for a core: on each side the one that waited longest."""
        worst: dict[str, float] = {}
        tunnel = self._tunnel.processes if self._tunnel else {}
        for processes in (*(flow.processes for flow in self._flows), tunnel):
            for side, process in processes.items():
                report = process.poll()
                worst[side] = max(worst.get(side, 0.0), report.waited_s if report else 0.0)
        return host_load.of_programs(worst, self._request["duration_s"])

    # --- before ---

    def _prepared(self, lab: Lab) -> Iterator[FlowRun]:
        ends = [flow_nodes.of_flow(lab.topology, flow) for flow in self._request["flows"]]
        servers = dict.fromkeys(lab.topology.nodes[of_flow["server"]].address for of_flow in ends)
        keys = pki.create(
            self._private / "pki", [NAME], [*map(ip_address, servers)], datetime.now(UTC)
        )
        duration_s = self._request["duration_s"]
        file = self._private / "www" / endpoint_commands.PAYLOAD
        file.parent.mkdir(mode=0o755)
        fastest_bps = max(lab.plan.forward.rate_bps, lab.plan.return_.rate_bps)
        if "wire" in self._request:
            wire = Wire(self._request["wire"])
            fastest_bps = max(rate for name in wire.halves for _, rate in wire.rates(name))
        for index, flow in enumerate(self._request["flows"]):
            stop_s = flow.get("stop_s", duration_s)
            own = self._private / str(index)
            for side in SIDES:
                (own / side).mkdir(parents=True)
                scratch.sized(own / side, Limits.disk_bytes, Limits.files)
                (own / side / "qlog").mkdir()
            of_server, of_client = own / "keys", own / "ca"
            shutil.copytree(keys.folder, of_server)
            of_client.mkdir()
            shutil.copy(keys.ca_cert, of_client)
            addresses = {
                side: lab.topology.nodes[node].address for side, node in ends[index].items()
            }
            place = Place(
                index=index,
                flow=flow,
                life_s=stop_s - flow["start_s"],
                nodes=ends[index],
                addresses=addresses,
                keys=Pki(of_server, keys.spki),
                ca=of_client / keys.ca_cert.name,
                folder=own,
                payload=file,
                send_bytes=most_in_flight(self._request),
                handshake_s=lab.plan.rtt_ms.mean / 1000,
            )
            yield FlowRun(place, stop_s)
        sizes = [flow.get("bytes", 0) for flow in self._request["flows"]]
        size = max(*sizes, 1, int(SPARE * fastest_bps / 8 * duration_s) if not all(sizes) else 1)
        is_sent = any(flow["stack"] in qlog_files.STACKS for flow in self._request["flows"])
        make_payload(file, size if is_sent else 1)
        self._memory_bytes = MEMORY_BYTES + size

    def _prepare_migrations(self, lab: Lab) -> None:
        """Make second addresses of the clients that take one."""
        places = [flow.run.place for flow in self._flows if flow.run.place.flow.get("migrate_s")]
        for node in dict.fromkeys(place.nodes["client"] for place in places):
            servers = [
                place.addresses["server"] for place in places if place.nodes["client"] == node
            ]
            connection_migration.prepare(lab, node, dict.fromkeys(servers))

    def _uid(self) -> int:
        while (uid := privileges.new_uid()) in self._uids:
            continue
        self._uids.add(uid)
        return uid

    def _start(self, lab: Lab, flow: _RunningFlow, side: str) -> None:
        """Start the program of a side in a sandbox; the second one waits for `release`. If it does
        not start, the flow fails.
        """
        place = flow.run.place
        is_first = endpoint_commands.first_side(place) == side
        make = endpoint_commands.first_program if is_first else endpoint_commands.second_program
        program = make(place)
        uid = flow.uids[side] = self._uid()
        privileges.chown_tree(place.folder / side, uid)
        privileges.chown_tree(place.keys.folder if side == "server" else place.ca.parent, uid)
        box = Sandbox(
            uid=uid,
            place=lab.place(place.nodes[side]),
            mounts=(*program.mounts, Mount(place.folder / side, writable=True)),
            name=side,
            hosts=f"127.0.0.1 localhost\n{place.addresses['server']} {NAME}\n",
            limits=Limits(
                seconds=self._request["duration_s"] + 2 * START_S + 120,
                memory_bytes=self._memory_bytes,
                grace_s=1.0,
            ),
            capabilities=program.capabilities,
            variables=program.environment,
            held=not is_first,
        )
        try:
            log = self._folder / "logs" / f"{place.index}-{side}.log"
            flow.processes[side] = sandboxed_program.start(box, program.argv, log)
        except NotStartedError as error:
            flow.run.refused = str(error)

    def _await_ports(self, lab: Lab, used: Sequence[tuple[str, str]]) -> None:
        """Wait until each first program has bound its port. If it has ended instead, its flow
        fails.
        """

        def missing() -> list[_RunningFlow]:
            bound = {
                (node, protocol): netns.bound_ports(lab.lab_id, node, protocol)
                for _, node in used
                for protocol in ("udp", "tcp")
            }
            return [
                flow
                for flow in self._flows
                for place in [flow.run.place]
                if place.port
                not in bound[place.nodes[endpoint_commands.first_side(place)], place.protocol]
            ]

        def all_done() -> bool:
            return all(flow.run.refused or _report_of(flow) for flow in missing())

        wait(all_done, START_S)
        for flow in missing():
            place, report = flow.run.place, _report_of(flow)
            side = endpoint_commands.first_side(place)
            reason = (
                report.reason
                if report
                else f"it does not listen on port {place.port} after {START_S:g} s"
            )
            flow.run.refused = flow.run.refused or f"the {side}: {reason or 'it ended early'}"

    def _make_ready(self, lab: Lab) -> None:
        """Start the second program of each flow up to the point where it waits for its flow's
        start.
        """
        flows = [flow for flow in self._flows if not flow.run.refused]
        for flow in flows:
            self._start(lab, flow, endpoint_commands.second_side(flow.run.place))
        held = [process for flow in flows for process in flow.processes.values()]
        wait(lambda: not any(process.is_waiting for process in held), START_S)

    # --- while they run ---

    def _follow(self, lab: Lab, pool: ThreadPoolExecutor, halt: threading.Event) -> None:
        """Start and stop programs in time, and note those that end early."""
        timetable = Timetable.of(self._request["flows"], self._request["duration_s"])
        zero, look_s = time.monotonic(), 0.0
        while timetable.next_s is not None and not halt.is_set():
            now_s = time.monotonic() - zero
            for action in timetable.due(now_s):
                self._act(lab, action, pool)
            if now_s >= look_s:  # at 128 programs, which must not hold up the starts of flows
                self._look(now_s, pool)
                look_s = time.monotonic() - zero + WATCH_S
            if all(flow.is_over or flow.run.refused for flow in self._flows):
                return
            if timetable.next_s is not None:
                halt.wait(max(0.0, min(look_s, timetable.next_s) - (time.monotonic() - zero)))

    def _act(self, lab: Lab, action: Action, pool: ThreadPoolExecutor) -> None:
        flow = self._flows[action.index]
        if flow.run.refused:
            return
        if action.verb == "start":
            flow.processes[endpoint_commands.second_side(flow.run.place)].release()
            return
        if action.verb == "lead":
            pool.submit(self._lead, lab, flow, action.at_s)
            return
        ends_itself = flow.run.place.flow["stack"] in STACKS_BY_THEMSELVES
        if action.verb == "kill" or not ends_itself:
            # The sender first: it must not go on when nobody listens.
            for side in sorted(flow.processes, key=lambda side: side != flow.run.place.sender):
                pool.submit(flow.processes[side].stop)
            flow.is_over = True

    def _lead(self, lab: Lab, flow: _RunningFlow, now_s: float) -> None:
        """Let the client's program find its second address. If the host refuses, the flow fails."""
        log = self._folder / "logs" / f"{flow.run.place.index}-route.log"
        try:
            connection_migration.lead(lab, flow.run.place.nodes["client"], flow.uids["client"], log)
        except HostError as error:
            report = ExitReport(0, str(error), 0.0, 0, "")
            flow.run.gone, flow.run.gone_s = ("client's second address", report), now_s

    def _look(self, now_s: float, pool: ThreadPoolExecutor) -> None:
        for flow in self._flows:
            run = flow.run
            ended = {
                side: report
                for side, process in flow.processes.items()
                if (report := process.poll())
            }
            if len(ended) == len(SIDES):
                flow.is_over = True
            elif (
                "client" in ended
                and not flow.is_over
                and run.place.flow["stack"] not in STACKS_BY_THEMSELVES
            ):
                pool.submit(flow.processes["server"].stop)  # it would wait for the next client
                flow.is_over = True
            if not ended or run.gone is not None or now_s > run.stop_s - EARLY_S:
                continue
            side = max(ended, key=lambda side: bool(ended[side].reason))
            run.gone, run.gone_s = (side, ended[side]), now_s
        # An end of the tunnel that has died ends every flow.
        gone = self._tunnel.gone if self._tunnel else None
        for flow in self._flows if gone else ():
            if flow.run.gone is None and not flow.is_over:
                flow.run.gone, flow.run.gone_s = gone, now_s
                flow.is_over = True

    def _stop_all(self, pool: ThreadPoolExecutor) -> None:
        stopping = [
            pool.submit(process.stop) for flow in self._flows for process in flow.processes.values()
        ]
        for one in stopping:
            one.result()


def _report_of(flow: _RunningFlow) -> ExitReport | None:
    """Return how the first program ended; None while it runs."""
    process = flow.processes.get(endpoint_commands.first_side(flow.run.place))
    return process.poll() if process else None
