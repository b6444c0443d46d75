# SPDX-License-Identifier: GPL-3.0-or-later
"""published.csv of a paper: the figures that it prints."""

import csv
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from satlab.common.errors import ConfigError, Fault

HINT = "docs/reproduce.md describes the columns"
REMEDIES = {
    "phase": "count the phases from 0",
    "mean": "write the number of the paper",
    "sd": "leave it empty if the paper has none",
}
"""What to do about a value of a column that is not a number."""


class Strict(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Published(Strict):
    """A figure of the paper, and its place in the paper. `cell`: an id, or its first parts."""

    cell: str
    algorithm: str
    metric: str
    phase: int = Field(ge=0)
    mean: FiniteFloat
    sd: FiniteFloat | None
    table: str
    paper_figure: str = ""

    def is_of(self, cell: str) -> bool:
        """Return whether this is a figure of the cell with this id, for any algorithm."""
        return self.cell == cell or cell.startswith(self.cell + "/")


def read(file: Path) -> dict[int, Published]:
    """Read published.csv: its rows by their lines; none without the file.

    Raises ConfigError with every value that cannot be used.
    """
    if not file.exists():
        return {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {error}", hint=HINT) from error
    numbers = [n for n, line in enumerate(lines, 1) if line and not line.startswith("#")]
    table = csv.DictReader([lines[n - 1] for n in numbers], restkey="a further column")
    rows: dict[int, Published] = {}
    faults: list[Fault] = []
    for number, row in zip(numbers[1:], table, strict=True):
        given = {name: value for name, value in row.items() if value is not None}
        if given.get("sd") == "":
            given["sd"] = None
        try:
            rows[number] = Published.model_validate(given)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                column = str(detail["loc"][0])
                faults.append(
                    Fault(f"{file}:{number}: {column}", detail["msg"], REMEDIES.get(column, ""))
                )
    refuse(file, faults)
    return rows


def refuse(file: Path, faults: Sequence[Fault]) -> None:
    """Raise ConfigError if there are faults."""
    if faults:
        raise ConfigError(f"{file} has values that cannot be used", faults, HINT)
