# SPDX-License-Identifier: GPL-3.0-or-later
"""The cells of a matrix of scenarios: each combination of scenario, profile, link options and
values.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from satlab.campaign import task_request
from satlab.campaign.campaign_file import CampaignFile
from satlab.campaign.plan_file import CellDraft, Value
from satlab.common import did_you_mean, paths, topology
from satlab.common.errors import ConfigError, Fault
from satlab.link import testbed_parameters
from satlab.link.option_model import options_of
from satlab.link.options import LinkOptions
from satlab.link.testbed_parameters import Testbed
from satlab.openbach import descriptor, scenario
from satlab.openbach.model import BoundScenario, Scenario
from satlab.run import catalog, scenario_run

OPTIONS = {
    option.flag.removeprefix("--"): option.name
    for option in options_of(LinkOptions)
    if option.name not in ("profile", "seed")
}
"""Options of the link by their names in a campaign's file."""
FILES = ("timeline",)
"""Options that name a file."""
LAB_S = 20.0
"""Time of a run besides its scenario, s: the lab and its calibration."""
GUESS_S = 40.0
"""Assumed time of a scenario without a duration, s."""
T = TypeVar("T")
CORES_OF_BROWSER = 2
BROWSER_JOBS = ("satlab_page_load", "satlab_video")


@dataclass
class Matrix:
    """A campaign's matrix while it is checked; relative paths are those of the campaign's folder."""

    file: CampaignFile
    folder: Path
    faults: dict[Fault, None] = field(default_factory=dict)
    _bound: dict[object, BoundScenario | None] = field(default_factory=dict)
    _scenarios: dict[Path, Scenario | None] = field(default_factory=dict)
    _prepared: dict[tuple[Path, str], bool] = field(default_factory=dict)

    def cells(self) -> Iterator[CellDraft]:
        """Yield the cells that can run; the faults of all others are in `faults`."""
        for factors in self._combinations():
            cell = self._cell(factors)
            if cell is not None:
                yield cell

    def _combinations(self) -> Iterator[dict[tuple[str, str], Value]]:
        file = self.file
        lists: dict[tuple[str, str], tuple[Value, ...]] = {
            ("scenario", ""): file.scenario or (),
            ("profile", ""): file.profile,
            **{("options", name): values for name, values in file.options.items()},
            **{("values", name): values for name, values in file.values.items()},
        }
        for name in file.options.keys() - OPTIONS.keys():
            remedy = "it is a field of its own"
            if name != "profile":
                remedy = did_you_mean.remedy(name, OPTIONS)
            self.faults[Fault(f"options.{name}", "the link has no such option", remedy)] = None
            del lists["options", name]
        for values in itertools.product(*lists.values()):
            yield dict(zip(lists, values, strict=True))

    def _cell(self, factors: Mapping[tuple[str, str], Value]) -> CellDraft | None:
        """Return a cell; None if it has a fault. All factors are checked, so one fault does not
        hide another.
        """
        given = {
            OPTIONS[name]: self._option(name, v)
            for (kind, name), v in factors.items()
            if kind == "options"
        }
        values = {name: _word(value) for (kind, name), value in factors.items() if kind == "values"}
        named = str(factors["scenario", ""])
        profile = self._noted(lambda: self._profile(str(factors["profile", ""])))
        link = self._noted(lambda: LinkOptions.of(profile=profile or "geo", **given))
        bed = self._noted(lambda: testbed_parameters.choose(values, link or LinkOptions()))
        file = self._noted(
            lambda: catalog.scenario_file(Path(named) if named in _names() else self.folder / named)
        )
        bound = (
            self._checked(file, bed, whole=link is not None and profile is not None)
            if file and bed
            else None
        )
        if profile is None or link is None or file is None or bound is None:
            return None
        has_browser = any(started.job.name in BROWSER_JOBS for started in bound.jobs())
        shown = {name or kind: value for (kind, name), value in factors.items()}
        return CellDraft(
            {**shown, "scenario": file.stem, "profile": Path(link.profile).name},
            _estimate_s(values, self._scenarios[file]),
            task_request.of_run(file, link, values).with_seed,
            self.file.seeds_of_cell,
            cores=CORES_OF_BROWSER if has_browser else 1,
        )

    def _checked(self, file: Path, bed: Testbed, *, whole: bool) -> BoundScenario | None:
        """Return the scenario with its values; None if it has a fault.

        `whole`: also prepare a run, once for each profile.
        """
        if file not in self._scenarios:
            self._scenarios[file] = self._noted(lambda: _scenario(file))
        known = self._scenarios[file]
        key = (file, *sorted(bed.settings.items()))
        if known is not None and key not in self._bound:
            self._bound[key] = self._noted(
                lambda: scenario.bind(known, catalog.settings(file, known.arguments, bed.settings))
            )
        bound = self._bound.get(key)
        if bound is not None and whole and (file, bed.link.profile) not in self._prepared:
            whole_run = scenario_run.RunRequest(
                file, bed.link, bed.settings, self.folder, at_start=bed.at_start
            )
            self._prepared[file, bed.link.profile] = (
                self._noted(lambda: scenario_run.prepare(whole_run)) is not None
            )
        return bound

    def _profile(self, named: str) -> str:
        profile = (
            named if named in paths.shipped_profiles() else str((self.folder / named).resolve())
        )
        LinkOptions(profile=profile).profile_folder()
        return profile

    def _option(self, name: str, value: Value) -> Value:
        if name in FILES and isinstance(value, str):
            return str((self.folder / value).resolve())
        if name == "loss-model" and isinstance(value, str) and value.startswith("trace:"):
            return f"trace:{(self.folder / value.removeprefix('trace:')).resolve()}"
        return value

    def _noted(self, step: Callable[[], T]) -> T | None:
        """Return the result of a step; None if it refuses, after noting its faults."""
        try:
            return step()
        except ConfigError as error:
            place, _, reason = str(error).rpartition(": ")
            for fault in error.faults or (Fault(place or "matrix", reason, error.hint),):
                self.faults[fault] = None
            return None


def _scenario(file: Path) -> Scenario:
    return scenario.load(file, descriptor.all_jobs(()), topology.load(paths.LAB_FILE).nodes)


def _names() -> frozenset[str]:
    return frozenset(path.stem for path in paths.SCENARIOS.glob("*.json"))


def _estimate_s(values: Mapping[str, str], known: Scenario | None) -> float:
    text = values.get("duration", str(known.constants.get("duration", "")) if known else "")
    try:
        return LAB_S + min(max(float(text), 1), 86_400)
    except ValueError:
        return LAB_S + GUESS_S


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
