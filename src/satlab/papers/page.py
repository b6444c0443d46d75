# SPDX-License-Identifier: GPL-3.0-or-later
"""A paper's reproduction as one HTML file: conclusions, figures next to the published
ones, and the plots.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from satlab.common.files import write_atomically
from satlab.papers import plots
from satlab.papers.figures import FIGURES
from satlab.papers.results import AGREEMENT_COLUMNS, PaperResults
from satlab.report import html

NUMBERS = {"Published", "Ours", "Deviation", "95 % interval", "n", "Failed", "Out of calibration"}


@dataclass(frozen=True)
class PaperPage:
    """What the template shows."""

    folder: Path
    results: PaperResults

    def tiles(self) -> list[tuple[str, str, str]]:
        """Return (figure, caption, state)."""
        runs = [run for runs in self.results.runs.values() for run in runs]
        verdicts = [j.verdict for j in self.results.judgements]
        failed = sum(run.failed for run in runs)
        judged = [v for v in verdicts if v in ("holds", "does not hold")]
        state = "bad" if "does not hold" in verdicts else "good" if judged else ""
        off = sum(run.is_uncalibrated for run in runs)
        return [
            (
                f"{len(runs)}/{self.results.planned}",
                f"runs done, on the {self.results.paper.clock} clock",
                "",
            ),
            *([(str(off), "of them out of calibration, counted below", "bad")] if off else []),
            *self._deviations(),
            (
                f"{judged.count('holds')}/{len(judged)}",
                "conclusions that hold here, of those judged",
                state,
            ),
            (
                str(failed),
                "connections that ended before their time, counted below",
                "bad" if failed else "good",
            ),
        ]

    def _deviations(self) -> list[tuple[str, str, str]]:
        tiles = []
        for metric in dict.fromkeys(c.metric for c in self.results.comparisons):
            for algorithm in sorted(
                {c.cell.published for c in self.results.comparisons if c.cell.published}
            ):
                found = [
                    abs(c.deviation)
                    for c in self.results.comparisons
                    if c.metric == metric
                    and c.cell.published == algorithm
                    and c.deviation is not None
                ]
                if found:
                    tiles.append(
                        (
                            f"{median(found):.1%}",
                            f"median deviation of {FIGURES[metric].title} from {algorithm}",
                            "",
                        )
                    )
        return tiles

    def conclusions(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return text, verdict, evidence."""
        return [(j.conclusion.text, j.verdict, j.evidence) for j in self.results.judgements]

    def agreements(self) -> list[tuple[str, ...]]:
        """Return rows as in `AGREEMENT_COLUMNS`."""
        return [one.row() for one in self.results.agreements]

    def figures_by_cell(self) -> tuple[list[str], list[tuple[str, list[list[str]]]], list[int]]:
        """Return heads, rows by group with cells of the paper first, and which columns, from 1 on,
        hold numbers.
        """
        head, rows = self.results.table()
        groups: dict[str, list[list[str]]] = {}
        for one, row in zip(self.results.comparisons, rows, strict=True):
            part = one.cell.id.partition("/")[0]
            name = (
                f"Test {one.cell.test}"
                if one.cell.test
                else self.results.paper.groups.get(part, "Not in the paper")
            )
            groups.setdefault(name, []).append(row)
        return (
            head,
            list(groups.items()),
            [place for place, name in enumerate(head, 1) if name in NUMBERS],
        )

    @property
    def row_names(self) -> set[str]:
        """Return the heads of the columns of the paper's own tables that have words: the first
        ones.
        """
        return {table.head[0] for table in self.results.grids}

    def command(self) -> str:
        """Return the command that made it."""
        about = self.results.paper
        return f"./satlab reproduce {about.name} --clock {about.clock} --resume {self.folder}"


def write(folder: Path, results: PaperResults, path: Path) -> Path:
    """Write the page of a campaign's folder atomically and return its path."""
    figures = [figure for plot in results.paper.plots for figure in plots.draw(plot, results)]
    page = PaperPage(folder, results)
    content = html.page(
        "paper.html",
        figures,
        page=page,
        paper=results.paper,
        figures=figures,
        agreement_columns=AGREEMENT_COLUMNS,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return path
