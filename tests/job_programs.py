# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's program, as a module and as a command: jobs are scripts in folders of their own, which no
package contains.
"""

import importlib.util
import os
import sys
from pathlib import Path
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


def command(job: str, node: str, raw: Path, *arguments: str, **variables: str) -> list[str]:
    """Return the words that run a job as an agent would, its results in the folder `raw`."""
    own = {
        "PATH": f"{paths.PROGRAMS}:{os.environ['PATH']}",
        "PYTHONPATH": str(paths.SHIM),
        "SATLAB_RAW": str(raw),
        "SATLAB_AGENT": node,
        "JOB_NAME": job,
        "JOB_INSTANCE_ID": "1",
        "SCENARIO_INSTANCE_ID": "1",
        "OWNER_SCENARIO_INSTANCE_ID": "1",
    }
    words = [f"{name}={value}" for name, value in (own | variables).items()]
    program = paths.JOBS / job / "files" / f"{job}.py"
    return ["env", "-i", *words, sys.executable, str(program), *arguments]
