# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of the path, and curves of a hop: from samples to texts."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from collect.fixtures.example_run import link_plan
from satlab.link.plan import LinkPlan
from satlab.report.page import Plot, Series
from satlab.service.pages import link_view, path_picture
from satlab.service.pages.link_curves import DIRECTIONS, Curves
from satlab.service.pages.live_activity import NOTHING
from satlab.service.pages.path_picture import FORWARD, HOPS, PATH, RETURN, TERRESTRIAL, Box, Figures

PLAN = LinkPlan.model_validate(link_plan("geo"))


def counters(**values: Any) -> dict[str, Any]:
    zero = dict.fromkeys(
        ("out_bytes", "queue_bytes", "in_packets", "lost_packets", "dropped_packets"), 0
    )
    return {**zero, "modcod_id": None, "es_n0_db": None, "threshold_db": None, **values}


def curves_of(seconds: int = 10, **forward: Any) -> Curves:
    """Return curves with a forward link that does the same in each 0.1 s."""
    curves = Curves()
    for number in range(seconds * 10 + 1):
        quiet = {direction: counters() for direction in DIRECTIONS}
        curves.add(
            {
                "type": "sample",
                "t_unix_s": 1000 + number / 10,
                **quiet,
                "forward": counters(**forward),
            }
        )
    return curves


def box_of(figures: Figures, hop: str) -> Box:
    wide, tall = (
        {box.hop: box for box in picture.boxes}[hop] for picture in path_picture.pictures(figures)
    )
    assert (wide.title, wide.lines, wide.share) == (tall.title, tall.lines, tall.share)
    return wide


@pytest.mark.promise("P61")
def test_a_hop_shows_rate_queue_loss_delay_and_modcod() -> None:
    curves = curves_of(
        out_bytes=122_000,
        queue_bytes=490_150,
        lost_packets=1,
        dropped_packets=2,
        modcod_id=1,
        es_n0_db=17.0,
    )
    box = box_of(Figures(curves, PLAN, None, ended=False), FORWARD)
    assert box.title == "Forward link, 250 ms delay"
    assert box.lines[0] == "9.8 of 19.6 Mbit/s"
    assert box.lines[1] == "queue 490 kB, 200 ms"
    assert box.lines[2] == "100 lost, 200 dropped", "of all bins but the one that is not complete"
    assert box.lines[3] == "QPSK 1/4, Es/N0 17.0 dB"
    assert box.share == pytest.approx(9.76 / 19.606, abs=0.001)
    path = box_of(Figures(curves, PLAN, None, ended=False), PATH)
    assert path.lines == ("round trip about 783 ms", "583 ms without queues")


def test_p348_the_box_of_the_path_has_the_windows_of_the_first_flows() -> None:
    windows = ("server: cwnd 1.23 MB", "proxy-gw: cwnd 12 kB", "client: cwnd 1 kB")
    activity = dataclasses.replace(NOTHING, windows=windows)
    curves = curves_of(out_bytes=122_000, modcod_id=1)
    path = box_of(Figures(curves, PLAN, None, ended=False, activity=activity), PATH)
    assert path.lines == ("round trip about 583 ms", "583 ms without queues", *windows[:2])


def test_the_capacity_follows_the_modcod() -> None:
    figures = Figures(
        curves_of(out_bytes=122_000, modcod_id=4, es_n0_db=3.0), PLAN, None, ended=False
    )
    box = box_of(figures, FORWARD)
    assert box.lines[0] == "9.8 of 39.5 Mbit/s"
    assert box.lines[3] == "QPSK 1/2, Es/N0 3.0 dB"
    steps = link_view.link_view(figures.curves, PLAN, None, ended=False, hop=FORWARD).charts[0]
    assert [line.name.partition(":")[0] for line in steps.series] == ["forward link", "capacity"]
    assert steps.series[1].name == "capacity: 39.5 Mbit/s"


def test_what_is_not_known_is_not_made_up() -> None:
    curves = Curves()
    for number in range(30):
        nothing = {direction: counters() for direction in DIRECTIONS} | {
            "forward": None,
            "return": None,
        }
        curves.add({"type": "sample", "t_unix_s": 1000 + number / 10, **nothing})
    figures = Figures(curves, None, None, ended=False)
    for hop in (FORWARD, RETURN):
        assert box_of(figures, hop).lines == ("not measured: satlink does not carry it",)
        assert box_of(figures, hop).share is None
    assert box_of(figures, TERRESTRIAL).lines[2] == "0 lost, 0 dropped"
    assert path_picture.capacity_bps(PLAN, RETURN, 99) is None, (
        "rates of other waveforms are not known"
    )


def test_after_the_end_figures_are_of_the_scenario() -> None:
    curves = curves_of(5, out_bytes=0, queue_bytes=900_000)
    for number in range(51, 101):
        quiet = {direction: counters() for direction in DIRECTIONS}
        forward = counters(out_bytes=122_000, queue_bytes=1000, lost_packets=1)
        curves.add({"type": "sample", "t_unix_s": 1000 + number / 10, **quiet, "forward": forward})
    box = box_of(Figures(curves, PLAN, 5.5, ended=True), FORWARD)
    assert box.lines[:3] == (
        "mean 9.8 of 19.6 Mbit/s",
        "longest queue 1 kB, 0 ms",
        "45 lost, 0 dropped",
    )


