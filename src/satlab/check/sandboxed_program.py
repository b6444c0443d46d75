# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs under test, each in its own sandbox, and the files that they leave."""

import contextlib
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satlab.common import plain_files
from satlab.common.errors import HostError
from satlab.common.plain_files import RefusedError
from satlab.lab import sandbox
from satlab.lab.sandbox import Sandbox

STOP_S = 10.0
OUTPUT_TAIL_CHARACTERS = 300
LOG_END_BYTES = 16 << 10
LINES_BYTES = 64 << 20
"""Largest file of JSON lines, bytes; the rest is not read."""
KEPT_BYTES, KEPT_FILES, KEPT_DEPTH = 256 << 20, 1000, 8
"""Limits of the files of an endpoint that are kept: number, folders, depth."""
KEPT_ENTRIES = 10_000
"""Most entries of a folder; further ones are ignored."""
KEPT_FILE_BYTES = 16 << 20
"""Largest file of an endpoint that is kept, bytes. Larger files are the transferred payload."""


NOT_SUPPORTED = 127
"""Exit status of a program that does not support the request, as the QUIC interop runner's
endpoints have it.
"""
_TIME_LIMIT = "it did not end within"
"""The start of satbox's reason (crates/confine), also for a program that ignores SIGTERM."""
_MISSING = re.compile(r"[^|]*(?:: command not found|: not found|: No such file or directory)$")
"""The shell's last output when it did not find a program; it exits with the same status."""


SANDBOX_REMEDY = (
    "a sandbox needs root or user namespaces (sysctl user.max_user_namespaces=10000), in a"
    " container --privileged, and room in /tmp"
)
_UNBUILT = "the sandbox cannot be built"
"""Begins satbox's reason if no program was started."""
_UNCONFINED = re.compile(r"error: [^|]*: sandbox: [^|]*$")
"""satbox's last output if it could not confine the program before its start."""
UNCONFINED_STATUS = 126


class NotStartedError(Exception):
    """A program cannot be started."""


@dataclass(frozen=True)
class ExitReport:
    """How a program ended.

    `status` -N: signal N. `stop_reason`: why the sandbox ended it; empty if it ended itself.

    `waited_s` is the time in which the program was runnable but had no core, from samples of its
    threads' states.
    """

    status: int
    stop_reason: str
    cpu_s: float
    peak_bytes: int
    output_tail: str
    waited_s: float = 0.0
    sandbox_fault: str = ""
    """Why the sandbox could not be built: the host's fault, and no result of the program."""

    @property
    def is_refusal(self) -> bool:
        """Whether the program refused the request as unsupported. A shell that found no program
        does not count.
        """
        return self.status == NOT_SUPPORTED and not self.stop_reason and not self._missing

    @property
    def is_out_of_time(self) -> bool:
        """Whether the sandbox ended the program at its time limit."""
        return self.stop_reason.startswith(_TIME_LIMIT) and not self.stop_reason.endswith("SIGTERM")

    @property
    def _missing(self) -> str:
        found = _MISSING.search(self.output_tail)
        return found[0].strip() if found else ""

    @property
    def reason(self) -> str:
        """Why the program failed; empty after a success."""
        if self.sandbox_fault:
            return f"its sandbox did not start: {self.sandbox_fault}"
        if self.stop_reason:
            return self.stop_reason
        if self.status == NOT_SUPPORTED and self._missing:
            return f"a program is missing: {self._missing}"
        if self.status == 0:
            return ""
        status = f"status {self.status}" if self.status > 0 else f"signal {-self.status}"
        return f"it ended with {status}{': ' if self.output_tail else ''}{self.output_tail}"

    def of_program(self, side: str) -> "ExitReport":
        """Return this report if there was a program of this side.

        Raises:
            HostError: its sandbox could not be built.
        """
        if self.sandbox_fault:
            raise unbuilt(side, self.sandbox_fault)
        return self


def unbuilt(side: str, fault: str) -> HostError:
    """Return the error of a host that cannot build the sandbox of a side."""
    return HostError(f"the sandbox of the {side} cannot be built: {fault}", SANDBOX_REMEDY)


def sandbox_fault(used: sandbox.Usage | None, status: int, output_tail: str) -> str:
    """Return why a sandbox could not be built; empty if it was.

    `used`: satbox's report (None: none), `status` its exit status, `output_tail` the end of the
    log.
    """
    if used is None:
        return output_tail or f"satbox ended with status {status}" if status > 0 else ""
    if used.why.startswith(_UNBUILT):
        return used.why.removeprefix(_UNBUILT).lstrip(": ") or used.why
    found = _UNCONFINED.search(output_tail)
    return found[0] if used.status == UNCONFINED_STATUS and found else ""


