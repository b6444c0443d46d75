# SPDX-License-Identifier: GPL-3.0-or-later
"""Packets lost by planted faults: each is in its own account of the ledger, and what the host lost
is the host's.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from satlab.check import sandboxed_program, verdict
from satlab.check.check_result import CheckResult
from satlab.check.report import check_tables
from satlab.check.samples import Sample
from satlab.check.verdict import TargetVerdict
from satlab.common import netns_names
from satlab.common.errors import ExitStatus
from satlab.common.processes import wait
from satlab.lab import lab
from satlab.lab.sandbox import Sandbox
from satlab.run.host_load import packet_counts
from tests.net.test_check import HEAD, _ngtcp2, _prepared, check, children  # noqa: F401 - fixtures

pytestmark = [pytest.mark.net, pytest.mark.usefixtures("_prepared", "_ngtcp2")]
PLANTED = """
marks_mb: [2]
cases:
  - {id: host, forward_mbps: 10, return_mbps: 2, targets_s: [1], timeout_s: 60}
  - {id: link, forward_mbps: 10, return_mbps: 2, targets_s: [1], timeout_s: 150, loss: {unit: packet, ratio: 0.005}}
"""
"""Targets that no transfer meets: a verdict is `fail` unless the host is to blame."""
FULL_BUFFER_DATAGRAMS = 30
DROPPED = {"proxy-st": 20, "gw": 3}
"""By each node.

Its interfaces may hold several packets in one buffer, which the rule counts as one.
"""
DROPPING = """
table inet planted {{
  chain dropping {{
    type filter hook forward priority 0; policy accept;
    udp sport {port} udp length > 1000 quota over 400000 bytes numgen inc mod 1000000 < {count} counter drop
  }}
}}
"""
Plant = Callable[[], None]


@pytest.fixture
def at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Plant]]:
    """Yield a list of what is called, in a thread, when the client starts; the suite `planted`
    exists.
    """
    (tmp_path / "suites" / "planted.yml").write_text(f"{HEAD}name: planted{PLANTED}")
    usual, plants, threads = sandboxed_program.start, list[Plant](), list[Thread]()

    def start(box: Sandbox, argv: Sequence[str], log: Path) -> sandboxed_program.SandboxedProcess:
        process = usual(box, argv, log)
        if log.name == "client-0.log":
            threads.extend(Thread(target=plant) for plant in plants)
            for thread in threads:
                thread.start()
        return process

    monkeypatch.setattr(sandboxed_program, "start", start)
    yield plants
    for thread in threads:
        thread.join()


def found(tmp_path: Path, case: str) -> tuple[CheckResult, Sample, Mapping[str, int]]:
    """Return a check of one sample, the sample, and what is in the ledger of its payload."""
    result = check(tmp_path, "planted", case, stack="ngtcp2")
    [sample] = result.samples[case]
    assert sample.status == "ok", sample
    assert sample.ledgers is not None and sample.spent_s is not None
    forward = {name: value or 0 for name, value in sample.ledgers["forward"].items()}
    assert forward["unaccounted"] == forward["lost_before_link"] == 0, forward
    return result, sample, forward


def assert_is_blamed_on_the_host(result: CheckResult, sample: Sample) -> None:
    """The sample is out of calibration, no failure of the stack, and every report names the host."""
    assert "host_loss_ratio.forward" in sample.calibration
    assert (
        judged(result, sample).result == "not measurable"
        and result.status == ExitStatus.UNCALIBRATED
    )
    spent_s = sample.spent_s or {}
    assert spent_s["loss recovery"] == 0 < spent_s["host"], spent_s
    assert "host losses, forward:" in check_tables.markdown(result)


def judged(result: CheckResult, sample: Sample) -> TargetVerdict:
    """Return the verdict if losses of the host alone counted: the link was not probed, and others
    use the host.
    """
    off = [name for name in sample.calibration.split(", ") if name.startswith("host_loss_ratio")]
    case = result.suite.case(sample.case)
    [found] = verdict.against_targets(
        result.suite, [case], {case.id: [replace(sample, calibration=", ".join(off))]}
    )
    return found


@pytest.mark.promise("P37")
def test_a_full_socket_buffer_is_the_host_s_loss(tmp_path: Path, at_start: list[Plant]) -> None:
    """A client that is not scheduled for a while: its socket's buffer of 208 KiB overflows, as
    quic-go's did.
    """
    at_start.append(_stop_the_client_until_its_buffer_overflows)
    result, sample, forward = found(tmp_path, "host")
    assert forward["buffer_errors"] >= FULL_BUFFER_DATAGRAMS, forward
    assert (
        forward["by_host"] == forward["buffer_errors"] and forward["dropped"] + forward["lost"] == 0
    ), forward
    assert_is_blamed_on_the_host(result, sample)


def _stop_the_client_until_its_buffer_overflows() -> None:
    def clients() -> list[int]:
        return [
            pid
            for pid in children(os.getpid())
            if Path(f"/proc/{pid}/comm").read_text() == "gtlsclient\n"
        ]

    assert wait(lambda: bool(clients()), 10)
    [pid] = clients()
    net = Path(f"/proc/{pid}/net")

    def counts() -> tuple[int, int]:
        now = packet_counts((net / "snmp").read_text(), (net / "dev").read_text())
        return now.datagrams, now.buffer_errors

    before = counts()
    assert wait(lambda: counts()[0] > before[0] + 500, 20), "the window does not open"
    os.kill(pid, signal.SIGSTOP)
    try:
        assert wait(lambda: counts()[1] >= before[1] + FULL_BUFFER_DATAGRAMS, 10), (
            "the buffer does not overflow"
        )
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("node", "account"), [("proxy-st", "lost_after_link"), ("gw", "lost_between_links")]
)
def test_packets_that_an_interface_drops_are_the_host_s_loss(
    node: str, account: str, tmp_path: Path, at_start: list[Plant]
) -> None:
    at_start.append(lambda: _drop(node))
    result, sample, forward = found(tmp_path, "host")
    assert DROPPED[node] <= forward[account] == forward["by_host"] - forward["buffer_errors"], (
        forward
    )
    # What the server itself found lost: all but a packet without data, which nobody misses (RFC
    # 9002, section 2).
    assert (
        forward["by_host"] - 1 <= forward["reported"] <= forward["by_host"]
        and forward["spurious"] == 0
    ), forward
    assert_is_blamed_on_the_host(result, sample)


def _drop(node: str) -> None:
    """Let a node drop a burst of full packets of the server, and no others."""
    [own] = [
        one.lab_id
        for one in lab.list_labs()
        if one.lab_id.startswith(f"check-{os.getpid() % 100000}-")
    ]
    command = ["nsenter", f"--net={netns_names.path(own, node)}", "nft", "-f", "-"]
    subprocess.run(
        command, input=DROPPING.format(port=4433, count=DROPPED[node]), text=True, check=True
    )


def test_a_loss_of_the_link_is_the_stack_s_to_bear(tmp_path: Path, at_start: list[Plant]) -> None:
    result, sample, forward = found(tmp_path, "link")
    assert (
        not at_start
        and forward["lost"] > 1
        and forward["lost_between_links"] == forward["lost_after_link"] == 0
    )
    assert "host_loss_ratio" not in sample.calibration
    # A loss in the last window's worth of packets costs no time in loss recovery
    # (check/trace/test_causes.py has that).
    assert (sample.spent_s or {})["host"] == 0, sample
    assert judged(result, sample).result == "fail"
