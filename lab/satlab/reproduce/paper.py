# SPDX-License-Identifier: GPL-3.0-or-later
"""A paper as a folder of data, `baselines/NAME/`: paper.yml (links, matrix, rules, assumptions) and published.csv.

A paper that is data alone needs no code of its own: its cells are flows over one wire under the virtual clock.
"""

import csv
import random
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from satlab.common import paths
from satlab.common.errors import ConfigError

START_S = 0.5
"""A run starts at a moment of its own within this time."""
BIN_MS = 100


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Link(_Strict):
    """A symmetric link."""

    rate_mbps: float = Field(gt=0)
    rtt_ms: float = Field(gt=0)


class Stretch(_Strict):
    """The link that carries the flow from a moment on, s."""

    at_s: float = Field(ge=0)
    link: str


class Assumption(_Strict):
    """What the paper does not say, and what is assumed."""

    what: str
    assumed: str


class Cell(_Strict):
    """One experiment. `outage_s` follows each change of the link; `change_every_s` repeats the changes."""

    id: str = Field(pattern=r"^[a-z0-9-]+(/[a-z0-9-]+)+$")
    test: str | None = None
    queue: str
    stack: Literal["quinn", "noq"]
    control: Literal["reno", "cubic", "bbr3"]
    published: str | None = None
    quick: bool = False
    outage_s: float | None = Field(default=None, gt=0)
    change_every_s: float | None = Field(default=None, gt=0)


class Rule(_Strict):
    """Bounds of a difference between two cells, in each phase named; of one cell without `minus`."""

    figure: Literal["goodput_mbps", "rtt_ms", "failed"]
    of: str
    minus: str | None = None
    phases: tuple[int, ...] = ()
    at_least: float | None = None
    at_most: float | None = None


class Conclusion(_Strict):
    """What the paper concludes, and when it holds here."""

    id: str
    text: str
    rules: tuple[Rule, ...]


class Published(_Strict):
    """A figure of the paper and where it stands."""

    cell: str
    algorithm: str
    metric: str
    phase: int
    mean: float
    sd: float
    table: int
    paper_figure: str


class Paper(_Strict):
    """paper.yml."""

    schema_: Literal["satlab/paper/1"] = Field(alias="schema")
    name: str
    title: str
    source: str
    duration_s: float = Field(gt=0)
    phases_s: tuple[float, ...]
    phases: tuple[str, ...]
    links: Mapping[str, Link]
    path: tuple[Stretch, ...]
    assumptions: tuple[Assumption, ...]
    queues: Mapping[str, Mapping[str, Any]]
    cells: tuple[Cell, ...]
    conclusions: tuple[Conclusion, ...]

    def select(self, patterns: Sequence[str] | None, *, quick: bool) -> list[Cell]:
        """Return the cells that a pattern names (`test4/*`), or all; with `quick` those marked so, which serve every
        conclusion. Raises ConfigError for a pattern that names none.
        """
        for pattern in patterns or ():
            if not any(fnmatchcase(cell.id, pattern) for cell in self.cells):
                known = ", ".join(cell.id for cell in self.cells)
                raise ConfigError(f"--cells {pattern}: no such cell", hint=f"* matches any of: {known}")
        named = [cell for cell in self.cells if patterns is None or any(fnmatchcase(cell.id, p) for p in patterns)]
        return [cell for cell in named if cell.quick] if quick and patterns is None else named

    def published(self) -> list[Published]:
        """Read published.csv. Raises ConfigError for a row that cannot be used."""
        file = paths.BASELINES / self.name / "published.csv"
        try:
            lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
            return [Published.model_validate(row) for row in csv.DictReader(lines)]
        except (OSError, ValidationError) as error:
            raise ConfigError(f"{file}: {error}", hint="docs/reproduce.md names the columns") from error

    def flows(self, cell: Cell, number: int) -> dict[str, Any]:
        """Return the run of a number, which is its seed, for `satvirtual flows`."""
        first = self.links[self.path[0].link]
        half = {"rate_mbps": first.rate_mbps, "delay_ms": first.rtt_ms / 2, "queue": dict(self.queues[cell.queue])}
        back = {**half, "queue": {"bytes": 10 * round(first.rate_mbps * first.rtt_ms * 125)}}
        return {
            "schema": "satlab/virtual-flows/1",
            "seed": number,
            "duration_s": self.duration_s,
            "bin_ms": BIN_MS,
            "phases_s": list(self.phases_s),
            "wire": {"forward": half, "return": back, "timeline": self._timeline(cell)},
            "flows": [
                {
                    "id": "flow",
                    "from": "server1",
                    "to": "client1",
                    "stack": cell.stack,
                    "congestion_control": cell.control,
                    "start_s": round(random.Random(number).uniform(0, START_S), 6),  # noqa: S311 - a phase, not a secret
                    "datagram_bytes": 1200,
                }
            ],
        }

    def _timeline(self, cell: Cell) -> list[dict[str, Any]]:
        stretches = self.path[1:]
        if cell.change_every_s is not None:
            count = int(self.duration_s / cell.change_every_s)
            stretches = tuple(
                Stretch(at_s=n * cell.change_every_s, link=self.path[n % len(self.path)].link)
                for n in range(1, count + 1)
                if n * cell.change_every_s < self.duration_s
            )
        outage = {} if cell.outage_s is None else {"outage_s": cell.outage_s}
        return [
            {
                "at_s": stretch.at_s,
                "direction": "both",
                "rate_mbps": self.links[stretch.link].rate_mbps,
                "delay_ms": self.links[stretch.link].rtt_ms / 2,
                **outage,
            }
            for stretch in stretches
        ]


def load(name: str) -> Paper:
    """Read a paper's folder. Raises ConfigError with every fault, also of names that refer to nothing."""
    file = paths.BASELINES / name / "paper.yml"
    try:
        paper = Paper.model_validate(yaml.safe_load(file.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"{file}: {error}", hint="docs/reproduce.md describes a paper's folder") from error
    cells = {cell.id for cell in paper.cells}
    faults = [f"cells: {cell.id}: no queue {cell.queue}" for cell in paper.cells if cell.queue not in paper.queues]
    faults += [f"path: no link {s.link}" for s in paper.path if s.link not in paper.links]
    faults += [
        f"conclusions: {conclusion.id}: no cell {known}"
        for conclusion in paper.conclusions
        for rule in conclusion.rules
        for known in (rule.of, rule.minus)
        if known is not None and known != "*" and known not in cells
    ]
    if faults:
        raise ConfigError(f"{file}: {'; '.join(faults)}", hint="name what is there")
    return paper
