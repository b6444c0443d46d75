# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab validate`: what a path holds, and every fault in it."""

import subprocess
from pathlib import Path

from satlab import linkplan, paths, topology, webtarget
from satlab.errors import ConfigError, ExitStatus, Fault
from satlab.openbach import descriptor, validate


def check(path: Path) -> None:
    """Check a profile, a page, a job, lab.yml or scenarios; raises ConfigError with every fault found."""
    if not path.exists():
        raise ConfigError(f"{path}: no such file or folder")
    if path.is_dir() and any(path.glob("*.xml")):
        _profile(path)
    elif path.is_dir() and (path / "page.yml").is_file():
        webtarget.load(path.name, path.parent)
    elif path.is_dir() and (path / "files").is_dir():
        descriptor.load_job(path)
    elif path.suffix in {".yml", ".yaml"}:
        topology.load(path)
    else:
        _openbach(path)


def _profile(folder: Path) -> None:
    done = subprocess.run([str(paths.SATLINK), "validate", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode == ExitStatus.USAGE:
        raise linkplan.refusal(done.stderr, f"profile {folder} is not usable")


def _openbach(path: Path) -> None:
    jobs = descriptor.load_jobs(paths.JOBS)
    faults: list[Fault] = validate.validate_paths([path], jobs, topology.load(paths.LAB_FILE).nodes)
    if faults:
        raise ConfigError(f"{path} is not valid", faults)
