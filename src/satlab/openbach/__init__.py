# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH 2.7 scenarios and jobs: read, checked whole, bound to values, run by a pure engine and a
small runner.
"""

from satlab.openbach.descriptor import Descriptor, load_job, load_jobs
from satlab.openbach.model import BoundScenario, Scenario
from satlab.openbach.runner import JobHost, JobProgress, ScenarioResult, run
from satlab.openbach.scenario import bind, load, validate_paths

__all__ = [
    "BoundScenario",
    "Descriptor",
    "JobHost",
    "JobProgress",
    "Scenario",
    "ScenarioResult",
    "bind",
    "load",
    "load_job",
    "load_jobs",
    "run",
    "validate_paths",
]
