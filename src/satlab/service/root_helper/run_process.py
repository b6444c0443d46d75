# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of the root helper, as a process: `python -m satlab.service.root_helper.run_process STATE RUN-ID
PARENT-PID`.

Stdin holds the request as JSON. SIGTERM stops the run. The exit status is that of `satlab run`.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from satlab.common import paths, scratch, terminals
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, SatlabError
from satlab.common.processes import stop_on_signal
from satlab.openbach.engine import FirstIds, ScenarioInstance
from satlab.run import influx, scenario_run
from satlab.run.lab_activity import Sampling
from satlab.run.run_folder import RunResult
from satlab.run.scenario_run import JOBS_VARIABLE, PRIVILEGES_VARIABLE, PreparedRun
from satlab.service.root_helper import uploaded_jobs
from satlab.service.root_helper.progress_file import ProgressFile
from satlab.service.root_helper.protocol import ScenarioRequest


def run_request(
    request: ScenarioRequest, run_id: str, state: Path, stop: threading.Event
) -> ExitStatus:
    """Run a request and write its progress to `STATE/progress/RUN-ID.json`."""
    progress = ProgressFile(state / "progress" / f"{run_id}.json", run_id)
    progress.update()
    status, reason = ExitStatus.FAILED, "the program ended unexpectedly"
    try:
        with scratch.folder("scenario", 0o711) as folder:  # jobs read theirs
            for name, document in request.documents.items():
                place = folder / f"{name}.json"
                place.touch(mode=0o600)
                place.write_text(json.dumps(document), encoding="utf-8")
            prepared = scenario_run.prepare(_run_request(request, run_id, state, folder))
            progress.update(phase="calibration")
            outcome = _execute(prepared, run_id, progress, stop)
        status, reason = outcome.status, outcome.reason
    except ConfigError as error:
        status, reason = error.status, "; ".join((str(error), *map(str, error.faults)))
    except SatlabError as error:
        status, reason = error.status, str(error)
    except OSError as error:
        status, reason = ExitStatus.HOST, f"{error.filename or ''}: {error.strerror}"
    finally:
        progress.update(phase="ended", exit_status=int(status), reason=reason[:2000], activity=None)
    return status


def _execute(
    prepared: PreparedRun, run_id: str, progress: ProgressFile, stop: threading.Event
) -> RunResult:
    """Execute the run; while its scenario runs, the progress has what its nodes do."""
    with Sampling(
        scenario_run.lab_id(run_id), lambda found: progress.update(activity=found)
    ) as sampling:

        def watch(instance: ScenarioInstance) -> None:
            progress.watch(instance)
            sampling.begin()

        return scenario_run.execute(prepared, ProgressLog(), stop, watch)


def _run_request(
    request: ScenarioRequest, run_id: str, state: Path, folder: Path
) -> scenario_run.RunRequest:
    options = request.link.options()
    if not (paths.PROFILES / options.profile).is_dir():
        raise ConfigError(f"there is no profile {options.profile}")
    uploaded = folder / "jobs"
    uploaded_jobs.copy(state / "api" / "jobs", uploaded)
    return scenario_run.RunRequest(
        scenario=folder / f"{request.scenario}.json",
        link=options,
        settings=request.arguments,
        runs=state / "runs",
        deadline_s=request.deadline_s,
        entities=terminals.entities(options.topology()) | request.entities,
        jobs=tuple(each for each in (uploaded, _named(JOBS_VARIABLE)) if each and each.is_dir()),
        privileges=_named(PRIVILEGES_VARIABLE),
        run_id=run_id,
        endless=request.endless,
        influx=os.environ.get(influx.VARIABLE) or None,
        first_ids=FirstIds(request.first_scenario_id, request.first_job_id),
    )


def _named(variable: str) -> Path | None:
    """Return a path that whoever started the service has named."""
    name = os.environ.get(variable)
    return Path(name) if name else None


def main() -> None:
    state, run_id, parent = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    stop = stop_on_signal()
    if os.getppid() != parent:  # the parent ended before --pdeathsig was set
        signal.raise_signal(signal.SIGKILL)
    os.umask(0o022)
    sys.exit(
        run_request(
            ScenarioRequest.model_validate_json(sys.stdin.buffer.read()), run_id, state, stop
        )
    )


if __name__ == "__main__":
    main()
