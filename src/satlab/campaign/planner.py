# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the plan of a campaign's file: its cells, and a task for each of their seeds.

Faults of all factors are reported together; nothing is changed.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from satlab.campaign import campaign_file, task_request
from satlab.campaign.campaign_file import MAX_TASKS, CampaignFile
from satlab.campaign.plan_file import CellDraft, Plan, Task, Value
from satlab.campaign.scenario_matrix import Matrix
from satlab.campaign.task_request import Check, Flows
from satlab.check import suite as suites
from satlab.common import paths, plain_words
from satlab.common.errors import ConfigError, Fault
from satlab.link.options import LinkOptions
from satlab.papers import flow_request, paper
from satlab.papers.paper import LAB_S, SPEED, Paper
from satlab.papers.shipped_papers import KNOWN_AS

LONGEST_ID = 100


def plan(path: Path) -> Plan:
    """Read a campaign's file and plan its tasks. Raises ConfigError with every fault."""
    file = campaign_file.load(path)
    count = _combinations(file) * len(file.seeds_of_cell)
    if count > MAX_TASKS:
        raise ConfigError(
            f"{path} has {count} tasks", hint=f"at most {MAX_TASKS}: make several campaigns of it"
        )
    drafts = list(_drafts(file, path))
    return of_drafts(file.name, drafts, str(path), file.deadline_s, file.answer_mib)


def of_drafts(
    name: str, drafts: Sequence[CellDraft], place: str, deadline_s: float, answer_mib: int = 256
) -> Plan:
    """Return the plan of cells: the first task of each, then the second, so that a part covers all
    cells.

    Raises ConfigError, which names the place, for cells that occur twice.
    """
    ids = _ids(drafts)
    if twice := [one for one, times in Counter(ids).items() if times > 1]:
        hint = "name each value once; scenario files and profile folders need different names"
        raise ConfigError(
            f"{place}: {len(twice)} cells occur twice, for example {twice[0]}", hint=hint
        )
    most = max((len(draft.seeds) for draft in drafts), default=0)
    tasks = tuple(
        _task(draft, cell, number + 1, draft.seeds[number])
        for number in range(most)
        for cell, draft in zip(ids, drafts, strict=True)
        if number < len(draft.seeds)
    )
    cells = {cell: dict(draft.factors) for cell, draft in zip(ids, drafts, strict=True)}
    return Plan(name=name, deadline_s=deadline_s, answer_mib=answer_mib, cells=cells, tasks=tasks)


def _combinations(file: CampaignFile) -> int:
    """Return the number of cells of a matrix; 1 of anything else, whose cells are in files that
    ship.
    """
    count = len(file.scenario or (0,)) * len(file.profile)
    for values in (*file.options.values(), *file.values.values()):
        count *= len(values)
    return count


def _drafts(file: CampaignFile, path: Path) -> Iterable[CellDraft]:
    if file.suite is not None:
        return _of_suite(file.suite, file)
    if file.paper is not None:
        name = KNOWN_AS.get(file.paper, file.paper)
        about = paper.load(name, paper.clock_of(name, file.clock))
        chosen = about.select(file.cells, quick=file.quick)
        return [of_paper(about, cell, file.seeds_of_cell) for cell in chosen]
    matrix = Matrix(file, path.resolve().parent)
    drafts = list(matrix.cells())
    if matrix.faults:
        faults = [
            Fault(f"{path}: {fault.place}", fault.reason, fault.remedy) for fault in matrix.faults
        ]
        raise ConfigError(f"{path}: some cells cannot run", faults)
    return drafts


def of_paper(about: Paper, cell: paper.Cell, seeds: tuple[int, ...]) -> CellDraft:
    """Return a cell of a paper."""
    if cell.run is None:

        def asked(seed: int) -> task_request.AnyRequest:
            flows = flow_request.request(about, cell, seed)
            return Flows(verb="flows", clock=about.clock, flows=flows)

    else:
        link = LinkOptions.of(profile=cell.run.profile, **cell.run.options)
        scenario = paths.SCENARIOS / f"{cell.run.scenario}.json"
        asked = task_request.of_run(scenario, link, cell.run.values).with_seed
    factors = {**cell.factors, "paper": about.name, "clock": about.clock, "cell": cell.id}
    name = cell.id.replace("/", "-")
    return CellDraft(factors, about.estimate_s(cell), asked, seeds, cell.cores, name)


def _of_suite(name: str, file: CampaignFile) -> Iterator[CellDraft]:
    suite = suites.load(paths.SUITES / f"{name}.yml")
    clock = file.clock or "virtual"
    for case in suite.selected(file.cases or ()):
        known_s = max(
            (time for time in (*case.reference_s, *case.targets_s) if time), default=case.timeout_s
        )
        yield CellDraft(
            {"suite": name, "case": case.id, "clock": clock, "stack": file.stack},
            known_s / SPEED + 1 if clock == "virtual" else known_s + LAB_S,
            lambda seed, case=case: Check(  # type: ignore[misc]
                verb="check", suite=name, case=case.id, clock=clock, stack=file.stack, seed=seed
            ),
            file.seeds_of_cell,
        )


def _task(cell: CellDraft, name: str, number: int, seed: int) -> Task:
    try:
        asked = cell.request(seed)
    except ValidationError as error:
        faults = [
            Fault(f"{name}: {'.'.join(map(str, fault['loc']))}", *plain_words.of_fault(fault))
            for fault in error.errors(include_url=False)
        ]
        raise ConfigError(f"{name} with seed {seed} cannot be asked of a host", faults) from error
    return Task(
        id=f"{name}.{number}",
        cell=name,
        number=number,
        request=asked,
        estimate_s=cell.estimate_s,
        cores=cell.cores,
    )


def _ids(drafts: Sequence[CellDraft]) -> list[str]:
    """Return a readable id of each cell, its own or one from the factors in which they differ, as
    part of a path and unique.
    """
    every = [draft.factors for draft in drafts]
    names = list(every[0]) if every else []
    varying = [
        name for name in names if len({factors.get(name) for factors in every}) > 1
    ] or names[:2]
    ids = [
        draft.id or _readable([(name, draft.factors[name]) for name in varying]) for draft in drafts
    ]
    count = Counter(ids)
    return [
        one
        if count[one] == 1 and len(one) <= LONGEST_ID
        else f"{one[:LONGEST_ID]}-{_digest(factors)[:12]}"
        for one, factors in zip(ids, every, strict=True)
    ]


def _digest(factors: Mapping[str, Value]) -> str:
    return hashlib.sha256(repr(sorted(factors.items())).encode()).hexdigest()


def _readable(factors: Sequence[tuple[str, Value]]) -> str:
    plain = ("scenario", "profile", "orbit", "type", "cell", "suite", "case")
    words = [str(value) if name in plain else f"{name}={value}" for name, value in factors]
    return re.sub(r"[^A-Za-z0-9=._-]+", "-", "-".join(words)).strip("-._=") or "cell"
