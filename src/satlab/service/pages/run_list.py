# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of runs: instances of this service and run folders of the command line, with values and
key figures.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

import collect
from satlab.report import measurements as read
from satlab.report import run_names
from satlab.report.measurements import SummaryRecord
from satlab.service.api import access
from satlab.service.api.account_store import User
from satlab.service.api.dependencies import Context
from satlab.service.api.initial_content import PROJECT
from satlab.service.api.queue import Instance
from satlab.service.api.run_notes import RunNote
from satlab.service.pages import run_pages
from satlab.service.pages.run_pages import State

MOST_OTHERS = 500
"""Run folders of the command line that are listed, the newest."""
FIGURES_S = 0.4
"""Time that a page spends on key figures which no page has shown yet, s; the others come with the
next page.
"""
MOST_KEPT = 4000
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True)
class Listed:
    """One line.

    `key`: the instance's id, or the id of a run of the command line; `page`: its place below `/ui`.

    `folder`: None while there are no results. Times in s since the epoch and s; `elapsed` is None
    if it is not known.
    """

    key: str
    page: str
    scenario: str
    number: str
    state: State
    arguments: Mapping[str, str]
    link: Mapping[str, str]
    user: str
    launched: float
    elapsed: float | None
    folder: Path | None
    note: RunNote = field(default_factory=RunNote)
    instance: Instance | None = None
    position: int = 0
    """Place in the queue, from 1; 0 of a run that does not wait."""

    @property
    def words(self) -> str:
        """Return the text that a filter searches."""
        run_id = self.folder.name if self.folder else ""
        parts = [self.scenario, self.number, self.state.word, self.user, self.note.text, run_id]
        parts += [f"{name}={value}" for name, value in self.arguments.items()]
        parts += [f"{name}={value}" for name, value in self.link.items()]
        return " ".join(parts).lower()


def all_runs(context: Context, user: User) -> list[Listed]:
    """Return the runs that an account may see: pinned runs first, then the newest."""
    notes, now = context.run_notes.all(), context.clock()
    found = [
        of_instance(context, instance, notes.get(instance.id, RunNote()), now)
        for instance in context.queue.instances()
        if access.may_see(context, user, instance)
    ]
    found += filter(None, (of_folder(context, each) for each in other_folders(context, user)))
    return sorted(found, key=lambda run: (not run.note.pinned, -run.launched))


def matching(runs: Sequence[Listed], text: str, status: str) -> list[Listed]:
    """Return the runs that have every word of a text, and the status; '' matches all."""
    words = text.lower().split()
    return [
        run
        for run in runs
        if (not status or run.state.word == status) and all(word in run.words for word in words)
    ]


COLUMNS = ("Status", "Values", "Figures", "Launched", "Elapsed", "User")
USUAL_COLUMNS = COLUMNS[:-1]
SORTED_BY: Mapping[str, Callable[[Listed], Any]] = {
    "run": lambda run: (run.scenario, run.launched),
    "status": lambda run: run.state.word,
    "launched": lambda run: run.launched,
    "elapsed": lambda run: run.elapsed or 0.0,
    "user": lambda run: run.user,
}
"""Columns by which the list can be sorted, and the key of a run."""


def ordered(runs: Sequence[Listed], sort: str) -> list[Listed]:
    """Return the runs in the order of a column of SORTED_BY, descending with "-" in front of it;
    '' keeps their order.
    """
    key = SORTED_BY.get(sort.removeprefix("-"))
    return sorted(runs, key=key, reverse=sort.startswith("-")) if key else list(runs)


def of_instance(context: Context, instance: Instance, note: RunNote, now: float) -> Listed:
    """Return the line of an instance."""
    link = instance.request.link
    folder = run_pages.folder_of(context, instance)
    return Listed(
        key=str(instance.id),
        page=f"/runs/{instance.id}",
        scenario=instance.scenario,
        number=f"#{instance.id}",
        state=run_pages.state(instance),
        arguments=values_of(context, instance),
        link={
            name: _text(value)
            for name, value in {"profile": link.profile, **changed(instance)}.items()
        },
        user=instance.user,
        launched=instance.launched,
        elapsed=(instance.stopped or now) - instance.launched,
        folder=folder if instance.ended else None,
        note=note,
        instance=instance,
        position=run_pages.position(context, instance),
    )


def values_of(context: Context, instance: Instance) -> dict[str, str]:
    """Return the arguments of an instance, and the constants that it changed."""
    document = instance.request.documents[instance.scenario]
    stored = context.catalog.scenario(instance.project, instance.scenario) or document
    constants = document.get("constants", {})
    usual = stored.get("constants", {})
    changes = {n: str(value) for n, value in constants.items() if value != usual.get(n)}
    return {**instance.request.arguments, **changes}


def changed(instance: Instance) -> dict[str, object]:
    """Return the options of an instance's link that differ from the defaults."""
    return instance.request.link.model_dump(exclude_defaults=True)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- runs of the command line ---------------------------------------------------------------------


def other_folders(context: Context, user: User) -> list[Path]:
    """Return the run folders of the command line, the newest first, for those who may use the
    shipped project.
    """
    place, project = context.settings.other_runs, context.catalog.project(PROJECT)
    if place is None or project is None or not access.may_use(user, project):
        return []
    try:
        names = sorted(
            (name.name for name in place.iterdir() if _RUN_ID.fullmatch(name.name)), reverse=True
        )
    except OSError:
        return []
    folders = (place / name for name in names[:MOST_OTHERS])
    return [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]


