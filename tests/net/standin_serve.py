# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab serve` with workers that take a moment:

`standin_serve.py STATE PORT`; as a worker `... STATE RUN-ID PID`.
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

FAILS = "7"
"""Value of the argument `count` with which a worker fails."""


def work(state: Path, run_id: str) -> int:
    """Pretend to run. A second run with the same id fails, since its folder exists."""
    request = json.loads(sys.stdin.read())
    (state / "runs" / run_id).mkdir()
    with (state / "ran").open("a") as file:
        file.write(f"{request['first_scenario_id']}\n")
    time.sleep(0.02)
    return 1 if request["arguments"]["count"] == FAILS else 0


def serve(state: Path, port: str) -> None:
    """Serve until SIGTERM."""
    from satlab.common.console import ProgressLog  # noqa: PLC0415
    from satlab.common.processes import stop_on_signal  # noqa: PLC0415
    from satlab.service import root_process  # noqa: PLC0415
    from satlab.service.listen import ServeRequest  # noqa: PLC0415
    from satlab.service.root_helper.server import Helper  # noqa: PLC0415

    standin = (sys.executable, "-S", __file__)
    root_process.Helper = partial(Helper, worker=standin)  # type: ignore[attr-defined, assignment]
    request = ServeRequest(f"127.0.0.1:{port}", None, state)
    root_process.run(request, ProgressLog(quiet=True), stop_on_signal())


if __name__ == "__main__":
    if len(sys.argv) == 4:
        sys.exit(work(Path(sys.argv[1]), sys.argv[2]))
    os.umask(0o022)
    serve(Path(sys.argv[1]), sys.argv[2])
