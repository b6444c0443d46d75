# SPDX-License-Identifier: GPL-3.0-or-later
"""A paper as a folder of data, `papers/NAME/`: paper.yml (links, matrix, rules, assumptions) and
published.csv.

Its cells are flows over one wire, or scenarios in labs. An optional real.yml has cells, rules and
plots that replace paper.yml's on the real clock.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from satlab.common import paths, yaml_text
from satlab.common.errors import ConfigError, Fault
from satlab.papers import published
from satlab.papers.figures import FIGURES
from satlab.papers.published import Published, Strict
from satlab.papers.shipped_papers import CLOCKS, Clock

LAB_S = 15.0
"""Time for a lab's start, calibration and end, and for the figures of its run, s."""
FEWEST = 2
"""Fewest runs of a cell that decide anything: runs differ by seed and start, on the real clock also
by the host.
"""
SPEED = 50
"""Speed of the virtual clock on one core, as a multiple of real time."""
ReturnQueue = Annotated[float, Field(gt=0)] | Literal["forward"]
"""Limit of the return direction's queue: bandwidth-delay products of its own rate, or the bytes of
the forward one.
"""
Stack = Literal["quinn", "noq", "quiche", "ngtcp2", "picoquic", "tcp"]
Control = Literal["reno", "cubic", "bbr", "bbr2", "bbr3"]
Value = bool | int | float | str


class Link(Strict):
    """A link; symmetric without `return_mbps`."""

    rate_mbps: float = Field(gt=0)
    return_mbps: float | None = Field(default=None, gt=0)
    rtt_ms: float = Field(gt=0)


class Stretch(Strict):
    """The link that carries the flow from a given time on, s."""

    at_s: float = Field(ge=0)
    link: str


class Assumption(Strict):
    """A fact that the paper does not state, and our assumption."""

    what: str
    assumed: str


class Flows(Strict):
    """Flows of a cell that differ only in their start, `stagger_s` apart. Stack and congestion
    control are the cell's by default. `life_s`: the flows are closed after this time. `options` are
    passed to `satvirtual flows` unchanged.
    """

    count: int = Field(default=1, ge=0)
    group: str = "all"
    stack: Stack | Literal["udp"] | None = None
    control: Control | None = None
    upload: bool = False
    start_s: float | None = None
    stagger_s: float = 0.0
    life_s: float | None = None
    bytes: int | None = None
    rate_mbps: float | None = None
    options: Mapping[str, Any] = {}


class ScenarioRun(Strict):
    """A shipped scenario over a shipped profile; `options` are those of the link, `values` those of
    `--set`.
    """

    scenario: str
    profile: str
    options: Mapping[str, Value] = {}
    values: Mapping[str, str] = {}


class Cell(Strict):
    """One experiment: flows, or the scenario `run`.

    `outage_s` follows each change of the link; `change_every_s` repeats the changes; `handover` is
    the treatment of waiting packets at a change; with `migrate` the client also takes another
    address. Both rates count `header_bytes` of each packet beyond IP. `base`: the cell that counts
    as 100 %. `factors`: the cell's values of `each`, for plots. `runs`: number of runs, in place of
    the paper's. `estimate_s`: duration of a run, if the paper's times do not give it. `cores`:
    number of cores for a run. `on_request`: the cell runs only if its last part is written out.
    """

    id: str = Field(pattern=r"^[a-z0-9.-]+(/[a-z0-9.-]+)+$")
    run: ScenarioRun | None = None
    estimate_s: float | None = Field(default=None, gt=0)
    cores: int = Field(default=1, ge=1)
    on_request: bool = False
    test: str | None = None
    runs: int | None = Field(default=None, ge=1)
    link: str | None = None
    return_mbps: float | None = Field(default=None, gt=0)
    header_bytes: int = Field(default=0, ge=0, le=255)
    queue: str = ""
    return_queue: ReturnQueue | None = None
    loss: str | None = None
    fec: str | None = None
    hystart: bool | None = None
    stack: Stack | None = None
    control: Control | None = None
    datagram_bytes: int | None = 1200
    flows: tuple[Flows, ...] = (Flows(),)
    duration_s: float | None = Field(default=None, gt=0)
    figures: tuple[str, ...] = ("goodput_mbps", "rtt_ms")
    published: str | None = None
    base: str | None = None
    outage_s: float | None = Field(default=None, gt=0)
    change_every_s: float | None = Field(default=None, gt=0)
    handover: Literal["keep", "flush", "drop"] | None = None
    migrate: bool = False
    factors: Mapping[str, str | float] = {}

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        if not self.run and not (self.queue and self.stack and self.control):
            raise ValueError("name queue, stack and control, or run")
        return self

    @property
    def algorithm(self) -> str:
        """Return stack and congestion control, or the scenario, as shown."""
        return self.run.scenario if self.run else f"{self.stack} {self.control}"

    def is_named_by(self, pattern: str) -> bool:
        """Return whether a pattern (`test4/*`) names it."""
        last = self.id.rpartition("/")[2]
        is_meant = not self.on_request or pattern.endswith(f"/{last}")
        return is_meant and fnmatchcase(self.id, pattern)


