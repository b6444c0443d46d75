# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures how long this host's browser takes for a page over a bare wire, and keeps it: waits for
a core do not show how fast the cores are.

Once for each page and protocol; again on another host, with another browser, or after an hour.
"""

import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pydantic import ValidationError

import collect
from collect.browser_yardstick import FILE, BrowserYardstick, BrowserYardsticks
from satlab.common import paths, processes, scratch
from satlab.common.console import ProgressLog
from satlab.common.files import write_atomically
from satlab.common.locks import open_lock, try_lock
from satlab.common.topology import Role
from satlab.lab import netns
from satlab.lab.job_host import LabHost
from satlab.lab.lab import Lab
from satlab.link.config import client_lan
from satlab.openbach import descriptor, runner, scenario
from satlab.openbach.model import BoundScenario
from satlab.run import (
    calibrate,
    host_load,
    host_stamp,
    manifest,
    sandboxed_reader,
    scenario_value_checks,
)

LOADS = 3
FRESH_S = 3600.0
"""A virtual machine may move to another processor, or get slower neighbours: its page faults took 5 us
in the evening and a third of that an hour later, while the known task took as long as before.
"""
DEADLINE_S = 120.0


class Page(NamedTuple):
    """A page over a protocol."""

    name: str
    protocol: str


def write(
    lab: Lab, asked: BoundScenario, raw: Path, log: ProgressLog, stop: threading.Event
) -> None:
    """Write the yardsticks of the pages that a scenario loads to a run's raw folder, and measure
    before what is unknown or stale; nothing for a scenario without page loads.

    Raises HostError.
    """
    pages = list(dict.fromkeys(_pages(asked)))
    if not pages:
        return
    stamp, _ = host_stamp.stamp()
    browser = manifest.versions(paths.SATLINK).get("chromium", "")
    file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = open_lock(file().with_suffix(".lock"))
    try:
        # A second lab on this host waits, and finds what the first has measured.
        processes.wait(lambda: stop.is_set() or try_lock(lock), len(pages) * DEADLINE_S)
        known = [one for one in kept() if _is_fresh(one, stamp, browser)]
        for page in pages:
            if stop.is_set() or page in [(one.page, one.protocol) for one in known]:
                continue
            with log.step(f"browser yardstick: {page.name} over {page.protocol}") as step:
                before = host_load.state((), lambda _, work: work())
                found = yardstick(_loads(lab, page, raw, stop), page, stamp, browser)
                busy = calibrate.deviations(
                    host_load.between(before, host_load.state((), lambda _, work: work()))
                )
                why = f"not measurable: {', '.join(busy) or 'loads failed'}"
                is_sound = found is not None and not busy
                step.outcome = f"{found.page_load_time_ms:.0f} ms" if found and is_sound else why
            known += [found] if found and is_sound else []
        write_atomically(file(), _text(known))
    finally:
        os.close(lock)
    (raw / FILE).write_text(_text([one for one in known if (one.page, one.protocol) in pages]))


def _text(known: Sequence[BrowserYardstick]) -> str:
    document = BrowserYardsticks(yardsticks=list(known))
    return document.model_dump_json(by_alias=True, indent=1) + "\n"


def file() -> Path:
    """Return where the yardsticks of this host are kept."""
    return paths.state_folder() / f"browser-yardsticks-{os.uname().nodename}.json"


def kept() -> list[BrowserYardstick]:
    """Return the kept yardsticks; none from an invalid file."""
    try:
        return BrowserYardsticks.model_validate_json(file().read_bytes()).yardsticks
    except (OSError, ValidationError):
        return []


def _is_fresh(one: BrowserYardstick, stamp: str, browser: str) -> bool:
    age_s = time.time() - one.measured_unix_s
    return (one.stamp, one.browser) == (stamp, browser) and 0 <= age_s < FRESH_S


def _pages(asked: BoundScenario) -> Iterator[Page]:
    given = scenario_value_checks.given
    for started in asked.jobs():
        is_firefox = "firefox" in given(started, scenario_value_checks.BROWSER)
        if started.job.name == "satlab_page_load" and not is_firefox:  # they are Chromium's
            page = next(given(started, scenario_value_checks.PAGE), "kepler")
            yield Page(page, next(str(one) for one in started.words if one in ("h1", "h2", "h3")))


def _loads(lab: Lab, page: Page, raw: Path, stop: threading.Event) -> Sequence[collect.PageLoad]:
    """Load a page over a bare wire between client and server of a lab. `raw` is that of the run,
    whose manifest is that of these loads, too.
    """
    _, client = client_lan(lab.topology)
    server = lab.topology.node_of(Role.SERVER)
    loaded = scenario.load(
        paths.SCENARIOS / "page_load.json", descriptor.all_jobs(()), lab.topology.nodes
    )
    values = {"page": page.name, "protocol": page.protocol, "runs": str(LOADS)}
    bound = scenario.bind(loaded, values | {"server_ip": netns.WIRE_SERVER})
    with (
        scratch.folder("yardstick") as own,
        netns.bare_wire(lab.lab_id, client.node, server),
    ):
        shutil.copy(raw.parent / "manifest.json", own)
        for name in ("raw", "private"):
            (own / name).mkdir(mode=0o700)
        host = LabHost(lab, own / "private")
        runner.run(bound, host, own / "raw", lambda _: None, stop, DEADLINE_S)
        return [one.load for one in sandboxed_reader.stored(own).loads]


def yardstick(
    loads: Sequence[collect.PageLoad], page: Page, stamp: str, browser: str
) -> BrowserYardstick | None:
    """Return the medians of loads over a bare wire; None unless most of them are ok."""
    good = [load for load in loads if load.status == "ok"]
    if 2 * len(good) <= LOADS:
        return None

    def middle(name: str) -> float:
        return float(round(median(getattr(load, name) for load in good), 1))

    return BrowserYardstick(
        stamp=stamp,
        browser=browser,
        page=page.name,
        protocol=page.protocol,  # type: ignore[arg-type]  # of a descriptor's choices
        measured_unix_s=round(time.time(), 1),
        loads=len(good),
        response_start_ms=middle("response_start_ms"),
        first_contentful_paint_ms=middle("first_contentful_paint_ms"),
        page_load_time_ms=middle("page_load_time_ms"),
        task_ms=middle("yardstick_ms"),
    )
