# SPDX-License-Identifier: GPL-3.0-or-later
from pathlib import Path

import pytest

import collect
from collect import Collected
from collect.fixtures import example_run
from collect.fixtures.example_run import Example
from satlab import report
from satlab.report import plotly, reported_run
from satlab.report.run_report import RunReport


def gathered(run: Path) -> dict[Path, Collected]:
    return {run: Collected(collect.gather(run), collect.stored(run))}


def see(run: Path) -> RunReport:
    content = [reported_run.read_run(folder, content) for folder, content in gathered(run).items()]
    return RunReport("demo", content)


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
    (films,) = what.films()
    assert [strip.name for strip in films.strips] == ["HTTP/1.1", "HTTP/3"]
    assert {len(strip.frames) for strip in films.strips} == {len(films.times)}
    assert 2 < len(films.times) <= 9
    for strip in films.strips:
        assert [frame.share for frame in strip.frames] == sorted(
            (frame.share for frame in strip.frames), key=["0%", "50%", "100%"].index
        )
        assert (strip.frames[0].jpeg, strip.frames[-1].share) == (None, "100%")
    text = report.build(gathered(run), tmp_path / "index.html", "demo").read_text()
    assert text.count("<img") == sum(
        frame.jpeg is not None for strip in films.strips for frame in strip.frames
    )
    assert "Speed Index" in text
    assert [plot.key for plot in what.phase_plots()] == ["phases-1", "phases-2"]


def test_phases_of_requests_follow_each_other(tmp_path: Path) -> None:
    run = example_run.write(
        tmp_path, Example(scenario="page_load", duration_s=0, loads={"h1": 1}, observed=1)
    )
    (plot,) = see(run).phase_plots()
    (load,) = [one.load for one in collect.stored(run).observations]
    bars = [bar for bar in plotly.document(plot)["data"] if bar["type"] == "bar"]
    for number, one in enumerate(load.requests):
        edges = [bar["base"][number] for bar in bars] + [
            bars[-1]["base"][number] + bars[-1]["x"][number]
        ]
        assert edges == sorted(edges)
        assert edges[0] == pytest.approx(one.start_ms / 1000, abs=1e-3)
    assert len(plot.marks) == len(load.long_tasks)
