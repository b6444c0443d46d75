# SPDX-License-Identifier: GPL-3.0-or-later
"""The host is judged as strictly as the link: browsers and programs without a core, lost packets,
stolen time.
"""

import random
from typing import Any

import pytest

import collect
from collect.browser_yardstick import BrowserYardsticks
from collect.fixtures import example_run
from collect.fixtures.example_run import page_load
from collect.jobs import Job
from collect.page_loads import PageLoad
from collect.test_browser_yardstick import KEPLER
from satlab.common.processes import ProcfsProcess
from satlab.run import host_load
from satlab.run.host_load import HostState, PacketCounts

SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors
Udp: 1000 1 7 900 7 1 0
UdpLite: InDatagrams NoPorts
UdpLite: 0 0
"""
DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 1 500 0 9 0 0 0 0 1 500 0 9 0 0 0 0
  lan0: 90000 600 0 3 0 0 0 0 80000 400 0 2 1 0 0 0
"""


def job(label: str, length_s: float, waited_s: float | None) -> Job:
    made = example_run.job(1, "satlab_iperf3", "client", label, 100.0, 100.0 + length_s)
    return Job.model_validate(made | {"waited_s": waited_s})


def test_the_job_that_lacked_a_core_most_is_judged() -> None:
    jobs = [
        job("short", 1.0, 0.9),
        job("sender", 15.0, 1.2),
        job("receiver", 10.0, 2.5),
        job("unknown", 15.0, None),
    ]
    [found] = host_load.of_jobs(jobs)
    assert (found.name, found.measured, found.ok) == ("cpu_wait_ratio.jobs", 0.25, False)
    assert found.note == "receiver on client, the worst of 2, in 10.0 s"
    assert host_load.of_jobs(jobs[:1]) == []
    assert host_load.of_jobs(jobs[:2])[0].ok


def load(
    index: int, wait_s: float | None, plt_ms: float | None = 4000.0, cpu_s: float = 2.0
) -> collect.PageLoad:
    change = {
        "cpu_wait_longest_s": wait_s,
        "page_load_time_ms": plt_ms,
        "load_index": index,
        "wall_s": 33.0,
    }
    cpu = {"cpu_user_s": 0.8 * cpu_s, "cpu_system_s": 0.2 * cpu_s}
    return PageLoad.model_validate(page_load("h3", index, random.Random(index)) | change | cpu)  # noqa: S311


@pytest.mark.promise("P34")
def test_a_load_that_is_the_host_s_for_a_large_part_is_marked() -> None:
    known = BrowserYardsticks(yardsticks=[KEPLER])
    fast, slow = (
        load(n, 0.1, plt_ms=400 / share).model_copy(update={"yardstick_ms": KEPLER.task_ms})
        for n, share in enumerate(
            (0.9 * host_load.BROWSER_HOST_LIMIT, 1.1 * host_load.BROWSER_HOST_LIMIT)
        )
    )
    [found] = host_load.of_browser([fast, slow], known)
    assert (found.name, found.ok) == ("browser_host_ratio", False)
    assert found.note.startswith("of load 1, the worst: 400 of ")
    assert found.note.endswith(" ms are the host's; 1 of 2 loads above")
    assert host_load.of_browser([fast], known)[0].ok
    assert host_load.of_browser([fast, slow], BrowserYardsticks()) == []


QUIET = (
    (1640, 0.38, 1.8),
    (1640, 0.44, 1.8),
    (1670, 0.35, 1.8),
    (1710, 0.47, 1.94),
    (1750, 0.54, 2.16),
    (2260, 0.45, 2.12),
)
BUSY = (
    (1930, 0.65, 1.83),
    (2040, 0.75, 1.88),
    (2360, 1.07, 2.07),
    (2610, 1.28, 2.25),
    (4980, 3.28, 2.79),
)
"""Measured over HTTP/3 and LEO on two cores: ms, longest wait in s, CPU time in s.

Busy: load average 18 to 24.
"""


