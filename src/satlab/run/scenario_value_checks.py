# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a scenario's values against pages and deadline, before a lab is up."""

from collections.abc import Collection, Iterator

from satlab.common import did_you_mean
from satlab.common.errors import ConfigError, Fault
from satlab.lab import web_target
from satlab.openbach.descriptor import Level
from satlab.openbach.model import BoundScenario, StartJob

PAGE, DURATION, BROWSER = "page", "duration_s", "browser"
"""Arguments of jobs: the name of a page, a length in s, a browser."""
CHROMIUM_ALONE = {"observed": 0.0, "cpu_slowdown": 1.0}
"""Arguments of page loads that Firefox does not support, with the value that switches each off."""
_SHIPPED = "satlab_"
"""Prefix of the names of jobs whose arguments are known."""


def check(bound: BoundScenario, deadline_s: float) -> None:
    """Check that the pages of jobs exist, and that no job is to last longer than the run may.

    Raises:
        ConfigError: with every fault.
    """
    pages = web_target.names()
    faults: list[Fault] = []
    for started in bound.jobs():
        for page in given(started, PAGE):
            if page not in pages:
                place = _place(bound, started, PAGE, page)
                faults.append(
                    Fault(place, "there is no such page", did_you_mean.remedy(page, pages))
                )
        if "firefox" in given(started, BROWSER):
            faults += _lacking_in_firefox(bound, started, pages)
        for text in given(started, DURATION):
            if float(text) > deadline_s:
                reason = f"is longer than the run may last, {deadline_s:g} s"
                place = _place(bound, started, DURATION, text)
                faults.append(Fault(place, reason, "less, or a longer deadline"))
    if faults:
        raise ConfigError(
            f"the scenario {bound.name} cannot run with these values",
            tuple(dict.fromkeys(faults)),
        )


def _lacking_in_firefox(
    bound: BoundScenario, started: StartJob, pages: Collection[str]
) -> Iterator[Fault]:
    remedy = "leave it out, or browser=chromium"
    for name, usual in CHROMIUM_ALONE.items():
        for text in given(started, name):
            if float(text) > usual:
                yield Fault(_place(bound, started, name, text), "Firefox has none", remedy)
    for page in given(started, PAGE):
        if page in pages and len(web_target.load(page).hosts) > 1:
            reason = "Firefox loads pages of one domain alone"
            yield Fault(_place(bound, started, PAGE, page), reason, "page=kepler")


def given(started: StartJob, name: str) -> Iterator[str]:
    """Yield the values that a shipped job gets for an argument with a flag."""
    if not started.job.name.startswith(_SHIPPED):
        return
    yield from started.values(set(_flags(started.job.level, name)))


def _flags(level: Level, name: str) -> Iterator[str]:
    if name in level.arguments and level.arguments[name].flag:
        yield level.arguments[name].flag or ""
    for group in level.subcommand:
        for choice in group.choices:
            yield from _flags(choice, name)


def _place(bound: BoundScenario, started: StartJob, name: str, value: str) -> str:
    """Return the value of the scenario from which a job's argument comes, else the job's."""
    texts = (value, value.removesuffix(".0"))
    names = (known for known, text in bound.values.items() if text in texts)
    found = next(names, None)
    return f"{started.job.name}: {name} {value}" if found is None else f"{found}={texts[1]}"
