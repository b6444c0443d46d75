# SPDX-License-Identifier: GPL-3.0-or-later
"""A suite of targets, `baselines/*.yml` (satlab/suite/1): links, transfers and the times they should take."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from satlab.common.errors import ConfigError, Fault
from satlab.link.config import LossProcess

MB = 1_000_000
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SuiteLink(_Model):
    """What all links of a suite share: round-trip time without frames, ms; queue of each direction in its own BDP."""

    rtt_ms: float = Field(gt=500, le=2000)
    queue_bdp: float = Field(gt=0, le=100)


class Change(_Model):
    """The forward rate (Mbit/s) from a moment on, s after the start of the transfer."""

    at_s: float = Field(ge=0, le=3600)
    forward_mbps: float = Field(gt=0.1, le=1000)


class Case(_Model):
    """One link, one transfer, and how long it may take until each of the suite's marks; None: to be determined.

    Rates in Mbit/s of full-size IP packets; `rtt_ms` in place of the suite's. `loss` acts in both directions. With
    `second_after_s` the case is about a second transfer that starts so long after the end of the first one, which it
    may remember. `reference_s` are times of the suite's `reference`, which are shown and never judged.

    `test` makes it a test case of the QUIC interop runner for its endpoints: files of `files_bytes` (names of
    `name_length`), whether so many handshakes and a Retry must show. `server_test`: where the server's is another one.
    `lacking` says why there is no such case here.
    """

    id: Name
    forward_mbps: float = Field(gt=0.1, le=1000)
    return_mbps: float = Field(ge=0.05, le=100)
    rtt_ms: float | None = Field(default=None, gt=500, le=2000)
    direction: Literal["download", "upload"] = "download"
    loss: LossProcess | None = None
    changes: tuple[Change, ...] = ()
    second_after_s: float | None = Field(default=None, gt=0, le=1000)
    targets_s: tuple[float | None, ...] = ()
    reference_s: tuple[float | None, ...] = ()
    timeout_s: float = Field(default=300, gt=0, le=3600)
    test: Name | None = None
    server_test: Name | None = None
    files_bytes: tuple[Annotated[int, Field(ge=1, le=1 << 30)], ...] = Field(default=(), max_length=2000)
    name_length: int = Field(default=8, ge=8, le=250)
    handshakes: int | None = Field(default=None, ge=1, le=1000)
    retry: bool | None = None
    lacking: str = ""


class Suite(_Model):
    """The file. Times are those at which `marks_mb` (10^6 bytes) have arrived, from the client's first packet.

    A suite without marks is one of test cases, which are passed or not.
    """

    schema_: Literal["satlab/suite/1"] = Field(alias="schema")
    name: Name
    source: str = Field(min_length=1)
    reference: str = ""
    link: SuiteLink
    marks_mb: tuple[float, ...] = ()
    cases: tuple[Case, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if list(self.marks_mb) != sorted({mark for mark in self.marks_mb if mark > 0}):
            raise ValueError("marks_mb must rise, from above 0")
        short = [case.id for case in self.cases if len(case.targets_s) != len(self.marks_mb)]
        if short:
            raise ValueError(f"targets_s needs one value (or null) per mark: {', '.join(short)}")
        if not self.marks_mb and (lost := [case.id for case in self.cases if not (case.files_bytes or case.lacking)]):
            raise ValueError(f"without marks_mb a case needs test and files_bytes, or lacking: {', '.join(lost)}")
        wrong = [case.id for case in self.cases if len(case.reference_s) not in (0, len(self.marks_mb))]
        if wrong or (not self.reference and any(case.reference_s for case in self.cases)):
            raise ValueError(f"reference_s needs the suite's reference, and one value (or null) per mark: {wrong}")
        ids = [case.id for case in self.cases]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"ids that are there twice: {', '.join(twice)}")
        return self

    def selected(self, names: Sequence[str]) -> tuple[Case, ...]:
        """Return the named cases in the suite's order, all for no name.

        Raises:
            ConfigError: a name is none of the suite's.
        """
        known = [case.id for case in self.cases]
        faults = [
            Fault("--cases", f"{name} is no case of {self.name}", ", ".join(known))
            for name in names
            if name not in known
        ]
        if faults:
            raise ConfigError(f"suite {self.name}", faults)
        return tuple(case for case in self.cases if not names or case.id in names)


def load(path: Path) -> Suite:
    """Read and check a suite.

    Raises:
        ConfigError: with every fault.
    """
    try:
        raw = yaml.safe_load(path.read_text())
        return Suite.model_validate(raw)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="suites lie in baselines/") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {error}") from error
    except ValidationError as error:
        places = [
            (".".join(map(str, fault["loc"])) or "suite", fault["msg"]) for fault in error.errors(include_url=False)
        ]
        raise ConfigError(f"{path}", [Fault(f"{path}: {place}", why) for place, why in places]) from error
