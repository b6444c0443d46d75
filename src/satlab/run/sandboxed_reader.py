# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses a run's raw files in another process, with a deadline and bounded memory.

This process opens the files (`collect.reader.serve`), so the other one needs no right to the run
folder. Started by root it is in a sandbox without network, else it runs as the caller. A file that
ends its reader is left out with the reason, and the others are read anew.
"""

import logging
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import polars

import collect
from collect import raw, reader, run_records
from satlab.common import plain_files, processes, scratch
from satlab.common.errors import HostError
from satlab.lab import reader_sandbox, sandbox
from satlab.lab.sandbox import Limits

MODULE = "collect.reader"
MEMORY_BYTES = 384 << 20
FILE_S, RUN_S = 600.0, 1800.0
"""Longest time for one file (the link samples of a day), and for all files, s; later files are left
out.
"""
MOST_LEFT_OUT = 5
"""Largest number of files that may end their reader; after that no file of a job is read."""
TABLE_BYTES = 256 << 20
"""Largest table of records, which is part of the memory of a reader in a sandbox."""
END_S = 10.0
LOG_END_BYTES = 4096
THREADS = "2"
"""Of Polars, which makes one for each core otherwise. They cost memory."""
_POLL_MS = 100
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOG = logging.getLogger("satlab.sandboxed_reader")


def collected(folder: Path) -> collect.Collected:
    """Collect a run: write its records to records.parquet, and read the other stored data of its
    jobs.

    Raises HostError.
    """
    with _read(folder, "stored", "records") as out:
        table = _replace(out, folder)
        return collect.Collected(polars.scan_parquet(table), _stored(out))


def stored(folder: Path) -> collect.Stored:
    """Read the stored data of a run's jobs. Raises HostError."""
    if not run_records.stores_more(folder):
        return collect.Stored(loads=[], legs=[])
    with _read(folder, "stored") as out:
        return _stored(out)


def without_writing(folder: Path, *, is_own: bool = False) -> collect.Collected:
    """Collect a run; nothing is written.

    `is_own`: this satlab has run it, so its table is read if it has one. That of others may be a
    pipe, or kilobytes that become gigabytes. Raises HostError.
    """
    collect.manifest(folder)
    table = folder / run_records.TABLE
    if is_own and table.exists():
        return collect.Collected(polars.scan_parquet(table), stored(folder))
    with _read(folder, "stored", "records") as out:
        return collect.Collected(polars.read_parquet(out / run_records.TABLE), _stored(out))


def _stored(out: Path) -> collect.Stored:
    content = raw.read_json(out, reader.STORED, collect.Stored.model_validate_json)
    if isinstance(content, raw.Unreadable):
        _LOG.warning("page loads and legs are left out: %s", content.reason)
        return collect.Stored(loads=[], legs=[])
    return content


def _replace(out: Path, folder: Path) -> Path:
    """Put the reader's table into the run folder. Raises HostError if it is not one."""
    table = folder / run_records.TABLE
    new = table.with_name(f".{table.name}.{os.getpid()}")
    try:
        with raw.open_plain(out, run_records.TABLE, TABLE_BYTES) as file, new.open("xb") as copy:
            shutil.copyfileobj(file, copy)
        new.replace(table)
    except (raw.RefusedError, FileNotFoundError) as error:
        raise HostError(f"{folder}: its raw files were read, but: {error}") from error
    finally:
        new.unlink(missing_ok=True)
    return table


@contextmanager
def _read(folder: Path, *what: str) -> Iterator[Path]:
    """Let readers read; yield the folder with their output."""
    collect.manifest(folder)
    with scratch.folder("reading", 0o711) as place:
        left_out: dict[str, str] = {}
        end = time.monotonic() + RUN_S
        while True:
            one = _Reading(folder, place, left_out, end)
            fault = one.run(what)
            if not fault:
                break
            if not one.name or one.name in left_out:
                raise HostError(f"{folder}: its raw files cannot be read: {fault}")
            left_out[one.name] = fault
        yield one.out


@dataclass
class _Reading:
    """One reader.

    `name`: the file that it opened last, in the run folder; `fault`: why it was ended.
    """

    folder: Path
    place: Path
    left_out: dict[str, str]
    end: float
    name: str = ""
    fault: str = ""
    since: float = field(default_factory=time.monotonic)

    @property
    def out(self) -> Path:
        return self.place / f"out-{len(self.left_out)}"

    def run(self, what: tuple[str, ...]) -> str:
        """Start a reader and open files for it until it ends; return why it failed, "" if it did
        not.
        """
        self.out.mkdir(mode=0o700)
        log = self.place / "log"
        variables = reader_sandbox.variables(POLARS_MAX_THREADS=THREADS)
        limits = Limits(
            seconds=None,
            memory_bytes=MEMORY_BYTES,
            processes=64,
            disk_bytes=TABLE_BYTES,
            files=100,
            grace_s=0.0,
        )
        confined = reader_sandbox.confined(self.place, self.out, "reader", limits, variables)
        ours, theirs = socket.socketpair()
        with ours:
            ours.settimeout(END_S)
            with theirs, log.open("wb") as output:
                process = subprocess.Popen(
                    [*confined, sys.executable, "-m", MODULE, str(self.out), *what],
                    stdin=theirs.fileno(),
                    stdout=output,
                    stderr=output,
                    env=variables if os.geteuid() else sandbox.ENVIRONMENT,
                    cwd=sandbox.HOME,
                )
            try:
                self._serve(ours, process)
                processes.reap(process, END_S)
            finally:
                process.kill()
                process.wait()
        lines = plain_files.end_of(self.place, log.name, LOG_END_BYTES).strip().splitlines()
        return self.fault or (
            "" if process.returncode == 0 else f"its reader: {(lines or ['ended'])[-1][-200:]}"
        )

    def _serve(self, connection: socket.socket, process: "subprocess.Popen[bytes]") -> None:
        watched = select.poll()
        watched.register(connection, select.POLLIN)
        with suppress(OSError):  # the reader ended in the middle of a request
            while not self.fault:
                if watched.poll(_POLL_MS):
                    name = reader.serve(connection, self.folder, self._why_not)
                    if name is None:
                        return
                    self.name, self.since = name or self.name, time.monotonic()
                self.fault = self._exceeded(process.pid)

    def _exceeded(self, pid: int) -> str:
        if time.monotonic() - self.since > FILE_S:
            return f"its reader did not end within {FILE_S:g} s"
        if os.geteuid() != 0 and _resident_bytes(pid) > MEMORY_BYTES:
            return f"its reader took more than {MEMORY_BYTES >> 20} MiB of memory"
        return ""

    def _why_not(self, name: str) -> str:
        """Return why a file is left out; empty if it is read."""
        if name in self.left_out:
            return self.left_out[name]
        if not name.startswith("raw/"):
            return ""
        if time.monotonic() > self.end:
            return f"is left out: the run's files were not read within {RUN_S:g} s"
        is_many = len(self.left_out) >= MOST_LEFT_OUT and name.startswith("raw/files/")
        return (
            f"is left out: {len(self.left_out)} other files ended their reader" if is_many else ""
        )


def _resident_bytes(pid: int) -> int:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0
