# SPDX-License-Identifier: GPL-3.0-or-later
"""The search itself: draw conditions, evaluate them in parallel, shrink what has a fault.

No clock, file or process.

Trials are judged in the order of their numbers. So the same seed finds the same faults; a longer
search finds further ones.
"""

import itertools
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass

from satlab.check.search.conditions import Changes, Space, rounded
from satlab.check.search.faults import Kind
from satlab.check.search.search_file import Finding, SearchRecord

OTHER_SEEDS = 4
"""Number of further seeds with which a finding is repeated."""
POLL_S = 0.1


@dataclass(frozen=True)
class Evaluation:
    """A condition's transfer: the fault, or None.

    `is_judged`: the reference completed the transfer without the same fault. For other fields see
    Finding.
    """

    kind: Kind | None
    is_judged: bool = True
    reason: str = ""
    time_s: float | None = None
    reference_s: float | None = None
    wait_s: float | None = None


Evaluate = Callable[[Changes, int], Evaluation]
"""A condition and a seed; called from several threads."""


class _HaltedError(Exception):
    """The search must end at once."""


@dataclass(frozen=True)
class Search:
    """A search in progress: up to `at_once` trials are evaluated at the same time.

    `may_continue` is asked before and during each evaluation. `save` is called when the record has
    changed.
    """

    space: Space
    record: SearchRecord
    evaluate: Evaluate
    pool: Executor
    at_once: int
    may_continue: Callable[[], bool]
    save: Callable[[Finding | None], None]

    def run(self) -> None:
        """Search until `may_continue` returns False. Unfinished findings of an earlier part come
        first.
        """
        try:
            for finding in [one for one in self.record.findings if not one.is_shrunk]:
                self._simplify(finding)
            seed, numbers = self.record.input.seed, itertools.count(self.record.trials)
            ahead: deque[tuple[int, Changes, Future[Evaluation]]] = deque()
            while self.may_continue():
                while len(ahead) < self.at_once:
                    number = next(numbers)
                    drawn = self.space.draw(seed, number)
                    ahead.append((number, drawn, self._begin(drawn, seed + number)))
                number, changes, future = ahead.popleft()
                self._take(number, changes, self._end(future))
        except _HaltedError:
            pass
        finally:
            self.save(None)

    def _begin(self, changes: Changes, seed: int) -> Future[Evaluation]:
        return self.pool.submit(self.evaluate, changes, seed)

    def _end(self, future: Future[Evaluation]) -> Evaluation:
        """Wait for an evaluation. An error because the search ends is not raised."""
        while True:
            if not self.may_continue():
                raise _HaltedError
            wait([future], POLL_S)
            if not future.done():
                continue
            try:
                found = future.result()
            except Exception:
                if not self.may_continue():
                    raise _HaltedError from None
                raise
            self.record.evaluations += 1
            return found

    def _has(self, kind: Kind, changes: Changes, seed: int) -> Evaluation | None:
        """Evaluate a condition; None if the condition does not have the fault."""
        found = self._end(self._begin(changes, seed))
        return found if found.kind == kind else None

    def _take(self, number: int, changes: Changes, found: Evaluation) -> None:
        """Record a trial. After an interruption before this, the trial is repeated."""
        finding, seed = None, self.record.input.seed + number
        if found.kind is not None:
            known = self._known(found.kind, changes, seed)
            if known is None:
                finding = Finding(kind=found.kind, changes=dict(changes), seed=seed, trial=number)
                _describe(finding, found)
                self.record.findings.append(finding)
            else:
                known.seen += 1
        self.record.trials = number + 1
        self.record.not_judged += not found.is_judged
        self.save(None)
        if finding is not None:
            self._simplify(finding)

    def _known(self, kind: Kind, changes: Changes, seed: int) -> Finding | None:
        """Return the earlier finding that explains a fault: the fault vanishes without that
        finding's values.
        """
        for finding in self.record.findings:
            if finding.kind != kind or not finding.changes.keys() <= changes.keys():
                continue
            without = {
                name: value for name, value in changes.items() if name not in finding.changes
            }
            if not finding.changes or not self._has(kind, self.space.effective(without), seed):
                return finding
        return None

    def _simplify(self, finding: Finding) -> None:
        """Shrink a finding; join it with an earlier one of the same quantities, or repeat it with
        other seeds.
        """

        def holds(changes: Changes) -> bool:
            found = self._has(finding.kind, changes, finding.seed)
            if found is not None:
                _describe(finding, found)
            return found is not None

        def keep(changes: Changes) -> None:
            finding.changes = dict(changes)
            self.save(None)

        keep(shrink(self.space, finding.changes, holds, keep))
        for earlier in self.record.findings:
            if earlier is finding:
                break
            if earlier.kind == finding.kind and earlier.changes.keys() == finding.changes.keys():
                earlier.seen += finding.seen
                self.record.findings.remove(finding)
                return
        others = [
            self._begin(finding.changes, finding.seed + other)
            for other in range(1, OTHER_SEEDS + 1)
        ]
        finding.repeats = sum(self._end(future).kind == finding.kind for future in others)
        finding.repeats_of, finding.is_shrunk = OTHER_SEEDS, True
        self.save(finding)


def _describe(finding: Finding, found: Evaluation) -> None:
    finding.reason = found.reason
    finding.time_s = found.time_s
    finding.reference_s = found.reference_s
    finding.wait_s = found.wait_s


def shrink(
    space: Space,
    changes: Changes,
    holds: Callable[[Changes], bool],
    keep: Callable[[Changes], None],
) -> dict[str, float]:
    """Return the simplest condition: each value is reset to the case's, or else rounded, while the
    fault persists (`holds`).

    `keep` is called with each simpler condition, so that shrinking can continue after an
    interruption. In the result no single value can be reset without losing the fault.
    """
    found = space.effective(changes)
    is_simpler = True
    while is_simpler:
        is_simpler = False
        for name in list(found):
            without = space.effective(
                {other: value for other, value in found.items() if other != name}
            )
            if name in found and holds(without):
                found, is_simpler = without, True
                keep(found)
    for name, value in list(found.items()):
        if name not in found or rounded(value, 1) == value:
            continue
        plain = space.effective(found | {name: _in_range(space, name, rounded(value, 1))})
        if holds(plain):
            found = plain
            keep(found)
    return found


def _in_range(space: Space, name: str, value: float) -> float:
    [quantity] = [one for one in space.quantities if one.name == name]
    return min(max(value, quantity.low), quantity.high)
