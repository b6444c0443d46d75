# SPDX-License-Identifier: GPL-3.0-or-later
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from satlab.report import plot_svg
from satlab.report.page import Series
from satlab.service.pages.link_curves import LINK, MAX_BINS, MAX_RUNS, Curves, LinkCurves
from satlab.service.pages.link_view import CHART_PX, Charts


def sample(second: float, forward: int = 0, back: int = 0, queue: int = 0) -> dict[str, Any]:
    return {
        "type": "sample",
        "t_unix_s": 1000 + second,
        "forward": {"out_bytes": forward, "queue_bytes": queue},
        "return": {"out_bytes": back, "queue_bytes": 0},
    }


def test_samples_become_rates_and_the_largest_queue() -> None:
    curves = Curves()
    curves.add({"type": "header"})
    for number in range(20):
        curves.add(
            sample(number / 10 + 0.01, forward=125_000, back=1250, queue=1000 * (number % 5))
        )
    assert curves.rate_mbps("forward") == [(0.25, 10.0), (0.75, 10.0), (1.25, 10.0)]
    assert curves.rate_mbps("return")[0][1] == pytest.approx(0.1)
    assert curves.queue_kb()[0] == (0.25, 4.0)


def test_another_emulators_directions_are_left_out() -> None:
    curves = Curves()
    for number in range(20):
        curves.add(sample(number / 10) | {"forward": None, "return": None})
    assert {value for _, value in curves.rate_mbps("forward")} == {0.0}


@given(st.lists(st.tuples(st.floats(0, 1e5), st.integers(0, 10**7)), max_size=60))
def test_bins_stay_few_and_no_byte_is_lost(samples: list[tuple[float, int]]) -> None:
    curves = Curves()
    for second, size in samples:
        curves.add(sample(second, forward=size))
    assert len(curves._bins) <= MAX_BINS
    assert sum(each["forward"].bytes for each in curves._bins.values()) == sum(
        size for _, size in samples
    )


def test_a_growing_file_is_read_once(tmp_path: Path) -> None:
    watcher, path = LinkCurves(), tmp_path / LINK
    assert watcher.curves(tmp_path).start_unix_s is None
    path.parent.mkdir()
    path.write_text(json.dumps(sample(0, 100)) + "\n" + json.dumps(sample(0.6, 100))[:10])
    assert watcher.curves(tmp_path).start_unix_s == 1000
    with path.open("a") as file:
        file.write(json.dumps(sample(0.6, 100))[10:] + "\n" + json.dumps(sample(1.2)) + "\n")
    assert [value for _, value in watcher.curves(tmp_path).rate_mbps("forward")] == pytest.approx(
        [0.0016, 0.0016]
    )
    for number in range(MAX_RUNS + 5):
        watcher.curves(tmp_path / str(number))
    assert len(watcher._runs) == MAX_RUNS


def test_a_sum_is_over_the_time_asked_for_and_ends_with_the_last_modcod() -> None:
    curves = Curves()
    for number in range(40):
        counts = {
            "out_bytes": 1000,
            "queue_bytes": 10 * number,
            "lost_packets": 1,
            "dropped_packets": 2,
        }
        figures = {
            **counts,
            "modcod_id": 1 if number < 20 else 4,
            "es_n0_db": -1.5,
            "threshold_db": -2.35,
        }
        curves.add(sample(number / 10) | {"forward": figures, "terrestrial_down": None})
    whole, seconds = curves.total("forward", 0.0)
    assert (whole.bytes, whole.lost, whole.dropped, seconds) == (35_000, 35, 70, 3.5), (
        "the last bin is not complete"
    )
    late, seconds = curves.total("forward", 2.0)
    assert (late.bytes, late.queue, late.modcod_id, seconds) == (15_000, 340, 4, 1.5)
    assert curves.last("forward")[0].lost == 5
    assert curves.missing("forward")[0] == (0.25, 30.0)
    assert [value for _, value in curves.points("forward", lambda one: one.modcod_id)] == [
        1
    ] * 4 + [4] * 3
    assert curves.measured == {"forward", "return"}


VALUES = st.lists(st.tuples(st.floats(0, 1e4), st.floats(-20, 1e9)), max_size=20).map(sorted)


@given(VALUES, VALUES)
@example([], [(0.0, 5e-324)])
def test_every_point_of_a_chart_lies_in_its_plot(
    one: list[tuple[float, float]], two: list[tuple[float, float]]
) -> None:
    made = Charts(ended=False, key="k")
    made.add("t", "u", [("one", one), ("two", two)], ("limit", two))
    (plot,) = made.plots
    colours = [each.colour for each in plot.series if isinstance(each, Series)]
    assert colours == ["--c1", "--c2", *["--muted"] * bool(two)]
    drawn = plot_svg.drawing(plot, 480)
    for line in re.findall(r'<polyline points="([^"]*)"', drawn):
        for point in line.split():
            x, y = map(float, point.split(","))
            assert plot_svg.LEFT - 0.1 <= x <= 480 - plot_svg.RIGHT + 0.1
            assert 0 <= y <= CHART_PX
    assert ">0</text>" in drawn and "nan" not in drawn


def test_a_legend_says_the_last_value_and_after_the_end_the_largest() -> None:
    points = [(0.0, 0.0), (10.0, 19.3), (20.0, 18.0)]
    for ended, said in ((False, "18 Mbit/s"), (True, "max. 19.3 Mbit/s")):
        made = Charts(ended=ended, key="k")
        made.add("Goodput", "Mbit/s", [("forward", points), ("return", [])])
        (plot,) = made.plots
        nothing = "nothing" if ended else "no sample yet"
        assert plot.caption == f"forward: {said}, return: {nothing}"
