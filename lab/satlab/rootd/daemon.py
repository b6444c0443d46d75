# SPDX-License-Identifier: GPL-3.0-or-later
"""The root helper: answers the API process on a Unix socket, and holds the one run that there may be.

Only the user of the API process is answered (SO_PEERCRED). What a killed helper has left behind, the next one removes
before it answers anybody.
"""

import contextlib
import logging
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from satlab.common import paths, scratch
from satlab.netlab import ownership
from satlab.rootd.verbs import (
    RefusedError,
    Response,
    RunStatus,
    ScenarioRequest,
    StartRequest,
    StatusRequest,
    StopRequest,
    read_line,
    read_request,
)

SEND_S = 5.0
"""How long a peer may take over a request or an answer, s."""
_LOG = logging.getLogger("satlab.rootd")
_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid


@dataclass
class HelperRun:
    """A run of this helper; `process` is its worker."""

    run_id: str
    process: subprocess.Popen[bytes]
    stop_asked: bool = False


class Helper:
    """Carries the verbs out. `most_runs`: run folders that are kept; the oldest go first."""

    def __init__(self, state: Path, most_runs: int, worker: tuple[str, ...] = ()) -> None:
        """Make the folders and remove what an earlier helper has left behind."""
        self._state, self._most_runs = state, most_runs
        self._worker = worker or (sys.executable, "-m", "satlab.rootd.worker")
        self._run: HelperRun | None = None
        for name in ("runs", "progress", "logs"):
            (state / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        self._scratch = state / "scratch"
        self._make_scratch()
        ownership.sweep()

    def answer(self, line: bytes) -> Response:
        """Carry out one request."""
        try:
            match read_request(line):
                case StartRequest(run_id=run_id, order=order):
                    self.start(run_id, order)
                case StopRequest(run_id=run_id):
                    self.stop(run_id)
                case StatusRequest(run_id=run_id):
                    return Response(status=self.status(run_id))
        except RefusedError as error:
            return Response(error=str(error))
        return Response()

    def start(self, run_id: str, order: ScenarioRequest) -> None:
        """Start a run. Raises RefusedError while there is one, and for an id that there was before."""
        if self._run is not None and self._run.process.poll() is None:
            raise RefusedError("another run is going on")
        if (self._state / "runs" / run_id).exists() or self._file(run_id).exists():
            raise RefusedError(f"there was a run {run_id} before")
        self._prune()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
        argv = ["setpriv", "--pdeathsig=KILL", *self._worker, str(self._state), run_id, str(os.getpid())]
        with (self._state / "logs" / f"{run_id}.log").open("wb") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment | {"TMPDIR": str(self._scratch), "PYTHONPATH": paths.PYTHONPATH},
                start_new_session=True,
            )
        self._run = HelperRun(run_id, process)
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(order.model_dump_json().encode())
                process.stdin.close()

    def stop(self, run_id: str) -> None:
        """Ask a run to end, once: a second signal would not let it tidy up."""
        run = self._run
        if run is not None and run.run_id == run_id and not run.stop_asked and run.process.poll() is None:
            run.stop_asked = True
            run.process.send_signal(signal.SIGTERM)

    def status(self, run_id: str) -> RunStatus:
        """Return how a run is; one that this helper does not know has ended, nobody knows how."""
        run = self._run if self._run is not None and self._run.run_id == run_id else None
        code = run.process.poll() if run else None
        progress = None
        with contextlib.suppress(FileNotFoundError):
            progress = self._file(run_id).read_bytes()
        document = RunStatus.model_validate_json(
            b'{"phase":"ended","progress":' + (progress or b"null") + b"}"
        ).progress
        if run is not None and code is None:
            return RunStatus(phase="running", progress=document)
        if run is not None:
            ownership.sweep()  # of a worker that was killed
        return RunStatus(phase="ended", exit_status=code if code is not None and code >= 0 else None, progress=document)

    def close(self, seconds: float = 20.0) -> None:
        """End the run that goes on, and remove what is left of it."""
        if self._run is not None:
            self._run.process.terminate()
            try:
                self._run.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._run.process.kill()
                self._run.process.wait()
        ownership.sweep()
        scratch.try_remove(self._scratch)

    def _make_scratch(self) -> None:
        """Make the folder of what runs need for a while; what of an earlier one cannot be removed is set aside."""
        for left in sorted(self._state.glob("scratch*")):  # among them those that were set aside before
            scratch.try_remove(left)
        if os.path.lexists(self._scratch):
            aside = self._scratch.with_name(f"scratch-{secrets.token_hex(4)}")
            self._scratch.rename(aside)
            _LOG.warning("%s: is set aside as %s", self._scratch, aside)
        self._scratch.mkdir(mode=0o711)

    def _file(self, run_id: str) -> Path:
        return self._state / "progress" / f"{run_id}.json"

    def _prune(self) -> None:
        """Make room for one more run; ids begin with the date, so their order is that of time."""
        folders = sorted((self._state / "runs").iterdir())
        for folder in folders[: max(0, len(folders) - self._most_runs + 1)]:
            scratch.try_remove(folder)
            for file in (self._file(folder.name), self._state / "logs" / f"{folder.name}.log"):
                file.unlink(missing_ok=True)


def listen(path: Path, uid: int) -> socket.socket:
    """Make the socket, which the user of the API process alone may connect to."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.bind(str(path))
    path.chmod(0o600)
    os.chown(path, uid, uid)
    listener.listen(4)
    return listener


def serve_one(listener: socket.socket, helper: Helper, uid: int) -> None:
    """Take one connection, answer its one request, and close it. A peer that is slow or wrong is dropped."""
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        connection.settimeout(SEND_S)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(raw)[1] != uid:
            return
        line = read_line(connection)
        if line is not None:
            connection.sendall(helper.answer(line).model_dump_json().encode() + b"\n")
