# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of jobs share: a program as a module, and as a process with the recorder in place of an agent."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from satlab.common import paths

JOBS = Path(__file__).parent


def program(job: str) -> Path:
    return JOBS / job / "files" / f"{job}.py"


@dataclass(frozen=True)
class Trial:
    """A job and the recorder of its statistics; `raw` is the raw folder of its run."""

    job: str
    raw: Path

    def start(self, *arguments: str, within: Sequence[str] = (), **environment: str) -> "subprocess.Popen[str]":
        """Start the job, behind the words `within`; the caller waits for it."""
        return subprocess.Popen(
            [*within, sys.executable, str(program(self.job)), *arguments],
            env={
                **{"PATH": os.environ["PATH"], "PYTHONPATH": str(paths.SHIM), "SATLAB_RAW": str(self.raw)},
                **{"SATLAB_AGENT": "client", "JOB_NAME": self.job, "JOB_INSTANCE_ID": "1"},
                **{"SCENARIO_INSTANCE_ID": "1", "OWNER_SCENARIO_INSTANCE_ID": "1", **environment},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, within: Sequence[str] = (), **environment: str) -> tuple[int, str]:
        """Run the job to its end; return status and output."""
        process = self.start(*arguments, within=within, **environment)
        output, _ = process.communicate(timeout=30)
        return process.returncode, output

    def records(self) -> list[dict[str, Any]]:
        """Return what was sent so far."""
        file = self.raw / "stats.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def trial(tmp_path: Path) -> Callable[[str], Trial]:
    """Return a job to try."""
    return lambda job: Trial(job, tmp_path)


@pytest.fixture
def module() -> Callable[[str], ModuleType]:
    """Load a job's program as a module."""

    def load(job: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(job, program(job))
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        sys.modules[job] = found  # dataclasses look their module up
        spec.loader.exec_module(found)
        return found

    return load
