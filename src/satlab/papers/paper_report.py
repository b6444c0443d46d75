# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the reproduction of a paper as one HTML file: conclusions, figures next to the published
figures, and plots.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from satlab.common import plain_files
from satlab.papers import plots, result_tables
from satlab.papers.figures import FIGURES
from satlab.papers.result_tables import STATES
from satlab.papers.results import PaperResults
from satlab.report import html
from satlab.report.page import Page, Part, Section, State, Table, Text, Tile, Tiles

PRODUCT = "satlab reproduction"
HEAD_BYTES = 4096
"""The name of the product is in the first bytes of a page."""


def is_at(folder: Path, name: str) -> bool:
    """Return whether a file below a folder, which may be somebody else's, is a page of a paper."""
    return PRODUCT in (plain_files.start_of(folder, name, HEAD_BYTES) or "")


def write(folder: Path, results: PaperResults, path: Path) -> Path:
    """Write the page of a campaign's folder atomically and return its path."""
    return html.write(page(folder, results), path)


def page(folder: Path, results: PaperResults) -> Page:
    """Return the page of a paper, of the runs in a campaign's folder."""
    paper = results.paper
    sections = [Section.of(result_tables.conclusions(results.judgements))]
    if results.agreements:
        sections.append(Section.of(result_tables.agreements(results)))
        sections += [Section.of(table) for table in result_tables.deviations(results)]
    sections += [Section.of(grid) for grid in results.grids]
    drawn = [each for plot in paper.plots for each in plots.draw(plot, results)]
    if drawn:
        sections.append(Section("Plots", drawn))
    command = f"./satlab reproduce {paper.name} --clock {paper.clock} --resume {folder}"
    assumed = [(one.what, one.assumed) for one in paper.assumptions]
    sections += [
        Section(
            "Published figures and ours",
            [result_tables.comparisons(results), Text(FIGURES_NOTE, "note")],
        ),
        Section("What the paper leaves open", [Table(("What", "Assumed here"), assumed)]),
        Section(
            "How to reproduce", [Text("Resume this campaign, or extend it:"), Text(command, "code")]
        ),
    ]
    lead: list[Part] = [Text(paper.source, "note"), Tiles([*_tiles(results)])]
    return Page(PRODUCT, f"{paper.known_as}: {paper.title}", lead, sections)


FIGURES_NOTE = (
    "Of flows: mean and standard deviation over the time of a run, in windows of 1 s for goodput;"
    " ours are means over the runs. Of scenarios: ours are medians, or means of bytes, with bootstrap"
    " intervals. Only runs in calibration are in ours and are judged; the last column has the others."
    " A rule whose bound lies within the interval of its figure is undecided, and so is one with too"
    " few runs in calibration or with another algorithm than the paper's."
)


def _tiles(results: PaperResults) -> Iterator[Tile]:
    runs = [run for runs in results.runs.values() for run in runs]
    caption = f"runs done, on the {results.paper.clock} clock"
    yield Tile(f"{len(runs)}/{results.planned}", caption)
    off = sum(run.is_uncalibrated for run in runs)
    if off:
        yield Tile(str(off), "of them out of calibration, shown apart and not judged", state="bad")
    deviations: dict[tuple[str, str], list[float]] = {}
    # A paper with agreements has a table for each figure.
    for one in () if results.agreements else results.comparisons:
        if one.deviation is not None and one.cell.published:
            key = one.metric, one.cell.published
            deviations.setdefault(key, []).append(abs(one.deviation))
    metrics = list(dict.fromkeys(one.metric for one in results.comparisons))
    for metric, algorithm in sorted(deviations, key=lambda key: (metrics.index(key[0]), key[1])):
        caption = f"median deviation of {FIGURES[metric].title} from {algorithm}"
        yield Tile(f"{median(deviations[metric, algorithm]):.1%}", caption)
    judged = [one.verdict for one in results.judgements if one.verdict in STATES]
    state: State = "bad" if "does not hold" in judged else "good" if judged else ""
    caption = "conclusions that hold here, of those judged"
    yield Tile(f"{judged.count('holds')}/{len(judged)}", caption, state=state)
    failed = sum(run.failed for run in runs)
    caption = "runs with a failed connection or sample, counted below"
    yield Tile(str(failed), caption, state="bad" if failed else "good")
