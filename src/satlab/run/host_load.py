# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges the load of the host: how long programs waited for a core, and where packets were lost.

Sources: run-queue waits of threads (schedstat, the kernel's scheduler/sched-stats.rst), CPU time of
the host and of processes (proc(5), stat and pid/stat), memory pressure (accounting/psi.rst),
counters of UDP sockets (proc(5), net/snmp) and interfaces (net/dev). Values that the kernel does
not count are not judged.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import collect
from collect import browser_yardstick
from collect.browser_yardstick import BrowserYardsticks
from collect.calibration import CalibrationCheck
from collect.jobs import Job
from satlab.common.processes import ProcfsProcess, host_ticks, read_process
from satlab.run.calibrate import check
from satlab.run.quiet_host import stalled_us

BROWSER_WAIT_LIMIT = 0.09
"""Longest wait of a browser's thread for a core, as a share of a page load's time, beyond OWN_WAIT.
"""
BROWSER_HOST_LIMIT = 0.55
"""Largest part of a Page Load Time that may be the host's. Over LEO it is 0.37 to 0.49, and 0.68 and
more on a host of half the speed, which is slower there; over GEO 0.1, and up to 0.48 on a host of a
quarter of the speed, which is not slower there (docs/results.md).
"""
OWN_WAIT = 0.25
"""Waits of that thread for the browser's other threads, as a share of the browser's CPU time. On
two cores: 0.20 to 0.25 if nothing else runs, 0.35 and more if something does (docs/results.md).
"""
PROGRAM_WAIT_LIMIT = 0.2
"""Longest wait for a core of all threads of a transfer's programs, as a share of the transfer's
time: up to 0.17 if nothing else runs.
"""
SHORTEST_JOB_S = 2.0
"""A shorter job only starts and ends, without a transfer; it is not judged."""
OTHERS_LIMIT = 0.05
"""Share of all CPU time that processes outside the measurement may use if fewer than IDLE_CORES
were idle.
"""
IDLE_CORES = 1.5
"""With 1.2 idle next to programs that took 0.65 of two, a TCP download was 12 % slower
(docs/results.md).
"""
STEAL_LIMIT = 0.02
"""Share of all CPU time that other machines of the hypervisor may take."""
MEMORY_PRESSURE_LIMIT = 0.01
"""Share of the time in which a task may wait for memory."""
WHOLE_HOST = ("cpu_others_ratio", "cpu_steal_ratio", "memory_wait_ratio")
"""Names of the checks that judge all of a session at once."""
LOST_PACKETS_LIMIT = 1e-4
"""Share of a namespace's packets that its sockets and interfaces may drop: a tenth of the smallest
planned loss ratio.
"""


# --- page loads -----------------------------------------------------------------------------------


def wait_ratio(load: collect.PageLoad) -> float | None:
    """Return the share of a page load for which its most waiting thread lacked a core of the host;
    None if that is unknown.
    """
    length_s = (load.page_load_time_ms or load.wall_s * 1000) / 1000
    known = (load.cpu_wait_longest_s, load.cpu_user_s, load.cpu_system_s)
    if None in known or not length_s:
        return None
    waited_s, user_s, system_s = (value or 0.0 for value in known)
    return max(0.0, waited_s - OWN_WAIT * (user_s + system_s)) / length_s


def of_loads(loads: Iterable[collect.PageLoad]) -> list[CalibrationCheck]:
    """Judge the worst of a run's page loads; no check if no load has known waits."""
    ratios = {load.load_index: ratio for load in loads if (ratio := wait_ratio(load)) is not None}
    if not ratios:
        return []
    worst = max(ratios, key=ratios.__getitem__)
    count = sum(ratio > BROWSER_WAIT_LIMIT for ratio in ratios.values())
    note = (
        f"of load {worst}, the worst: one thread of the browser had no core; {count} of"
        f" {len(ratios)} loads above"
    )
    return [check("browser_wait_ratio", "", 0, ratios[worst], 0, BROWSER_WAIT_LIMIT, note)]


def of_browser(
    loads: Iterable[collect.PageLoad], known: BrowserYardsticks
) -> list[CalibrationCheck]:
    """Judge the load whose Page Load Time is the host's for the largest share; no check if no load
    has a known part.
    """
    parts = [
        (load, load.page_load_time_ms, part)
        for load in loads
        if load.page_load_time_ms and (part := browser_yardstick.host_ms(load, known)) is not None
    ]
    if not parts:
        return []
    worst, whole_ms, part = max(parts, key=lambda one: one[2] / one[1])
    count = sum(one / length_ms > BROWSER_HOST_LIMIT for _, length_ms, one in parts)
    note = (
        f"of load {worst.load_index}, the worst: {part:.0f} of {whole_ms:.0f} ms are the host's;"
        f" {count} of {len(parts)} loads above"
    )
    return [check("browser_host_ratio", "", 0, part / whole_ms, 0, BROWSER_HOST_LIMIT, note)]


# --- programs of a transfer -----------------------------------------------------------------------


def of_programs(waited_s: Mapping[str, float], length_s: float) -> list[CalibrationCheck]:
    """Judge how long each program of a transfer waited for a core."""
    if length_s <= 0:
        return []
    limit, note = PROGRAM_WAIT_LIMIT, f"in {length_s:.1f} s"
    return [
        check(f"cpu_wait_ratio.{name}", "", 0, seconds / length_s, 0, limit, note)
        for name, seconds in waited_s.items()
    ]


def of_jobs(jobs: Iterable[Job]) -> list[CalibrationCheck]:
    """Judge the job that lacked a core for the largest share of its time; no check if no job has
    known waits.
    """
    lengths = {job: job.stop_unix_s - job.start_unix_s for job in jobs if job.waited_s is not None}
    ratios = {
        job: (job.waited_s or 0.0) / length
        for job, length in lengths.items()
        if length >= SHORTEST_JOB_S
    }
    if not ratios:
        return []
    worst = max(ratios, key=ratios.__getitem__)
    note = (
        f"{worst.label or worst.job} on {worst.entity}, the worst of {len(ratios)}, in"
        f" {lengths[worst]:.1f} s"
    )
    return [check("cpu_wait_ratio.jobs", "", 0, ratios[worst], 0, PROGRAM_WAIT_LIMIT, note)]


# --- the whole host, and the namespaces of a lab --------------------------------------------------


@dataclass(frozen=True)
class PacketCounts:
    """Counts of one namespace: UDP datagrams that sockets took, datagrams that found a full buffer,
    interface drops.
    """

    datagrams: int = 0
    buffer_errors: int = 0
    packets: int = 0
    drops: int = 0


@dataclass(frozen=True)
class HostState:
    """Counters since the start of the host: CPU times in ticks, memory pressure in us (None:
    unknown), packets by node.

    `working_ticks` are of all processes; `own_ticks` of this one and its descendants, also of those
    that have ended.
    """

    total_ticks: int
    stolen_ticks: int
    memory_us: int | None
    uptime_s: float
    nodes: Mapping[str, PacketCounts]
    idle_ticks: int = 0
    working_ticks: int = 0
    own_ticks: int = 0


def state(
    nodes: Iterable[str], inside: Callable[[str, Callable[[], PacketCounts]], PacketCounts]
) -> HostState:
    """Read the counters now; `inside` runs a function in the namespace of a node."""
    ticks = host_ticks()
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    by_node = {node: inside(node, counts) for node in nodes}
    idle, working = sum(ticks[3:5]), sum(ticks[:3])
    processes = (read_process(int(folder.name)) for folder in Path("/proc").glob("[0-9]*"))
    return HostState(
        sum(ticks),
        ticks[7],
        stalled_us("memory"),
        uptime_s,
        by_node,
        idle,
        working,
        tree_ticks(os.getpid(), (process for process in processes if process is not None)),
    )


def tree_ticks(root: int, processes: Iterable[ProcfsProcess]) -> int:
    """Add up the CPU time of a process, its descendants, and those that they waited for."""
    children = defaultdict[int, list[int]](list)
    ticks: dict[int, int] = {}
    for process in processes:
        children[process.parent].append(process.pid)
        ticks[process.pid] = process.cpu_ticks
    total, left = 0, [root]
    while left:
        pid = left.pop()
        total += ticks.get(pid, 0)
        left += children[pid]
    return total


def counts() -> PacketCounts:
    """Read the counters of the namespace that this thread is in."""
    net = Path("/proc/thread-self/net")
    return packet_counts((net / "snmp").read_text(), (net / "dev").read_text())


def packet_counts(snmp: str, dev: str) -> PacketCounts:
    """Parse net/snmp and net/dev; the loopback interface is left out."""
    names, values = (line.split()[1:] for line in snmp.splitlines() if line.startswith("Udp:"))
    udp = dict(zip(names, map(int, values), strict=True))
    rows = [line.partition(":") for line in dev.splitlines()[2:]]
    fields = [list(map(int, right.split())) for name, _, right in rows if name.strip() != "lo"]
    # receive: bytes packets errs drop fifo frame compressed multicast; transmit: bytes packets errs
    # drop
    drops = sum(row[3] + row[4] + row[11] + row[12] for row in fields)
    return PacketCounts(
        udp["InDatagrams"],
        udp["RcvbufErrors"] + udp.get("SndbufErrors", 0),
        sum(row[1] + row[9] for row in fields),
        drops,
    )


def between(before: HostState, after: HostState) -> list[CalibrationCheck]:
    """Judge the changes between two states."""
    ticks = after.total_ticks - before.total_ticks
    stolen = (after.stolen_ticks - before.stolen_ticks) / ticks if ticks > 0 else 0.0
    note = "CPU time taken by other machines"
    checks = [check("cpu_steal_ratio", "", 0, stolen, 0, STEAL_LIMIT, note)]
    length_s = after.uptime_s - before.uptime_s
    if before.memory_us is not None and after.memory_us is not None and length_s > 0:
        ratio = (after.memory_us - before.memory_us) / 1e6 / length_s
        limit, note = MEMORY_PRESSURE_LIMIT, "tasks waited for memory"
        checks.append(check("memory_wait_ratio", "", 0, ratio, 0, limit, note))
    return [*checks, _others(before, after), _lost_packets(before, after)]


def _others(before: HostState, after: HostState) -> CalibrationCheck:
    """Judge the CPU time of processes outside the measurement, if they left too few cores idle."""
    own = after.own_ticks - before.own_ticks
    others = max(0, after.working_ticks - before.working_ticks - own)
    ratio = others / max(after.total_ticks - before.total_ticks, 1)
    length_ticks = (after.uptime_s - before.uptime_s) * os.sysconf("SC_CLK_TCK")
    idle_cores = (after.idle_ticks - before.idle_ticks) / max(length_ticks, 1)
    limit = OTHERS_LIMIT if idle_cores < IDLE_CORES else 1.0
    note = f"CPU time of processes outside the measurement; {idle_cores:.1f} cores were idle"
    return check("cpu_others_ratio", "", 0, ratio, 0, limit, note)


def _lost_packets(before: HostState, after: HostState) -> CalibrationCheck:
    """Judge the namespace that lost most; the note names the counters."""
    worst, note = 0.0, "dropped by no socket and no interface"
    for node, now in after.nodes.items():
        then = before.nodes.get(node, PacketCounts())
        errors, drops = now.buffer_errors - then.buffer_errors, now.drops - then.drops
        passed = now.datagrams - then.datagrams + now.packets - then.packets
        ratio = (errors + drops) / max(passed + errors + drops, 1)
        if errors + drops and ratio >= worst:
            worst = ratio
            note = (
                f"on {node}: {errors} datagrams found a full socket buffer, {drops} were dropped at"
                " interfaces"
            )
    return check("host_loss_ratio", "", 0, worst, 0, LOST_PACKETS_LIMIT, note)
