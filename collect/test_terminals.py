# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of terminals that share a link, and Jain's index of their transfers."""

import json
from pathlib import Path
from typing import Any

import pytest

from collect import link_samples, terminals
from collect.fixtures import example_run
from collect.jobs import Job
from collect.records import Record, failed

QUEUE_COUNTERS = (
    "queue_bytes",
    "queue_packets",
    "in_packets",
    "in_bytes",
    "out_packets",
    "out_bytes",
    "dropped_packets",
)


def of(number: int, **changed: Any) -> dict[str, Any]:
    own = dict.fromkeys((*QUEUE_COUNTERS, "lost_packets", "frames", "lost_frames"), 0)
    nothing = dict.fromkeys(
        ("modcod_id", "es_n0_db", "slots_assigned", "requests", "slots_requested", "plans_lost")
    )
    nothing |= dict.fromkeys(("queue_p50_ms", "queue_p95_ms", "queue_p99_ms"))
    return {"terminal": number, **own, "rate_bps": 0.0, "sent_bps": 0.0, **nothing, **changed}


def counters(*shared: dict[str, Any], **changed: Any) -> dict[str, Any]:
    own = dict.fromkeys((*QUEUE_COUNTERS, "lost_packets", "frames", "late_packets"), 0)
    late = dict.fromkeys(("late_p50_us", "late_p99_us", "late_max_us", "frame_fill_ratio"))
    return {**own, "rate_bps": 0.0, **late, "terminals": list(shared), **changed}


def records(
    *samples: tuple[dict[str, Any], dict[str, Any]],
) -> dict[tuple[str, str, str, str], float | None]:
    """Return the records of terminals by metric, direction, terminal and detail."""
    wire = counters()
    lines = []
    for number, (forward, back) in enumerate(samples, start=1):
        terrestrial = {"terrestrial_down": wire, "terrestrial_up": wire}
        sample = {
            "type": "sample",
            "t_unix_s": 100.0 + number / 10,
            "forward": forward,
            "return": back,
            **terrestrial,
        }
        lines.append(link_samples.ADAPTER.validate_python(sample))
    names = {direction: direction for direction in link_samples.DIRECTIONS}
    made = {}
    for one in link_samples.Metrics(lines, 100.0, None, names).each():
        if isinstance(one, Record) and one.metric.startswith("terminal_"):
            detail = one.labels.get("stat") or one.labels.get("modcod") or ""
            made[one.metric, one.labels["direction"], one.labels["terminal"], detail] = one.value
    return made


def test_p192_each_terminal_has_its_records() -> None:
    fast = of(
        2,
        out_bytes=1000,
        in_packets=2,
        queue_bytes=3000,
        frames=4,
        modcod_id=12,
        waits_us=[(300_000, 2)],
    )
    stuck = of(2, queue_bytes=3000, dropped_packets=7)
    asked = of(
        1, slots_assigned=20, slots_requested=8, requests=1, plans_lost=0, frames=15, modcod_id=13
    )
    found = records(
        (counters(of(1), fast), counters(asked, superframes=4)),
        (counters(of(1), fast), counters(asked, superframes=4)),
        (counters(of(1), stuck), counters(of(1, slots_assigned=0, frames=0), superframes=0)),
    )
    assert found["terminal_out_bytes", "forward", "2", ""] == 2000
    assert found["terminal_out_bytes", "forward", "1", ""] == 0
    assert found["terminal_dropped_packets", "forward", "2", ""] == 7
    assert found["terminal_queue_max_bytes", "forward", "2", ""] == 3000
    assert found["terminal_modcod_frames", "forward", "2", "12"] == 8
    assert found["terminal_queue_ms", "forward", "2", "p50"] == pytest.approx(300, rel=2**-11)
    assert ("terminal_queue_ms", "forward", "1", "p50") not in found
    slots = [
        found[f"terminal_slots_{name}_mean", "return", "1", ""]
        for name in ("requested", "assigned", "used")
    ]
    assert slots == [2.0, 5.0, 3.75]
    assert found["terminal_requests", "return", "1", ""] == 2
    assert not [key for key in found if key[0].startswith("terminal_slots") and key[1] == "forward"]


