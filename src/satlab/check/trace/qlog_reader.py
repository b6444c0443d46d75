# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads qlog files in another process, with a deadline and bounded memory.

This process opens the file and hands it over (`qlog_process`). Started by root, the other one is in
a sandbox without network and without files, else it runs as the caller.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from satlab.check.trace import qlog, qlog_process
from satlab.check.trace.qlog import QlogError, Side
from satlab.check.trace.qlog_process import Fault
from satlab.check.trace.qlog_transfer import QlogTransfer
from satlab.common import plain_files, scratch
from satlab.common.plain_files import RefusedError
from satlab.lab import reader_sandbox, sandbox
from satlab.lab.sandbox import Limits

MODULE = "satlab.check.trace.qlog_process"
MEMORY_BYTES = 512 << 20
FILE_S = 600.0
"""Longest time for a file, s. Its CPU time has a limit of its own."""
MAX_ANSWER_BYTES = 64 << 20
"""Largest answer. That of a transfer with the largest number of states and points has about 55 MiB.
"""
NICENESS = 10
"""Other labs may measure meanwhile."""
LOG_END_BYTES = 4096


def newest(folder: Path, side: Side, size: int) -> QlogTransfer:
    """Read the newest qlog file of `side` in a folder. A sender that has sent `size` bytes of
    streams has no more data.

    Raises:
        QlogError: there is no file, it cannot be used, or it is the other side's.
        HostError: the host cannot make a sandbox.
    """
    path = qlog.newest(folder)
    if path is None:
        raise QlogError("missing", "no file")
    with qlog.plain(path) as file, scratch.folder("qlog", 0o711) as place:
        out = place / "out"
        out.mkdir(mode=0o700)
        fault = _run(place, out, file, side, size)
        try:
            with plain_files.below(out, qlog_process.ANSWER_FILE, MAX_ANSWER_BYTES) as answer:
                found = qlog_process.ANSWER.validate_json(answer.read(MAX_ANSWER_BYTES)).found
        except (OSError, RefusedError, ValidationError) as error:
            reason = fault or "it wrote no answer"
            raise QlogError("broken", f"the process that read it failed: {reason}") from error
    if isinstance(found, Fault):
        raise QlogError(found.kind, found.reason)
    return found


def _run(place: Path, out: Path, file: BinaryIO, side: Side, size: int) -> str:
    """Let a process read a file and write its answer to `out`; return its last words.

    Raises QlogError.
    """
    reader = [sys.executable, "-m", MODULE, str(out), side, str(size)]
    log, variables = place / "log", reader_sandbox.variables()
    limits = Limits(
        seconds=None,
        memory_bytes=MEMORY_BYTES,
        processes=16,
        disk_bytes=MAX_ANSWER_BYTES,
        files=10,
        grace_s=0.0,
    )
    confined = reader_sandbox.confined(place, out, "qlog-reader", limits, variables)
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["nice", "-n", str(NICENESS), *confined, *reader],
            stdin=file.fileno(),
            stdout=output,
            stderr=output,
            env=variables if os.geteuid() else sandbox.ENVIRONMENT,
            cwd=sandbox.HOME,
            start_new_session=True,  # SIGINT of a terminal is for the run that waits
        )
    try:
        process.wait(FILE_S)
    except subprocess.TimeoutExpired as error:
        raise QlogError("too large", f"it was not read within {FILE_S:g} s") from error
    finally:
        process.kill()
        process.wait()
    words = plain_files.end_of(place, log.name, LOG_END_BYTES).strip().splitlines()
    return words[-1][-200:] if words else ""
