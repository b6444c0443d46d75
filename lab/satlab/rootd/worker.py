# SPDX-License-Identifier: GPL-3.0-or-later
"""One run for the root helper, in a process of its own: `python -m satlab.rootd.worker STATE RUN-ID PARENT-PID`.

The order comes on stdin as JSON. SIGTERM ends the run as an interrupt does. The exit status is that of `satlab run`.
"""

import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, SatlabError
from satlab.common.processes import stop_on_signal
from satlab.experiment import influx, run
from satlab.openbach.engine import FirstIds
from satlab.rootd.progress import ProgressFile
from satlab.rootd.verbs import ScenarioRequest


def run_order(order: ScenarioRequest, run_id: str, state: Path, stop: threading.Event) -> ExitStatus:
    """Run an order, telling how far it is in `STATE/progress/RUN-ID.json`; give the exit status."""
    progress = ProgressFile(state / "progress" / f"{run_id}.json", run_id)
    progress.tell()
    status, reason = ExitStatus.FAILED, "the program ended unexpectedly"
    try:
        with tempfile.TemporaryDirectory(prefix="scenario-") as folder:
            for name, document in order.documents.items():
                (Path(folder) / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
            prepared = run.prepare(_request(order, run_id, state, Path(folder)))
            progress.tell(phase="calibration")
            outcome = run.execute(prepared, ProgressLog(), stop, progress.watch)
        status, reason = outcome.status, outcome.reason
    except ConfigError as error:
        status, reason = error.status, "; ".join((str(error), *map(str, error.faults)))
    except SatlabError as error:
        status, reason = error.status, str(error)
    except OSError as error:
        status, reason = ExitStatus.HOST, f"{error.filename or ''}: {error.strerror}"
    finally:
        progress.tell(phase="ended", exit_status=int(status), reason=reason[:2000])
    return status


def _request(order: ScenarioRequest, run_id: str, state: Path, folder: Path) -> run.RunRequest:
    options = order.link.options()
    if not (paths.PROFILES / options.profile).is_dir():
        raise ConfigError(f"there is no profile {options.profile}")
    uploaded = state / "api" / "jobs"
    return run.RunRequest(
        scenario=folder / f"{order.scenario}.json",
        link=options,
        settings=order.arguments,
        runs=state / "runs",
        deadline_s=order.deadline_s,
        entities=order.entities,
        jobs=uploaded if uploaded.is_dir() else None,
        run_id=run_id,
        endless=order.endless,
        influx=os.environ.get(influx.VARIABLE) or None,
        first_ids=FirstIds(order.first_scenario_id, order.first_job_id),
    )


def main() -> None:
    """Run what stands on stdin, and end with the run's status."""
    state, run_id, parent = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    stop = stop_on_signal()
    if os.getppid() != parent:  # it died before the kernel was asked to tell
        signal.raise_signal(signal.SIGKILL)
    os.umask(0o022)
    sys.exit(run_order(ScenarioRequest.model_validate_json(sys.stdin.buffer.read()), run_id, state, stop))


if __name__ == "__main__":
    main()