@pytest.mark.parametrize(
    ("measured", "is_quiet"), [*((one, True) for one in QUIET), *((one, False) for one in BUSY)]
)
def test_measured_loads_are_marked_if_the_host_was_busy(
    measured: tuple[float, float, float], is_quiet: bool
) -> None:
    plt_ms, wait_s, cpu_s = measured
    [judged] = host_load.of_loads([load(0, wait_s, plt_ms, cpu_s)])
    assert judged.ok is is_quiet


@pytest.mark.promise("P34")
def test_a_browser_without_a_core_is_out_of_calibration() -> None:
    [judged] = host_load.of_loads([load(0, 0.1), load(1, 3.28, 4980, 2.8), load(2, 0.2)])
    assert not judged.ok and judged.measured == pytest.approx((3.28 - 0.25 * 2.8) / 4.98)
    assert "load 1" in judged.note and "1 of 3 loads" in judged.note
    [cut_off] = host_load.of_loads([load(0, 5.0, None)])
    assert cut_off.measured == pytest.approx(4.5 / 33)
    assert host_load.of_loads([load(0, None)]) == [], "a kernel without schedstat"


def test_a_program_without_a_core_is_out_of_calibration() -> None:
    checks = {
        one.name: one.ok for one in host_load.of_programs({"client": 0.2, "server": 2.5}, 8.0)
    }
    assert checks == {"cpu_wait_ratio.client": True, "cpu_wait_ratio.server": False}
    assert host_load.of_programs({"client": 0.2}, 0.0) == []


def test_counters_of_a_namespace_are_read_without_its_loopback() -> None:
    assert host_load.packet_counts(SNMP, DEV) == PacketCounts(1000, 8, 1000, 6)
    assert host_load.counts().packets >= 0


@pytest.mark.parametrize(
    ("change", "off"),
    [
        ({}, set()),
        ({"stolen_ticks": 30}, {"cpu_steal_ratio"}),
        ({"working_ticks": 900, "own_ticks": 700, "idle_ticks": 100}, {"cpu_others_ratio"}),
        ({"working_ticks": 900, "own_ticks": 880, "idle_ticks": 100}, set()),
        ({"working_ticks": 900, "own_ticks": 700, "idle_ticks": 1200}, {"cpu_others_ratio"}),
        ({"working_ticks": 900, "own_ticks": 700, "idle_ticks": 1600}, set()),
        ({"memory_us": 600_000}, {"memory_wait_ratio"}),
        ({"nodes": {"client": PacketCounts(20_000, 5, 20_000, 0)}}, {"host_loss_ratio"}),
        ({"nodes": {"client": PacketCounts(20_000, 0, 20_000, 5)}}, {"host_loss_ratio"}),
        ({"nodes": {"client": PacketCounts(200_000, 1, 200_000, 1)}}, set()),
    ],
)
def test_what_the_host_did_during_a_session_is_judged(
    change: dict[str, Any], off: set[str]
) -> None:
    quiet: dict[str, Any] = {
        "total_ticks": 2000,
        "stolen_ticks": 0,
        "memory_us": 0,
        "uptime_s": 20.0,
        "nodes": {},
    }
    checks = host_load.between(HostState(1000, 0, 0, 10.0, {}), HostState(**quiet | change))
    assert {one.name for one in checks if not one.ok} == off and len(checks) == 4
    if "host_loss_ratio" in off:
        assert "on client" in checks[-1].note


def test_this_host_has_the_counters() -> None:
    state = host_load.state(["a"], lambda _, work: work())
    assert state.total_ticks > 0 and state.uptime_s > 0 and "a" in state.nodes
    assert state.working_ticks > state.own_ticks > 0 and state.idle_ticks > 0


def test_a_measurement_is_its_process_with_all_descendants() -> None:
    def process(pid: int, parent: int, ticks: int) -> ProcfsProcess:
        return ProcfsProcess("a", pid, parent, 1, 0, dead=False, own_ticks=ticks, cpu_ticks=ticks)

    found = [
        process(1, 0, 900),
        process(10, 1, 100),
        process(12, 11, 7),
        process(11, 10, 5),
        process(13, 1, 400),
    ]
    assert host_load.tree_ticks(10, found) == 112
