# SPDX-License-Identifier: GPL-3.0-or-later
"""The root helper: answers the API process on a Unix socket, and runs one scenario at a time.

It answers only the user of the API process (SO_PEERCRED). Before it answers, it removes what a
killed helper has left.
"""

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from satlab.common import paths, scratch
from satlab.lab import lab_owners
from satlab.service.root_helper.protocol import (
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
"""Longest pause of a peer within a request or an answer, s."""
MAX_PROGRESS = 2 << 20
"""Largest progress document that the API gets, bytes; a larger one is left out."""
_LOG = logging.getLogger("satlab.service.root_helper")
_PROGRESS = TypeAdapter(dict[str, Any])
_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid


@dataclass
class HelperRun:
    run_id: str
    process: subprocess.Popen[bytes]
    stop_requested: bool = False


class Helper:
    """Executes requests.

    `most_runs`: number of run folders that are kept; the oldest are removed first.
    """

    def __init__(self, state: Path, most_runs: int, worker: tuple[str, ...] = ()) -> None:
        """Create the folders and remove what an earlier helper has left."""
        self._state, self._most_runs = state, most_runs
        self._worker = worker or (sys.executable, "-m", "satlab.service.root_helper.run_process")
        self._run: HelperRun | None = None
        for name in ("runs", "progress", "logs"):
            (state / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        self._scratch = state / "scratch"
        self._make_scratch()
        lab_owners.sweep()

    def answer(self, line: bytes) -> Response:
        """Execute one request. No failure ends the helper: it is the answer's `error`."""
        try:
            match read_request(line):
                case StartRequest(run_id=run_id, order=request):
                    self.start(run_id, request)
                case StopRequest(run_id=run_id):
                    self.stop(run_id)
                case StatusRequest(run_id=run_id):
                    return Response(status=self.status(run_id))
        except RefusedError as error:
            return Response(error=str(error))
        except Exception as error:  # noqa: BLE001 - without the helper nothing runs, whatever failed
            _LOG.exception("a request failed")
            return Response(error=f"the root helper failed: {error}"[:1000])
        return Response()

    def start(self, run_id: str, request: ScenarioRequest) -> None:
        """Start a run.

        Raises RefusedError while another one runs, and for the id of an earlier run; OSError.
        """
        if self._run is not None and self._run.process.poll() is None:
            raise RefusedError("another run is active")
        if (self._state / "runs" / run_id).exists() or self._file(run_id).exists():
            raise RefusedError(f"there was a run {run_id} before")
        self._prune()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
        argv = [
            "setpriv",
            "--pdeathsig=KILL",
            *self._worker,
            str(self._state),
            run_id,
            str(os.getpid()),
        ]
        with (self._state / "logs" / f"{run_id}.log").open("wb") as log:
            os.fchmod(log.fileno(), 0o644)  # the API shows it
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
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(request.model_dump_json().encode())

    def stop(self, run_id: str) -> None:
        """Send SIGTERM to a run, once: a second signal would interrupt its clean-up."""
        run = self._run
        if (
            run is not None
            and run.run_id == run_id
            and not run.stop_requested
            and run.process.poll() is None
        ):
            run.stop_requested = True
            run.process.send_signal(signal.SIGTERM)

    def status(self, run_id: str) -> RunStatus:
        """Return the status of a run.

        One of an earlier helper has ended, with an unknown exit status.
        """
        run = self._run if self._run is not None and self._run.run_id == run_id else None
        code = run.process.poll() if run else None
        progress = self._progress(run_id)
        if run is not None and code is None:
            return RunStatus(phase="running", progress=progress)
        if run is not None:
            lab_owners.sweep()  # of a worker that was killed
        return RunStatus(
            phase="ended",
            exit_status=code if code is not None and code >= 0 else None,
            progress=progress,
        )

    def _progress(self, run_id: str) -> dict[str, Any] | None:
        """Return the progress document of a run; None if it is missing or too large."""
        try:
            with self._file(run_id).open("rb") as file:
                data = file.read(MAX_PROGRESS + 1)
            if len(data) > MAX_PROGRESS:
                _LOG.warning("%s: the progress has more than %s bytes", run_id, MAX_PROGRESS)
                return None
            return _PROGRESS.validate_json(data)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _LOG.warning("%s: the progress cannot be read: %s", run_id, error)
            return None

    def close(self, seconds: float = 20.0) -> None:
        """Stop the active run, and remove its remains."""
        if self._run is not None:
            self.stop(self._run.run_id)
            try:
                self._run.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._run.process.kill()
                self._run.process.wait()
        lab_owners.sweep()
        scratch.try_remove(self._scratch)

    def _make_scratch(self) -> None:
        """Create the folder of temporary files.

        An earlier one that cannot be removed is renamed.
        """
        for left in sorted(self._state.glob("scratch*")):  # also those that were renamed
            scratch.try_remove(left)
        if os.path.lexists(self._scratch):
            aside = self._scratch.with_name(f"scratch-{secrets.token_hex(4)}")
            self._scratch.rename(aside)
            _LOG.warning("%s: is renamed to %s", self._scratch, aside)
        self._scratch.mkdir(mode=0o711)

    def _file(self, run_id: str) -> Path:
        return self._state / "progress" / f"{run_id}.json"

    def _prune(self) -> None:
        """Remove the oldest runs to make room for one more; ids begin with the date.

        All together take at most half of their file system.
        """
        runs = self._state / "runs"
        folders = sorted(runs.iterdir())
        sizes = [_bytes_below(folder) for folder in folders]
        most_bytes = shutil.disk_usage(runs).total // 2
        count = max(0, len(folders) - self._most_runs + 1)
        while sum(sizes[count:]) > most_bytes:
            count += 1
        for folder in folders[:count]:
            scratch.try_remove(folder)
            for file in (self._file(folder.name), self._state / "logs" / f"{folder.name}.log"):
                file.unlink(missing_ok=True)


def _bytes_below(folder: Path) -> int:
    """Return what a folder takes on the disk, bytes."""
    total, waiting = 0, [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                total += 512 * entry.stat(follow_symlinks=False).st_blocks
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return total


def listen(path: Path, uid: int) -> socket.socket:
    """Create the socket, to which only the user of the API process may connect."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.bind(str(path))
    path.chmod(0o600)
    os.chown(path, uid, uid)
    listener.listen(4)
    return listener


def serve_one(listener: socket.socket, helper: Helper, uid: int) -> None:
    """Accept one connection, answer one request, and close it.

    A slow or wrong peer gets no answer.
    """
    with contextlib.suppress(OSError), listener.accept()[0] as connection:
        connection.settimeout(SEND_S)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(raw)[1] != uid:
            return
        line = read_line(connection)
        if line is not None:
            connection.sendall(helper.answer(line).model_dump_json().encode() + b"\n")
