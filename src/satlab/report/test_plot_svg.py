# SPDX-License-Identifier: GPL-3.0-or-later
import re
from dataclasses import replace
from typing import Literal
from xml.etree import ElementTree

import pytest

from satlab.report import html, plot_svg
from satlab.report.page import Axis, Mark, Page, Plot, Section, Series, Spans, Table

PLOT = Plot(
    key="a plot",
    title="A <plot>",
    caption="What it shows, in words.",
    x=Axis("Time (s)", range=(0, 10)),
    y=(Axis("MB", from_zero=True, share=0.5), Axis("ms", share=0.5, heading="Delay")),
    series=[
        Series("a line", [0, 5, 10], [0, 40, 80]),
        Series("steps", [0, 5, 10], [1, 2, 3], "steps", 1),
        Series("marks <b>", [2, 4], [300, 500], "marks", 2, row=1),
    ],
    height=400,
    table=Table(("x",)),
)
NAME = "{http://www.w3.org/2000/svg}"


def elements(plot: Plot) -> list[ElementTree.Element]:
    """Return the elements of a plot's file, which is whole XML."""
    return list(ElementTree.fromstring(plot_svg.document(plot)).iter())  # noqa: S314 - our own text


def texts(plot: Plot) -> list[str]:
    return [one.text or "" for one in elements(plot) if one.tag == f"{NAME}text"]


def points(plot: Plot) -> list[list[tuple[float, ...]]]:
    """Return the points of each line of the plot, without those of the legend."""
    found = [one.get("points", "") for one in elements(plot) if one.tag == f"{NAME}polyline"]
    lines = [[tuple(map(float, point.split(","))) for point in line.split()] for line in found]
    return [line for line in lines if line[-1][0] - line[0][0] > 2 * plot_svg.SWATCH]


def test_values_are_where_the_axes_say() -> None:
    line, steps = points(PLOT)
    assert [x for x, _ in line] == pytest.approx([plot_svg.LEFT, (plot_svg.LEFT + 788) / 2, 788])
    rise = line[0][1] - line[1][1]
    assert line[1][1] - line[2][1] == pytest.approx(rise, abs=0.2) and rise > 30
    assert len(steps) == 5 and steps[0][1] == steps[1][1]
    assert {"0", "4", "10", "Time (s)", "MB", "ms", "Delay", "A <plot>"} <= set(texts(PLOT))


def test_of_labels_that_would_cover_each_other_the_first_stays() -> None:
    lines = [
        (1, "handover"),
        (1.5, ""),
        (1.6, "to GW 6"),
        (4, "to GW 1"),
        (9.8, "the end"),
        (9, "x"),
    ]
    plot = replace(PLOT, marks=[Mark("x", at, label=label) for at, label in lines])
    assert [text for text in texts(plot) if text in {label for _, label in lines}] == [
        "handover",
        "to GW 1",
        "the end",
    ]
    assert sum(one.get("stroke-dasharray") == "2 4" for one in elements(plot)) == len(lines)


def test_legends_are_in_their_rows_and_can_be_left_out() -> None:
    assert {"a line", "steps", "marks <b>"} <= set(texts(PLOT))
    assert "a line" not in texts(replace(PLOT, has_legend=False))
    hidden = replace(PLOT.series[1], in_legend=False)
    plot = replace(PLOT, series=[PLOT.series[0], hidden, PLOT.series[2]])
    assert "steps" not in texts(plot) and "a line" in texts(plot)


def test_nothing_is_drawn_outside_and_many_entries_have_several_lines() -> None:
    many = [Series(f"a series with a long name {n}", [0, 10], [0, n]) for n in range(12)]
    plot = replace(PLOT, y=PLOT.y[:1], series=many)
    height = float(elements(plot)[0].get("height", 0))
    for one in elements(plot):
        for name, most in (
            ("x", plot_svg.WIDTH),
            ("y", height),
            ("x1", plot_svg.WIDTH),
            ("y1", height),
        ):
            if (value := one.get(name)) is not None:
                assert -1 <= float(value) <= most, ElementTree.tostring(one)
    rows = {one.get("y") for one in elements(plot) if (one.text or "").startswith("a series")}
    assert len(rows) >= 3


@pytest.mark.parametrize(
    ("mark", "shape"),
    [(Mark("x", 4, label="RTT 25 ms"), "line"), (Mark("x", 4, 6, label="RTT 25 ms"), "rect")],
)
def test_marks_have_their_label(mark: Mark, shape: str) -> None:
    before, after = (len(elements(replace(PLOT, marks=marks))) for marks in ([], [mark]))
    assert after == before + 2 and "RTT 25 ms" in texts(replace(PLOT, marks=[mark]))
    assert any(one.tag == NAME + shape for one in elements(replace(PLOT, marks=[mark])))


