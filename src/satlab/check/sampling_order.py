# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which a check takes its samples: case by case, or those of all cases side by side.

The number of samples of a case depends only on its own samples, in the order of their seeds. Both
orders therefore give the same samples, however many run at a time.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from satlab.check.samples import Sample
from satlab.check.suite import Case, Suite

Take = Callable[[Case, int], Sample]
"""Takes the sample of a case with a seed."""


def longest_first(suite: Suite, cases: Sequence[Case]) -> list[Case]:
    """Return the cases by payload and by its time at the link's lowest rate, longest first. The
    last samples are then short, so no core waits long for another.
    """

    def work(case: Case) -> tuple[float, float]:
        payload_mb = sum(suite.marks_mb[-1:]) * (1 if case.second_after_s is None else 2)
        rates = [
            case.forward_mbps,
            *(one.forward_mbps for one in case.changes if one.forward_mbps is not None),
        ]
        return payload_mb, payload_mb * 8 / (
            min(rates) if case.direction == "download" else case.return_mbps
        )

    return sorted(cases, key=work, reverse=True)


@dataclass(frozen=True)
class Sampling:
    """The samples of a check. `missing` returns the seeds of the next samples of a case, none if
    the case is complete. `keep` receives a case's samples in the order of their seeds, before the
    next `missing`. `complete` is called for each complete case of several.
    """

    take: Take
    missing: Callable[[Case], Sequence[int]]
    keep: Callable[[Case, Sequence[Sample]], None]
    complete: Callable[[Case], None] = lambda _: None

    def of_case(self, case: Case) -> None:
        """Take the samples of a case, one after the other, in this thread."""
        while seeds := self.missing(case):
            for seed in seeds:
                self.keep(case, [self.take(case, seed)])

    def of_cases(self, cases: Sequence[Case], at_once: int, stop: Callable[[], None]) -> None:
        """Take the samples of all cases, up to `at_once` at a time; the first ones in the order of
        `cases`.

        If a sample raises, `stop` ends the others, complete ones are kept, and the exception is
        raised.
        """
        taking = _Batches(self, ThreadPoolExecutor(at_once))
        try:
            for case in cases:
                taking.start(case)
            while taking.pending:
                taking.advance()
        except BaseException:
            stop()
            raise
        finally:
            taking.end()


@dataclass(frozen=True)
class _Batches:
    """Samples in progress, in batches: one for each case."""

    sampling: Sampling
    pool: ThreadPoolExecutor
    pending: dict[str, tuple[Case, list[Future[Sample]]]] = field(default_factory=dict)

    def start(self, case: Case) -> None:
        """Start what a case needs next, if anything."""
        batch = [
            self.pool.submit(self.sampling.take, case, seed) for seed in self.sampling.missing(case)
        ]
        if batch:
            self.pending[case.id] = (case, batch)
        else:
            self.sampling.complete(case)

    def advance(self) -> None:
        """Keep each complete batch and start the next one of its case. Without a complete batch,
        wait for a sample.
        """
        every = [one for _, batch in self.pending.values() for one in batch]
        done = {one for one in every if one.done()}
        for one in every:
            if one in done:
                one.result()
        complete = [
            (case, batch) for case, batch in self.pending.values() if done.issuperset(batch)
        ]
        for case, batch in complete:
            del self.pending[case.id]
            self.sampling.keep(case, [one.result() for one in batch])
            self.start(case)
        if not complete:  # a sample that ended after `done` was made ends this wait at once
            wait([one for one in every if one not in done], return_when=FIRST_COMPLETED)

    def end(self) -> None:
        """Wait for samples in progress. Keep the samples of each case up to its first gap."""
        self.pool.shutdown(cancel_futures=True)
        for case, batch in self.pending.values():
            whole = []
            for one in batch:
                if one.cancelled() or one.exception() is not None:
                    break
                whole.append(one.result())
            if whole:
                self.sampling.keep(case, whole)
