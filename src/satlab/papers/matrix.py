# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of Kosek et al., IFIP Networking 2022, section III: 2 orbits x 4 losses x 8
measurement types.

More types are not in the paper and run only if named: QUIC and HTTP/3 through proxies with a
warmed-up connection, and TCP and HTTP/1.1 over a link that loses what OpenSAND 8.2.0 loses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from satlab.common.errors import ConfigError
from satlab.common.paths import SCENARIOS
from satlab.link.options import LinkOptions
from satlab.run.scenario_run import RunRequest

ORBITS = ("geo", "leo")
LOSSES = ("0", "0.01", "0.1", "1")
"""Percent, as in the paper."""


@dataclass(frozen=True)
class MeasurementType:
    """A measurement type of section II-C: the scenario and its settings;

    `guess_s` is what a run of it may take.

    `defects`: the link has OpenSAND's losses and FIFOs; the published figures are those of the type
    without them.
    """

    scenario: str
    settings: Mapping[str, str]
    guess_s: float
    browser: bool = False
    defects: bool = False


_PAPER = {
    "quic": MeasurementType("quic", {"pep": "none"}, 38),
    "quic-pep": MeasurementType("quic", {"pep": "quic"}, 38),
    "tcp": MeasurementType("tcp", {"pep": "none"}, 38),
    "tcp-pep": MeasurementType("tcp", {"pep": "haproxy"}, 38),
    "h3": MeasurementType("web_quic", {"pep": "none"}, 30, browser=True),
    "h3-pep": MeasurementType("web_quic", {"pep": "quic-h3-capable"}, 30, browser=True),
    "h1": MeasurementType("web_tcp", {"protocol": "h1", "pep": "none"}, 30, browser=True),
    "h1-pep": MeasurementType("web_tcp", {"protocol": "h1", "pep": "haproxy"}, 30, browser=True),
}
DEFECTS = "-defects"
"""End of the names of types over a link with OpenSAND's defects."""
KINDS: Mapping[str, MeasurementType] = {
    **_PAPER,
    "quic-warm": MeasurementType("quic", {"pep": "quic-warm"}, 38),
    "h3-warm": MeasurementType("web_quic", {"pep": "quic-warm"}, 30, browser=True),
    **{
        f"{name}{DEFECTS}": replace(_PAPER[name], defects=True)
        for name in ("tcp", "tcp-pep", "h1", "h1-pep")
    },
}
OURS = tuple(KINDS.keys() - _PAPER.keys())


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix; `loss` in percent."""

    orbit: str
    loss: str
    kind: str

    @property
    def name(self) -> str:
        """Name the cell, such as geo/0.01/h3-pep."""
        return f"{self.orbit}/{self.loss}/{self.kind}"

    @property
    def loss_ratio(self) -> float:
        """Return the loss as a ratio."""
        return round(float(self.loss) / 100, 6)

    @property
    def browser(self) -> bool:
        """Return whether its runs start a browser, which needs two cores."""
        return KINDS[self.kind].browser

    @property
    def needs_quic(self) -> bool:
        """Whether a run starts satperf or satpep's QUIC proxy."""
        kind = KINDS[self.kind]
        return kind.scenario == "quic" or kind.settings["pep"].startswith("quic")

    def request(self, number: int, runs: Path) -> RunRequest:
        """Return the run of a number (its seed):

        OpenSAND's timing, whole DVB frames lost in both directions.
        """
        kind = KINDS[self.kind]
        link = LinkOptions(
            profile=self.orbit,
            seed=number,
            loss=self.loss_ratio,
            loss_unit="frame",
            timing="opensand",
            opensand_defects=kind.defects,
        )
        return RunRequest(
            SCENARIOS / f"{kind.scenario}.json", link, kind.settings, runs, report=False
        )


EVERY = tuple(Cell(orbit, loss, kind) for orbit in ORBITS for loss in LOSSES for kind in KINDS)
ALL = tuple(cell for cell in EVERY if cell.kind not in OURS)
"""The paper's."""


def select(patterns: Sequence[str]) -> list[Cell]:
    """Return the cells that at least one pattern names (`geo/0/h1`, `*/0/h3*`), in the paper's
    order; without a pattern the paper's cells.

    Raises ConfigError for a pattern that names no cell.
    """
    for pattern in patterns:
        if not any(_names(pattern, cell) for cell in EVERY):
            hint = (
                f"ORBIT/LOSS/TYPE: {'|'.join(ORBITS)} / {'|'.join(LOSSES)} (%) / {'|'.join(KINDS)};"
                " * matches any"
            )
            raise ConfigError(f"--cells {pattern}: no such cell", hint=hint)
    if not patterns:
        return list(ALL)
    return [cell for cell in EVERY if any(_names(pattern, cell) for pattern in patterns)]


def _names(pattern: str, cell: Cell) -> bool:
    """Return whether a pattern names a cell.

    `*` stands for the paper's types only; others must be written out.
    """
    is_meant = cell.kind not in OURS or pattern.endswith(f"/{cell.kind}")
    return is_meant and fnmatchcase(cell.name, pattern)


def arguments(request: RunRequest) -> list[str]:
    """Return the arguments of `satlab` for a run."""
    link = request.link
    words = ["run", str(request.scenario), "--runs", str(request.runs), "--profile", link.profile]
    words += ["--seed", str(link.seed), "--loss", f"{link.loss:g}", "--loss-unit", link.loss_unit]
    words += ["--timing", link.timing, *(["--opensand-defects"] if link.opensand_defects else [])]
    words += ["--no-report", "--quiet", "--json"]
    return words + [
        word for name, value in request.settings.items() for word in ("--set", f"{name}={value}")
    ]
