# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples with one value each, from the standard output of a task's command."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from collect.records import MOST
from satlab.campaign.plan_file import Value
from satlab.campaign.task_request import Rule
from satlab.papers import paper
from satlab.papers.figures import FIGURES
from satlab.papers.paper import Paper
from satlab.papers.shipped_papers import Clock

OF_CHECK = (
    "handshake_ms",
    "time_to_first_byte_ms",
    "goodput_interop_bps",
    "retransmitted_share",
    "lost_packets",
)
"""Figures of a sample of `satlab check`, besides its times to each mark."""


@dataclass(frozen=True)
class Sample:
    """One value; None if there is none, with the `reason`."""

    metric: str
    value: Annotated[float, Field(gt=-MOST, lt=MOST)] | None
    status: str = "ok"
    reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


_SAMPLE = TypeAdapter(Sample)


def parse(rule: Rule, output: str) -> Any:
    """Return the output of a task's command: records of a run, or a document.

    Raises ValueError for another output.
    """
    if rule == "run":
        return [json.loads(line) for line in output.splitlines() if line.strip()]
    return json.loads(output)


def of(rule: Rule, factors: Mapping[str, Value], parsed: Any) -> list[Sample]:
    """Return the samples in the result of `parse`.

    Raises ValueError, KeyError, IndexError or TypeError otherwise.
    """
    if rule == "run":
        return [_of_record(row) for row in parsed]
    found = _of_check(parsed) if rule == "check" else _of_flows(parsed, factors)
    return [_SAMPLE.validate_python(vars(one)) for one in found]


def _of_record(row: Mapping[str, Any]) -> Sample:
    names = ("metric", "value", "status", "reason", "labels")
    return _SAMPLE.validate_python({name: row[name] for name in names})


def _of_check(document: Mapping[str, Any]) -> Iterator[Sample]:
    for sample in document["cases"][0]["samples"]:
        state = (sample["status"], sample["reason"] or sample["calibration"])
        for mark, value in zip(document["marks_mb"], sample["times_s"], strict=True):
            yield Sample("time_s", value, *state, {"mark_mb": f"{mark:g}"})
        for name in OF_CHECK:
            if sample[name] is not None:
                yield Sample(name, float(sample[name]), *state)


def _of_flows(outcome: Mapping[str, Any], factors: Mapping[str, Value]) -> Iterator[Sample]:
    about = paper_of(factors)
    cell = next(cell for cell in about.cells if cell.id == factors["cell"])
    failed = [flow["id"] for flow in outcome["flows"] if flow["status"] == "failed"]
    state = ("failed", f"ended before their time: {', '.join(failed)}") if failed else ("ok", "")
    for name in cell.figures:
        figure = FIGURES[name]
        for phase in range(len(outcome["request"]["phases_s"]) + 1) if figure.is_phased else (0,):
            found = figure.read(outcome, phase)
            labels = {"phase": str(phase)} if figure.is_phased else {}
            yield Sample(name, None if found is None else found[0], *state, labels)


def paper_of(factors: Mapping[str, Value]) -> Paper:
    """Return the paper of a cell of flows. Raises ConfigError."""
    return _loaded(str(factors["paper"]), "real" if factors["clock"] == "real" else "virtual")


@cache
def _loaded(name: str, clock: Clock) -> Paper:
    return paper.load(name, clock)
