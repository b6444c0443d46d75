# SPDX-License-Identifier: GPL-3.0-or-later
"""check.json: the file that a check is saved in, and read from as a baseline."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from satlab.check.provenance import BaselineFile, Provenance
from satlab.check.samples import Sample, Spent
from satlab.check.suite import Suite
from satlab.check.verdict import ComparisonResult, Result
from satlab.common import plain_words
from satlab.common.errors import ConfigError

NAME = "check.json"
MOST_BYTES = 256 << 20
"""Of a check.json; more is not read."""
Seconds = Annotated[
    float | None, Field(description="s since the client's first packet; null: never")
]

IntervalEnd = Annotated[
    float | None,
    Field(
        description="end of the 95 % bootstrap interval of the median, s; null: never, or `n` is"
        " below 5"
    ),
]


@with_config(ConfigDict(extra="forbid"))
class Verdict(TypedDict):
    """The verdict on a case at one mark."""

    mark_mb: Annotated[float | None, Field(description="null: a test case as a whole")]
    target_s: Annotated[float | None, Field(description="null: to be determined")]
    median_s: Seconds
    low_s: IntervalEnd
    high_s: IntervalEnd
    n: Annotated[int, Field(description="samples that count; below 5 there is no interval")]
    censored: Annotated[int, Field(description="samples that never reached the mark")]
    died: Annotated[list[str], Field(description="reasons of failed connections")]
    result: Result
    off: NotRequired[
        Annotated[int, Field(description="samples taken while the link was out of calibration")]
    ]


@with_config(ConfigDict(extra="forbid"))
class Case(TypedDict):
    """One case with its link: rates of full-size IP packets by the frame arithmetic, mean
    round-trip time of the frame model, queues forward and return.
    """

    id: str
    forward_mbps: float
    return_mbps: float
    rtt_ms: float
    queue_bytes: tuple[int, int]
    spent_s: NotRequired[
        Annotated[Spent | None, Field(description="means over the samples; null: not traced")]
    ]
    verdicts: list[Verdict]
    samples: list[Sample]


@with_config(ConfigDict(extra="forbid"))
class Compared(TypedDict):
    """A case at one mark, compared with the baseline."""

    case: str
    mark_mb: float
    median_s: Seconds
    baseline_s: Seconds
    ratio: Annotated[
        float | None, Field(description="median / median of the baseline; null: one is never")
    ]
    p: Annotated[
        float | None,
        Field(
            description="probability of samples this slow, or slower, if both builds were equal:"
            " one-sided, rank sums; null: no test was made (failed, unsupported, not measurable)"
        ),
    ]
    p_adjusted: NotRequired[
        Annotated[
            float | None,
            Field(
                description="p corrected for all comparisons of this check (Holm). A case is slower"
                " if it is at most 0.05 and `ratio` exceeds 1 + the tolerance (--tolerance)"
            ),
        ]
    ]
    n: Annotated[int, Field(description="calibrated samples of this check")]
    n_baseline: Annotated[int, Field(description="calibrated samples of the baseline")]
    tolerance: NotRequired[
        Annotated[float, Field(description="tolerated relative slowdown, as requested")]
    ]
    detectable: Annotated[
        float | None,
        Field(
            description="smallest relative slowdown that these numbers of samples find with 95 %"
            " probability, from the spread of the baseline; null: more than 1, or no test was made"
        ),
    ]
    is_slower: Annotated[bool, Field(description="slower or failed: the check fails")]
    result: Annotated[
        ComparisonResult,
        Field(
            description="failed: a transfer did not complete, and all of the baseline's did or too"
            " many more than of the baseline, or none did; slower: see `p_adjusted`; undecided: not"
            " slower, but `detectable` is null; unsupported: on both sides; not measurable: more"
            " than half of the samples of one side are out of calibration"
        ),
    ]
    off: Annotated[int, Field(description="samples of this check out of calibration")]
    off_baseline: Annotated[int, Field(description="samples of the baseline out of calibration")]
    incomplete: NotRequired[
        Annotated[int, Field(description="of `n`: samples that did not complete up to this mark")]
    ]
    incomplete_baseline: NotRequired[
        Annotated[int, Field(description="of `n_baseline`: the same of the baseline")]
    ]
    reasons: NotRequired[
        Annotated[list[str], Field(description="why samples of this check did not complete")]
    ]
    grew: NotRequired[
        Annotated[
            str | None,
            Field(description="the cause that grew most, of a slower case; null: none, or unknown"),
        ]
    ]
    grown_s: NotRequired[
        Annotated[
            dict[str, float] | None,
            Field(
                description="growth of the mean seconds per cause, of whole transfers whatever the"
                " mark; null: not traced"
            ),
        ]
    ]


@with_config(ConfigDict(extra="forbid", defer_build=True))
class CheckFile(TypedDict):
    """A check: samples, verdicts on targets, comparison with a baseline; the baseline of later
    checks.
    """

    schema: Literal["satlab/check/1"]
    version: str
    suite: str
    source: Annotated[str, Field(description="source of the targets")]
    marks_mb: Annotated[list[float], Field(description="amounts that are timed, 10^6 bytes")]
    clock: Literal["virtual", "real"]
    stack: Annotated[str, Field(description="the library or the programs of both endpoints")]
    options: Annotated[
        dict[str, dict[str, int | str]],
        Field(description="options of satperf's client and server that differ from the defaults"),
    ]
    seed: int
    environment: NotRequired[
        Annotated[
            dict[str, dict[str, str]], Field(description="variables of the programs, by side")
        ]
    ]
    began_unix_s: NotRequired[float]
    real_s: Annotated[float, Field(description="duration of the check")]
    simulated_s: NotRequired[
        Annotated[
            float | None,
            Field(description="virtual time of all samples together; null: real clock"),
        ]
    ]
    cases: list[Case]
    compared: list[Compared] | None
    provenance: NotRequired[Provenance]
    baseline: NotRequired[
        Annotated[BaselineFile | None, Field(description="null: compared with none")]
    ]


_FILE: TypeAdapter[CheckFile] = TypeAdapter(CheckFile)


def plain(content: CheckFile) -> dict[str, Any]:
    """Return the contents as values for `json.dumps`."""
    document: dict[str, Any] = json.loads(json.dumps(content, default=asdict))
    return document


def read(path: Path) -> CheckFile:
    """Read a check.json.

    Raises:
        ConfigError: the file is not a check.json.
    """
    try:
        with path.open("rb") as file:
            return _FILE.validate_json(file.read(MOST_BYTES))
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}", hint=f"earlier checks are in runs/check-.../{NAME}"
        ) from error
    except ValidationError as error:
        raise ConfigError(
            f"{path} is no {NAME}: {_first_fault(error)}",
            hint=f"use the {NAME} of an earlier check",
        ) from error


def load(path: Path, suite: Suite) -> CheckFile:
    """Read a check.json of a suite.

    Raises:
        ConfigError: the file is not a check.json, or is of another suite.
    """
    content = read(path)
    if content["suite"] != suite.name:
        raise ConfigError(
            f"{path} is of suite {content['suite']}", hint=f"use a {NAME} of suite {suite.name}"
        )
    if tuple(content["marks_mb"]) != suite.marks_mb:
        marks, now = (
            ", ".join(f"{one:g}" for one in each) for each in (content["marks_mb"], suite.marks_mb)
        )
        raise ConfigError(
            f"{path} has marks at {marks} MB, the suite {suite.name} at {now} MB",
            hint="the suite has changed: make a new baseline with it",
        )
    return content


def samples(content: CheckFile) -> dict[str, list[Sample]]:
    """Return the samples by case."""
    return {case["id"]: case["samples"] for case in content["cases"]}


def verdicts(content: CheckFile) -> dict[tuple[str, float | None], Verdict]:
    """Return the verdicts by case and mark."""
    return {
        (case["id"], one["mark_mb"]): one for case in content["cases"] for one in case["verdicts"]
    }


def _first_fault(error: ValidationError) -> str:
    first, *more = error.errors(include_url=False)
    place = ".".join(map(str, first["loc"]))
    reason, _ = plain_words.of_fault(first)
    words = f"{place}: {reason}" if place else reason
    return f"{words} (and {len(more)} more faults)" if more else words