def other_folder(context: Context, user: User, run_id: str) -> Path | None:
    """Return the folder of a run of the command line; None if there is none or the account may not
    see.
    """
    return next((folder for folder in other_folders(context, user) if folder.name == run_id), None)


def of_folder(context: Context, folder: Path) -> Listed | None:
    """Return the line of a run folder, None without a manifest that can be read.

    Of its values, those that are not the constants of the stored scenario.
    """
    try:
        run = _of_manifest(folder, (folder / "manifest.json").stat().st_mtime_ns)
    except (OSError, collect.RunFolderError):
        return None
    usual = (context.catalog.scenario(PROJECT, run.scenario) or {}).get("constants", {})
    own = {name: text for name, text in run.arguments.items() if text != usual.get(name)}
    return replace(run, arguments=own)


@lru_cache(maxsize=2 * MOST_OTHERS)
def _of_manifest(folder: Path, written_ns: int) -> Listed:
    """Read a manifest; `written_ns` makes a changed one a new entry."""
    del written_ns
    about = collect.manifest(folder)
    link = run_names.link_values(run_names.options_of(read.plan(folder)))
    ended = about.ended_unix_s
    return Listed(
        key=folder.name,
        page=f"/folders/{folder.name}",
        scenario=about.scenario,
        number="command line",
        state=run_pages.state_of_folder(about),
        arguments=about.arguments,
        link={"profile": about.profile, **link},
        user="",
        launched=about.started_unix_s,
        elapsed=None if ended is None else ended - about.started_unix_s,
        folder=folder if ended is not None else None,
    )


# --- key figures ----------------------------------------------------------------------------------


class KeyFigures:
    """The answers of runs as short texts; each run folder is read once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[Path, int], tuple[str, ...]] = OrderedDict()

    def of(self, runs: Sequence[Listed]) -> dict[str, tuple[str, ...]]:
        """Return the key figures by key; runs without results have none.

        Reading new figures takes at most `FIGURES_S`.
        """
        end = self._clock() + FIGURES_S
        found: dict[str, tuple[str, ...]] = {}
        for run in runs:
            table = run.folder / "records.parquet" if run.folder else None
            try:
                at = (table, table.stat().st_mtime_ns) if table else None
            except OSError:
                continue
            if at is None:
                continue
            if at not in self._known and self._clock() < end:
                self._known[at] = _figures(at[0])
                while len(self._known) > MOST_KEPT:
                    self._known.popitem(last=False)
            found[run.key] = self._known.get(at, ("not read yet: load the page again",))
        return found


def _figures(table: Path) -> tuple[str, ...]:
    try:
        rows = read.summaries([pl.scan_parquet(table)])
    except (pl.exceptions.PolarsError, OSError, KeyError, TypeError, ValueError):
        return ("records cannot be read",)
    return key_figures(rows)


def _quality(row: SummaryRecord) -> str:
    """Return the text of a record that is an answer by itself; '' of others."""
    if row.value is None or row.labels.get("stat", "median") != "median":
        return ""
    if row.metric == "rtt_ms" and row.labels.get("source") != "calibration":
        return f"RTT {row.value:.0f} ms"
    if row.metric == "responsiveness_rpm":
        return f"{row.value:.0f} round trips per minute under load"
    if row.metric == "mos":
        return f"MOS {row.value:.2f}"
    return f"video {row.value / 1e6:.3g} Mbit/s" if row.metric == "video_bitrate_bps" else ""


def _goodputs(rows: Sequence[SummaryRecord]) -> list[str]:
    """Return the goodput of each direction: the sum of terminals that transfer at once, else the
    median of transfers.
    """
    directions: dict[str, list[float]] = {}
    for one in read.transfers(rows):
        if one.goodput_bps is not None:
            directions.setdefault(one.direction, []).append(one.goodput_bps / 1e6)
    shared = {row.labels["direction"] for row in rows if row.metric == "fairness_jain_ratio"}
    texts = []
    for direction, rates in directions.items():
        named = f" {direction}" if len(directions) > 1 or len(rates) > 1 else ""
        if direction in shared:
            texts.append(f"{sum(rates):.3g} Mbit/s{named} of {len(rates)} terminals")
        elif len(rates) > 1:
            texts.append(f"{median(rates):.3g} Mbit/s{named}, median of {len(rates)}")
        else:
            texts.append(f"{rates[0]:.3g} Mbit/s{named}")
    return texts


def key_figures(rows: Sequence[SummaryRecord]) -> tuple[str, ...]:
    """Return the answers of a run: goodput, Page Load Time, quality of speech and video, RTT, and
    its calibration.
    """
    found = _goodputs(rows)
    loads = [page for page in read.page_figures(rows) if page.metric == "page_load_time_ms"]
    found += [
        f"{page.kind} page {page.median / 1000:.3g} s" for page in loads if page.median is not None
    ]
    found += [text for row in rows if (text := _quality(row))]
    failed = len(read.failures(rows))
    bad = [f"{failed} failed or cut off"] if failed else []
    bad += [
        row.reason or "out of calibration"
        for row in rows
        if row.metric == "calibration_ok" and row.value != 1
    ]
    return (*dict.fromkeys(found[:4]), *bad)
