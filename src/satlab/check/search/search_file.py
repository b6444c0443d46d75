# SPDX-License-Identifier: GPL-3.0-or-later
"""search.json (satlab/search/1): the inputs, progress and findings of a search."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import satlab
from satlab.check.search.faults import Kind
from satlab.common.errors import ConfigError, Fault
from satlab.common.files import write_atomically

FILE = "search.json"
Reference = Literal["quinn", "noq", "arithmetic"]
Options = dict[str, int | str]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class Input(_Model):
    """The inputs on which a search's result depends. `base`: the values of the case by quantity.

    `share`, `stall_rtts`: judge.Limits. `environment`: variables of the programs, by side.
    """

    suite: str
    case: str
    base: dict[str, float]
    stack: str
    reference: Reference
    options: dict[str, Options]
    environment: dict[str, dict[str, str]]
    seed: Count
    share: Annotated[float, Field(gt=0, lt=1)]
    stall_rtts: Annotated[float, Field(gt=0, le=1000)]
    largest_mb: Annotated[float, Field(gt=0, le=1000)]


class Finding(_Model):
    """A fault, and the simplest condition that has it: the values of the case, but for `changes`.

    `trial` found the fault with `seed`; `seen` trials found it in all. `is_shrunk`: no single value
    can be reset without losing the fault. Fields of this condition's transfer: `reason` if it
    failed; `time_s` until its last byte (null: never); `reference_s`, the reference's time;
    `wait_s`, the longest time without progress (null: unknown). `repeats` of `repeats_of` other
    seeds have the fault as well. `suite`: the file that `satlab check --suite FILE` runs.
    """

    kind: Kind
    changes: dict[str, float]
    seed: Count
    trial: Count
    seen: Annotated[int, Field(ge=1)] = 1
    is_shrunk: bool = False
    reason: str = ""
    time_s: Seconds | None = None
    reference_s: Seconds | None = None
    wait_s: Seconds | None = None
    repeats: Count = 0
    repeats_of: Count = 0
    suite: str | None = None


class SearchRecord(_Model):
    """search.json of satlab check --search.

    `trials`: number of trials done. `not_judged`: number of these on whose link the reference had
    the same fault or did not end. `evaluations`: number of transfers under test, including
    shrinking. `real_s`: duration of all resumed parts together.
    """

    schema_: Literal["satlab/search/1"] = Field(default="satlab/search/1", alias="schema")
    version: str = satlab.__version__
    input: Input
    trials: Count = 0
    not_judged: Count = 0
    evaluations: Count = 0
    real_s: Seconds = 0.0
    findings: list[Finding] = []

    def write(self, folder: Path) -> None:
        """Replace the file in a folder."""
        write_atomically(folder / FILE, self.model_dump_json(by_alias=True, indent=1) + "\n")


def load(folder: Path, expected: Input) -> SearchRecord:
    """Read the search of a folder, to continue it.

    Raises:
        ConfigError: there is no search, or it had other inputs.
    """
    file = folder / FILE
    try:
        found = SearchRecord.model_validate_json(file.read_text())
    except OSError as error:
        raise ConfigError(
            f"{file}: {error.strerror}", hint="name the folder of an earlier search"
        ) from error
    except ValidationError as error:
        faults = [
            Fault(".".join(map(str, one["loc"])), one["msg"])
            for one in error.errors(include_url=False)
        ]
        raise ConfigError(f"{file} is not a valid satlab/search/1 file", faults) from error
    own, other = expected.model_dump(), found.input.model_dump()
    faults = [
        Fault(name, f"it was {other[name]}, now it is {own[name]}")
        for name in own
        if own[name] != other[name]
    ]
    if faults:
        raise ConfigError(
            f"{folder} is another search", faults, hint="use the same options, or omit --resume"
        )
    return found
