# SPDX-License-Identifier: GPL-3.0-or-later
"""A paper's reproduction by flows as one HTML file: conclusions, figures next to the published
ones, and the plots.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from satlab.papers import flow_plots
from satlab.papers.flow_campaign import FlowCampaign
from satlab.papers.flow_figures import FIGURES
from satlab.papers.flow_results import AGREEMENT_COLUMNS, FlowResults
from satlab.report import html
from satlab.report.page import Cell, Page, Part, Row, Section, State, Table, Text, Tile, Tiles

NUMBERS = {"Published", "Ours", "Deviation", "95 % interval", "n", "Failed", "Out of calibration"}
STATES: dict[str, State] = {"holds": "good", "does not hold": "bad"}
"""Of verdicts; others are neither good nor bad."""


def write(campaign: FlowCampaign, results: FlowResults, path: Path) -> Path:
    """Write the page atomically and return its path."""
    return html.write(page(campaign, results), path)


def page(campaign: FlowCampaign, results: FlowResults) -> Page:
    """Return the page of a paper."""
    paper = results.paper
    judged = [
        (one.conclusion.text, _verdict(one.verdict), "\n".join(one.evidence))
        for one in results.judgements
    ]
    head = ("Conclusion", "Verdict", "Evidence")
    sections = [
        Section("Conclusions of the paper", [Table(head, judged, verdict="Verdict")]),
    ]
    if results.agreements:
        agreements = [
            [_verdict(text) if name == "Verdict" else text for name, text in _named(one.row())]
            for one in results.agreements
        ]
        table = Table(AGREEMENT_COLUMNS, agreements, verdict="Verdict")
        sections.append(Section("Agreement with the published figures", [table]))
    for grid in results.grids:
        numbers = frozenset(grid.head) - {one.head[0] for one in results.grids}
        table = Table(grid.head, grid.rows, numbers=numbers, title=grid.title)
        sections.append(Section.of(table))
    plots = [drawn for plot in paper.plots for drawn in flow_plots.draw(plot, campaign, results)]
    if plots:
        sections.append(Section("Plots", plots))
    command = (
        f"./satlab reproduce {campaign.plan.paper} --clock {paper.clock} --resume {campaign.folder}"
    )
    assumed = [(one.what, one.assumed) for one in paper.assumptions]
    sections += [
        Section("Published figures and ours", [_by_cell(results), Text(FIGURES_NOTE, "note")]),
        Section("What the paper leaves open", [Table(("What", "Assumed here"), assumed)]),
        Section(
            "How to reproduce", [Text("Resume this campaign, or extend it:"), Text(command, "code")]
        ),
    ]
    lead: list[Part] = [Text(paper.source, "note"), Tiles([*_tiles(campaign, results)])]
    return Page("satlab reproduction", paper.title, lead, sections)


FIGURES_NOTE = (
    "Mean and standard deviation over the time of a run, in windows of 1 s for goodput; ours are"
    " means over the runs. The interval is that of the mean over the runs; a rule whose bound lies"
    " within that of its figure is undecided, and so is one with too few runs."
)


def _verdict(text: str) -> Cell:
    return Cell(text, STATES.get(text, ""))


def _named(row: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return zip(AGREEMENT_COLUMNS, row, strict=True)


def _by_cell(results: FlowResults) -> Table:
    """Return every figure next to the published one, by the paper's tests or groups of cells."""
    head, rows = results.table()
    groups: dict[str, list[Row]] = {}
    for one, row in zip(results.comparisons, rows, strict=True):
        part = one.cell.id.partition("/")[0]
        named = results.paper.groups.get(part, "Not in the paper")
        groups.setdefault(f"Test {one.cell.test}" if one.cell.test else named, []).append(row)
    return Table(tuple(head), groups=groups, numbers=NUMBERS)


def _tiles(campaign: FlowCampaign, results: FlowResults) -> Iterator[Tile]:
    runs = [run for runs in results.runs.values() for run in runs]
    planned = sum(campaign.runs.values())
    yield Tile(f"{len(runs)}/{planned}", f"runs done, on the {results.paper.clock} clock")
    off = sum(run.is_uncalibrated for run in runs)
    if off:
        yield Tile(str(off), "of them out of calibration, counted below", state="bad")
    deviations: dict[tuple[str, str], list[float]] = {}
    for one in results.comparisons:
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
    caption = "connections that ended before their time, counted below"
    yield Tile(str(failed), caption, state="bad" if failed else "good")
