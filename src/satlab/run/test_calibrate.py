# SPDX-License-Identifier: GPL-3.0-or-later
"""How the link is judged: limits, failed probes, release errors."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collect import calibration, opensand
from collect.calibration import Calibration
from satlab.link.calibration_bounds import expectation
from satlab.link.plan import LinkPlan
from satlab.run import calibrate
from satlab.run.link_probe import Echoes, Probe
from satlab.run.metrics_file import MetricsFile

PLAN = cast(
    LinkPlan,
    SimpleNamespace(
        timing="standard",
        rtt_ms=SimpleNamespace(configured=580, min=581.0, mean=581.5, max=582.0),
        return_=SimpleNamespace(demand=None),
        forward=SimpleNamespace(
            udp_goodput_bps=19e6,
            rate_bps=19.6e6,
            loss_ratio=0.0,
            loss_unit="packet",
            loss_models=("bernoulli",),
            frame_payload_bytes=1991,
        ),
    ),
)


def probe(**changes: Any) -> Probe:
    good: dict[str, Any] = {
        "rtt": Echoes(40, 581.2, 581.5, 581.9),
        "rate_bps": 19e6,
        "packets": 6000,
        "lost_packets": 200,
        "queue_drops": 200,
        "notes": {},
    }
    return Probe(**(good | changes))


def plan_with(**forward: Any) -> LinkPlan:
    changed = SimpleNamespace(**vars(PLAN.forward) | forward)
    return cast(LinkPlan, SimpleNamespace(**vars(PLAN) | {"forward": changed}))


def failed(measured: Probe, plan: LinkPlan = PLAN) -> list[str]:
    return [c.name for c in calibrate.before(plan, measured) if not c.ok]


def test_a_link_as_planned_passes() -> None:
    assert failed(probe()) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"rtt": Echoes(40, 581.2, 583.2, 600.0)}, "rtt_ms"),
        ({"rtt": Echoes(40, 580.2, 580.5, 581.0)}, "rtt_ms"),
        ({"rtt": None}, "rtt_ms"),
        ({"rate_bps": 18.5e6}, "forward_udp_goodput_bps"),
        ({"rate_bps": None}, "forward_udp_goodput_bps"),
        ({"lost_packets": 202}, "forward_loss_ratio"),
        ({"packets": 0}, "forward_loss_ratio"),
    ],
)
@pytest.mark.promise("P34")
def test_each_deviation_is_named(change: dict[str, Any], name: str) -> None:
    assert failed(probe(**change)) == [name]


def test_echoes_on_demand_may_find_slots_that_others_asked_for() -> None:
    plan = cast(
        LinkPlan, SimpleNamespace(**vars(PLAN) | {"return_": SimpleNamespace(demand=object())})
    )
    assert expectation(plan, "satlink").rtt_low_ms == 580
    assert expectation(PLAN, "satlink").rtt_low_ms == 581.0


TICKS = SimpleNamespace(configured=580, min=584.0, mean=602.25, max=620.5)
"""RTT of the same plan with OpenSAND's ticks."""


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, []),
        ({"rtt": Echoes(40, 583.5, 583.5, 583.5)}, ["rtt_ms"]),
        ({"rtt": Echoes(40, 640.5, 640.5, 640.5)}, ["rtt_ms"]),
        ({"rtt": None, "rate_bps": None}, ["rtt_ms", "forward_udp_goodput_bps"]),
        ({"rate_bps": 17.0e6}, ["forward_udp_goodput_bps"]),
        ({"rate_bps": 19.3e6}, ["forward_udp_goodput_bps"]),
        ({"lost_packets": 900}, []),  # its queues are not seen, so nor is what they drop
    ],
)
def test_opensand_has_tolerances_of_its_own(change: dict[str, Any], names: list[str]) -> None:
    plan = cast(LinkPlan, SimpleNamespace(**vars(PLAN) | {"rtt_ms": TICKS}))
    checks = calibrate.before(
        plan,
        probe(**({"rtt": Echoes(40, 602.0, 602.0, 602.0), "rate_bps": 18.6e6} | change)),
        "opensand",
    )
    assert [c.name for c in checks] == ["rtt_ms", "forward_udp_goodput_bps"]
    assert [c.name for c in checks if not c.ok] == names


@pytest.mark.parametrize(("lost", "ok"), [(260, True), (200, False), (340, False)])
def test_planned_loss_is_expected_within_binomial_bounds(lost: int, ok: bool) -> None:
    assert (failed(probe(lost_packets=lost), plan_with(loss_ratio=0.01)) == []) is ok


