# SPDX-License-Identifier: GPL-3.0-or-later
"""A campaign's file as a plan. Faults of all factors are reported together; nothing is changed."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from satlab.campaign import campaign_file, request
from satlab.campaign.campaign_file import MAX_TASKS, CampaignFile
from satlab.campaign.matrix import Matrix
from satlab.campaign.plan import Cell, Plan, Task, Value
from satlab.campaign.planned_cell import CORES_OF_BROWSER, PlannedCell
from satlab.campaign.request import Check, Flows
from satlab.check import suite as suites
from satlab.common import paths
from satlab.common.errors import ConfigError, Fault
from satlab.papers import flow_request, paper
from satlab.papers import matrix as seed_002
from satlab.papers.paper import LAB_S, SPEED, Clock

QUICK = ("*/0/*",)
"""Cells of seed-002 without losses: both orbits, all types."""
LONGEST_ID = 100


def plan(path: Path) -> Plan:
    """Read a campaign's file and plan its tasks. Raises ConfigError with every fault."""
    file = campaign_file.load(path)
    count = _combinations(file) * len(file.seeds_of_cell)
    if count > MAX_TASKS:
        raise ConfigError(
            f"{path} has {count} tasks", hint=f"at most {MAX_TASKS}: make several campaigns of it"
        )
    cells = list(_cells(file, path))
    ids = _ids([cell.factors for cell in cells])
    if twice := [name for name, times in Counter(ids).items() if times > 1]:
        hint = "name each value once; scenario files and profile folders need different names"
        raise ConfigError(
            f"{path}: {len(twice)} cells occur twice, for example {twice[0]}", hint=hint
        )
    # The first task of each cell, then the second, so that a part covers all cells.
    tasks = tuple(
        _task(cell, name, number, seed)
        for number, seed in enumerate(file.seeds_of_cell, start=1)
        for name, cell in zip(ids, cells, strict=True)
    )
    described = tuple(
        Cell(id=name, factors=cell.factors) for name, cell in zip(ids, cells, strict=True)
    )
    return Plan(
        name=file.name,
        deadline_s=file.deadline_s,
        answer_mib=file.answer_mib,
        cells=described,
        tasks=tasks,
    )


def _combinations(file: CampaignFile) -> int:
    """Return the number of cells of a matrix; 1 of anything else, whose cells are in files that
    ship.
    """
    count = len(file.scenario or (0,)) * len(file.profile)
    for values in (*file.options.values(), *file.values.values()):
        count *= len(values)
    return count


def _cells(file: CampaignFile, path: Path) -> Iterable[PlannedCell]:
    if file.suite is not None:
        return _of_suite(file.suite, file)
    if file.paper is not None:
        clock = paper.clock_of(file.paper, file.clock)
        return (
            _of_seed_002(file)
            if file.paper == paper.SCENARIOS
            else _of_flows(file.paper, clock, file)
        )
    matrix = Matrix(file, path.resolve().parent)
    cells = list(matrix.cells())
    if matrix.faults:
        faults = [
            Fault(f"{path}: {fault.place}", fault.reason, fault.remedy) for fault in matrix.faults
        ]
        raise ConfigError(f"{path}: some cells cannot run", faults)
    return cells


def _of_seed_002(file: CampaignFile) -> Iterator[PlannedCell]:
    for cell in seed_002.select(file.cells or (QUICK if file.quick else ())):
        run = cell.request(1, Path())
        yield PlannedCell(
            {"orbit": cell.orbit, "loss": cell.loss, "type": cell.kind},
            seed_002.KINDS[cell.kind].guess_s,
            request.of_run(run.scenario, run.link, run.settings).with_seed,
            cores=CORES_OF_BROWSER if cell.browser else 1,
        )


def _of_flows(name: str, clock: Clock, file: CampaignFile) -> Iterator[PlannedCell]:
    about = paper.load(name, clock)
    for cell in about.select(file.cells, quick=file.quick):
        yield PlannedCell(
            {"paper": name, "clock": clock, "cell": cell.id},
            about.estimate_s(cell),
            lambda seed, cell=cell: Flows(  # type: ignore[misc]
                verb="flows", clock=clock, flows=flow_request.request(about, cell, seed)
            ),
        )


def _of_suite(name: str, file: CampaignFile) -> Iterator[PlannedCell]:
    suite = suites.load(paths.SUITES / f"{name}.yml")
    clock = file.clock or "virtual"
    for case in suite.selected(file.cases or ()):
        known_s = max(
            (time for time in (*case.reference_s, *case.targets_s) if time), default=case.timeout_s
        )
        yield PlannedCell(
            {"suite": name, "case": case.id, "clock": clock, "stack": file.stack},
            known_s / SPEED + 1 if clock == "virtual" else known_s + LAB_S,
            lambda seed, case=case: Check(  # type: ignore[misc]
                verb="check", suite=name, case=case.id, clock=clock, stack=file.stack, seed=seed
            ),
        )


def _task(cell: PlannedCell, name: str, number: int, seed: int) -> Task:
    try:
        asked = cell.request(seed)
    except ValidationError as error:
        faults = [
            Fault(f"{name}: {'.'.join(map(str, fault['loc']))}", fault["msg"])
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


def _ids(every: Sequence[Mapping[str, Value]]) -> list[str]:
    """Return a readable id of each cell from the factors in which they differ, as part of a path
    and unique.
    """
    names = list(every[0]) if every else []
    varying = [name for name in names if len({factors[name] for factors in every}) > 1] or names[:2]
    ids = [_readable([(name, factors[name]) for name in varying]) for factors in every]
    count = Counter(ids)
    return [
        (
            name
            if count[name] == 1 and len(name) <= LONGEST_ID
            else f"{name[:LONGEST_ID]}-{hashlib.sha256(repr(sorted(factors.items())).encode()).hexdigest()[:12]}"
        )
        for name, factors in zip(ids, every, strict=True)
    ]


def _readable(factors: Sequence[tuple[str, Value]]) -> str:
    plain = ("scenario", "profile", "orbit", "type", "cell", "suite", "case")
    words = [str(value) if name in plain else f"{name}={value}" for name, value in factors]
    return re.sub(r"[^A-Za-z0-9=._-]+", "-", "-".join(words)).strip("-._=") or "cell"
