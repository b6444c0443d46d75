# SPDX-License-Identifier: GPL-3.0-or-later
"""Calibration: bounds, failed probes, reading ping and iperf3."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jsonschema
import pytest

from satlab.common import paths
from satlab.experiment import calibrate
from satlab.experiment.calibrate import Echoes, MetricsFile, Probe
from satlab.link.expectation import expectation
from satlab.link.plan import LinkPlan

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
        "rtt": Echoes(40, 581.2, 581.5, 581.9), "rate_bps": 19e6,
        "packets": 6000, "lost_packets": 200, "queue_drops": 200, "notes": {},
    }  # fmt: skip
    return Probe(**(good | changes))


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
        ({"lost_packets": 260}, "forward_loss_ratio"),
        ({"packets": 0}, "forward_loss_ratio"),
    ],
)
def test_each_deviation_is_named(change: dict[str, Any], name: str) -> None:
    assert failed(probe(**change)) == [name]


def test_echoes_on_demand_may_find_slots_that_others_asked_for() -> None:
    plan = cast(LinkPlan, SimpleNamespace(**vars(PLAN) | {"return_": SimpleNamespace(demand=object())}))
    assert expectation(plan, "satlink").rtt_low_ms == 580
    assert expectation(PLAN, "satlink").rtt_low_ms == 581.0


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
    checks = calibrate.before(
        PLAN, probe(**({"rtt": Echoes(40, 602.0, 602.0, 602.0), "rate_bps": 18.6e6} | change)), "opensand"
    )
    assert [c.name for c in checks] == ["rtt_ms", "forward_udp_goodput_bps"]
    assert [c.name for c in checks if not c.ok] == names


def test_opensand_s_probe_waits_until_an_echo_meets_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["", *(f"1 received\nrtt min/avg/max/mdev = {t}/{t}/{t}/0 ms" for t in (900, 650, 610, 1))])
    monkeypatch.setattr(calibrate, "_output", lambda *_, **__: next(answers))
    calibrate._drain(cast(Any, SimpleNamespace(enter_argv=lambda _: [])), "server", 640.0)
    assert "1/1/1" in next(answers)


@pytest.mark.parametrize(("lost", "ok"), [(260, True), (200, False), (340, False)])
def test_planned_loss_is_expected_within_binomial_bounds(lost: int, ok: bool) -> None:
    plan = cast(LinkPlan, SimpleNamespace(**vars(PLAN) | {"forward": SimpleNamespace(**vars(PLAN.forward))}))
    plan.forward.loss_ratio = 0.01
    assert (failed(probe(lost_packets=lost), plan) == []) is ok


def released(t_unix_s: float, late_packets: int) -> dict[str, Any]:
    counters = {"out_packets": 500, "late_packets": 0, "late_max_us": None}
    late = {"out_packets": 500, "late_packets": late_packets, "late_max_us": 1700.0}
    return {"type": "sample", "t_unix_s": t_unix_s, "forward": counters, "return": late, "terrestrial_down": None}


def test_release_error_is_judged_over_the_scenario_alone() -> None:
    lines = [{"type": "header", "late_limit_us": 1000}, released(1.0, 400), released(2.0, 5), released(3.0, 6)]
    wanted = expectation(PLAN, "satlink")
    judged = [(since, calibrate.during([*lines, {"type": "end"}], wanted, since)) for since in (0.0, 1.0, 2.0, 3.0)]
    found = {since: {c.name: c.ok for c in checks} for since, checks in judged}
    names = ("late_packet_ratio.forward", "late_packet_ratio.return")
    verdicts = [(0.0, False), (1.0, False), (2.0, False), (3.0, True)]
    assert found == {since: dict(zip(names, (True, ok), strict=True)) for since, ok in verdicts}
    assert judged[1][1][1].note == "later than 1000 us, of 1000; max 1700 us"
    assert calibrate.during([*lines[:3], {"type": "end"}], wanted, 1.0)[1].ok


def test_metrics_without_an_end_are_not_ok() -> None:
    assert [c.ok for c in calibrate.during([{"type": "header"}], expectation(PLAN, "satlink"))] == [False]


def test_calibration_file_follows_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    assert calibrate.write(path, "r1", calibrate.before(PLAN, probe()))
    assert not calibrate.write(path, "r1", calibrate.before(PLAN, probe(rate_bps=None)))
    schema = json.loads((paths.SCHEMAS / "calibration.schema.json").read_text())
    jsonschema.validate(json.loads(path.read_text()), schema)


def test_the_summary_of_ping_is_read_and_no_reply_is_an_error() -> None:
    output = "40 packets transmitted, 39 received, 2.5% packet loss\nrtt min/avg/max/mdev = 1.5/2.25/3/0.1 ms, pipe 2\n"
    assert calibrate.echoes(output) == Echoes(39, 1.5, 2.25, 3.0)
    with pytest.raises(calibrate.ProbeError):
        calibrate.echoes("3 packets transmitted, 0 received, 100% packet loss, time 51ms\n")


def test_steady_rate_leaves_the_ramp_and_short_intervals_out() -> None:
    def interval(seconds: float, bps: float) -> dict[str, Any]:
        return {"sum": {"seconds": seconds, "bits_per_second": bps}}

    intervals = [
        interval(0.1, 0),
        interval(0.1, 10e6),
        interval(0.1, 19e6),
        interval(0.1, 19.2e6),
        interval(0.01, 99e6),
    ]
    assert calibrate.steady_rate_bps({"intervals": intervals}) == pytest.approx(19.1e6)
    assert calibrate.steady_rate_bps({}) is None


def test_metrics_file_ignores_a_line_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "link.jsonl"
    sample = {"type": "sample", "forward": {"dropped_packets": 3, "queue_packets": 0}}
    path.write_text(json.dumps({"type": "header"}) + "\n" + json.dumps(sample) + "\n" + '{"type": "sam')
    assert MetricsFile(path).forward_drops() == 3


def test_lateness_is_judged_line_by_line(tmp_path: Path) -> None:
    """What 5000 samples would take at once, 15 MB, is not held."""
    path, directions = tmp_path / "link.jsonl", ("forward", "return")
    counters = {"out_packets": 10, "late_packets": 1, "late_max_us": 5.0} | {f"more_{n}": n / 7 for n in range(20)}
    sample = {"type": "sample", "t_unix_s": 1.0, **dict.fromkeys(directions, counters)}
    head, end = {"type": "header", "late_limit_us": 1000}, {"type": "end"}
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *[sample] * 5000, end)))
    wanted = expectation(PLAN, "satlink")
    tracemalloc.start()
    try:
        checks = calibrate.during(MetricsFile(path).each(), replace(wanted, watched=directions))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [one.measured for one in checks] == [0.1, 0.1]
    assert checks[0].note == "later than 1000 us, of 50000; max 5 us"
    assert peak < 2_000_000
