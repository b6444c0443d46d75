# SPDX-License-Identifier: GPL-3.0-or-later
"""Check scenario files without running them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from satlab.common.errors import ConfigError, Fault
from satlab.openbach.descriptor import Descriptor
from satlab.openbach.scenario import load


def validate_paths(paths: Iterable[Path], jobs: Mapping[str, Descriptor], entities: Iterable[str]) -> list[Fault]:
    """Return every fault of the scenario files, and of every `*.json` in the folders, that `paths` name."""
    names = frozenset(entities)
    faults: list[Fault] = []
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            faults.append(Fault(str(path), "holds no scenario", "scenarios are *.json files"))
        for file in files:
            try:
                load(file, jobs, names)
            except ConfigError as error:
                faults.extend(error.faults)
    return list(dict.fromkeys(faults))
