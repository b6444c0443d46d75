# SPDX-License-Identifier: GPL-3.0-or-later
"""Stored checks of one suite as one page: cases by stacks, and the history of each stack; a badge
of the last check.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape as html_escape
from pathlib import Path

from satlab.check import check_file, verdict
from satlab.check.check_file import CheckFile
from satlab.check.report import check_tables
from satlab.check.report.check_tables import RESULT_WORDS
from satlab.check.trace import causes
from satlab.common import escape
from satlab.common.errors import ConfigError
from satlab.report import html
from satlab.report.page import Axis, Page, Plot, Section, Series, State, Table, Tile, Tiles

Key = tuple[str, float | None]
"""A case, and one of its marks in MB; None: a test case as a whole."""
NOT_RUN = "not run"
_CHARACTER_PX = 6.5


@dataclass(frozen=True)
class StackMatrix:
    """Checks of one suite by stack, each in the order in which they began."""

    checks: Mapping[str, Sequence[CheckFile]]

    @property
    def title(self) -> str:
        return f"{self._newest[0]['suite']}: {len(self.checks)} stacks"

    @property
    def _newest(self) -> list[CheckFile]:
        return [history[-1] for history in self.checks.values()]

    def table(self) -> Table:
        """Return the cases by stacks. Each cell has the median in s, the verdict and the main cause
        of the stack's newest check.
        """
        head = ("case", "MB", "target s", "floor s", *self.checks)
        keys = dict.fromkeys(key for one in self._newest for key in check_file.verdicts(one))
        title = f"{self._newest[0]['suite']}: median s, verdict, main cause"
        return check_tables.table(title, head, [self._row(key) for key in keys])

    def _row(self, key: Key) -> tuple[str, ...]:
        case, mark = key
        known = [one for one in self._newest if key in check_file.verdicts(one)]
        target_s = check_file.verdicts(known[0])[key]["target_s"]
        floors_s = [floor for one in known if (floor := _floor_s(one, key)) is not None]
        return (
            case,
            "all" if mark is None else f"{mark:g}",
            "" if target_s is None else f"{target_s:g}",
            f"{min(floors_s):.2f}" if floors_s else "",
            *(_cell(one, key) for one in self._newest),
        )

    def tiles(self) -> list[Tile]:
        """Return tiles: the number of targets that each stack meets, or of test cases that it
        passes.
        """
        found = []
        for stack, history in self.checks.items():
            met, judged, what = targets_met(history[-1])
            if judged:
                state: State = "good" if met == judged else "bad"
                found.append(Tile(f"{met}/{judged}", f"{what}: {stack}", state=state))
            else:
                count = len(check_file.verdicts(history[-1]))
                found.append(Tile(str(count), f"figures, none with a target: {stack}"))
        return found

    def trends(self) -> list[Plot]:
        """Plot the medians of each stack with several checks over these checks, for the last mark
        of each case.
        """
        stacks = {stack: history for stack, history in self.checks.items() if len(history) > 1}
        last = {case: mark for one in self._newest for case, mark in check_file.verdicts(one)}
        plots = (_trend(number, key, stacks) for number, key in enumerate(last.items()))
        return [plot for plot in plots if plot is not None]

    def page(self) -> Page:
        """Return the page of these checks."""
        sections = [Section.of(self.table())]
        if trends := self.trends():
            sections.append(Section("History", trends))
        return Page("satlab matrix", self.title, [Tiles(self.tiles())], sections)


def read(files: Iterable[Path]) -> StackMatrix:
    """Read checks of one suite.

    Raises:
        ConfigError: there is no check, a file is not a check.json, or the checks are of several
        suites.
    """
    documents = [check_file.read(file) for file in files]
    suites = sorted({one["suite"] for one in documents})
    if len(suites) != 1:
        raise ConfigError(f"checks of one suite are needed, not of {', '.join(suites) or 'none'}")
    documents.sort(key=lambda one: one.get("began_unix_s", 0.0))
    stacks: dict[str, list[CheckFile]] = {}
    for one in documents:
        stacks.setdefault(_stack_name(one, documents), []).append(one)
    return StackMatrix(stacks)


def _stack_name(one: CheckFile, documents: Sequence[CheckFile]) -> str:
    """Name the stack of a check. Checks with the same stack but other programs, options or
    variables are named by these, too: their history is not that of one stack.
    """
    alike = [
        other
        for other in documents
        if (other["stack"], other["clock"]) == (one["stack"], one["clock"])
    ]
    own = _arguments(one)
    common = set(own).intersection(*map(_arguments, alike))
    differing = [word for word in own if word not in common]
    return ", ".join([f"{one['stack']} ({one['clock']} clock)", *differing])


def _arguments(one: CheckFile) -> list[str]:
    """Return what distinguishes stacks of the same name: paths of programs, options, variables."""
    programs = one.get("provenance", {}).get("programs", [])
    return [
        *dict.fromkeys(program["path"] for program in programs),
        *(
            f"{side} {name}={value}"
            for settings in (one["options"], one.get("environment", {}))
            for side, values in settings.items()
            for name, value in values.items()
        ),
    ]


def write(matrix: StackMatrix, path: Path) -> None:
    """Write the page, atomically."""
    html.write(matrix.page(), path)


def targets_met(document: CheckFile) -> tuple[int, int, str]:
    """Return the number of targets that a check met, their total, and their name (see
    `verdict.met`).
    """
    return verdict.met(
        (one["mark_mb"], one["target_s"], one["result"])
        for one in check_file.verdicts(document).values()
    )


def badge(matrix: StackMatrix) -> str:
    """Return an SVG image with the targets that the newest check meets."""
    newest = max(
        (history[-1] for history in matrix.checks.values()),
        key=lambda one: one.get("began_unix_s", 0.0),
    )
    met, judged, what = targets_met(newest)
    texts = (
        f"satellite {newest['suite']}",
        f"{met}/{judged} {what}" if judged else "measured, no targets",
    )
    left, right = (round(_CHARACTER_PX * len(text)) + 10 for text in texts)
    colour = "#616161" if not judged else "#2e7d32" if met == judged else "#b71c1c"
    label = html_escape(escape.xml(f"{texts[0]}: {texts[1]}"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img"'
        f' aria-label="{label}"><rect width="{left}" height="20" fill="#424242"/><rect x="{left}"'
        f' width="{right}" height="20" fill="{colour}"/><g fill="#fff"'
        ' font-family="Verdana,sans-serif" font-size="11" text-anchor="middle"><text'
        f' x="{left / 2:g}" y="14">{html_escape(escape.xml(texts[0]))}</text><text'
        f' x="{left + right / 2:g}" y="14">{html_escape(escape.xml(texts[1]))}</text></g></svg>\n'
    )


def _cell(document: CheckFile, key: Key) -> str:
    one = check_file.verdicts(document).get(key)
    if one is None:
        return NOT_RUN
    spent_s = next(case["spent_s"] for case in document["cases"] if case["id"] == key[0])
    word = RESULT_WORDS.get(one["result"], one["result"])
    median = "never" if one["median_s"] is None else f"{one['median_s']:.3f}"
    cause = f", {causes.largest(spent_s)}" if spent_s else ""
    return f"{median} {word}{cause}"


def _floor_s(document: CheckFile, key: Key) -> float | None:
    case, mark = key
    samples = next(one["samples"] for one in document["cases"] if one["id"] == case)
    floors_s = dict(zip(document["marks_mb"], samples[0].floors_s, strict=False))
    return None if mark is None else floors_s.get(mark)


def _trend(number: int, key: Key, stacks: Mapping[str, Sequence[CheckFile]]) -> Plot | None:
    """Plot one case; None if no stack has two medians."""
    lines, rows = [], []
    for style, (stack, history) in enumerate(stacks.items()):
        found = [
            (at, check_file.verdicts(one)[key]["median_s"])
            for at, one in enumerate(history, 1)
            if key in check_file.verdicts(one)
        ]
        measured = [(at, median_s) for at, median_s in found if median_s is not None]
        if len(measured) > 1:
            at, medians_s = zip(*measured, strict=True)
            lines.append(Series(stack, at, medians_s, "marked line", style))
        rows += [
            (stack, _date(history[at - 1]), "never" if s is None else f"{s:.3f}") for at, s in found
        ]
    if not lines:
        return None
    case, mark = key
    return Plot(
        key=f"trend-{number}",
        title=case if mark is None else f"{case}, {mark:g} MB",
        caption="Checks in the order in which they began.",
        x=Axis("Check", step=1),
        y=(Axis("Median (s)", from_zero=True),),
        series=lines,
        height=280,
        table=Table(("stack", "began", "median s"), rows, numbers=("began", "median s")),
    )


def _date(document: CheckFile) -> str:
    began = document.get("began_unix_s")
    return "unknown" if began is None else f"{datetime.fromtimestamp(began, UTC):%Y-%m-%d %H:%M}"
