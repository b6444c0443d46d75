# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which a check takes its samples: the same ones, one after the other and side by
side.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from satlab.check import suite
from satlab.check.conftest import one, small
from satlab.check.samples import Sample, Status
from satlab.check.sampling_order import Sampling, longest_first
from satlab.check.suite import Case
from satlab.common import paths

DEADLINE_S = 60.0
BASE = small().cases[0]
CASES = [BASE.model_copy(update={"id": name}) for name in ("steady", "wild", "refused")]


class Kept:
    """Samples of three cases: five of the steady one, ten of the one that spreads, one of the one
    that is refused.
    """

    def __init__(self, take: Callable[[Case, int], Sample]) -> None:
        self.samples: dict[str, list[Sample]] = {case.id: [] for case in CASES}
        self.completed: list[str] = []
        self.sampling = Sampling(
            take, self.missing, self.keep, lambda case: self.completed.append(case.id)
        )

    def missing(self, case: Case) -> Sequence[int]:
        found = self.samples[case.id]
        if found and found[0].status == "unsupported":
            return ()
        if not found:
            return (1,)
        most = 10 if any(sample.times_s > (9.0,) for sample in found) else 5
        return range(len(found) + 1, min(most, len(found) + 4) + 1)

    def keep(self, case: Case, found: Sequence[Sample]) -> None:
        self.samples[case.id] += found


def take(case: Case, seed: int) -> Sample:
    status: Status = "unsupported" if case.id == "refused" else "ok"
    return replace(
        one(case.id, 10.0 if case.id == "wild" and seed == 3 else 1.0, status=status), seed=seed
    )


def take_slowly(case: Case, seed: int) -> Sample:
    """Samples end in another order than they began."""
    time.sleep(random.Random(f"{case.id}{seed}").random() / 100)  # noqa: S311
    return take(case, seed)


@pytest.mark.parametrize("at_once", [1, 2, 7])
def test_samples_side_by_side_are_those_of_one_after_the_other(at_once: int) -> None:
    alone, together = Kept(take), Kept(take_slowly)
    for case in CASES:
        alone.sampling.of_case(case)
    together.sampling.of_cases(CASES, at_once, lambda: None)
    assert together.samples == alone.samples and sorted(together.completed) == [
        "refused",
        "steady",
        "wild",
    ]
    seeds = {name: [sample.seed for sample in found] for name, found in alone.samples.items()}
    assert seeds == {"steady": [1, 2, 3, 4, 5], "wild": list(range(1, 11)), "refused": [1]}


def test_samples_of_several_cases_are_in_progress_at_once() -> None:
    """The first samples of all three wait for each other."""
    meeting = threading.Barrier(3)

    def met(case: Case, seed: int) -> Sample:
        if seed == 1:
            meeting.wait(DEADLINE_S)
        return take(case, seed)

    found = Kept(met)
    found.sampling.of_cases(CASES, 3, lambda: None)
    assert [len(found.samples[case.id]) for case in CASES] == [5, 10, 1]


def test_a_fault_ends_all_and_keeps_what_is_complete() -> None:
    """Of the steady case the second sample fails: what is behind it is not kept, and ends when it
    is stopped.
    """
    stopped, has_third = threading.Event(), threading.Event()

    def faulty(case: Case, seed: int) -> Sample:
        if (case.id, seed) == ("steady", 2):
            assert has_third.wait(DEADLINE_S)
            raise KeyboardInterrupt
        if (case.id, seed) == ("steady", 3):
            has_third.set()
        if seed > 3:
            assert stopped.wait(DEADLINE_S)
        return take(case, seed)

    found = Kept(faulty)
    with pytest.raises(KeyboardInterrupt):
        found.sampling.of_cases(CASES[:1], 2, stopped.set)
    assert found.samples["steady"] == [take(CASES[0], 1)] and stopped.is_set()


def test_a_fault_that_comes_while_others_are_kept_ends_all() -> None:
    """The first case fails while the second is kept: the third, which waits for its end, is ended
    at once.
    """
    stopped, fails, has_failed = threading.Event(), threading.Event(), threading.Event()

    def faulty(case: Case, seed: int) -> Sample:
        if case.id == "a":
            assert fails.wait(DEADLINE_S)
            raise KeyboardInterrupt
        if case.id == "d":  # the thread of "a" takes it when "a" has failed: that of "b" has "c"
            has_failed.set()
        if case.id in "cd":
            assert stopped.wait(DEADLINE_S)
        return take(case, seed)

    def keep(case: Case, found: Sequence[Sample]) -> None:
        kept[case.id] = found
        if case.id == "b":
            fails.set()
            assert has_failed.wait(DEADLINE_S)

    kept: dict[str, Sequence[Sample]] = {}
    sampling = Sampling(faulty, lambda case: () if case.id in kept else (1,), keep)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sampling.of_cases([BASE.model_copy(update={"id": name}) for name in "abcd"], 2, stopped.set)
    assert time.monotonic() - began < DEADLINE_S and "a" not in kept


def test_the_longest_cases_come_first() -> None:
    etosat = suite.load(paths.SUITES / "etosat.yml")
    names = [case.id for case in longest_first(etosat, etosat.cases)]
    assert names[:5] == [
        "medium-second",
        "large-second",
        "small-upload",
        "small-download",
        "medium-variable",
    ]
    assert sorted(names) == sorted(case.id for case in etosat.cases)