def test_a_link_of_one_terminal_has_no_records_of_terminals() -> None:
    assert records((counters(), counters())) == {}


def test_jain_s_index() -> None:
    assert terminals.jain([3, 3, 3]) == pytest.approx(1.0)
    assert terminals.jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert terminals.jain([1, 2]) == pytest.approx(0.9)
    assert terminals.jain([0, 0]) == 1.0


def job(number: int, entity: str, start_s: float, stop_s: float) -> Job:
    return Job.model_validate(
        example_run.job(number, "satlab_iperf3", entity, "x", start_s, stop_s)
    )


def transfer(of_job: Job, bps: float | None, direction: str = "download") -> Record:
    labels = {**of_job.labels, "direction": direction, "transport": "TCP"}
    return (
        failed("goodput_bps", labels, "iperf3: x")
        if bps is None
        else Record("goodput_bps", bps, labels)
    )


def plan(folder: Path, demand: dict[str, int] | None = None) -> Path:
    side = {"udp_goodput_bps": 18e6, "tcp_goodput_bps": 16e6, "rate_bps": 20e6}
    back = {**side, "slots_per_superframe": 100, "demand": demand}
    (folder / "plan.json").write_text(
        json.dumps({"link": {"rtt_ms": {"min": 1.0}, "forward": side, "return": back}})
    )
    return folder


JOBS = [job(1, "client", 10, 20), job(2, "client-2", 11, 21), job(3, "server", 9, 22)]


def test_the_index_and_the_equal_part_of_each_direction(tmp_path: Path) -> None:
    rates = [transfer(JOBS[0], 4e6), transfer(JOBS[1], 8e6), transfer(JOBS[2], 1.0)]
    up = [transfer(JOBS[0], 2e6, "upload"), transfer(JOBS[1], 2e6, "upload")]
    found = terminals.fairness(plan(tmp_path), [*rates, *up], JOBS)
    assert [(r.metric, r.labels["direction"], r.value) for r in found] == [
        ("fairness_jain_ratio", "download", pytest.approx(0.9)),
        ("goodput_share_bps", "download", 8e6),
        ("fairness_jain_ratio", "upload", pytest.approx(1.0)),
        ("goodput_share_bps", "upload", 16e6),
    ]
    assert all(record.labels["terminals"] == "2" for record in found)


def test_terminals_that_ask_share_all_slots_of_the_return_carrier(tmp_path: Path) -> None:
    up = [transfer(one, 2e6, "upload") for one in JOBS[:2]]
    found = terminals.fairness(plan(tmp_path, {"carrier_slots": 120}), up, JOBS)
    assert found[1].value == pytest.approx(20e6 * 1.2 / 2 * 1448 / 1500)
    # Neither can ask for more than it would get alone.
    found = terminals.fairness(plan(tmp_path, {"carrier_slots": 500}), up, JOBS)
    assert found[1].value == 16e6


def test_p193_a_failed_transfer_is_a_failed_index(tmp_path: Path) -> None:
    found = terminals.fairness(tmp_path, [transfer(JOBS[0], 4e6), transfer(JOBS[1], None)], JOBS)
    (only,) = found
    assert (only.metric, only.status, only.value) == ("fairness_jain_ratio", "failed", None)
    assert "client-2" in only.reason


def test_a_transfer_that_left_nothing_fails_the_index_of_its_time(tmp_path: Path) -> None:
    broken = failed("goodput_bps", JOBS[1].labels, "iperf3: x")
    later = job(5, "client", 50, 60)
    found = terminals.fairness(tmp_path, [transfer(JOBS[0], 4e6), broken], JOBS)
    assert [(record.metric, record.status) for record in found] == [
        ("fairness_jain_ratio", "failed")
    ]
    assert terminals.fairness(tmp_path, [transfer(later, 4e6), broken], [*JOBS, later]) == []


def test_one_client_or_transfers_one_after_the_other_have_no_index(tmp_path: Path) -> None:
    later = job(4, "client-2", 30, 40)
    assert terminals.fairness(tmp_path, [transfer(JOBS[0], 4e6)], JOBS) == []
    assert (
        terminals.fairness(tmp_path, [transfer(JOBS[0], 4e6), transfer(later, 4e6)], [*JOBS, later])
        == []
    )
