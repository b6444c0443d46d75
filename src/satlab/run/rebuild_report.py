# SPDX-License-Identifier: GPL-3.0-or-later
"""Rebuilds records and report from raw files, and exports records."""

import json
from pathlib import Path

import collect
from satlab import report
from satlab.common import plain_files, scratch
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, Fault
from satlab.common.sudo_caller import chown_to_caller
from satlab.report import measurements
from satlab.run import sandboxed_reader

PAGE = "report/index.html"
"""The report in a run folder."""


def rebuild(
    folders: list[Path], out: Path | None, log: ProgressLog
) -> tuple[list[collect.Table], Path]:
    """Collect each run anew and build one report of all of them; return the records and the
    report's path.

    A raw file whose digest differs from the manifest's is named in a warning: the figures are not
    those of the run.
    """
    _check(folders)
    runs = {}
    for folder in folders:
        for problem in _problems(folder):
            log.line(f"warning: {folder}: {problem}")
        runs[folder] = sandboxed_reader.collected(folder)
    title = "satlab: " + ", ".join(f.name for f in folders[:3])
    path = out or folders[0] / PAGE
    if out:
        report.build(runs, path, title)
    else:
        _build_in(folders[0].resolve(), runs, title)
    for folder in folders:
        chown_to_caller(folder)
    return [run.records for run in runs.values()], path


def _problems(folder: Path) -> list[str]:
    """Return why figures are not those of the run: it has no end, or its raw files have changed."""
    if collect.manifest(folder).ended_unix_s is None:  # digests come with the end
        return ["the run has not ended, or was killed: this report has what it has written so far"]
    return collect.verify(folder)


def _build_in(folder: Path, runs: dict[Path, collect.Collected], title: str) -> None:
    """Build the report in a run folder, which may be somebody else's: over no link of theirs."""
    with scratch.folder("report") as own:
        page = report.build(runs, own / "index.html", title)
        try:
            plain_files.put(folder, PAGE, page)
        except OSError as error:
            raise ConfigError(
                f"{folder / PAGE}: {error.strerror}", hint="name another file by --out"
            ) from error


def export(folders: list[Path], out: Path, *, has_series: bool) -> int:
    """Write the records of runs, as they were collected, to one file; return the number of rows.

    Raises ConfigError.

    A file NAME.har has the requests of observed page loads instead.
    """
    _check(folders)
    if out.suffix == ".har":
        return _export_har(folders, out)
    runs = {folder: sandboxed_reader.without_writing(folder).records for folder in folders}
    rows = report.export(runs, out, has_series=has_series)
    chown_to_caller(out)
    return rows


def _export_har(folders: list[Path], out: Path) -> int:
    loads = []
    for folder in folders:
        for one in sandboxed_reader.without_writing(folder).stored.observations:
            kind = measurements.kind_of_load(one.load.protocol, one.pep)
            loads.append((f"{folder.resolve().name} {kind} {one.load.load_index}", one.load))
    if not loads:
        reason, remedy = "a HAR file has requests of observed loads", "run with --set observed=1"
        raise ConfigError("no observed page loads", [Fault(str(out), reason, remedy)])
    document = collect.har(loads, collect.manifest(folders[0]).satlab_version)
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    chown_to_caller(out)
    return len(document["log"]["entries"])


def _check(folders: list[Path]) -> None:
    faults = []
    for folder in folders:
        try:
            collect.manifest(folder)
        except collect.RunFolderError as error:
            reason = str(error).removeprefix(f"{folder} ")
            faults.append(Fault(str(folder), reason, "name a folder of runs/"))
    if faults:
        raise ConfigError("not all of these are runs", faults)
