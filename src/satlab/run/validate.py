# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab validate`: recognizes the files of a path and reports every fault in them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from satlab.common import paths, terminals, topology
from satlab.common.errors import ConfigError, Fault
from satlab.lab import web_target
from satlab.link import control, satlink
from satlab.openbach import descriptor, job_folder_checks, scenario


def check(path: Path, *, lenient: bool = False, jobs: Path | None = None) -> list[str]:
    """Check a profile, page, job, lab.yml, scenarios, timelines, or a folder of these; ConfigError
    has every fault.

    `jobs`: a folder of further jobs; then jobs and scenarios are read as OpenBACH reads them.

    Returns lines to show: the terminals of a profile that has several, and warnings. With `lenient`
    warnings are faults that OpenSAND's loader accepts; with `jobs` those that OpenBACH accepts.
    """
    if not path.exists():
        raise ConfigError(f"{path}: no such file or folder")
    if path.suffix == ".xml" or (path.is_dir() and _is_profile(path)):
        return _profile(path, lenient=lenient)
    if path.is_dir() and (path / "page.yml").is_file():
        web_target.load(path.name, path.parent)
    elif path.is_dir() and (path / "files").is_dir():
        return _job(path, is_upstream=jobs is not None)
    elif path.suffix in {".yml", ".yaml"}:
        terminals.named(path)
    elif path.is_file() or any(path.glob("*.json")):
        return _documents(path, sorted(path.glob("*.json")) if path.is_dir() else [path], jobs)
    else:
        return _below(path, lenient=lenient, jobs=jobs)
    return []


def _is_profile(folder: Path) -> bool:
    """Return whether a folder holds a profile in one of OpenSAND's layouts, or one of its releases
    before 6.
    """
    marks = ("*.xml", "*/infrastructure.xml", "entities/*/infrastructure.xml", "core*.conf")
    found = (file for mark in marks for file in folder.glob(mark))
    return any(
        file.parent == folder or not file.parent.name.startswith((".", "_")) for file in found
    )


def _below(folder: Path, *, lenient: bool, jobs: Path | None) -> list[str]:
    """Check what the folders inside a folder hold; returns the warnings."""
    faults: list[Fault] = []
    warnings: list[str] = []
    inside = [
        entry
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.is_symlink() and not entry.name.startswith((".", "_"))
    ]
    for entry in inside:
        try:
            warnings += check(entry, lenient=lenient, jobs=jobs)
        except ConfigError as error:
            faults += _faults_of(error, entry)
    if not inside:
        remedy = "profiles, pages, jobs or scenarios (*.json)"
        faults.append(Fault(str(folder), "holds nothing to check", remedy))
    _refuse(folder, faults)
    return warnings


def _documents(path: Path, files: list[Path], jobs: Path | None) -> list[str]:
    """Check JSON files: a list is a timeline of the link, anything else is a scenario.

    Returns the warnings.
    """
    faults: list[Fault] = []
    timelines = [file for file in files if file.read_bytes().lstrip()[:1] == b"["]
    for file in timelines:
        try:
            control.load_steps(file)
        except ConfigError as error:
            faults += _faults_of(error, file)
    scenarios = [file for file in files if file not in timelines]
    warnings: list[Fault] | None = None if jobs is None else []
    known = descriptor.all_jobs([jobs] if jobs else [])
    entities = list(topology.load(paths.LAB_FILE).nodes)
    _refuse(path, [*faults, *scenario.validate_paths(scenarios, known, entities, warnings)])
    return _texts(warnings or ())


def _faults_of(error: ConfigError, path: Path) -> Sequence[Fault]:
    return error.faults or [Fault(str(path), str(error).removeprefix(f"{path}: "), error.hint)]


def _job(folder: Path, *, is_upstream: bool) -> list[str]:
    """Check a job; returns the warnings."""
    job = descriptor.load_job(folder, is_upstream=is_upstream)
    faults = job_folder_checks.check_folder(job)
    if not is_upstream:
        _refuse(folder, faults)
        return []
    return _texts((*job.warnings, *faults))  # a controller reads nothing but the descriptor


def _texts(warnings: Iterable[Fault]) -> list[str]:
    return [f"warning: {warning}" for warning in dict.fromkeys(warnings)]


def _refuse(path: Path, faults: list[Fault]) -> None:
    if faults:
        raise ConfigError(f"{path} is not valid", faults)


def _profile(folder: Path, *, lenient: bool) -> list[str]:
    arguments = [*(["--lenient"] if lenient else []), str(folder)]
    done = satlink.run(paths.SATLINK, "validate", arguments, f"profile {folder} is not usable")
    shown = [line for line in done.stdout.splitlines() if line.startswith(f"{folder}: terminal ")]
    shown += [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    return shown