@pytest.mark.parametrize(
    ("change", "ok"),
    [
        # The frame model's maximum is 582 ms: one more is the host's. Its minimum holds as it is.
        ({"rtt": Echoes(40, 570.0, 582.99, 700.0)}, True),
        ({"rtt": Echoes(40, 570.0, 583.01, 700.0)}, False),
        ({"rtt": Echoes(40, 570.0, 581.01, 700.0)}, True),
        ({"rtt": Echoes(40, 570.0, 580.99, 700.0)}, False),
        # 1 % of 19 Mbit/s, either way.
        ({"rate_bps": 18.815e6}, True),
        ({"rate_bps": 18.805e6}, False),
        ({"rate_bps": 19.185e6}, True),
        ({"rate_bps": 19.195e6}, False),
        # Without planned losses the host may lose one packet, or one in ten thousand.
        ({"packets": 200200, "lost_packets": 220}, True),
        ({"packets": 200200, "lost_packets": 221}, False),
        ({"packets": 10000, "lost_packets": 201}, True),
        ({"packets": 10000, "lost_packets": 202}, False),
        ({"packets": 10000, "lost_packets": 100}, True),  # fewer than the queue dropped
    ],
)
def test_limits_are_where_they_are_promised(change: dict[str, Any], ok: bool) -> None:
    assert (failed(probe(**change)) == []) is ok


@pytest.mark.parametrize(("lost", "ok"), [(140, True), (141, False), (60, True), (59, False)])
def test_losses_may_differ_by_four_standard_deviations(lost: int, ok: bool) -> None:
    """1 % of 10000 packets: 100 expected, a deviation of 9.95, and one packet of the host's."""
    measured = probe(packets=10000, lost_packets=lost, queue_drops=0)
    assert (failed(measured, plan_with(loss_ratio=0.01)) == []) is ok


@pytest.mark.parametrize(
    ("frame_bytes", "share"),
    [
        (1500, 0.0199),  # 1500 bytes of IP lie in one frame or two: 1 - 0.99^2
        (1499, 0.029701),  # in two or three: 1 - 0.99^3
        (400, 0.0490099501),  # in four or five: 1 - 0.99^5
    ],
)
def test_a_packet_is_lost_with_any_frame_that_it_spans(frame_bytes: int, share: float) -> None:
    plan = plan_with(loss_ratio=0.01, loss_unit="frame", frame_payload_bytes=frame_bytes)
    check = calibrate.before(plan, probe(packets=10**12, lost_packets=0, queue_drops=0))[-1]
    assert check.name == "forward_loss_ratio"
    assert check.high == pytest.approx(share + calibrate.HOST_LOSS, rel=1e-4)
    assert check.low == pytest.approx(0.01 - calibrate.HOST_LOSS, rel=1e-3)


@pytest.mark.parametrize(
    ("models", "ok"),
    [
        (("bernoulli",), False),
        (("gilbert-elliott",), True),
        (("bernoulli", "gilbert_elliott"), True),
    ],
)
def test_losses_in_bursts_are_recorded_and_not_judged(models: tuple[str, ...], ok: bool) -> None:
    plan = plan_with(loss_ratio=0.01, loss_models=models)
    check = calibrate.before(plan, probe(packets=1000, lost_packets=500, queue_drops=200))[-1]
    assert (check.measured, check.expected, check.ok) == (0.375, 0.01, ok)


def test_losses_of_opensand_s_defects_come_with_load_and_are_not_judged() -> None:
    lossy = probe(packets=1000, lost_packets=500, queue_drops=0)
    assert failed(lossy) == ["forward_loss_ratio"]
    assert [c.name for c in calibrate.before(PLAN, lossy, has_defects=True) if not c.ok] == []


def test_a_loss_is_one_of_the_packets_that_the_queue_let_through() -> None:
    check = calibrate.before(PLAN, probe(packets=5000, lost_packets=1040, queue_drops=1000))[-1]
    assert (check.measured, check.high) == (0.01, 1 / 4000)
    assert check.note == "1040 of 5000 lost, 1000 of them by the queue"


def test_what_was_not_measured_is_named_with_its_reason() -> None:
    notes = {"rtt": "no echo came back", "rate": "no route"}
    checks = calibrate.before(PLAN, probe(rtt=None, rate_bps=None, packets=0, notes=notes))
    assert [check.note for check in checks] == [
        "no echo came back",
        "no route",
        "no route",
    ]
    words = (
        "round-trip time not measured: no echo came back, forward UDP goodput not measured: no"
        " route, packets lost on the forward link not measured: no route"
    )
    assert calibration.verdict(checks) == f"out of calibration: {words}"
    slow = calibrate.before(PLAN, probe(rate_bps=18e6))
    deviation = "forward UDP goodput 18.000 Mbit/s (18.810 to 19.190 Mbit/s)"
    assert calibrate.deviations(slow) == [deviation]
    assert calibration.verdict(slow) == f"out of calibration: {deviation}; {calibration.REMEDY}"
    assert calibration.verdict(calibrate.before(PLAN, probe())) == ""