class Rule(Strict):
    """Bounds of a figure of a cell, or of its difference to another cell (`minus`) or ratio to
    another cell (`over`). They apply to each phase in `phases`, or to all.
    """

    figure: str
    of: str
    minus: str | None = None
    over: str | None = None
    phases: tuple[int, ...] = ()
    at_least: float | None = None
    at_most: float | None = None


class Conclusion(Strict):
    """A conclusion of the paper, and the rules that decide whether it holds here. `undecided` is
    the reason why these runs cannot decide it; the figures of the rules are shown nevertheless.
    """

    id: str
    text: str
    rules: tuple[Rule, ...] = ()
    undecided: str | None = None


class Agreement(Strict):
    """Bound for the agreement with published figures: the largest median of absolute relative
    deviations.
    """

    figure: str
    at_most: float = Field(gt=0)


class Substitute(Strict):
    """An algorithm that these cells have `here` in place of the paper's. A rule that needs such a
    cell is undecided.
    """

    cells: str
    here: str
    paper: str


class Long(Strict):
    """Number of runs of cells that are expected to take longer than `over_s`. A cell's own `runs`
    takes precedence.
    """

    over_s: float = Field(gt=0)
    runs: int = Field(ge=1)


class Plot(Strict):
    """A plot over cells.

    - `lines` and `bars`: one figure over the factor `x`, a series for each value of `series`.
      `formula` names a second figure, drawn as a line without marks.
    - `over_time`: goodput, window and RTT of cells whose ids differ in the last part only.
    - `area`: the working areas.
    - `flows`: goodput of each flow over time.
    - `received`: bytes and goodput of bulk transfers over time. Each of the `pairs` names the last
      parts of two ids, whose ratio is drawn.
    """

    kind: Literal["lines", "bars", "over_time", "area", "flows", "received"]
    cells: str
    title: str = ""
    caption: str = ""
    figure: str = "goodput_mbps"
    formula: str | None = None
    x: str = ""
    series: tuple[str, ...] = ()
    phase: int = 0
    pairs: tuple[tuple[str, str], ...] = ()


class Grid(Strict):
    """A table over cells, with a row for each value of the factor `rows`.

    With `columns` there is a column for each value of that factor, and `figures` has one name.
    `only` selects values of `columns` and their order. Without `columns` there is a column for each
    of the `figures`. With `published` the paper's figure follows in brackets.
    """

    title: str
    cells: str
    figures: tuple[str, ...] = Field(min_length=1)
    rows: str
    columns: str | None = None
    only: tuple[str, ...] = ()
    phase: int = 0
    published: bool = False