class SandboxedProcess:
    """A program in its sandbox, while it runs and afterwards."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        log: Path,
        files: tuple[Path, Path, Path],
        held_by: socket.socket | None = None,
    ) -> None:
        self._process, self._log, self._files, self._held_by = process, log, files, held_by
        self._ended: ExitReport | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the program is held and its sandbox is not ready yet."""
        if self._held_by is None:
            return False
        try:
            self._held_by.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        return False

    def release(self) -> None:
        """Start a program that is held."""
        if self._held_by is not None:
            with contextlib.suppress(OSError):
                self._held_by.send(b"+")
            self._held_by.close()
            self._held_by = None

    def poll(self, wait_s: float = 0.0) -> ExitReport | None:
        """Return how the program ended; None if it still runs after `wait_s`."""
        if self._ended is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
                self._ended = self._read()
        return self._ended

    def stop(self) -> ExitReport:
        """Terminate the program, kill it if it does not end, and return how it ended."""
        if self.poll() is None:
            self._process.terminate()
            if self.poll(STOP_S) is None:
                self._process.kill()
        ended = self.poll(STOP_S)
        return ended or ExitReport(-9, "its sandbox does not end", 0.0, 0, "")

    def _read(self) -> ExitReport:
        self.release()  # closes the socket
        root, spec, report = self._files
        used = sandbox.read_report(report)
        report.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            root.rmdir()
            spec.unlink()
        lines = plain_files.end_of(self._log.parent, self._log.name, LOG_END_BYTES).split("\n")[-6:]
        output_tail = " | ".join(lines).strip(" |")[-OUTPUT_TAIL_CHARACTERS:]
        status = self._process.returncode
        fault = sandbox_fault(used, status, output_tail)
        if used is None:
            why = "" if fault else "its sandbox was killed"
            return ExitReport(status, why, 0.0, 0, output_tail, sandbox_fault=fault)
        return ExitReport(
            used.status, used.why, used.cpu_s, used.peak_bytes, output_tail, used.waited_s, fault
        )


def start(box: Sandbox, argv: Sequence[str], log: Path) -> SandboxedProcess:
    """Start a program in a sandbox; its output goes to `log`.

    While the program runs, three entries lie next to `log`: an empty folder (the mount point of its
    root), the sandbox's spec, and the report of its end. With `held` the program waits for
    `release`.

    Raises:
        NotStartedError: the host cannot grant its capabilities.
    """
    if why := sandbox.lacking(box.place, box.capabilities):
        raise NotStartedError(why)
    log = log.absolute().parent.resolve() / log.name
    root, spec, report = (log.with_suffix(suffix) for suffix in (".root", ".sandbox", ".report"))
    root.mkdir(exist_ok=True)  # the caller of an earlier one may have been killed
    report.unlink(missing_ok=True)
    ours, theirs = socket.socketpair() if box.held else (None, None)
    with log.open("wb") as output, theirs or contextlib.nullcontext():
        process = subprocess.Popen(
            [*box.argv(spec, root, report), *argv],
            env=sandbox.ENVIRONMENT,
            cwd=sandbox.HOME,
            stdin=theirs.fileno() if theirs else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    return SandboxedProcess(process, log, (root, spec, report), ours)


def read_json_lines(file: Path) -> list[dict[str, Any]]:
    """Read the complete lines of a file whose writer may have been killed; none if it is missing,
    or no plain file.

    satlab made the file's folder, in a place where no program can replace it.
    """
    lines = []
    for line in (
        plain_files.start_of(file.parent.resolve(), file.name, LINES_BYTES) or ""
    ).splitlines():
        try:
            lines.append(json.loads(line))
        except (ValueError, RecursionError):
            break
    return lines


def keep(theirs: Path, kept: Path) -> None:
    """Copy the files of a program that has ended, within bounds; only plain files are copied."""
    left, number = KEPT_BYTES, 0
    for found in plain_files.walk(theirs, KEPT_DEPTH, KEPT_FILES, KEPT_ENTRIES):
        if found.size > KEPT_FILE_BYTES:
            continue
        if number >= KEPT_FILES or found.size > left:  # a sparse file is copied whole
            return
        number, left = number + 1, left - found.size
        with (
            contextlib.suppress(OSError, RefusedError),
            plain_files.below(theirs, found.name, found.size) as file,
        ):
            target = kept / found.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as copy:
                shutil.copyfileobj(file, copy)