def test_several_terminals_are_named() -> None:
    curves = curves_of()
    quiet = {direction: counters() for direction in DIRECTIONS}
    curves.add(
        {"type": "sample", "t_unix_s": 1011, **quiet, "forward": counters(terminals=[{}] * 4)}
    )
    wide, _ = path_picture.pictures(Figures(curves, PLAN, None, ended=False))
    assert [node.name for node in wide.nodes[:3]] == [
        "client ×4",  # noqa: RUF001
        "Proxy-ST",
        "ST ×4",  # noqa: RUF001
    ]
    assert "4 terminals share the link" in wide.boxes[0].lines


@pytest.mark.parametrize("place", [0, 1])
def test_nothing_leaves_the_picture_or_covers_something_else(place: int) -> None:
    picture = path_picture.pictures(Figures(curves_of(), PLAN, None, ended=False))[place]
    areas = [(box.x, box.y, box.x + 255, box.y + 116) for box in picture.boxes]
    areas += [(node.x - 46, node.y - 17, node.x + 46, node.y + 17) for node in picture.nodes]
    for number, (left, top, right, bottom) in enumerate(areas):
        assert left >= 0
        assert top >= 0
        assert right <= picture.width
        assert bottom <= picture.height
        for other in areas[:number]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]
    assert {box.hop for box in picture.boxes} == set(HOPS)


def times_of(chart: Plot) -> list[float]:
    first = chart.series[0]
    assert isinstance(first, Series)
    return [float(t) for t in first.x]


@pytest.mark.parametrize("hop", HOPS)
def test_times_begin_with_the_scenario_and_the_calibration_is_apart(hop: str) -> None:
    curves = curves_of(10, out_bytes=1000, es_n0_db=17.0, threshold_db=-2.35, modcod_id=1)
    before = link_view.link_view(curves, PLAN, None, ended=False, hop=hop)
    assert before.calibration == ()
    assert before.span == (0.0, 9.75) and before.charts[1].x.range == before.span
    view = link_view.link_view(curves, PLAN, 6.0, ended=False, hop=hop)
    assert view.charts[1].x.range == (0.0, 3.75)
    assert view.calibration[1].x.range == (0.0, 6.0)
    count = (len(times_of(view.charts[0])), len(times_of(view.calibration[0])))
    assert count == (8, 12), "each bin is in one of them"
    titles = [chart.title for chart in view.charts]
    assert ("Es/N0 (dB)" in titles) == (hop == FORWARD)
    assert ("Dropped or lost (packets/s)" in titles) == (hop != PATH)


@pytest.mark.parametrize(
    ("shown", "span"),
    [
        ((2.0, 4.0), (2.0, 4.0)),
        ((-3.0, None), (6.75, 9.75)),
        ((None, 5.0), (0.0, 5.0)),
        ((8.0, 2.0), (0.0, 9.75)),
        ((20.0, 30.0), (0.0, 9.75)),
        ((-1e6, 1e6), (0.0, 9.75)),
    ],
)
def test_a_part_of_the_time_is_shown(shown: link_view.Shown, span: tuple[float, float]) -> None:
    curves = curves_of(10, out_bytes=1000)
    view = link_view.link_view(curves, PLAN, None, ended=False, hop=PATH, shown=shown)
    assert view.span == span
    for chart in view.charts:
        assert chart.x.range == span
        assert all(span[0] <= t <= span[1] for t in times_of(chart))


def test_a_plan_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert link_view.plan_of(tmp_path) is None
    for text in ("", "[]", "{}", '{"link": 3}', "{"):
        (tmp_path / "plan.json").write_text(text)
        assert link_view.plan_of(tmp_path) is None
    (tmp_path / "plan.json").write_text(json.dumps({"link": link_plan("geo")}))
    assert link_view.plan_of(tmp_path) == PLAN


@pytest.mark.parametrize(
    ("demand", "capacity_bps"),
    [(None, 30e6), ({"carrier_slots": 300, "cra_slots": 0, "other_terminals": 2}, 15e6)],
)
def test_the_return_link_of_several_terminals_carries_all_of_them(
    demand: dict[str, Any] | None, capacity_bps: float
) -> None:
    """Each has slots of its own at a constant rate; on demand they share those of the carrier."""
    if demand is not None:
        delays = {"min": 1.0, "mean": 1.0, "max": 1.0}
        demand = demand | {"synchro_ms": 1.0, "first_packet_ms": delays}
    plan = link_plan("geo")
    plan["return"] |= {"rate_bps": 10e6, "slots_per_superframe": 200, "demand": demand}
    found = LinkPlan.model_validate(plan)
    assert path_picture.capacity_bps(found, RETURN, None) == 10e6
    assert path_picture.capacity_bps(found, RETURN, None, 3) == capacity_bps
    assert path_picture.capacity_bps(found, FORWARD, None, 3) == plan["forward"]["rate_bps"]