class Paper(Strict):
    """paper.yml, with the fields that real.yml replaces under the real clock, and the `published`
    figures.
    """

    schema_: Literal["satlab/paper/1"] = Field(alias="schema")
    name: str
    known_as: str
    title: str
    source: str
    clock: Clock = "virtual"
    runs: int = Field(default=5, ge=1)
    least_runs: int = Field(default=3, ge=FEWEST)
    long: Long | None = None
    start_within_s: float = Field(default=0.5, ge=0)
    duration_s: float = Field(gt=0)
    phases_s: tuple[float, ...] = ()
    phases: tuple[str, ...]
    links: Mapping[str, Link] = {}
    path: tuple[Stretch, ...] = ()
    return_queue: ReturnQueue = 10
    fec_hold_ms: int = Field(default=0, ge=0)
    assumptions: tuple[Assumption, ...]
    queues: Mapping[str, Mapping[str, Any]] = {}
    losses: Mapping[str, Any] = {}
    quick: tuple[str, ...]
    cells: tuple[Cell, ...]
    conclusions: tuple[Conclusion, ...]
    plots: tuple[Plot, ...]
    grids: tuple[Grid, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    substitutes: tuple[Substitute, ...] = ()
    groups: Mapping[str, str] = {}
    factor_titles: Mapping[str, str] = {}
    published: tuple[Published, ...] = ()

    def select(self, patterns: Sequence[str] | None, *, quick: bool) -> list[Cell]:
        """Return the cells that match a pattern (`test4/*`), or all; with `quick` the cells of the
        paper's quick patterns, which suffice for every conclusion. Raises ConfigError for a pattern
        without a match.
        """
        for pattern in patterns or ():
            if not any(cell.is_named_by(pattern) for cell in self.cells):
                known = ", ".join(
                    dict.fromkeys(f"{cell.id.split('/')[0]}/*" for cell in self.cells)
                )
                raise ConfigError(
                    f"--cells {pattern}: no such cell", hint=f"{known}; --dry-run names every cell"
                )
        chosen = patterns if patterns is not None else self.quick if quick else ("*",)
        return [cell for cell in self.cells if any(map(cell.is_named_by, chosen))]

    def expected_s(self, cell: Cell) -> float:
        """Return the expected duration of a run of a cell, s: the published time of its download,
        else the cell's whole time.
        """
        whole_s = cell.duration_s or self.duration_s
        times = [row for row in self.published if row.metric == "complete_s" and row.is_of(cell.id)]
        same = [row for row in times if row.algorithm == cell.published]
        return min(whole_s, max((row.mean for row in same or times), default=whole_s))

    def estimate_s(self, cell: Cell) -> float:
        """Return the estimated duration of a run of a cell on this clock, including a lab if it has
        one, s.
        """
        if cell.estimate_s is not None:
            return cell.estimate_s
        expected_s = self.expected_s(cell)
        return expected_s + LAB_S if self.clock == "real" else expected_s / SPEED

    def runs_of(self, cell: Cell) -> int:
        """Return the default number of runs of a cell."""
        if cell.runs is None and self.long is not None and self.expected_s(cell) > self.long.over_s:
            return self.long.runs
        return cell.runs or self.runs

    def needed_of(self, cell: Cell) -> int:
        """Return the number of runs in calibration of a cell that a conclusion needs: fewer than
        `least_runs` if the cell has fewer by default, but never one, because runs differ.
        """
        return max(FEWEST, min(self.least_runs, self.runs_of(cell)))

    def substitute_of(self, cell: str) -> Substitute | None:
        """Return what a cell has in place of the paper's algorithm."""
        return next((one for one in self.substitutes if fnmatchcase(cell, one.cells)), None)


def expand(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the cells of an entry: one for each combination of the values of `each`, which replace
    `{name}`.

    A value that is a mapping replaces each of its names; its first value then is the factor.
    """
    each = entry.get("each", {})
    cells = []
    for values in itertools.product(*each.values()):
        chosen = dict(zip(each, values, strict=True))
        names = {k: v for name, value in chosen.items() for k, v in _names(name, value).items()}
        factors = {name: _factor(value) for name, value in chosen.items()}
        cells.append(
            {"factors": factors, **_fill({k: v for k, v in entry.items() if k != "each"}, names)}
        )
    return cells


def _names(name: str, value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {name: value}


def _factor(value: Any) -> str | float:
    first = next(iter(value.values())) if isinstance(value, Mapping) else value
    return first if isinstance(first, str) else float(first)


def _fill(value: Any, factors: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        alone = value[1:-1] if value.startswith("{") and value.endswith("}") else ""
        return factors[alone] if alone in factors else value.format_map(factors)
    if isinstance(value, Mapping):
        return {name: _fill(part, factors) for name, part in value.items()}
    return [_fill(part, factors) for part in value] if isinstance(value, list) else value


def clock_of(name: str, asked: Clock | None) -> Clock:
    """Return the clock of a paper's runs, its default if none is asked for.

    Raises ConfigError: the paper has no runs on that clock.
    """
    clocks = CLOCKS[name]
    if asked is not None and asked not in clocks:
        raise ConfigError(
            f"{name} has no runs on the {asked} clock, only on the {clocks[0]} clock",
            hint=f"clock {clocks[0]}, or leave the clock out",
        )
    return asked or clocks[0]


def load(name: str, clock: Clock = "virtual") -> Paper:
    """Read a paper's folder.

    Raises ConfigError with every fault, also of names that refer to nothing.
    """
    folder = paths.PAPERS / name
    file = folder / "paper.yml"
    rows = published.read(folder / "published.csv")
    try:
        content = yaml_text.read(file)
        cells_of_clocks = _cells(content)
        if (folder / "real.yml").exists():
            real = yaml_text.read(folder / "real.yml")
            cells_of_clocks += _cells(real)
            if clock == "real":
                file = folder / "real.yml"
                content |= real
        content["cells"] = _cells(content)
        content["conclusions"] = [
            {name: value for name, value in one.items() if name != "factors"}
            for entry in content["conclusions"]
            for one in expand(entry)
        ]
        content["published"] = tuple(rows.values())
        paper = Paper.model_validate(content)
        every = [Cell.model_validate(cell) for cell in cells_of_clocks]
    except (OSError, ValidationError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{file}: {error}", hint="docs/reproduce.md describes a paper's folder"
        ) from error
    faults = [*_cell_faults(paper), *_rule_faults(paper), *_grid_faults(paper)]
    faults += [
        f"agreements: no figure {one.figure}"
        for one in paper.agreements
        if one.figure not in FIGURES
    ]
    faults += [
        f"substitutes: no cell {one.cells}"
        for one in paper.substitutes
        if not any(fnmatchcase(cell.id, one.cells) for cell in paper.cells)
    ]
    faults += [f"path: no link {s.link}" for s in paper.path if s.link not in paper.links]
    faults += [
        f"quick: no cell {p}" for p in paper.quick if not any(c.is_named_by(p) for c in paper.cells)
    ]
    if faults:
        raise ConfigError(f"{file}: {'; '.join(faults)}", hint="name what is there")
    published.refuse(
        folder / "published.csv",
        [
            fault
            for number, row in rows.items()
            for fault in _row_faults(f"{folder / 'published.csv'}:{number}", row, paper, every)
        ],
    )
    return paper


def _cells(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [cell for entry in content["cells"] for cell in expand(entry)]


def _row_faults(place: str, row: Published, paper: Paper, cells: Sequence[Cell]) -> Iterator[Fault]:
    """Yield the faults of a published figure, which is of one of the `cells` of either clock."""
    of_row = [cell for cell in cells if row.is_of(cell.id)]
    same = [cell for cell in of_row if cell.published == row.algorithm]
    if row.phase >= len(paper.phases):
        yield Fault(f"{place}: phase", f"there is no phase {row.phase}", "count from 0")
    if not of_row:
        remedy = "write an id of paper.yml, or its first parts"
        yield Fault(f"{place}: cell", f"there is no cell {row.cell}", remedy)
    elif not same:
        reason = f"no cell of {row.cell} is `published` for {row.algorithm}"
        yield Fault(f"{place}: algorithm", reason, "name it in the cell")
    elif not any(row.metric in cell.figures for cell in same):
        reason = f"no cell of {row.cell} with {row.algorithm} has the figure {row.metric}"
        yield Fault(f"{place}: metric", reason, "name it in the cell's `figures`")


def _cell_faults(paper: Paper) -> list[str]:
    ids = [cell.id for cell in paper.cells]
    count = Counter(name.replace("/", "-") for name in ids)  # names of folders
    faults = [f"cells: {known}: is there twice" for known, times in count.items() if times > 1]
    for cell in paper.cells:
        named: list[tuple[str, str | None, Any]] = [
            ("queue", cell.queue, paper.queues),
            ("loss", cell.loss, paper.losses),
            ("link", cell.link, paper.links),
            ("base", cell.base, ids),
        ]
        faults += [
            f"cells: {cell.id}: no {what} {which}"
            for what, which, known in named
            if which and which not in known
        ]
        faults += [f"cells: {cell.id}: no figure {f}" for f in cell.figures if f not in FIGURES]
    return faults


def _grid_faults(paper: Paper) -> list[str]:
    faults = []
    for grid in paper.grids:
        cells = [cell for cell in paper.cells if fnmatchcase(cell.id, grid.cells)]
        named = {grid.rows, *filter(None, [grid.columns])}
        faults += [f"grids: {grid.title}: no cell {grid.cells}"] if not cells else []
        faults += [
            f"grids: {grid.title}: {cell.id} has no factor or figure of it"
            for cell in cells
            if not named <= set(cell.factors) or not set(grid.figures) <= set(cell.figures)
        ]
    return faults


def _rule_faults(paper: Paper) -> list[str]:
    figures = {cell.id: cell.figures for cell in paper.cells}
    faults = []
    for conclusion in paper.conclusions:
        for rule in conclusion.rules:
            named = [
                known
                for known in (rule.of, rule.minus, rule.over)
                if known is not None and known != "*"
            ]
            faults += [
                f"conclusions: {conclusion.id}: no cell {known}"
                for known in named
                if known not in figures
            ]
            faults += [
                f"conclusions: {conclusion.id}: {known} has no figure {rule.figure}"
                for known in named
                if known in figures and rule.figure not in figures[known]
            ]
    return faults
