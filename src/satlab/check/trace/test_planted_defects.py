# SPDX-License-Identifier: GPL-3.0-or-later
"""Defects planted in a build, under the virtual clock: the comparison with a baseline is red and
names the cause that grew. Without a defect it is not red.

The senders are quinn with an option, and tests/endpoints/planted/lockstep.py with a fault.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from satlab.check import case_link, verdict
from satlab.check.backend import virtual_clock
from satlab.check.conftest import small
from satlab.check.endpoint.pair import CLIENT, SERVER
from satlab.check.samples import Sample
from satlab.common import paths

PLANTED = paths.ROOT / "tests/endpoints/planted/lockstep.py"
RUNS = 4
TOLERANCE = 0.1


@dataclass(frozen=True)
class Defect:
    """`before` and `after` are the word of the planted program ("" none), or options of quinn's
    server.
    """

    cause: str
    before: str | dict[str, Any]
    after: str | dict[str, Any]
    mb: float
    case: dict[str, Any] = field(default_factory=dict)


DEFECTS = {
    "a constant window": Defect("constant window", "", "constant", 1),
    "no pacing": Defect("loss recovery", "paced", "", 1, {"queue_packets": 20}),
    "acknowledgements after 200 ms": Defect("late acks", "", "late", 0.5),
    "an initial window of 2": Defect("slow start", {}, {"initial_window": 2}, 1),
    "a packet threshold of 1 with reordering": Defect(
        "spurious loss", "swapped", "threshold", 0.3, {"jitter_ms": 20}
    ),
    "a time threshold of 20 ms with jitter": Defect(
        "spurious loss", "", "early", 0.3, {"jitter_ms": 50}
    ),
    "a pause of 10 s after a minute": Defect("idle", "", "stall", 2.5, {"forward_mbps": 0.3}),
}


def samples(
    folder: Path,
    sender: str | dict[str, Any],
    mb: float,
    case: dict[str, Any],
    seeds: Sequence[int],
) -> list[Sample]:
    """Return a download's sample for each seed."""
    fields = {"forward_mbps": 20, "targets_s": [None], "timeout_s": 1000} | case
    suite = small(fields, marks_mb=[mb])
    one = suite.cases[0]
    folder.mkdir()
    link = case_link.build(suite, one, folder / "profiles")
    options = sender if isinstance(sender, dict) else {}
    found = []
    for seed in seeds:
        request = virtual_clock.transfer(suite, one, seed, {}, options)
        if isinstance(sender, str):
            argv = [sys.executable, str(PLANTED), *sender.split()]
            request["programs"] = {
                side: {"argv": argv, "environment": {}, "log": f"{side}.log"}
                for side in (CLIENT, SERVER)
            }
        found.append(virtual_clock.run(link, request, folder, one))
    assert all(sample.status == "ok" for sample in found), [sample.reason for sample in found]
    return found


def compared(mb: float, now: list[Sample], before: list[Sample]) -> verdict.BaselineComparison:
    [found] = verdict.against_baseline([mb], {"a": now}, {"a": before}, TOLERANCE)
    return found


def test_the_document_has_each_defect_with_its_cause() -> None:
    text = (paths.ROOT / "docs/regression.md").read_text().partition("| defect |")[2]
    rows = [
        tuple(line.strip("| ").split(" | ")) for line in text.partition("\n\n")[0].splitlines()[2:]
    ]
    assert rows == [(name, defect.cause) for name, defect in DEFECTS.items()]


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.promise("P76")
def test_a_planted_defect_is_red_against_the_baseline_with_its_cause(
    name: str, tmp_path: Path
) -> None:
    defect = DEFECTS[name]
    sides = [
        samples(tmp_path / side, sender, defect.mb, defect.case, range(first, first + RUNS))
        for side, sender, first in (("now", defect.after, 1), ("before", defect.before, 101))
    ]
    found = compared(defect.mb, *sides)
    assert (found.result, found.grew) == ("slower", defect.cause), found
    spent = [sample.spent_s or {} for side in sides for sample in side]
    # No clock is late here, and all is known.
    assert not any(one["host"] or one["unknown"] for one in spent)
    assert any(one["late acks"] for one in spent) == (defect.cause == "late acks")
    # The other way round it is no slower.
    assert compared(defect.mb, *reversed(sides)).result != "slower"


@pytest.mark.parametrize(
    "case",
    [{}, {"loss": {"unit": "packet", "ratio": 0.01}, "jitter_ms": 20}],
    ids=["plain", "lossy"],
)
def test_ten_comparisons_of_equal_builds_raise_no_alarm(
    case: dict[str, Any], tmp_path: Path
) -> None:
    every = samples(tmp_path / "runs", {}, 0.3, case, range(1, 20 * RUNS + 1))
    groups = [every[first : first + RUNS] for first in range(0, len(every), RUNS)]
    found = [
        compared(0.3, now, before) for now, before in zip(groups[::2], groups[1::2], strict=True)
    ]
    assert len(found) == 10 and not [one for one in found if one.result == "slower"]
