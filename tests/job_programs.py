# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's program as a module: jobs are scripts in folders of their own, which no package contains."""

import importlib.util
import sys
from types import ModuleType

from satlab.common import paths


def load(job: str) -> ModuleType:
    """Import a job's program anew, and the modules of its folder."""
    folder = paths.JOBS / job / "files"
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    spec = importlib.util.spec_from_file_location(job, folder / f"{job}.py")
    if spec is None or spec.loader is None:
        raise ImportError(job)
    found = importlib.util.module_from_spec(spec)
    sys.modules[job] = found  # dataclasses look their module up
    spec.loader.exec_module(found)
    return found
