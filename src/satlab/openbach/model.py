# SPDX-License-Identifier: GPL-3.0-or-later
"""The model of a scenario. All times in seconds."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from satlab.common.errors import Fault
from satlab.openbach.descriptor import Descriptor
from satlab.openbach.job_arguments import Words


@dataclass(frozen=True)
class Wait:
    """When a function starts: each condition over the listed function ids, then `time` seconds."""

    time: float = 0.0
    launched: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    running: tuple[int, ...] = ()

    @property
    def ids(self) -> frozenset[int]:
        """Return every function waited for."""
        return frozenset((*self.launched, *self.finished, *self.ended, *self.running))


class Policy(Enum):
    """The reaction to an error of a function or a failure of its job."""

    FAIL = "fail"
    IGNORE = "ignore"
    RETRY = "retry"


@dataclass(frozen=True)
class OnFail:
    """`retry` and `delay` count under Policy.RETRY only, and only for functions that error, not for
    failed jobs.
    """

    policy: Policy = Policy.FAIL
    retry: int = 0
    delay: float = 5.0


@dataclass(frozen=True)
class StartJob:
    """Start a job on an entity, `offset` seconds after the function acts, again every `interval`
    seconds if given.
    """

    entity: str
    job: Descriptor
    words: Words
    offset: float = 0.0
    interval: int | None = None

    def values(self, flags: Collection[str]) -> Iterator[str]:
        """Yield the words that follow one of the flags."""
        for flag, value in itertools.pairwise(map(str, self.words)):
            if flag in flags:
                yield value


@dataclass(frozen=True)
class StartScenario:
    """Start a sub-scenario; `scenario` already holds the values of its arguments."""

    scenario: BoundScenario


@dataclass(frozen=True)
class Stop:
    """Stop what the listed functions have started: jobs, or one sub-scenario."""

    ids: tuple[int, ...]


Action = StartJob | StartScenario | Stop


@dataclass(frozen=True)
class Function:
    """One entry of `openbach_functions`."""

    id: int
    label: str
    wait: Wait
    on_fail: OnFail
    action: Action

    @property
    def starts(self) -> bool:
        """Return whether this function starts a job or a sub-scenario."""
        return not isinstance(self.action, Stop)


@dataclass(frozen=True)
class BoundScenario:
    """A scenario with a value for every argument, ready to run.

    `values` holds arguments and constants.
    """

    name: str
    values: Mapping[str, str]
    functions: tuple[Function, ...]
    endless: bool = False

    def jobs(self) -> Iterator[StartJob]:
        """Yield every job that this scenario, or one below it, starts."""
        for function in self.functions:
            match function.action:
                case StartJob() as started:
                    yield started
                case StartScenario(scenario=below):
                    yield from below.jobs()


@dataclass(frozen=True)
class ScenarioContext:
    """The context of a scenario's check: known jobs, entities, the folder of its sub-scenarios.

    `endless`: a job that nothing stops is not a fault. `warnings`: where to note what OpenBACH
    accepts, such as unknown keys and entities; None: these are faults. `terminals`: of the lab.
    """

    jobs: Mapping[str, Descriptor]
    entities: frozenset[str]
    folder: Path
    endless: bool = False
    warnings: list[Fault] | None = None
    terminals: int = 1


@dataclass(frozen=True)
class Scenario:
    """A checked scenario whose arguments have no values yet; `bind` sets them."""

    name: str
    description: str
    arguments: Mapping[str, str]
    constants: Mapping[str, str]
    file: Path
    document: object
    context: ScenarioContext