def test_losses_in_opensand_have_a_remedy_of_their_own() -> None:
    none, some = dict.fromkeys((loss.cause for loss in opensand.LOSSES), 0), 7
    checks = calibrate.opensand_losses(none, none | {"gse_reassembly": some})
    words = calibration.verdict(checks)
    assert "packets lost by OpenSAND's reassembly 7 packets (at most 0 packets)" in words
    assert words.endswith("in the profiles of ST and GW")


def test_a_sentence_names_three_checks_and_counts_the_others() -> None:
    words = calibration.sentence(["a", "b", "c", "d", "e"])
    assert words == f"out of calibration: a, b, c and 2 more; {calibration.REMEDY}"


def released(t_unix_s: float, late_packets: int) -> dict[str, Any]:
    counters = {"out_packets": 500, "late_packets": 0, "late_max_us": None}
    late = {"out_packets": 500, "late_packets": late_packets, "late_max_us": 1700.0}
    return {
        "type": "sample",
        "t_unix_s": t_unix_s,
        "forward": counters,
        "return": late,
        "terrestrial_down": None,
    }


def test_release_error_is_judged_over_the_scenario_alone() -> None:
    lines = [
        {"type": "header", "late_limit_us": 1000},
        released(1.0, 400),
        released(2.0, 5),
        released(3.0, 6),
    ]
    expected = expectation(PLAN, "satlink")
    judged = [
        (since, calibrate.during([*lines, {"type": "end"}], expected, since))
        for since in (0.0, 1.0, 2.0, 3.0)
    ]
    found = {since: {c.name: c.ok for c in checks} for since, checks in judged}
    names = ("late_packet_ratio.forward", "late_packet_ratio.return")
    verdicts = [(0.0, False), (1.0, False), (2.0, False), (3.0, True)]
    assert found == {since: dict(zip(names, (True, ok), strict=True)) for since, ok in verdicts}
    assert judged[1][1][1].note == "later than 1000 us, of 1000; max 1700 us"
    assert calibrate.during([*lines[:3], {"type": "end"}], expected, 1.0)[1].ok


@pytest.mark.parametrize(
    ("packets", "late", "ok"),
    [(50, 1, True), (50, 2, False), (1000, 10, True), (1000, 11, False), (0, 0, True)],
)
def test_one_late_packet_marks_no_run_and_more_than_one_in_a_hundred_do(
    packets: int, late: int, ok: bool
) -> None:
    one = {"out_packets": packets, "late_packets": late, "late_max_us": None}
    lines: list[dict[str, Any]] = [
        {"type": "sample", "t_unix_s": 1.0, "forward": one, "return": one},
        {"type": "end"},
    ]
    assert {check.ok for check in calibrate.during(lines, expectation(PLAN, "satlink"))} == {ok}


def test_metrics_without_an_end_are_not_ok() -> None:
    assert [c.ok for c in calibrate.during([{"type": "header"}], expectation(PLAN, "satlink"))] == [
        False
    ]


def test_calibration_file_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    assert calibrate.write(path, "r1", calibrate.before(PLAN, probe()))
    assert not calibrate.write(path, "r1", calibrate.before(PLAN, probe(rate_bps=None)))
    found = Calibration.model_validate_json(path.read_text())
    assert [(check.name, check.ok) for check in found.checks if not check.ok]


def test_lateness_is_judged_line_by_line(tmp_path: Path) -> None:
    """What 5000 samples would take at once, 15 MB, is not held."""
    path, directions = tmp_path / "link.jsonl", ("forward", "return")
    counters = {"out_packets": 10, "late_packets": 1, "late_max_us": 5.0} | {
        f"more_{n}": n / 7 for n in range(20)
    }
    sample = {"type": "sample", "t_unix_s": 1.0, **dict.fromkeys(directions, counters)}
    head, end = {"type": "header", "late_limit_us": 1000}, {"type": "end"}
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *[sample] * 5000, end)))
    expected = expectation(PLAN, "satlink")
    tracemalloc.start()
    try:
        checks = calibrate.during(MetricsFile(path).each(), replace(expected, watched=directions))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [one.measured for one in checks] == [0.1, 0.1]
    assert checks[0].note == "later than 1000 us, of 50000; max 5 us"
    assert peak < 2_000_000