def bars(*spans: Spans, stack: bool) -> list[tuple[float, float]]:
    """Return left end and width of each bar, but for those of the legend."""
    plot = replace(
        PLOT,
        x=Axis("s", range=(0, 10)),
        y=(Axis("", is_reversed=True),),
        series=spans,
        bars="stack" if stack else "overlay",
        has_legend=False,
    )
    found = [one.get("d", "") for one in elements(plot) if one.get("fill") == "var(--c2)"]
    ends = [re.findall(r"M([0-9.]+) [0-9.]+h([0-9.]+)v", each) for each in found]
    return [(float(x), float(width)) for each in ends for x, width in each]


def test_bars_follow_each_other_or_begin_where_they_say() -> None:
    one, two = (Spans(name, ["a"], (), [4], "--c2", "/") for name in ("one", "two"))
    (left, width), (next_left, _) = bars(one, two, stack=True)
    free = replace(
        PLOT, x=Axis("s", from_zero=True), y=(Axis(""),), series=[one, two], bars="stack"
    )
    assert "8" in texts(free)
    assert next_left == pytest.approx(left + width, abs=0.2)
    [(at, wide)] = bars(Spans("one", ["a"], [2], [4], "--c2"), stack=False)
    assert at - left == pytest.approx(wide / 2, abs=0.2)


def test_each_pattern_of_plotly_is_drawn_and_defined_once() -> None:
    spans = [Spans(f"bar {way}", ["a", "b"], (), [4, 2], "--c2", way) for way in plot_svg.PATTERNS]
    text = plot_svg.drawing(replace(PLOT, series=spans, y=(Axis(""),), bars="stack"))
    assert set(plot_svg.PATTERNS) == set("/\\x-|+.")
    assert text.count("<pattern") == 7 and text.count("url(#a-plot-47)") == 2


@pytest.mark.parametrize("shape", ["bars", "boxes", "marked line", "marks"])
def test_texts_have_places_on_an_axis(shape: str) -> None:
    series = [
        Series(name, ["b", "a", "a"], [3, 1, 2], shape, style, interval=[0.5, 0, 0])  # type: ignore[arg-type]
        for style, name in enumerate(("one", "two"))
    ]
    plot = replace(PLOT, x=Axis("cell", categories=["a", "b"]), y=(Axis("s"),), series=series)
    found = texts(plot)
    assert found.index("a") < found.index("b")
    assert plot_svg.drawing(plot).count("nan") == 0


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (Axis("x", scale="log"), {"1", "10", "100"}),
        (Axis("x", ticks={1: "one", 50: "fifty"}), {"one", "fifty"}),
        (Axis("x", step=40), {"40", "80"}),
    ],
)
def test_ticks_are_those_of_the_axis(axis: Axis, expected: set[str]) -> None:
    series = [Series("a", [1, 50, 100], [1, 2, 3])]
    assert expected <= set(texts(replace(PLOT, x=axis, y=(Axis("y"),), series=series)))


def test_a_line_of_many_points_stays_small_and_keeps_its_peaks() -> None:
    values = [0.0] * 50_000
    values[20_000], values[30_000] = 9.0, -9.0
    series = [Series("a", [n / 5000 for n in range(50_000)], values)]
    plot = replace(PLOT, y=(Axis("y"),), series=series, has_legend=False)
    [line] = points(plot)
    assert len(line) < 4 * plot_svg.WIDTH and len({y for _, y in line}) == 3


def test_an_empty_plot_and_one_value_are_drawn() -> None:
    for series in ([], [Series("a", [3], [4])], [Series("a", [], [])]):
        plot = replace(PLOT, x=Axis("x"), series=series, marks=[Mark("y", 2, label="limit")])
        assert "nan" not in plot_svg.document(plot) and "inf" not in plot_svg.document(plot)


def test_a_file_has_its_colours_and_a_page_those_of_its_theme() -> None:
    assert re.search(r":root\{[^}]*--c1:#[0-9a-f]{6};", plot_svg.document(PLOT))
    assert ":root" not in plot_svg.drawing(PLOT) and "var(--c1)" in plot_svg.drawing(PLOT)


def test_a_page_has_a_picture_of_each_plot_that_is_not_folded() -> None:
    folded = replace(PLOT, key="other", folded=True)
    page = html.render(Page("p", "t", [], [Section("s", [PLOT, folded])]))
    assert page.count('<svg class="static"') == 1 and page.count("data-figure=") == 2
    assert "marks &lt;b&gt;" in page and "marks <b>" not in page


@pytest.mark.parametrize("values", [[0.0, 1.7e308], [1.0, -1.7e308], [1e90, 1e90], [5e-324, 1.0]])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_values_of_any_size_are_drawn(values: list[float], scale: Literal["linear", "log"]) -> None:
    series = [Series("a", [1, 2], values)]
    drawn = plot_svg.document(replace(PLOT, y=(Axis("y", scale=scale),), series=series))
    assert "nan" not in drawn and "inf" not in drawn
