# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of a run: logs of its runner, of the emulator and of its jobs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastapi import Response
from fastapi.responses import FileResponse

from satlab.lab.lab import LAN_PROCESS, SATLINK_PROCESS
from satlab.openbach.engine import JobStatus
from satlab.service.api.api_answers import not_found
from satlab.service.api.dependencies import Context
from satlab.service.api.export import is_stored
from satlab.service.api.instance_json import job_progress
from satlab.service.api.queue import Instance

RUNNER = "runner.log"
FIRST = (f"{SATLINK_PROCESS}.log", f"{LAN_PROCESS}.log")
MOST_LOGS = 40
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}\.log", re.ASCII)
TAIL_BYTES = 4096
TAIL_LINES = 40
"""Logs on a page, and what it shows of the end of each."""


@dataclass(frozen=True)
class Log:
    """The end of a log.

    `title`: whose it is; `is_cut`: there is more before it; `is_notable`: its job failed.
    """

    name: str
    title: str
    size: int
    tail: str
    is_cut: bool
    is_notable: bool


@dataclass(frozen=True)
class Logs:
    """The logs of a run that its page shows, and the number of others."""

    shown: tuple[Log, ...]
    others: int


def files(context: Context, folder: Path | None, run_id: str | None) -> dict[str, Path]:
    """Return the logs of a run by the name under which they are offered: files that this process
    may read.
    """
    found = {}
    runner = context.settings.logs / f"{run_id}.log"
    if run_id is not None and is_stored(runner.resolve(), context.settings.logs.resolve()):
        found[RUNNER] = runner
    place = folder.resolve() / "raw" / "logs" if folder else None
    if place is not None and place.is_dir():
        names = sorted((path.name for path in place.iterdir()), key=_order)
        found |= {
            name: place / name
            for name in names
            if _NAME.fullmatch(name) and is_stored(place / name, place)
        }
    return found


def _order(name: str) -> tuple[bool, int, str]:
    """Order logs: the emulator's, then those of jobs by their number."""
    number = name.removesuffix(".log").rpartition("-")[2]
    return name not in FIRST, int(number) if number.isdecimal() and len(number) < 20 else 0, name


def logs(found: Mapping[str, Path], instance: Instance | None = None) -> Logs:
    """Return the ends of logs that are not empty."""
    owners = (
        {f"{job['job']}-{job['id']}.log": job for job in job_progress(instance)} if instance else {}
    )
    shown = []
    for name, path in found.items():
        job = owners.get(name)
        title = f"{job['job']} on {job['entity']}" if job else name.removesuffix(".log")
        log = read(
            name, title, path, is_notable=job is not None and job["status"] == JobStatus.ERROR
        )
        if log is not None and log.size:
            shown.append(log)
    return Logs(tuple(shown[:MOST_LOGS]), len(shown[MOST_LOGS:]))


def read(name: str, title: str, path: Path, *, is_notable: bool = False) -> Log | None:
    """Return the end of a log, at most `TAIL_BYTES` and `TAIL_LINES`; None if it is gone."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return None
    lines = text.splitlines()
    if size > TAIL_BYTES and len(lines) > 1:
        lines = lines[1:]  # the first may be half a line
    tail = lines[-TAIL_LINES:]
    return Log(
        name, title, size, "\n".join(tail), size > TAIL_BYTES or len(lines) > TAIL_LINES, is_notable
    )


def attachment(found: Mapping[str, Path], name: str) -> Response:
    """Return a whole log, which a browser stores and does not show. Raises ApiError: 404."""
    if name not in found:
        raise not_found("log")
    return FileResponse(found[name], media_type="text/plain; charset=utf-8", filename=name)
