# SPDX-License-Identifier: GPL-3.0-or-later
"""Rebuilds records and report from raw files."""

from collections.abc import Iterator
from pathlib import Path

import polars

import collect
from satlab import report
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, Fault
from satlab.netlab import ownership


def rebuild(folders: list[Path], out: Path | None, log: ProgressLog) -> tuple[list[polars.DataFrame], Path]:
    """Collect each run anew and build one report of all of them; return the frames and the report's path.

    A raw file whose digest differs from the manifest's is named in a warning: the figures are not those of the run.
    """
    faults = [fault for folder in folders for fault in _unusable(folder)]
    if faults:
        raise ConfigError("not all of these are runs", faults)
    frames = []
    for folder in folders:
        for problem in collect.verify(folder):
            log.line(f"warning: {folder}: {problem}")
        frames.append(collect.collect(folder))
    path = out or folders[0] / "report" / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    report.build(dict(zip(folders, frames, strict=True)), path, "satlab: " + ", ".join(f.name for f in folders[:3]))
    for folder in folders:
        ownership.chown_to_caller(folder)
    return frames, path


def _unusable(folder: Path) -> Iterator[Fault]:
    try:
        collect.manifest(folder)
    except collect.RunFolderError as error:
        yield Fault(str(folder), str(error), "a run folder holds a readable manifest.json")
