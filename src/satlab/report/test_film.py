# SPDX-License-Identifier: GPL-3.0-or-later
from pathlib import Path

import pytest

import collect
from collect import Collected
from collect.fixtures import example_run
from collect.fixtures.example_run import Example
from satlab import report
from satlab.report import view
from satlab.report.view import View


def gathered(run: Path) -> dict[Path, Collected]:
    return {run: Collected(collect.gather(run), collect.stored(run))}


def see(run: Path) -> View:
    return View(
        "demo", [view.read_run(folder, content) for folder, content in gathered(run).items()]
    )


@pytest.mark.promise("P45")
def test_filmstrips_stand_side_by_side_over_the_same_times(tmp_path: Path) -> None:
    """The example's page is white, half complete from its first paint on, and complete at its load
    event.
    """
    loads = {"h1": 1, "h3": 1}
    run = example_run.write(
        tmp_path, Example(scenario="page_load", duration_s=0, loads=loads, observed=2)
    )
    what = see(run)
    films = what.filmstrip()
    assert films is not None
    assert [strip.name for strip in films.strips] == ["HTTP/1.1", "HTTP/3"]
    assert {len(strip.cells) for strip in films.strips} == {len(films.times)}
    assert 2 < len(films.times) <= 9
    for strip in films.strips:
        assert [cell.share for cell in strip.cells] == sorted(
            (cell.share for cell in strip.cells), key=["0%", "50%", "100%"].index
        )
        assert (strip.cells[0].jpeg, strip.cells[-1].share) == (None, "100%")
    text = report.build(gathered(run), tmp_path / "index.html", "demo").read_text()
    assert text.count("<img") == sum(
        cell.jpeg is not None for strip in films.strips for cell in strip.cells
    )
    assert "Speed Index" in text
    assert [figure.key for figure in what.phase_plots()] == ["phases-1", "phases-2"]


def test_phases_of_requests_follow_each_other(tmp_path: Path) -> None:
    run = example_run.write(
        tmp_path, Example(scenario="page_load", duration_s=0, loads={"h1": 1}, observed=1)
    )
    (figure,) = see(run).phase_plots()
    (load,) = [one.load for one in collect.stored(run).observations]
    bars = figure.document["data"]
    for number, one in enumerate(load.requests):
        edges = [bar["base"][number] for bar in bars] + [
            bars[-1]["base"][number] + bars[-1]["x"][number]
        ]
        assert edges == sorted(edges)
        assert edges[0] == pytest.approx(one.start_ms / 1000, abs=1e-3)
    assert len(figure.document["layout"]["shapes"]) == len(load.long_tasks)
